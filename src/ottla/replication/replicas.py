"""The partitions that live on this broker: opened when the metadata says so, discarded when it no longer does."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ottla.log.config import LogConfig
from ottla.log.directory import LogDirectory
from ottla.log.log import StorageError
from ottla.metadata.image import Delta, Image, TopicImage
from ottla.protocol.errors import KAFKA_STORAGE_ERROR, LEADER_NOT_AVAILABLE, NONE, UNKNOWN_TOPIC_OR_PARTITION
from ottla.replication.partition import Partition

_logger = logging.getLogger("ottla.replication")
NEVER_MS: Final = (1 << 63) - 1
_PARTITIONS_A_STEP: Final = 16
"""Logs opened or discarded at once: some milliseconds."""
_TOPICS_A_STEP: Final = 50


class Seen(NamedTuple):
    """Who serves a partition, as clients are told; `leader` is -1 when its log is offline."""

    error_code: int
    leader: int
    isr: list[int]
    offline: list[int]


class Replicas:
    """Partitions by topic name or id and index.

    directories  where partitions lie
    configs  the log config of a topic, worked out from its overrides and the broker's values
    discard  called with the directory of a deleted partition, to be removed after file.delete.delay.ms
    flush    called with a partition whose log wants something on the medium
    missing  log directories of the configuration that the disk did not give us at the start
    """

    def __init__(
        self,
        node_id: int,
        directories: list[LogDirectory],
        configs: Callable[[TopicImage], LogConfig],
        discard: Callable[[LogDirectory, Path], None],
        flush: Callable[[Partition], None],
        missing: Iterable[Path] = (),
    ) -> None:
        self._node_id = node_id
        self.directories = directories
        self._configs = configs
        self._discard = discard
        self._flush = flush
        self.missing = list(missing)
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[bytes, dict[int, Partition]] = {}
        self._homes: dict[tuple[str, int], LogDirectory] = {}
        self._failed: set[tuple[str, int]] = set()
        self.shortest_flush_ms = NEVER_MS
        self.went_offline: Callable[[str, int], None] = lambda topic, index: None  # noqa: ARG005
        """Called with the topic and index of each partition whose log is not to be had any more."""
        for directory in directories:
            directory.on_failure = self._take_offline

    def load(self, image: Image) -> None:
        """Open everything that lies here, and throw away what nobody knows any more. What may lie in a directory that the disk
        did not give us is offline, rather than begun anew in another one.
        """
        known = {
            (topic.name, index)
            for topic in image.topics.values()
            for index, partition in enumerate(topic.partitions)
            if self._node_id in partition.replicas
        }
        for directory in self.directories:
            found = directory.partitions(known)
            twice = [key for key in found if key in self._homes]  # a crash came between the two names of a move
            for leftover in directory.leftovers(known - set(twice)):
                self._discard(directory, leftover)
            self._homes |= {key: directory for key in found if key not in twice}
        if self.missing:
            self._failed |= known - self._homes.keys()
        for topic in image.topics.values():
            for _ in self._open(topic):
                pass  # nobody is served yet

    def apply(self, delta: Delta) -> Iterator[None]:
        """Follow a change of the metadata, in steps."""
        for topic in delta.deleted:
            yield from self._close(topic)
        if delta.deleted:
            self._checkpoint()
        for topic in delta.changed:
            yield from self._open(topic)

    def reconfigure(self, image: Image) -> Iterator[None]:
        """Work out every log's config again after a change of the broker's own, in steps."""
        for number, topic in enumerate(image.topics.values(), 1):
            yield from self._open(topic)
            if number % _TOPICS_A_STEP == 0:
                yield

    def _open(self, topic: TopicImage) -> Iterator[None]:
        """Open the partitions of a topic that are not open yet, and hand its config to those that are; in steps."""
        config = self._configs(topic)
        self.shortest_flush_ms = min(self.shortest_flush_ms, config.flush_ms)
        partitions = self._by_name.setdefault(topic.name, {})
        self._by_id[topic.id] = partitions
        opened = 0
        for index, placed in enumerate(topic.partitions):
            if self._node_id not in placed.replicas:
                continue
            held = partitions.get(index)
            if held is not None:
                held.log.config = config
                held.leader_id, held.leader_epoch = placed.leader, placed.leader_epoch
                continue
            if (topic.name, index) in self._failed:
                continue
            opened += 1
            if opened % _PARTITIONS_A_STEP == 0:
                yield
            home = self._homes.get((topic.name, index)) or self._emptiest()
            self._homes[topic.name, index] = home
            try:
                log = home.open_partition(topic.name, index, topic.id, config)
            except (OSError, StorageError) as cause:
                _logger.error("%s-%d is offline: %s", topic.name, index, cause)
                self._failed.add((topic.name, index))
                continue
            partitions[index] = Partition(
                topic.name, topic.id, index, log, placed.leader, placed.leader_epoch, self._flush
            )

    def _emptiest(self) -> LogDirectory:
        """Where a new partition goes: the directory with the fewest that works, as in Kafka."""
        working = [directory for directory in self.directories if directory.offline is None]
        return min(working or self.directories, key=lambda directory: len(directory.logs()))

    def _close(self, topic: TopicImage) -> Iterator[None]:
        """Discard the partitions of a deleted topic, in steps; none of them can be found from the first step on."""
        self._by_id.pop(topic.id, None)
        partitions = self._by_name.pop(topic.name, {})
        for index in range(len(topic.partitions)):
            self._failed.discard((topic.name, index))
        for number, partition in enumerate(partitions.values(), 1):
            if number % _PARTITIONS_A_STEP == 0:
                yield
            home = self._homes.pop((topic.name, partition.index))
            try:
                self._discard(home, home.discard_partition(topic.name, partition.index))
            except OSError as cause:
                home.fail(cause)
            partition.wake()

    def home_of(self, partition: Partition) -> LogDirectory:
        """The directory in which a partition lies."""
        return self._homes[partition.topic, partition.index]

    def move(self, partition: Partition, target: LogDirectory) -> None:
        """The copy of a partition in `target` is complete: it is the partition from now on. Raises OSError, StorageError."""
        key = partition.topic, partition.index
        home = self._homes[key]
        partition.log = target.end_move(*key, partition.log)
        self._homes[key] = target
        self._discard(home, home.discard_partition(*key))
        self._checkpoint()

    def _checkpoint(self) -> None:
        for directory in self.directories:
            try:
                directory.checkpoint()
            except OSError as cause:
                directory.fail(cause)

    def _take_offline(self, home: LogDirectory) -> None:
        """A directory failed: its partitions are not here any more, and who waits for them learns it."""
        for topic, index in home.logs():
            self._failed.add((topic, index))
            partition = self._by_name.get(topic, {}).pop(index, None)
            if partition is not None:
                partition.wake()
            self.went_offline(topic, index)

    def find(self, topic: str, index: int) -> Partition | None:
        """The partition, None when it does not live here."""
        partitions = self._by_name.get(topic)
        return None if partitions is None else partitions.get(index)

    def find_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        """The partition of the topic with this id, None when it does not live here."""
        partitions = self._by_id.get(topic_id)
        return None if partitions is None else partitions.get(index)

    def is_offline(self, topic: str, index: int) -> bool:
        """Whether the partition lives here, in a directory that failed or with a log that could not be opened."""
        return (topic, index) in self._failed

    def seen(self, topic: TopicImage, index: int) -> Seen:
        """Who serves a partition now."""
        placed = topic.partitions[index]
        if (topic.name, index) in self._failed:
            return Seen(LEADER_NOT_AVAILABLE, -1, [], [self._node_id])
        return Seen(NONE, placed.leader, list(placed.isr), [])

    def absence(self, topic: str, index: int) -> int:
        """The error code for a partition that `find` does not find."""
        return KAFKA_STORAGE_ERROR if (topic, index) in self._failed else UNKNOWN_TOPIC_OR_PARTITION

    def all(self) -> Iterable[Partition]:
        """Every partition that lives here."""
        return (partition for partitions in self._by_name.values() for partition in partitions.values())

    def by_topic(self) -> Mapping[str, Mapping[int, Partition]]:
        """Partitions by topic name and index."""
        return self._by_name
