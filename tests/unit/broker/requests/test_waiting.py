"""A fetch that waits: woken by an append, answered when there is enough or when its time is over."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.queues import manual_queue, run_queue, unexpected

from ottla.broker.requests.delayed import DelayedAnswer
from ottla.environment import Cancellable
from ottla.environment.disk import DiskStore
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.replication.partition import Partition
from ottla.tasks.queue import CallbackQueue


class Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Timers:
    """Timers that go off when the test says so."""

    def __init__(self) -> None:
        self.set: list[tuple[int, Timer]] = []

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Cancellable:
        timer = Timer(callback)
        self.set.append((delay_ms, timer))
        return timer


@pytest.fixture
def queue() -> CallbackQueue:
    return manual_queue()


@pytest.fixture
def partitions(tmp_path: Path, queue: CallbackQueue) -> Iterator[list[Partition]]:
    created = []
    for index in range(2):
        directory = tmp_path / f"t-{index}"
        directory.mkdir()
        created.append(
            Partition("t", bytes(16), index, Log(DiskStore(), directory, LogConfig()), 1, 0, lambda _: None, queue)
        )
        created[-1].lead()
    yield created
    for partition in created:
        partition.log.close(clean=False)


def waiting(partitions: list[Partition], queue: CallbackQueue) -> tuple[list[str], Timer]:
    """A wait for two records in all; what was answered, and its timer."""
    timers, answers = Timers(), list[str]()

    def attempt(last: bool) -> str | None:
        count = sum(partition.log.end_offset for partition in partitions)
        return f"{count} records" if last or count >= 2 else None

    pending = DelayedAnswer(attempt, partitions, queue).begin(timers, 500)
    pending.then(answers.append, unexpected)
    ((delay, timer),) = timers.set
    assert delay == 500
    return answers, timer


def test_a_wait_ends_once_with_enough_records(partitions: list[Partition], queue: CallbackQueue) -> None:
    answers, timer = waiting(partitions, queue)
    partitions[0].append_records([(b"k", b"v")], 1)
    run_queue(queue)
    assert answers == []
    partitions[1].append_records([(b"k", b"v")], 1)
    run_queue(queue)
    assert (answers, timer.cancelled) == (["2 records"], True)
    assert [len(partition.watchers) for partition in partitions] == [0, 0]
    partitions[0].append_records([(b"k", b"v")], 1)
    run_queue(queue)
    assert answers == ["2 records"]


def test_a_wait_ends_with_fewer_records_at_the_timeout(partitions: list[Partition], queue: CallbackQueue) -> None:
    answers, timer = waiting(partitions, queue)
    partitions[0].append_records([(b"k", b"v")], 1)
    run_queue(queue)
    timer.callback()
    run_queue(queue)
    assert answers == ["1 records"]
    assert [len(partition.watchers) for partition in partitions] == [0, 0]


def test_several_waits_are_woken_by_one_append(partitions: list[Partition], queue: CallbackQueue) -> None:
    responses = [waiting(partitions, queue)[0] for _ in range(3)]
    partitions[0].append_records([(b"k", b"v"), (b"k", b"w")], 1)
    run_queue(queue)
    assert responses == [["2 records"]] * 3


def test_a_deferred_wait_tries_once_after_the_event_and_then_sets_its_timer(
    partitions: list[Partition], queue: CallbackQueue
) -> None:
    timers, answers, attempts = Timers(), list[str](), list[int]()

    def attempt(last: bool) -> str | None:
        count = sum(partition.log.end_offset for partition in partitions)
        attempts.append(count)
        return f"{count} records" if last or count >= 2 else None

    pending = DelayedAnswer(attempt, partitions, queue, is_deferred=True).begin(timers, 500)
    pending.then(answers.append, unexpected)
    partitions[0].append_records([(b"k", b"v")], 1)
    assert (attempts, timers.set) == ([], [])
    run_queue(queue)
    assert attempts == [1, 1]  # the first attempt, and that for the append
    ((delay, timer),) = timers.set
    assert delay == 500
    for partition in partitions:
        partition.append_records([(b"k", b"v")], 1)
    assert (attempts, answers) == ([1, 1], [])
    run_queue(queue)
    assert (attempts, answers) == ([1, 1, 3], ["3 records"])
    assert timer.cancelled
