"""The SQLite file that several brokers share: what a late watcher gets, leases, files of the other kind, several threads."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.queues import immediate_queue, manual_queue, outcomes, run_queue
from tests.unit.metadata.stores import Broker, Replica, SharedSqliteHarness, VirtualTime
from tests.unit.metadata.test_slow_store import Later

from ottla.metadata.store import Change, ChangeOutcome, Entry
from ottla.metadata.store.shared_sqlite import SharedSqliteStore, _SharedFile
from ottla.metadata.store.sqlite import SqliteStore
from ottla.metadata.store.sqlite_file import DamagedStore
from ottla.tasks.deferred import Answer, Deferred


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[SharedSqliteHarness]:
    harness = SharedSqliteHarness(tmp_path / "metadata.db", 60_000, is_notified=False)
    yield harness
    harness.close()


def changes(broker: Broker, count: int) -> int:
    """Make changes, and return the revision of the last one."""
    return max(
        broker.wait(answer).revision
        for answer in [broker.store.change(Change(put={"/a": b"%d" % number})) for number in range(count)]
    )


@pytest.mark.parametrize(("count", "reloads"), [(900, 0), (1200, 1)])
def test_a_watcher_that_is_far_behind_gets_the_whole_contents(
    stores: SharedSqliteHarness, count: int, reloads: int
) -> None:
    broker, late = Broker(stores), Broker(stores)
    broker.change(put={"/deleted": b"1", "/kept": b"1"})
    replica = late.watch()
    late.load()  # its thread watches from now on
    broker.change(delete=["/deleted"])
    last = changes(broker, count)
    late.store.refresh()  # type: ignore[attr-defined]
    stores.until(lambda: replica.revision == last)
    assert set(replica.entries) == {"/kept", "/a"}
    assert (replica.reloads, len(replica.deliveries)) == (reloads, 1 - reloads)


def test_the_contents_are_read_at_one_revision(stores: SharedSqliteHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may make a change between the reads of the revision and of the entries."""
    broker = Broker(stores)
    first = broker.change(put={"/a": b"1"})
    file = broker.store._file  # type: ignore[attr-defined]
    read = file.range

    def change_and_read(prefix: str) -> Sequence[Entry]:
        assert stores.parent._file.change(Change(put={"/b": b"1"}))[0].revision == first + 1
        return read(prefix)  # type: ignore[no-any-return]

    monkeypatch.setattr(file, "range", change_and_read)
    snapshot = broker.load()
    assert (snapshot.revision, [entry.key for entry in snapshot.entries]) == (first, ["/a"])


def test_tombstones_are_pruned(stores: SharedSqliteHarness) -> None:
    broker = Broker(stores)
    for number in range(50):
        broker.change(put={f"/{number}": b""})
        broker.change(delete=[f"/{number}"])
    assert stores.parent._file._db.execute("SELECT count(*) FROM tombstones").fetchone() == (50,)
    changes(broker, 1100)
    assert stores.parent._file._db.execute("SELECT count(*) FROM tombstones").fetchone() == (0,)


def test_no_id_of_a_lease_is_used_again(stores: SharedSqliteHarness) -> None:
    broker = Broker(stores)
    first = broker.grant(1000)
    assert broker.wait(broker.store.revoke(first)) is True
    stores.connected[-1].close()
    assert Broker(stores).grant(1000) > first


def test_the_parent_ends_the_leases_of_processes_that_have_ended(stores: SharedSqliteHarness) -> None:
    one, two = Broker(stores), Broker(stores)
    for node, broker in enumerate((one, two), 1):
        broker.change(put={f"/live/{node}": b"", f"/other/{node}": b""}, lease=broker.grant(1000))
    one.change(put={"/kept": b""})
    assert one.wait(stores.parent.end_lease_of("/live/1")) is True
    assert [entry.key for entry in two.load().entries] == ["/kept", "/live/2", "/other/2"]
    before = two.load().revision
    for key in ("/live/1", "/kept", "/missing"):
        assert one.wait(stores.parent.end_lease_of(key)) is True
    assert two.load().revision == before
    assert one.wait(stores.parent.end_all_leases()) is True
    assert [entry.key for entry in two.load().entries] == ["/kept"]


def open_store(path: Path) -> SharedSqliteStore:
    return SharedSqliteStore(path, Later(), immediate_queue(VirtualTime()))


