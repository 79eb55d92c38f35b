"""Periodic work of a broker, on a clock that only the test moves."""

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.queues import manual_queue

from ottla.broker.upkeep.maintenance import Maintenance, MaintenanceConfig
from ottla.broker.upkeep.removals import Removals
from ottla.environment.disk import DiskStore
from ottla.log import reading
from ottla.log.config import LogConfig
from ottla.log.flush import Flush
from ottla.log.log import Log
from ottla.records.batch import build
from ottla.records.record import Record
from ottla.tasks.deferred import Deferred
from ottla.tasks.scheduler import Scheduler

NOW = 1_700_000_000_000
HOUR = 3_600_000


class World:
    """Clock and timers in one."""

    def __init__(self) -> None:
        self.now = 0
        self.due: list[tuple[int, Callable[[], None]]] = []

    def wall_ms(self) -> int:
        return NOW + self.now

    def now_ms(self) -> int:
        return self.now

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Any:
        entry = (self.now + delay_ms, callback)
        self.due.append(entry)
        return SimpleNamespace(cancel=lambda: self.due.remove(entry) if entry in self.due else None)

    def pass_time(self, ms: int) -> None:
        until = self.now + ms
        while self.due and min(self.due, key=lambda entry: entry[0])[0] <= until:
            entry = min(self.due, key=lambda entry: entry[0])
            self.due.remove(entry)
            self.now = entry[0]
            entry[1]()
        self.now = until


class AtOnce:
    """A worker on the caller's thread."""

    def run(self, work: Callable[[], Any], done: Callable[[Any], object], failed: Callable[[], object]) -> None:
        del failed
        done(work())

    def close(self, *, cancel: bool = False, wait: bool = True) -> None:
        del cancel, wait


class Flushes:
    """Runs a flush at once."""

    def flush(self, partition: Any) -> None:
        partition.log.flush()

    async def run(self, flush: Flush) -> None:
        flush.run()


class Stuck(Flushes):
    """Flushes that do not end."""

    async def run(self, flush: Flush) -> None:
        await Deferred[None](manual_queue())


def keeper(world: World, *logs: Log, flushes: Any = None) -> Maintenance:
    replicas: Any = SimpleNamespace(
        all=lambda: [SimpleNamespace(log=log) for log in logs],
        shortest_flush_ms=logs[0].config.flush_ms,
        open_postponed=lambda: None,
        led=list,
        has_replicated=False,
    )
    flusher: Any = flushes or Flushes()
    removals = Removals(Scheduler(world, world), AtOnce())
    return Maintenance(
        config=MaintenanceConfig(30_000, 300_000, 15_000, 600_000, 15_000, 5_000),
        write_checkpoints=lambda: None,
        removals=removals,
        replicas=replicas,
        clock=world,
        tasks=Scheduler(world, world),
        producer_expiration_ms=lambda: 24 * HOUR,
        flusher=flusher,
    )


def open_log(directory: Path, **config: Any) -> Log:
    directory.mkdir()
    return Log(DiskStore(), directory, LogConfig(segment_bytes=400, **config))


def append(log: Log, count: int, **producer: int) -> None:
    for number in range(count):
        batch = build([Record(0, NOW, b"k", b"%d" % number * 50)], **producer)  # type: ignore[arg-type]
        assert log.append(batch, 0, len(batch), 0, NOW).error_code == 0
        log.high_watermark = log.end_offset


def test_old_segments_are_deleted_and_their_files_a_minute_later(tmp_path: Path) -> None:
    world, log = World(), open_log(tmp_path / "t-0", retention_ms=HOUR)
    append(log, 10)
    keep = keeper(world, log)
    keep.begin()
    world.pass_time(HOUR)
    assert log.start_offset == 0
    world.pass_time(31_000)
    assert log.start_offset == log.end_offset == 10
    assert list(log.directory.glob("*.deleted"))
    world.pass_time(60_000)
    assert not list(log.directory.glob("*.deleted"))
    keep.close()
    assert world.due == []
    log.close()


def test_a_dirty_log_is_compacted_step_by_step(tmp_path: Path) -> None:
    world, log = World(), open_log(tmp_path / "t-0", cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.1)
    append(log, 10)
    keep = keeper(world, log)
    keep.begin()
    world.pass_time(29_999)
    assert sum(len(records) for _, records in reading.batches(log)) == 10
    world.pass_time(2)
    assert sum(len(records) for _, records in reading.batches(log)) < 10
    keep.close()
    keep._removals.close()  # a stop takes what waits to be removed with it
    assert not list(log.directory.glob("*.deleted"))
    log.close()


def test_idle_producers_expire(tmp_path: Path) -> None:
    world, log = World(), open_log(tmp_path / "t-0")
    append(log, 1, producer_id=7, producer_epoch=0, base_sequence=0)
    keep = keeper(world, log)
    keep.begin()
    world.pass_time(23 * HOUR)
    assert [producer.producer_id for producer in log.producers.active()] == [7]
    world.pass_time(2 * HOUR)
    assert log.producers.active() == []
    keep.close()
    log.close()


