"""Logs of partitions that a reassignment has taken from a broker."""

from pathlib import Path
from typing import Any

from tests.queues import immediate_queue

from ottla.log.config import LogConfig
from ottla.metadata.image import PartitionImage, TopicImage
from ottla.replication.replicas import Replicas

ID = b"t" * 16


class Directory:
    """Log directory with, or without, an older copy of t-0."""

    def __init__(self, *, has_copy: bool) -> None:
        self.path = Path("/data")
        self.offline = None
        self.on_failure: list[Any] = []
        self.discarded: list[tuple[str, int]] = []
        self._has_copy = has_copy

    def has_copy(self, topic: str, partition: int, topic_id: bytes) -> bool:
        return self._has_copy and (topic, partition, topic_id) == ("t", 0, ID)

    def discard_partition(self, topic: str, partition: int) -> Path | None:
        self.discarded.append((topic, partition))
        return None


def test_an_older_copy_in_another_directory_is_discarded_too() -> None:
    """Otherwise it would be opened if the partition is assigned here again. Its current directory is missing."""
    directories: list[Any] = [Directory(has_copy=False), Directory(has_copy=True)]
    replicas = Replicas(
        node_id=1,
        tasks=immediate_queue(),
        directories=directories,
        configs=lambda topic: LogConfig(),
        discard=lambda directory, path: None,
        flush=lambda partition: None,
        checkpoint=lambda: None,
        now_ms=lambda: 0,
        max_lag_ms=30_000,
        in_cluster=True,
    )
    replicas._failed.add(("t", 0))
    for _ in replicas._release(TopicImage("t", ID, (PartitionImage((2, 3), (2, 3), 2, 4),), {}), [0]):
        pass
    assert [directory.discarded for directory in directories] == [[], [("t", 0)]]
    assert not replicas.is_offline("t", 0)
