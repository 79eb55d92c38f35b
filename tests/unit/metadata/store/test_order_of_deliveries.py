"""Changes are delivered in the order of their revisions, whoever waits for them, and whenever the loop comes to it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.queues import drain, manual_queue

from ottla.metadata.store import Change, Entry, Snapshot
from ottla.metadata.store.shared_sqlite import SharedSqliteStore
from ottla.metadata.store.sqlite import SqliteStore
from ottla.tasks.deferred import Deferred
from ottla.tasks.scheduler import Scheduler


class HeldWorker:
    """Worker whose work is done when a test says so."""

    def __init__(self) -> None:
        self._held: list[tuple[Callable[[], Any], Callable[[Any], object]]] = []

    def run(self, work: Callable[[], Any], done: Callable[[Any], object], failed: Callable[[], object]) -> None:
        self._held.append((work, done))

    def work(self) -> None:
        held, self._held = self._held, []
        for work, done in held:
            done(work())

    def close(self, *, cancel: bool = False, wait: bool = True) -> None:
        self._held.clear()


class Revisions:
    """Watcher that notes the revisions."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def changed(self, revision: int, entries: Sequence[Entry]) -> None:
        self.seen.append(revision)

    def reloaded(self, snapshot: Snapshot) -> None:
        raise AssertionError(snapshot)

    def failed(self, reason: str) -> None:
        raise AssertionError(reason)


def single(path: Path, worker: HeldWorker, tasks: Scheduler) -> SqliteStore:
    return SqliteStore(path, worker, tasks)


def shared(path: Path, worker: HeldWorker, tasks: Scheduler) -> SharedSqliteStore:
    return SharedSqliteStore(path, worker, tasks, poll_ms=1 << 30)


@pytest.mark.parametrize("make", [single, shared])
def test_a_change_that_a_running_task_makes_does_not_overtake_an_earlier_one(
    tmp_path: Path, make: Callable[[Path, HeldWorker, Scheduler], Any]
) -> None:
    worker, tasks, watcher = HeldWorker(), manual_queue(), Revisions()
    store = make(tmp_path / "metadata.db", worker, tasks)
    loading = store.load()
    worker.work()
    drain(tasks)
    snapshot = loading.result() if isinstance(loading, Deferred) else loading
    store.watch(snapshot.revision, watcher)

    async def change() -> None:
        store.change(Change(put={"b": b"2"}))  # while a task runs, others only begin later

    store.change(Change(put={"a": b"1"}))
    tasks.start(change())
    worker.work()
    drain(tasks)
    assert len(watcher.seen) == 2
    assert watcher.seen == sorted(watcher.seen)
    store.close()