def test_records_are_flushed_after_flush_ms(tmp_path: Path) -> None:
    world, log = World(), open_log(tmp_path / "t-0", flush_ms=5_000)
    keep = keeper(world, log)
    keep.begin()
    append(log, 1)
    world.pass_time(4_999)
    assert log.recovery_point == 0
    world.pass_time(1_001)
    assert log.recovery_point == 1
    keep.close()
    log.close()


@pytest.mark.replaces_code
def test_retention_goes_on_after_a_run_that_failed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A failed run is logged once; later runs handle all logs."""
    world, log = World(), open_log(tmp_path / "t-0", retention_ms=HOUR)
    append(log, 10)
    keep = keeper(world, log)
    runs = []

    def fail(now_ms: int) -> list[Any]:
        runs.append(now_ms)
        raise RuntimeError("dictionary changed size during iteration")

    log.retain = fail  # type: ignore[method-assign]
    keep.begin()
    world.pass_time(HOUR)
    assert len(runs) == 12
    assert caplog.messages == ["retention failed and will be retried"]
    del log.retain
    world.pass_time(HOUR)
    assert log.start_offset == 10
    keep.close()
    assert world.due == []
    log.close()


def test_compaction_goes_on_after_a_flush_without_descriptors(tmp_path: Path) -> None:
    class Short(Flushes):
        times = 0

        async def run(self, flush: Flush) -> None:
            self.times += 1
            if self.times == 1:
                raise OSError(errno.EMFILE, "Too many open files")
            await super().run(flush)

    world, log = World(), open_log(tmp_path / "t-0", cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.1)
    append(log, 10)
    keep = keeper(world, log, flushes=Short())
    keep.begin()
    world.pass_time(30_000)
    assert sum(len(records) for _, records in reading.batches(log)) == 10
    assert not list(log.directory.glob("*.cleaned"))
    world.pass_time(15_001)
    assert sum(len(records) for _, records in reading.batches(log)) < 10
    keep.close()
    log.close()


def test_a_stop_removes_the_files_of_the_running_compaction(tmp_path: Path) -> None:
    world, log = World(), open_log(tmp_path / "t-0", cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.1)
    append(log, 10)
    keep = keeper(world, log, flushes=Stuck())
    keep.begin()
    world.pass_time(30_000)
    assert list(log.directory.glob("*.cleaned"))
    assert not log.dirtiness(world.wall_ms())  # it is being compacted
    keep.close()
    keep.abandon_compaction()
    assert not list(log.directory.glob("*.cleaned"))
    assert log.dirtiness(world.wall_ms())
    log.close()


def test_a_stop_goes_on_if_the_files_of_a_compaction_cannot_be_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world, log = World(), open_log(tmp_path / "t-0", cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.1)
    append(log, 10)
    keep = keeper(world, log, flushes=Stuck())
    keep.begin()
    world.pass_time(30_000)
    (cleaned,) = log.directory.glob("*.log.cleaned")
    cleaned.unlink()
    cleaned.mkdir()
    keep.close()
    keep.abandon_compaction()
    assert "cannot remove what the compaction of t-0 has written" in caplog.text
    keep.abandon_compaction()
    log.close()


def test_a_file_that_cannot_be_removed_holds_up_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    removals = Removals(Scheduler(world, world), AtOnce())
    removed = []

    def fail() -> None:
        raise OSError(errno.EIO, "Input/output error", "t-0/0.log.deleted")

    removals.later(fail, 1000)
    removals.later(lambda: removed.append(1), 2000)
    removals.later(fail, 9000)
    removals.later(lambda: removed.append(2), 9000)
    world.pass_time(2000)
    assert removed == [1]
    removals.close()
    assert removed == [1, 2]
    assert caplog.messages == ["cannot remove t-0/0.log.deleted: Input/output error; the next start does"] * 2


def test_many_removals_are_done_in_small_steps() -> None:
    world = World()
    jobs: list[tuple[Callable[[], Any], Callable[[Any], object]]] = []
    worker: Any = SimpleNamespace(run=lambda work, done, failed: jobs.append((work, done)))
    removals = Removals(Scheduler(world, world), worker)
    removed: list[int] = []
    for number in range(100):
        removals.later(partial(removed.append, number), 1000)
        removals.later(partial(removed.append, 100 + number), 1000, in_background=True)
    world.pass_time(999)
    assert removed == []
    (due,) = world.due
    world.due.clear()
    world.now = 1000
    due[1]()
    assert len(removed) == 16
    assert len(world.due) == 1, "the rest has a turn of its own"
    world.pass_time(0)
    assert sorted(removed) == list(range(100))
    while jobs:
        assert len(jobs) == 1, "a stop waits for the piece that has begun"
        work, done = jobs.pop()
        before = len(removed)
        work()
        assert len(removed) - before <= 16
        done(None)
        world.pass_time(0)
    assert sorted(removed) == list(range(200))


def test_a_stop_leaves_directories_to_the_next_start() -> None:
    world = World()
    removals = Removals(Scheduler(world, world), AtOnce())
    removed: list[str] = []
    removals.later(partial(removed.append, "segment"), 1000)
    removals.later(partial(removed.append, "directory"), 1000, in_background=True)
    removals.close()
    assert removed == ["segment"]
