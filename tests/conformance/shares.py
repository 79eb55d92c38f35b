"""Share consumers, spoken for over a socket: what the tests of ShareFetch and ShareAcknowledge have in common.

A `ShareMember` is a member of a share group as the leader of a partition knows it: an id and the epoch of its session. It need
not be in the group; only `InitializeShareGroupState` must have made the share partition, which `share_group` does.
"""

import base64
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ottla.protocol.errors import name_of
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
)
from ottla.protocol.messages.initialize_share_group_state import PartitionData as InitialState
from ottla.protocol.messages.read_share_group_state_summary import PartitionData as WantedSummary
from ottla.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadStateSummaryData,
)
from ottla.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from ottla.protocol.messages.share_fetch import AcknowledgementBatch as PiggybackedBatch
from ottla.protocol.messages.share_fetch import FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest
from ottla.records.batch import records_of

from .conftest import Topic, Wire

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
GROUP_RESOURCE = 32
_SHARE = 2
"""Of the types of keys that FindCoordinator knows."""
Acked = tuple[int, int, int] | tuple[int, int, list[int]]
"""First offset, last offset, and the type of all or of each."""
Acquired = tuple[int, int, int]
"""First offset, last offset, delivery count."""


class Fetched(NamedTuple):
    """The result of a ShareFetch for one partition."""

    error: str
    message: str | None
    acknowledged: str
    acknowledge_message: str | None
    acquired: list[Acquired]
    offsets: list[int]
    """Of the records that came, acquired or not."""
    values: dict[int, bytes | None]

    @property
    def delivered(self) -> list[int]:
        """The offsets of records that are the member's."""
        return [at for at in self.offsets if any(first <= at <= last for first, last, _ in self.acquired)]


class ShareMember:
    """One session. `epoch` is the one that its next request has."""

    def __init__(self, wire: Wire, group_id: str, member_id: str = "", version: int = 2) -> None:
        self.wire = wire
        self.group_id = group_id
        self.member_id = member_id or uuid.uuid4().hex[:22]
        self.version = version
        self.epoch = 0

    def ask_fetch(self, *topics: FetchTopic, **fields: Any) -> Any:
        """Send a ShareFetch and return the whole answer; the epoch goes on when there is no error."""
        body: dict[str, Any] = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "share_session_epoch": self.epoch,
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": list(topics),
        }
        answer = self.wire.send(ShareFetchRequest(**(body | fields)), self.version)
        if answer.error_code == 0:
            self.epoch += 1
        return answer

    def fetch(
        self,
        topic: Topic,
        *partitions: int,
        acks: dict[int, Sequence[Acked]] | None = None,
        forget: Sequence[int] = (),
        **fields: Any,
    ) -> dict[int, Fetched]:
        """ShareFetch of partitions of a topic (0 unless said otherwise) when the session is new, of nothing more when it goes
        on: what it told of each partition. `acks` go with it.
        """
        indexes = list(partitions or (() if self.epoch > 0 else (0,)))
        acks = acks or {}
        listed = [
            FetchPartition(
                partition_index=index, acknowledgement_batches=_batches(PiggybackedBatch, acks.get(index, ()))
            )
            for index in dict.fromkeys([*indexes, *acks])
        ]
        if forget:
            fields["forgotten_topics_data"] = [ForgottenTopic(topic_id=topic.id, partitions=list(forget))]
        answer = self.ask_fetch(*([FetchTopic(topic_id=topic.id, partitions=listed)] if listed else []), **fields)
        assert answer.error_code == 0, (name_of(answer.error_code), answer.error_message)
        return found_in(answer)

    def take(self, topic: Topic, count: int, partition: int = 0, **fields: Any) -> list[Acquired]:
        """Fetch until `count` records of a partition are acquired."""
        taken: list[Acquired] = []
        deadline = time.monotonic() + 20
        while sum(last - first + 1 for first, last, _ in taken) < count:
            assert time.monotonic() < deadline, taken
            partitions = self.fetch(topic, partition, **({"max_wait_ms": 500, "min_bytes": 1} | fields))
            if partition in partitions:
                assert partitions[partition].error == "NONE", partitions
                taken += partitions[partition].acquired
        return taken

    def ask_acknowledge(self, *topics: AcknowledgeTopic, **fields: Any) -> Any:
        """Send a ShareAcknowledge and return the whole answer."""
        body: dict[str, Any] = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "share_session_epoch": self.epoch,
            "topics": list(topics),
        }
        answer = self.wire.send(ShareAcknowledgeRequest(**(body | fields)), self.version)
        if answer.error_code == 0:
            self.epoch += 1
        return answer

    def acknowledge(self, topic: Topic, *acks: Acked, partition: int = 0, **fields: Any) -> str:
        """ShareAcknowledge of one partition: the error's name."""
        return self.acknowledged(topic, *acks, partition=partition, **fields)[0]

    def acknowledged(self, topic: Topic, *acks: Acked, partition: int = 0, **fields: Any) -> tuple[str, str | None]:
        """ShareAcknowledge of one partition: the error's name and its message."""
        row = AcknowledgePartition(
            partition_index=partition, acknowledgement_batches=_batches(AcknowledgementBatch, acks)
        )
        answer = self.ask_acknowledge(AcknowledgeTopic(topic_id=topic.id, partitions=[row]), **fields)
        assert answer.error_code == 0, (name_of(answer.error_code), answer.error_message)
        ((result,),) = (response.partitions for response in answer.responses)
        assert result.partition_index == partition
        return name_of(result.error_code), result.error_message

    def leave(self) -> str:
        """The final epoch: the session is over."""
        answer = self.ask_acknowledge(share_session_epoch=-1)
        self.epoch = 0
        return name_of(answer.error_code)


