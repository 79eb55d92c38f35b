"""Blocking client of a query: topics, offsets, ranges of records, committed offsets.

Each Python process of Spark has one per config. The client's core does the work, on the thread shared by all clients of the
process.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ottla.client.config import ClientConfig
from ottla.client.consumer.chunks import Chunk
from ottla.client.consumer.commits import Commits
from ottla.client.consumer.ranges import RangeReading, bytes_per_offset, wait_for_records
from ottla.client.core import Core
from ottla.client.errors import UnknownTopic, UnsupportedVersion
from ottla.client.groups import GroupMetadata, OffsetAndMetadata
from ottla.client.offsets import list_offsets
from ottla.client.topics import FoundOffset, TopicInfo, TopicPartition
from ottla.client.waiting import Blocking
from ottla.environment import Clock
from ottla.protocol.errors import INVALID_PARTITIONS, TOPIC_ALREADY_EXISTS
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from ottla.client.admin.share_groups import ShareGroupOffset

_REPLICAS: Final = 3
"""Replicas of the sink's topics where the broker has no default; fewer where there are fewer brokers."""


class ClusterClient(Blocking):
    """Blocking access to one cluster with one config."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config, {})

    @property
    def clock(self) -> Clock:
        """Clock of the client's environment."""
        return self._core.clock

    def forget(self) -> None:
        """Drop the cached metadata of all topics."""
        self._call(self._core.metadata.forget)

    def pause(self, milliseconds: int) -> None:
        """Block the caller for a time."""
        self._run(self._core.scheduler.sleep(milliseconds))

    # -- topics --

    def topic_names(self) -> list[str]:
        """Sorted names of all topics except internal ones. Raises BrokersUnreachable."""
        return sorted(info.name for info in self._run(self._core.metadata.all_topics()) if not info.internal)

    def topic(self, name: str, *, create: bool = False, timeout_ms: int | None = None) -> TopicInfo:
        """Metadata of a topic; `create` allows the broker to create it (auto.create.topics.enable). Raises UnknownTopic."""
        return self._run(self._core.metadata.topic(name, create=create, timeout_ms=timeout_ms))

    def partitions(self, topic: str) -> list[TopicPartition]:
        """Partitions of a topic, in ascending order. Raises UnknownTopic."""
        return self._run(self._core.metadata.partitions(topic))

    def creates_topics(self) -> bool:
        """Return whether the brokers create missing topics (auto.create.topics.enable). Raises KafkaError."""
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
        """Look up offsets by time: EARLIEST, LATEST, or ms since the epoch (first record at or after it).

        committed  LATEST means the last stable offset; None follows the config's isolation.level

        Raises UnknownTopic, NotAuthorized, RequestTimedOut.
        """
        return self._run(list_offsets(self._core, times, committed=committed)) if times else {}

    def wait_for_records(self, positions: Mapping[TopicPartition, int], wait_ms: int) -> bool:
        """Wait up to about `wait_ms` for records at or after these offsets; False on timeout. Raises KafkaError."""
        return self._run(wait_for_records(self._core, positions, wait_ms))

    def bytes_per_offset(
        self, positions: Mapping[TopicPartition, int], sample_bytes: int
    ) -> dict[TopicPartition, float]:
        """Estimate the log bytes per offset from the first batches at each position. Raises KafkaError."""
        return self._run(bytes_per_offset(self._core, positions, sample_bytes))

    # -- records --

    def read(
        self, partition: TopicPartition, start: int, end: int, *, topic_id: bytes = ZERO_UUID, timeout_ms: int
    ) -> Iterator[Chunk]:
        """Yield the records from `start` (inclusive) to `end` (exclusive); the last chunk may extend beyond it.

        topic_id    required id of the topic; ZERO_UUID accepts any
        timeout_ms  timeout for fetches without progress

        Raises OffsetOutOfRange, UnknownTopic, TopicRecreated, CorruptBatch, RequestTimedOut, BrokersUnreachable.
        """
        if topic_id != ZERO_UUID and self.topic(partition.topic, timeout_ms=timeout_ms).id != topic_id:
            # The metadata cached in this process may be older than that of the driver, which planned the read.
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
        """Return the committed offsets of a group, without partitions that have no commit.

        stable  wait for pending transactional offset commits (KIP-447)
        """
        return self._run(
            Commits(self._core, group).fetch(partitions, lambda: GroupMetadata(group), timeout_ms, stable=stable)
        )

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, int], timeout_ms: int | None = None, metadata: str = ""
    ) -> None:
        """Commit offsets for a group without members. Raises KafkaError if it has members."""
        entries = {partition: OffsetAndMetadata(offset, metadata) for partition, offset in offsets.items()}
        self._run(Commits(self._core, group).commit(entries, lambda: GroupMetadata(group), timeout_ms))

    def share_group_offsets(
        self, group: str, partitions: list[TopicPartition]
    ) -> "Mapping[TopicPartition, ShareGroupOffset]":
        """Return the offsets of a share group, without partitions that it never read. Raises KafkaError."""
        from ottla.client.admin.share_groups import ShareGroups

        offsets = self._run(ShareGroups(self._core).list_share_group_offsets({group: partitions}))[group]
        return {partition: offsets[partition] for partition in partitions if partition in offsets}

    # -- exactly-once sink --

    def check_transactions(self) -> None:
        """Raise UnsupportedVersion if the brokers have no transactions, BrokersUnreachable."""
        self._run(_check_transactions(self._core))

    def ensure_topic(self, name: str, partitions: int, config: Mapping[str, str | None]) -> None:
        """Create a topic if it is missing, and add partitions up to `partitions`. Raises KafkaError."""
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


async def _check_transactions(core: Core) -> None:
    (await core.metadata.any_link()).version(InitProducerIdRequest)


async def _ensure_topic(core: Core, name: str, partitions: int, config: Mapping[str, str | None]) -> None:
    """Create a topic, or add partitions to it; other tasks may do the same concurrently."""
    from ottla.client.admin.topics import NewPartitions, NewTopic, Topics

    topics = Topics(core)
    new = NewTopic(name, partitions, config=config)
    creation_error = (await topics.create_topics([new])).errors.get(name)
    if isinstance(creation_error, UnsupportedVersion):  # before Kafka 2.4 brokers have no default for new topics
        replicas = min(_REPLICAS, len(core.network.brokers))
        creation_error = (await topics.create_topics([new._replace(replication_factor=replicas)])).errors.get(name)
    if creation_error is not None and creation_error.code != TOPIC_ALREADY_EXISTS:
        raise creation_error
    core.metadata.forget(name)
    while len((await _await_topic(core, name)).leaders) < partitions:
        # In steps of 32, so that a hundred tasks do not send a hundred requests.
        total = -(-partitions // 32) * 32
        growth_error = (await topics.create_partitions([NewPartitions(name, total)])).errors.get(name)
        if growth_error is not None and growth_error.code != INVALID_PARTITIONS:
            raise growth_error
        core.metadata.forget(name)


async def _await_topic(core: Core, topic: str) -> TopicInfo:
    """Return the metadata of a topic that was just created: some brokers may not have it yet, so retry."""
    return await core.metadata.topic(topic, create=True)
