"""Changes of thousands of topics with one partition each: the event loop is free after every few of them."""

from pathlib import Path
from typing import Any

import pytest
from tests.queues import immediate_queue

from ottla.log.config import LogConfig
from ottla.metadata.image import EMPTY, Delta, PartitionImage, TopicImage
from ottla.replication.replicas import Replicas
from ottla.tasks.scheduler import Pieces

TOPICS = 200
MOST_A_STEP = 16


class Directory:
    """Log directory that holds every partition."""

    def __init__(self) -> None:
        self.path = Path("/data")
        self.offline = None
        self.on_failure: list[Any] = []
        self.discarded: list[tuple[str, int]] = []

    def has_copy(self, topic: str, partition: int, topic_id: bytes) -> bool:
        return True

    def discard_partition(self, topic: str, partition: int) -> Path | None:
        self.discarded.append((topic, partition))
        return None


@pytest.fixture
def directory() -> Directory:
    return Directory()


@pytest.fixture
def replicas(directory: Directory) -> Replicas:
    directories: list[Any] = [directory]
    return Replicas(
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


def topic(number: int, replica: int = 1) -> TopicImage:
    placed = PartitionImage((replica,), (replica,), replica, 4)
    return TopicImage(f"t{number}", number.to_bytes(16, "big"), (placed,), {})


def most_between_steps(steps: Pieces, done: list[Any]) -> int:
    """The largest number of entries that are added to `done` in one step."""
    most = before = 0
    for _ in steps:
        most, before = max(most, len(done) - before), len(done)
    assert len(done) == TOPICS
    return max(most, len(done) - before)


@pytest.mark.replaces_code
def test_many_topics_are_opened_in_steps(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    monkeypatch.setattr(replicas, "_open_log", lambda topic, index, config: opened.append(topic.name))
    steps = (step for number in range(TOPICS) for step in replicas._open(topic(number)))
    assert most_between_steps(steps, opened) <= MOST_A_STEP


def test_many_topics_are_deleted_in_steps(replicas: Replicas, directory: Directory) -> None:
    steps = (step for number in range(TOPICS) for step in replicas._close(topic(number)))
    assert most_between_steps(steps, directory.discarded) <= MOST_A_STEP


def test_many_topics_are_released_in_steps(replicas: Replicas, directory: Directory) -> None:
    replicas._failed |= {(f"t{number}", 0) for number in range(TOPICS)}
    steps = (step for number in range(TOPICS) for step in replicas._release(topic(number, replica=2), [0]))
    assert most_between_steps(steps, directory.discarded) <= MOST_A_STEP


def test_a_change_before_the_start_has_loaded_all_opens_nothing(replicas: Replicas) -> None:
    """In a cluster the metadata is followed before the logs are open; `load` opens what the newest image names."""
    image = EMPTY._replace(topics={"t1": topic(1)}, topics_by_id={topic(1).id: topic(1)})
    assert replicas.apply(Delta(image, (topic(1),))) is None
    assert replicas.reconfigure(image) is None
    assert replicas.all() == []