def _batches(kind: Callable[..., Any], acks: Iterable[Acked]) -> list[Any]:
    return [
        kind(first_offset=first, last_offset=last, acknowledge_types=[types] if isinstance(types, int) else list(types))
        for first, last, types in acks
    ]


def found_in(answer: Any) -> dict[int, Fetched]:
    """The partitions of an answer that speaks of one topic at most."""
    assert len(answer.responses) <= 1
    partitions = {}
    for topic in answer.responses:
        for partition in topic.partitions:
            records = records_of(partition.records) if partition.records else []
            partitions[partition.partition_index] = Fetched(
                name_of(partition.error_code),
                partition.error_message,
                name_of(partition.acknowledge_error_code),
                partition.acknowledge_error_message,
                [(one.first_offset, one.last_offset, one.delivery_count) for one in partition.acquired_records],
                [record.offset for record in records],
                {record.offset: record.value for record in records},
            )
    return partitions


def ranges(acquired: Iterable[Acquired]) -> list[Acquired]:
    """The same with neighbours of one delivery count put together: Apache Kafka names each offset of a batch that was split."""
    joined: list[Acquired] = []
    for first, last, count in sorted(acquired):
        if joined and joined[-1][1] == first - 1 and joined[-1][2] == count:
            joined[-1] = joined[-1][0], last, count
        else:
            joined.append((first, last, count))
    return joined


def initialize(wire: Wire, group_id: str, topic: Topic, *partitions: int, start: int = 0, state_epoch: int = 0) -> None:
    """InitializeShareGroupState, once the coordinator is there: asking for it makes its topic."""
    topic_id = base64.urlsafe_b64encode(topic.id).decode().rstrip("=")
    keys = [f"{group_id}:{topic_id}:{index}" for index in partitions or (0,)]
    wire.send(FindCoordinatorRequest(key_type=_SHARE, coordinator_keys=keys), 6)
    states = [
        InitialState(partition=index, state_epoch=state_epoch, start_offset=start) for index in partitions or (0,)
    ]
    request = InitializeShareGroupStateRequest(
        group_id=group_id, topics=[InitializeStateData(topic_id=topic.id, partitions=states)]
    )
    deadline = time.monotonic() + 30
    while True:
        answer = wire.send(request, 0)
        codes = {name_of(row.error_code) for result in answer.results for row in result.partitions}
        if codes == {"NONE"}:
            return
        assert all("COORDINATOR" in name or name == "UNKNOWN_TOPIC_OR_PARTITION" for name in codes), codes
        assert time.monotonic() < deadline, codes
        time.sleep(0.02)  # Apache Kafka makes topics on the side, and tells nobody when it knows them


class Summary(NamedTuple):
    """The state of one share partition according to the share coordinator."""

    error: str
    state_epoch: int
    start_offset: int
    delivery_complete_count: int


def summary(wire: Wire, group_id: str, topic: Topic, partition: int = 0) -> Summary:
    """ReadShareGroupStateSummary."""
    row = ReadStateSummaryData(topic_id=topic.id, partitions=[WantedSummary(partition=partition, leader_epoch=0)])
    answer = wire.send(ReadShareGroupStateSummaryRequest(group_id=group_id, topics=[row]), 1)
    ((state,),) = (result.partitions for result in answer.results)
    return Summary(name_of(state.error_code), state.state_epoch, state.start_offset, state.delivery_complete_count)


def configure(wire: Wire, group_id: str, **configs: str) -> None:
    """Set configs of a group; `_` stands for `.`."""
    listed = [
        AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value) for name, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group_id, configs=listed)
    (answer,) = wire.send(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer.error_message


def group_name() -> str:
    """A group of this test alone."""
    return f"s-{uuid.uuid4().hex[:12]}"


__all__ = [
    "ACCEPT",
    "GAP",
    "REJECT",
    "RELEASE",
    "RENEW",
    "Fetched",
    "ShareMember",
    "configure",
    "found_in",
    "group_name",
    "initialize",
    "ranges",
    "summary",
]
