"""The partitions that live on this broker: opened when the metadata says so, discarded when it no longer does."""

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ottla.log.config import LogConfig
from ottla.log.directory import LogDirectory
from ottla.log.log import StorageError
from ottla.metadata.image import Delta, Image, TopicImage
from ottla.replication.partition import Partition

_logger = logging.getLogger("ottla.replication")


class Replicas:
    """Partitions by topic name or id and index.

    directories  where partitions lie
    configs  the log config of a topic, worked out from its overrides and the broker's values
    discard  called with the directory of a deleted partition, to be removed after file.delete.delay.ms
    """

    def __init__(
        self,
        node_id: int,
        directories: list[LogDirectory],
        configs: Callable[[TopicImage], LogConfig],
        discard: Callable[[LogDirectory, Path], None],
    ) -> None:
        self._node_id = node_id
        self.directories = directories
        self._configs = configs
        self._discard = discard
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[bytes, dict[int, Partition]] = {}
        self._homes: dict[tuple[str, int], LogDirectory] = {}
        self._failed: set[tuple[str, int]] = set()

    def load(self, image: Image) -> None:
        """Open everything that lies here, and throw away what nobody knows any more."""
        known = {
            (topic.name, index)
            for topic in image.topics.values()
            for index, partition in enumerate(topic.partitions)
            if self._node_id in partition.replicas
        }
        for directory in self.directories:
            for leftover in directory.leftovers(known):
                self._discard(directory, leftover)
            for name, index in known:
                if (directory.path / f"{name}-{index}").is_dir():
                    self._homes[name, index] = directory
        for topic in image.topics.values():
            self._open(topic)

    def apply(self, delta: Delta) -> None:
        """Follow a change of the metadata."""
        for topic in delta.deleted:
            self._close(topic)
        for topic in delta.changed:
            self._open(topic)

    def reconfigure(self, image: Image) -> None:
        """The broker's own configs have changed: work out every log's anew."""
        for topic in image.topics.values():
            self._open(topic)

    def _open(self, topic: TopicImage) -> None:
        config = self._configs(topic)
        partitions = self._by_name.setdefault(topic.name, {})
        self._by_id[topic.id] = partitions
        for index, placed in enumerate(topic.partitions):
            if self._node_id not in placed.replicas:
                continue
            held = partitions.get(index)
            if held is not None:
                held.log.config = config
                held.leader_id, held.leader_epoch = placed.leader, placed.leader_epoch
                continue
            home = self._homes.get((topic.name, index)) or self._emptiest()
            self._homes[topic.name, index] = home
            try:
                log = home.open_partition(topic.name, index, topic.id, config)
            except (OSError, StorageError) as cause:
                _logger.error("%s-%d is offline: %s", topic.name, index, cause)
                self._failed.add((topic.name, index))
                continue
            partitions[index] = Partition(topic.name, topic.id, index, log, placed.leader, placed.leader_epoch)

    def _emptiest(self) -> LogDirectory:
        """Where a new partition goes: the directory with the fewest, as in Kafka."""
        homes = list(self._homes.values())
        return min(self.directories, key=homes.count) if len(self.directories) > 1 else self.directories[0]

    def _close(self, topic: TopicImage) -> None:
        self._by_id.pop(topic.id, None)
        for partition in self._by_name.pop(topic.name, {}).values():
            home = self._homes.pop((topic.name, partition.index))
            self._discard(home, home.discard_partition(topic.name, partition.index))
            partition.wake()

    def find(self, topic: str, index: int) -> Partition | None:
        """The partition, None when it does not live here."""
        partitions = self._by_name.get(topic)
        return None if partitions is None else partitions.get(index)

    def find_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        """The partition of the topic with this id, None when it does not live here."""
        partitions = self._by_id.get(topic_id)
        return None if partitions is None else partitions.get(index)

    def is_offline(self, topic: str, index: int) -> bool:
        """Whether the partition lives here but its log could not be opened."""
        return (topic, index) in self._failed

    def all(self) -> Iterable[Partition]:
        """Every partition that lives here."""
        return (partition for partitions in self._by_name.values() for partition in partitions.values())

    def by_topic(self) -> Mapping[str, Mapping[int, Partition]]:
        """Partitions by topic name and index."""
        return self._by_name