def test_the_file_of_a_single_broker_is_refused_and_the_other_way_round(tmp_path: Path) -> None:
    single, shared = tmp_path / "single.db", tmp_path / "shared.db"
    SqliteStore(single).close()
    with pytest.raises(DamagedStore, match="has the data of a single broker: start it with `ottla serve` without"):
        open_store(single)
    open_store(shared).close()
    with pytest.raises(
        DamagedStore, match="has the data of several brokers: start them with `ottla serve --brokers N`"
    ):
        SqliteStore(shared)
    open_store(shared).close()
    shared.write_bytes(b"no database" * 1000)
    with pytest.raises(DamagedStore, match="is not a metadata store"):
        open_store(shared)
    with pytest.raises(OSError, match="cannot open"):
        open_store(tmp_path / "missing" / "m.db")


def test_a_revision_that_goes_back_is_reported(stores: SharedSqliteHarness) -> None:
    broker = Broker(stores)
    changes(broker, 3)
    replica = broker.watch()
    stores.parent._file._db.execute("UPDATE revision SET newest = 1")
    broker.store.refresh()  # type: ignore[attr-defined]
    stores.until(lambda: bool(replica.failures))
    (failure,) = replica.failures
    assert "is at revision 1, below 3: it was replaced while brokers use it" in failure


def test_a_disk_that_cannot_be_written_is_an_error_in_one_line(
    stores: SharedSqliteHarness, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(stores)
    lease = broker.grant(1000)
    db = stores.connected[-1]._file._db
    db.execute("PRAGMA query_only=1")
    outcome = broker.outcome(put={"/a": b""})
    assert outcome.revision == 0
    assert "metadata.db: attempt to write a readonly database" in (outcome.error or "")
    granted = broker.wait(broker.store.grant(1000))
    assert (granted.id, "attempt to write a readonly database" in (granted.error or "")) == (0, True)
    assert broker.wait(broker.store.revoke(lease)) is False
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    db.execute("PRAGMA query_only=0")
    assert broker.change(put={"/a": b""})


def test_all_work_is_done_by_the_worker(tmp_path: Path) -> None:
    later = Later()
    store = SharedSqliteStore(tmp_path / "m.db", later, immediate_queue(VirtualTime()))
    answers: list[Answer[object]] = [
        store.change(Change(put={"/a": b""})),
        store.grant(1000),
        store.renew(1),
        store.revoke(1),
        store.load(),
        store.end_all_leases(),
    ]
    assert not any(not isinstance(answer, Deferred) or answer.done for answer in answers)
    while later.waiting:
        later.do_one()
    assert all(isinstance(answer, Deferred) and answer.done for answer in answers)
    store.close()


def test_a_read_does_not_overtake_the_delivery_of_an_earlier_change(tmp_path: Path) -> None:
    """Both results of the thread arrive in one pass of the event loop, before the queue of completions is drained."""
    path, worker = tmp_path / "metadata.db", Later()
    store = SharedSqliteStore(path, worker, manual_queue(VirtualTime()))
    replica = Replica()
    store.watch(0, replica)
    answers = outcomes(store.change(Change(put={"/a": b"1"})))
    worker.do_one()
    worker.do_one()
    other = _SharedFile(path)
    assert other.change(Change(put={"/a": b"2"}))[0].revision == 2
    other.close()
    store.refresh()
    worker.do_one()
    run_queue(store._tasks)
    assert [outcome.revision for outcome in answers if isinstance(outcome, ChangeOutcome)] == [1]
    assert [revision for revision, _ in replica.deliveries] == [1, 2]
    assert replica.value("/a") == b"2"
    store.close()


ROUNDS = 40


def test_several_threads_count_together(tmp_path: Path) -> None:
    """Each thread is a broker with an event loop of its own; a lost update or a revision used twice is found."""
    path = tmp_path / "metadata.db"
    SharedSqliteHarness(path, 60_000, is_notified=False).close()
    revisions: list[int] = []
    replicas: list[Replica] = []
    failures: list[BaseException] = []

    def count() -> None:
        try:
            stores = SharedSqliteHarness(path, 5, is_notified=False)
            broker = Broker(stores)
            replica = broker.watch()
            replicas.append(replica)
            done = 0
            while done < ROUNDS:
                before = replica.entries.get("/count")
                value = b"%d" % (int(before.value or 0) + 1 if before else 1)
                outcome = broker.outcome(expect={"/count": before.revision if before else 0}, put={"/count": value})
                assert outcome.error is None
                if outcome.revision:
                    revisions.append(outcome.revision)
                    done += 1
            stores.until(lambda: replica.value("/count") == b"%d" % (3 * ROUNDS))
            stores.close()
        except BaseException as failure:
            failures.append(failure)
            raise

    threads = [threading.Thread(target=count, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert len(set(revisions)) == 3 * ROUNDS
    assert all(replica.entries == replicas[0].entries for replica in replicas)
