"""The newest applied revision in the data directory, and a start on older metadata."""

import errno
import random
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.memory_store import MemoryStore
from tests.unit.metadata.stores import VirtualTime

from ottla.broker.cluster.applied_revision import AppliedRevision, Newest, why_older
from ottla.metadata.store import Entry, Snapshot
from ottla.tasks.scheduler import Scheduler

HOME = Path("/data")


def contents(revision: int, **keys: int) -> Snapshot:
    """Return a store at a revision, whose keys were written at these revisions."""
    return Snapshot([Entry(f"/{name}", b"", written, 1) for name, written in keys.items()], revision)


class Thread:
    """Background thread that works while a test lets it."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[Callable[[], Any], Callable[[Any], object]]] = deque()

    def run(self, work: Callable[[], Any], done: Callable[[Any], object], failed: Callable[[], object]) -> None:
        del failed
        self.jobs.append((work, done))

    def work(self) -> None:
        while self.jobs:
            work, done = self.jobs.popleft()
            done(work())

    def close(self, *, cancel: bool = False, wait: bool = True) -> None:
        del cancel, wait
        self.work()


def applied_revision(files: MemoryStore, newest: Callable[[], Newest]) -> tuple[AppliedRevision, Thread, VirtualTime]:
    thread, time = Thread(), VirtualTime()
    return AppliedRevision(files, HOME, newest, thread, Scheduler(time, time)), thread, time


def kept(newest: Newest) -> MemoryStore:
    files = MemoryStore()
    applied, thread, _ = applied_revision(files, lambda: newest)
    applied.write_last()
    thread.close()
    return files


def test_the_same_metadata_and_newer_one_are_accepted() -> None:
    files = kept(Newest(20, "/a", 18))
    assert why_older(MemoryStore(), HOME, contents(5)) is None
    assert why_older(files, HOME, contents(20, a=18)) is None
    assert why_older(files, HOME, contents(40, a=31)) is None
    assert why_older(files, HOME, contents(40, b=31)) is None  # deleted since


def test_a_lower_revision_is_refused() -> None:
    reason = why_older(kept(Newest(20, "/a", 18)), HOME, contents(19, a=18))
    assert reason is not None
    assert "its revision is 19, and was 20" in reason
    assert "--accept-older-metadata" in reason


def test_a_higher_revision_with_an_older_key_is_refused() -> None:
    reason = why_older(kept(Newest(20, "/a", 18)), HOME, contents(1_000_020, a=12))
    assert reason is not None
    assert "/a is of revision 12, and was of 18" in reason


@pytest.mark.parametrize("seed", range(10))
def test_an_older_store_is_refused_after_a_loss_of_power(seed: int) -> None:
    files = kept(Newest(20, "/a", 18)).power_loss(random.Random(seed))
    assert why_older(files, HOME, contents(19, a=18)) is not None


def test_a_damaged_file_refuses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryStore()
    files.write(HOME / "ottla-metadata-revision", b"{}")
    assert why_older(files, HOME, contents(1)) is None
    assert "is damaged" in caplog.text


def test_the_revision_is_written_when_it_has_changed(caplog: pytest.LogCaptureFixture) -> None:
    writes, newest = list[bytes](), [1]

    class Files(MemoryStore):
        def replace(self, path: Path, data: bytes) -> None:
            if newest[0] == 3:
                raise OSError(errno.ENOSPC, "No space left on device")
            writes.append(data)
            super().replace(path, data)

    applied, thread, time = applied_revision(Files(), lambda: Newest(newest[0], "/a", 1))

    def pass_seconds(count: int) -> None:
        for _ in range(count):
            time.advance(1_000)
            thread.work()

    applied.begin()
    pass_seconds(5)
    assert len(writes) == 1
    newest[0] = 2
    pass_seconds(2)
    assert len(writes) == 2
    newest[0] = 3
    pass_seconds(5)
    assert caplog.text.count("No space left on device") == 1
    newest[0] = 4
    applied.close()
    pass_seconds(5)
    assert len(writes) == 2


def test_the_last_revision_is_written_after_one_that_waits_for_the_disk() -> None:
    files, newest = MemoryStore(), [1]
    applied, thread, time = applied_revision(files, lambda: Newest(newest[0], "/a", 1))
    applied.begin()
    time.advance(0)
    assert len(thread.jobs) == 1  # the disk is slow: the loop has gone on
    newest[0] = 2
    applied.close()
    applied.write_last()
    thread.close()
    assert why_older(files, HOME, contents(1)) is not None
