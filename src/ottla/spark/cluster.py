"""A cluster as a query sees it: topics, offsets, ranges of records, committed offsets; every call blocks.

One of these serves all that a Python process of Spark's reads with the same config; the client's core does the work, on the
thread that all clients of the process share.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.client.config import ClientConfig
from ottla.client.consumer.chunks import Chunk
from ottla.client.consumer.commits import Commits
from ottla.client.consumer.ranges import RangeReading, bytes_per_offset, wait_for_records
from ottla.client.core import Core
from ottla.client.errors import UnknownTopic
from ottla.client.groups import GroupMetadata, OffsetAndMetadata
from ottla.client.offsets import list_offsets
from ottla.client.topics import FoundOffset, TopicInfo, TopicPartition
from ottla.client.waiting import Blocking
from ottla.environment import Clock
from ottla.protocol.errors import INVALID_PARTITIONS, TOPIC_ALREADY_EXISTS
from ottla.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from ottla.client.admin.share_groups import ShareGroupOffset


class ClusterClient(Blocking):
    """One cluster seen through one config."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config, {})

    @property
    def clock(self) -> Clock:
        """The time."""
        return self._core.clock

    def forget(self) -> None:
        """Drop the cached metadata of all topics."""
        self._call(self._core.metadata.forget)

    def pause(self, milliseconds: int) -> None:
        """Wait."""
        self._run(self._core.scheduler.sleep(milliseconds))

    # -- topics --

    def topic_names(self) -> list[str]:
        """Every topic of the cluster but Kafka's own, sorted. Raises BrokersUnreachable."""
        return sorted(info.name for info in self._run(self._core.metadata.all_topics()) if not info.internal)

    def topic(self, name: str, *, create: bool = False, timeout_ms: int | None = None) -> TopicInfo:
        """A topic; `create` lets the broker make it (auto.create.topics.enable). Raises UnknownTopic."""
        return self._run(self._core.metadata.topic(name, create=create, timeout_ms=timeout_ms))

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic, in order. Raises UnknownTopic."""
        return self._run(self._core.metadata.partitions(topic))

    def creates_topics(self) -> bool:
        """Return whether brokers create topics that are written to (auto.create.topics.enable). Raises KafkaError."""
        from ottla.client.admin.cluster import ClusterRequests
        from ottla.client.admin.configs import ConfigResource, Configs, ResourceType

        node = self._run(ClusterRequests(self._core).describe_cluster()).nodes[0].id
        resource = ConfigResource(ResourceType.BROKER, str(node))
        entries = self._run(Configs(self._core).describe_configs([resource])).check()[resource]
        return entries["auto.create.topics.enable"].value == "true"

    # -- offsets --

    def list_offsets(
        self, times: Mapping[TopicPartition, int], *, committed: bool | None = None
    ) -> dict[TopicPartition, FoundOffset]:
        """Offsets by time: EARLIEST, LATEST, or ms since the epoch (the first record at or after it).

        committed  LATEST is the last stable offset; the config's isolation.level unless given

        Raises UnknownTopic, NotAuthorized, RequestTimedOut.
        """
        return self._run(list_offsets(self._core, times, committed=committed)) if times else {}

    def wait_for_records(self, positions: Mapping[TopicPartition, int], wait_ms: int) -> bool:
        """Return whether there may be records at or after these offsets; wait about `wait_ms` at most. Raises KafkaError."""
        return self._run(wait_for_records(self._core, positions, wait_ms))

    def bytes_per_offset(
        self, positions: Mapping[TopicPartition, int], sample_bytes: int
    ) -> dict[TopicPartition, float]:
        """Return the bytes of the log per offset, estimated from the first batches at each position. Raises KafkaError."""
        return self._run(bytes_per_offset(self._core, positions, sample_bytes))

    # -- records --

    def read(
        self, partition: TopicPartition, start: int, end: int, *, topic_id: bytes = ZERO_UUID, timeout_ms: int
    ) -> Iterator[Chunk]:
        """The offsets from `start` (inclusive) to `end` (exclusive); the last chunk may go past it.

        topic_id    what the topic's id must be; ZERO_UUID takes any
        timeout_ms  how long the broker may bring nothing

        Raises OffsetOutOfRange, UnknownTopic, TopicRecreated, CorruptBatch, RequestTimedOut, BrokersUnreachable.
        """
        if topic_id != ZERO_UUID and self.topic(partition.topic, timeout_ms=timeout_ms).id != topic_id:
            # A process that has read the topic of that name before may know less than whoever decided to read this one.
            self._call(lambda: self._core.metadata.forget(partition.topic))
        reading = RangeReading(self._core, partition, start, end, topic_id=topic_id, timeout_ms=timeout_ms)
        try:
            while (chunk := self._run(reading.next())) is not None:
                yield chunk
        finally:
            self._call(reading.close)

    # -- groups --

    def committed(
        self, group: str, partitions: list[TopicPartition], timeout_ms: int | None = None, *, stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that a group has committed; partitions without a commit are left out.

        stable  wait for transactions that are about to commit offsets
        """
        return self._run(
            Commits(self._core, group).fetch(partitions, lambda: GroupMetadata(group), timeout_ms, stable=stable)
        )

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, int], timeout_ms: int | None = None, metadata: str = ""
    ) -> None:
        """Commit offsets of a group without members. Raises KafkaError when it has some."""
        entries = {partition: OffsetAndMetadata(offset, metadata) for partition, offset in offsets.items()}
        self._run(Commits(self._core, group).commit(entries, lambda: GroupMetadata(group), timeout_ms))

    def share_group_offsets(
        self, group: str, partitions: list[TopicPartition]
    ) -> "Mapping[TopicPartition, ShareGroupOffset]":
        """Return the offsets of a share group; partitions that it has never read are left out. Raises KafkaError."""
        from ottla.client.admin.share_groups import ShareGroups

        offsets = self._run(ShareGroups(self._core).list_share_group_offsets({group: partitions}))[group]
        return {partition: offsets[partition] for partition in partitions if partition in offsets}

    # -- what the exactly-once sink asks --

    def ensure_topic(self, name: str, partitions: int, config: Mapping[str, str | None]) -> None:
        """See that a topic is there and has at least so many partitions. Raises KafkaError."""
        try:
            if len(self.topic(name).leaders) >= partitions:
                return
        except UnknownTopic:
            pass
        self._run(_ensure_topic(self._core, name, partitions, config))

    def end_transaction(self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool) -> None:
        """End a transaction that another producer left open. Raises FencedError, KafkaError."""
        from ottla.client.producer.transactions import end_transaction

        self._run(end_transaction(self._core, transactional_id, producer_id, epoch, commit=commit))


async def _ensure_topic(core: Core, name: str, partitions: int, config: Mapping[str, str | None]) -> None:
    """Make a topic, or give it more partitions; others may do so at the same time."""
    from ottla.client.admin.topics import NewPartitions, NewTopic, Topics

    topics = Topics(core)
    creation_error = (await topics.create_topics([NewTopic(name, partitions, config=config)])).errors.get(name)
    if creation_error is not None and creation_error.code != TOPIC_ALREADY_EXISTS:
        raise creation_error
    core.metadata.forget(name)
    while len((await _created_topic(core, name)).leaders) < partitions:
        # In steps, so that a hundred tasks do not ask a hundred times.
        total = -(-partitions // 32) * 32
        growth_error = (await topics.create_partitions([NewPartitions(name, total)])).errors.get(name)
        if growth_error is not None and growth_error.code != INVALID_PARTITIONS:
            raise growth_error
        core.metadata.forget(name)


async def _created_topic(core: Core, topic: str) -> TopicInfo:
    """A topic that was just made: some broker may not know it yet."""
    return await core.metadata.topic(topic, create=True)
