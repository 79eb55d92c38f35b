"""Group commit: batches that come while a flush runs share the next one, and no watcher is called before."""

import asyncio
import errno
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.faulty_store import FaultyStore
from tests.memory_store import MemoryStore

from ottla.broker.upkeep import flushing
from ottla.broker.upkeep.flushing import Flusher
from ottla.environment.asyncio_transport import AsyncioTimers
from ottla.environment.workers import ThreadWorker
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.records.batch import build
from ottla.records.record import Record
from ottla.replication.partition import Partition
from ottla.tasks.queue import CallbackQueue
from ottla.tasks.scheduler import Scheduler

BATCH = build([Record(0, 1, b"k", b"v")])


class SlowDisk:
    """Flushes of the log file wait for `go`; each is counted."""

    def __init__(self) -> None:
        self.go = threading.Semaphore(0)
        self.begun = 0
        self.failure: OSError | None = None
        self.store = FaultyStore(MemoryStore(), self._fails)

    def _fails(self, operation: str, path: Path) -> OSError | None:
        if operation == "flush" and path.suffix == ".log":
            self.begun += 1
            assert self.go.acquire(timeout=10)
            return self.failure
        return None


class Clock:
    def wall_ms(self) -> int:
        return 1

    def now_ms(self) -> int:
        return 1


def open_partition(
    disk: SlowDisk, loop: asyncio.AbstractEventLoop, failures: list[OSError]
) -> tuple[Partition, Flusher]:
    flusher = Flusher(ThreadWorker(loop, "flush", 4), Scheduler(Clock(), AsyncioTimers(loop)), Clock())
    log = Log(disk.store, Path("/log/t-0"), LogConfig(flush_messages=1), failed=failures.append)
    partition = Partition("t", bytes(16), 0, log, 1, 0, flusher.flush, CallbackQueue(AsyncioTimers(loop)))
    partition.lead()
    return partition, flusher


def append(partition: Partition, count: int) -> None:
    for _ in range(count):
        assert partition.append(BATCH, 0, len(BATCH), 1).error_code == 0


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def test_many_batches_share_a_flush() -> None:
    async def run() -> None:
        disk = SlowDisk()
        partition, flusher = open_partition(disk, asyncio.get_running_loop(), [])
        high_watermarks: list[int] = []
        partition.watchers.add(lambda: high_watermarks.append(partition.log.high_watermark))
        append(partition, 1)
        await until(lambda: disk.begun == 1)
        append(partition, 50)
        assert (partition.log.high_watermark, partition.log.end_offset, high_watermarks) == (0, 51, [])
        disk.go.release()
        await until(lambda: high_watermarks == [1] and disk.begun == 2)
        append(partition, 1)
        disk.go.release()
        await until(lambda: high_watermarks == [1, 51] and disk.begun == 3)
        disk.go.release()
        await until(lambda: high_watermarks == [1, 51, 52])
        assert disk.begun == 3
        flusher.close()

    asyncio.run(run())


def test_a_flush_that_fails_for_another_reason_than_the_disk_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        disk = SlowDisk()
        partition, flusher = open_partition(disk, asyncio.get_running_loop(), [])
        disk.failure = OSError(errno.EACCES, "Permission denied")
        append(partition, 1)
        disk.go.release()
        await until(lambda: disk.begun == 2)
        disk.failure = None
        disk.go.release()
        await until(lambda: partition.log.high_watermark == 1)
        flusher.close()

    monkeypatch.setattr(flushing, "_RETRY_MS", 10)
    asyncio.run(run())


def test_a_failed_flush_is_reported_to_the_directory() -> None:
    async def run() -> None:
        disk = SlowDisk()
        failures: list[OSError] = []
        partition, flusher = open_partition(disk, asyncio.get_running_loop(), failures)
        append(partition, 1)
        disk.failure = OSError(5, "Input/output error")
        disk.go.release()
        await until(lambda: failures)
        assert (failures, partition.log.high_watermark) == ([disk.failure], 0)
        flusher.close()

    asyncio.run(run())
