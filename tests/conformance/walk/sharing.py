"""Share sessions of a walk: the epochs of their next requests, and the records that their members have acquired."""

import itertools
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.protocol.messages import share_acknowledge, share_fetch
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

from .draft import Draft
from .identities import STRANGERS, Alias, Identities
from .side import Side

MEMBERS: Final = ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg")
_FIRST_MEMBER: Final = "AAAAAAAAAAAAAAAAAAAAAw"
_GROUP: Final = 32
_CONFIGS: Final = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "60000"}
_UNTIL_INITIALIZED_S: Final = 0.5
_FINAL_EPOCH: Final = -1
_GAP, _ACCEPT, _RELEASE, _REJECT, _RENEW = range(5)
_TYPES: Final = (_ACCEPT, _ACCEPT, _RELEASE, _REJECT, _GAP, _RENEW)
_WAIT_MS: Final = 300
"""Until a leader has the state of a share partition."""
Session = tuple[str, Any]
"""Group id and member id."""
Place = tuple[Any, int]
"""Topic id, an alias, and partition."""


def initialize(
    sides: Sequence[Side], node_id: int, groups: Sequence[str], topics: Sequence[str], identities: Identities
) -> None:
    """Let a member join each group, which initializes the state of its share partitions, and let the leaders load that."""
    configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in _CONFIGS.items()]
    partitions = [share_fetch.FetchPartition(partition_index=index) for index in range(2)]
    for at, side in enumerate(sides):
        ids = [identities.value(Alias("topic", number), at) for number in range(identities.count("topic"))]
        fetched = [share_fetch.FetchTopic(topic_id=topic_id, partitions=partitions) for topic_id in ids]
        for group_id in groups:
            resource = AlterConfigsResource(resource_type=_GROUP, resource_name=group_id, configs=configs)
            side.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
            beat = ShareGroupHeartbeatRequest(
                group_id=group_id, member_id=_FIRST_MEMBER, subscribed_topic_names=list(topics)
            )
            side.ask(beat, 1, node_id)
        time.sleep(_UNTIL_INITIALIZED_S)
        for group_id, leader in itertools.product(groups, side.addresses):
            for epoch in (0, _FINAL_EPOCH):
                request = share_fetch.ShareFetchRequest(
                    group_id=group_id,
                    member_id=_FIRST_MEMBER,
                    share_session_epoch=epoch,
                    max_wait_ms=_WAIT_MS,
                    min_bytes=1,
                    max_records=1,
                    batch_size=1,
                    topics=fetched if epoch == 0 else [],
                )
                side.ask(request, 1, leader)


