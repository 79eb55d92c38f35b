"""Offsets by timestamp (ListOffsets): the ends of partitions, and the first record at or after a timestamp."""

from collections.abc import Mapping
from typing import Final

from ottla.client.core import Core
from ottla.client.errors import KafkaError, Permission, UnsupportedVersion, error_for
from ottla.client.topics import FoundOffset, TopicPartition
from ottla.protocol.errors import NONE, UNSUPPORTED_VERSION
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.releases import needs

_FIRST_WITH_TIMES: Final = 1
"""First version of ListOffsets that finds records by time. Version 0 finds segments, of which a time leaves out the newest."""
_FIRST_WITH_SPECIAL: Final = {-3: 7, -4: 8, -5: 9, -6: 11}
"""First versions by special timestamp (KIP-734, KIP-405, KIP-1005, KIP-1023); older brokers take one for a time."""


async def list_offsets(
    core: Core,
    targets: Mapping[TopicPartition, int],
    *,
    committed: bool | None = None,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, FoundOffset]:
    """Return offsets by timestamp: EARLIEST, LATEST, another special value of the protocol, or ms since the epoch.

    committed  True: LATEST is the last stable offset; by default as isolation.level says

    Raises the first error that is not retriable: UnknownTopic, NotAuthorized, UnsupportedVersion; RequestTimedOut.
    """
    lookup = Lookup(core, targets, core.config.read_committed if committed is None else committed)
    await core.metadata.retrying("list offsets", lookup.attempt, timeout_ms)
    for error in lookup.errors.values():
        raise error
    return lookup.offsets


class Lookup:
    """Lookup of offsets, repeated for the partitions without a result.

    offsets  as the leaders returned them
    errors   errors of partitions whose lookup failed for good
    """

    def __init__(self, core: Core, targets: Mapping[TopicPartition, int], committed: bool) -> None:
        self.offsets: dict[TopicPartition, FoundOffset] = {}
        self.errors: dict[TopicPartition, KafkaError] = {}
        self._core = core
        self._left = dict(targets)
        self._committed = committed

    async def attempt(self) -> None:
        """Query the leaders of the remaining partitions. Raises the last retriable error."""
        groups: dict[int, list[TopicPartition]] = {}
        for partition in list(self._left):
            try:
                groups.setdefault(await self._core.metadata.leader(partition), []).append(partition)
            except KafkaError as error:
                if error.retriable:
                    raise
                self._settle(partition, error)
        failures = await self._core.scheduler.every([self._ask(node, parts) for node, parts in groups.items()])
        for failure in failures:
            if failure is not None:
                raise failure

    def _settle(self, partition: TopicPartition, error: KafkaError) -> None:
        self.errors[partition] = error
        self._left.pop(partition, None)

    async def _ask(self, node: int, partitions: list[TopicPartition]) -> KafkaError | None:
        metadata = self._core.metadata
        try:
            link = await metadata.network.ready(node)
            version = link.version(ListOffsetsRequest)
            topics: dict[str, ListOffsetsTopic] = {}
            for part in partitions:
                least = _first_version(self._left[part])
                if version < least:
                    looked_up = f"list offsets of {part} by timestamp {self._left[part]}"
                    reason = f"{looked_up}: {link} is too old{needs(ListOffsetsRequest.API, least)}"
                    self._settle(part, UnsupportedVersion(reason, UNSUPPORTED_VERSION))
                    continue
                topic = topics.setdefault(part.topic, ListOffsetsTopic(name=part.topic))
                topic.partitions.append(
                    ListOffsetsPartition(partition_index=part.partition, timestamp=self._left[part])
                )
            if not topics:
                return None
            request = ListOffsetsRequest(
                replica_id=-1, topics=list(topics.values()), timeout_ms=self._core.config["request.timeout.ms"]
            )
            if version >= 2:
                request.isolation_level = int(self._committed)
            answer = await link.request(request, version)
        except KafkaError as error:
            if error.retriable:
                return error
            for part in partitions:
                self._settle(part, error)
            return None
        again: KafkaError | None = None
        for topic_answer in answer.topics:
            for row in topic_answer.partitions:
                part = TopicPartition(topic_answer.name, row.partition_index)
                if row.error_code == NONE:
                    offset = row.old_style_offsets[0] if version == 0 and row.old_style_offsets else row.offset
                    self.offsets[part] = FoundOffset(offset, row.timestamp, row.leader_epoch)
                    self._left.pop(part, None)
                    continue
                permission = Permission(metadata.operation, "topic", (part.topic,))
                refused = error_for(row.error_code, f"list offsets of {part}", None, permission)
                if refused.retriable:
                    metadata.forget(part.topic)
                    again = refused
                else:
                    self._settle(part, refused)
        return again


def _first_version(timestamp: int) -> int:
    """Return the first version of ListOffsets that knows a timestamp."""
    return _FIRST_WITH_TIMES if timestamp >= 0 else _FIRST_WITH_SPECIAL.get(timestamp, 0)