class Sharing:
    """The sessions and acquired records that the members of share groups know."""

    def __init__(self, rng: random.Random, identities: Identities) -> None:
        self._rng = rng
        self._identities = identities
        self._epochs: dict[Session, int] = {}
        self._places: dict[Session, set[Place]] = {}
        self._acquired: dict[Session, dict[Place, list[tuple[int, int]]]] = {}

    def correct_fetch(self, fields: dict[str, Any], version: int) -> None:
        """Make a ShareFetch valid most of the time."""
        session = self._correct(fields)
        fields["max_wait_ms"] = _WAIT_MS
        fields["min_bytes"] = 1
        fields["max_bytes"] = 1 << 20
        if version >= 1:
            fields["batch_size"] = self._rng.choice((500, 500, 1, 2))
        if fields["share_session_epoch"] not in (0, _FINAL_EPOCH) and self._rng.random() < 0.5:
            fields["topics"] = []
        if self._rng.random() < 0.8:
            fields["forgotten_topics_data"] = []
        # Apache Kafka fetches what is released before that is written, or does not.
        batches = self._batches(session, share_fetch.AcknowledgementBatch, (_ACCEPT, _REJECT, _GAP, _RENEW))
        for topic in fields["topics"]:
            for partition in topic.fields["partitions"]:
                place = topic.fields["topic_id"], partition.fields["partition_index"]
                partition.fields["acknowledgement_batches"] = batches.pop(place, [])
        if version >= 1:
            # Of several partitions, Apache Kafka serves them in an order of its own.
            several = len(self._places_after(session, fields)) > 1
            fields["max_records"] = 500 if several else self._rng.choice((500, 1, 2))
        if fields["share_session_epoch"] == 0 and self._rng.random() < 0.9:
            for topic in fields["topics"]:
                for partition in topic.fields["partitions"]:
                    partition.fields["acknowledgement_batches"] = []
        self._say_if_renewed(fields, version)

    def correct_acknowledge(self, fields: dict[str, Any], version: int) -> None:
        """Make a ShareAcknowledge valid most of the time."""
        session = self._correct(fields)
        if self._rng.random() < 0.9:
            fields["topics"] = [
                Draft(
                    share_acknowledge.AcknowledgeTopic,
                    {
                        "topic_id": topic_id,
                        "partitions": [
                            Draft(
                                share_acknowledge.AcknowledgePartition,
                                {"partition_index": index, "acknowledgement_batches": batches},
                            )
                        ],
                    },
                )
                for (topic_id, index), batches in self._batches(session, share_acknowledge.AcknowledgementBatch).items()
            ]
        else:
            self._correct_batches(fields["topics"])
        self._say_if_renewed(fields, version)

    def _correct_batches(self, topics: Sequence[Draft]) -> None:
        """Acknowledge nothing, or single records: Apache Kafka fails with UNKNOWN_SERVER_ERROR for a range over the start."""
        is_empty = self._rng.random() < 0.5
        for topic in topics:
            for partition in topic.fields["partitions"]:
                batches = partition.fields["acknowledgement_batches"]
                for batch in batches:
                    batch.fields["last_offset"] = min(batch.fields["first_offset"], batch.fields["last_offset"])
                partition.fields["acknowledgement_batches"] = [] if is_empty else batches

    def _places_after(self, session: Session, fields: Mapping[str, Any]) -> set[Place]:
        """Return the partitions of a session after a request, if that is accepted."""
        named = {
            (topic.fields["topic_id"], partition.fields["partition_index"])
            for topic in fields["topics"]
            for partition in topic.fields["partitions"]
        }
        if fields["share_session_epoch"] == 0:
            return named
        forgotten = {
            (topic.fields["topic_id"], index)
            for topic in fields["forgotten_topics_data"]
            for index in topic.fields["partitions"]
        }
        return (self._places.get(session, set()) | named) - forgotten

    def _correct(self, fields: dict[str, Any]) -> Session:
        rng = self._rng
        fields["member_id"] = STRANGERS[1] if rng.random() < 0.03 else rng.choice(MEMBERS)
        session = fields["group_id"], fields["member_id"]
        if rng.random() < 0.92:
            fields["share_session_epoch"] = self._epochs.get(session, 0)
            if rng.random() < 0.04:
                fields["share_session_epoch"] = _FINAL_EPOCH
        return session

    def _batches(self, session: Session, kind: type[Any], types: Sequence[int] = _TYPES) -> dict[Place, list[Draft]]:
        """Draw acknowledgements of what a member has."""
        rng = self._rng
        drawn: dict[Place, list[Draft]] = {}
        for place, ranges in self._acquired.get(session, {}).items():
            if rng.random() < 0.3:
                continue
            chosen = sorted(rng.sample(ranges, min(len(ranges), rng.choice((1, 1, 2, 9)))))
            batches = []
            for first, last in chosen:
                if rng.random() < 0.2:
                    last = first
                if rng.random() < 0.03:
                    first = last = last + 1
                count = last - first + 1 if rng.random() < 0.2 else 1
                drawn_types = [rng.choice(types) for _ in range(count)]
                if rng.random() < 0.9:
                    drawn_types = [
                        _ACCEPT if acknowledge_type == _RENEW else acknowledge_type for acknowledge_type in drawn_types
                    ]
                batches.append(
                    Draft(kind, {"first_offset": first, "last_offset": last, "acknowledge_types": drawn_types})
                )
            if batches:
                drawn[place] = batches
        return drawn

    def _say_if_renewed(self, fields: dict[str, Any], version: int) -> None:
        if version < 2:
            return
        types = {
            acknowledge_type
            for topic in fields["topics"]
            for partition in topic.fields["partitions"]
            for batch in partition.fields["acknowledgement_batches"]
            for acknowledge_type in batch.fields["acknowledge_types"]
        }
        fields["is_renew_ack"] = (_RENEW in types) != (self._rng.random() < 0.03)
        if fields["is_renew_ack"] and "max_records" in fields and self._rng.random() < 0.9:
            fields.update(max_records=0, batch_size=0, max_bytes=0, min_bytes=0, max_wait_ms=0)

    def learn(self, fields: Mapping[str, Any], answer: Any) -> None:
        """Learn from the answer of the first broker."""
        session = fields["group_id"], fields["member_id"]
        if not isinstance(answer, dict):
            self._epochs.clear()
            self._acquired.clear()
            return
        if answer["error_code"]:
            return
        epoch = fields["share_session_epoch"]
        if epoch == _FINAL_EPOCH:
            self._epochs.pop(session, None)
            self._acquired.pop(session, None)
            return
        self._epochs[session] = epoch + 1
        if "forgotten_topics_data" in fields:
            self._places[session] = self._places_after(session, fields)
        acquired = self._acquired.setdefault(session, {})
        self._forget_acknowledged(fields["topics"], acquired)
        for topic in answer["responses"]:
            alias = self._identities.alias("topic_id", topic["topic_id"], 0)
            for row in topic["partitions"]:
                for batch in row.get("acquired_records", ()):
                    ranges = acquired.setdefault((alias, row["partition_index"]), [])
                    ranges.append((batch["first_offset"], batch["last_offset"]))

    def _forget_acknowledged(self, topics: Sequence[Draft], acquired: dict[Place, list[tuple[int, int]]]) -> None:
        for topic in topics:
            for partition in topic.fields["partitions"]:
                ranges = acquired.get((topic.fields["topic_id"], partition.fields["partition_index"]), [])
                for batch in partition.fields["acknowledgement_batches"]:
                    if self._rng.random() < 0.05:
                        continue
                    first, last = batch.fields["first_offset"], batch.fields["last_offset"]
                    left = []
                    for one, other in ranges:
                        left += [(one, min(other, first - 1)), (max(one, last + 1), other)]
                    ranges[:] = [(one, other) for one, other in left if one <= other]
