"""The embedded metadata store: compare and set, revisions, what a file keeps."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.metadata.store import Change, ChangeOutcome, Entry
from ottla.metadata.store.sqlite import SqliteStore
from ottla.metadata.store.sqlite_file import DamagedStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    sqlite_store = SqliteStore(tmp_path / "metadata.db")
    yield sqlite_store
    sqlite_store.close()


def test_every_change_gets_the_next_revision(store: SqliteStore) -> None:
    assert store.revision == 0
    assert store.change(Change(put={"/a": b"1", "/b": b"2"})) == ChangeOutcome(1)
    assert store.change(Change(put={"/a": b"3"}, delete=["/b"])) == ChangeOutcome(2)
    assert (store.get("/a"), store.get("/b")) == (Entry("/a", b"3", 2, 1), None)
    assert store.change(Change(delete=["/a"])) == ChangeOutcome(3)
    assert store.revision == 3


def test_a_range_is_a_prefix_in_order(store: SqliteStore) -> None:
    store.change(Change(put={"/t/b": b"", "/t/a": b"", "/t/é": b"", "/u": b"", "/t": b"", "/s": b""}))
    assert [entry.key for entry in store.range("/t/")] == ["/t/a", "/t/b", "/t/é"]


def test_a_change_that_expected_something_else_is_not_made(store: SqliteStore) -> None:
    assert store.change(Change(expect={"/a": 0}, put={"/a": b"1"})) == ChangeOutcome(1)
    differs = ChangeOutcome(0, {"/a": Entry("/a", b"1", 1, 1)})
    assert store.change(Change(expect={"/a": 0}, put={"/a": b"2", "/b": b"2"})) == differs
    assert store.change(Change(expect={"/a": 1, "/b": 7}, put={"/a": b"2"})) == ChangeOutcome(
        0, {"/b": Entry("/b", None, 0, 0)}
    )
    assert (store.revision, store.get("/a"), store.get("/b")) == (1, Entry("/a", b"1", 1, 1), None)
    assert store.change(Change(expect={"/a": 1, "/b": 0}, put={"/a": b"2"})) == ChangeOutcome(2)


def test_a_failed_change_leaves_nothing(store: SqliteStore) -> None:
    with pytest.raises(Exception, match="NOT NULL"):
        store.change(Change(put={"/a": b"1", "/b": None}))  # type: ignore[dict-item]
    assert (store.revision, store.get("/a")) == (0, None)
    assert store.change(Change(put={"/a": b"1"})) == ChangeOutcome(1)


def test_a_file_keeps_entries_and_the_revision(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "m.db")
    first.change(Change(put={"/a": b"1"}))
    first.change(Change(delete=["/a"]))
    first.change(Change(put={"/b": b"\0\xff"}))
    first.close()
    again = SqliteStore(tmp_path / "m.db")
    assert (again.revision, again.get("/a"), again.get("/b")) == (3, None, Entry("/b", b"\0\xff", 3, 3))
    again.close()


@pytest.mark.parametrize(("durable", "synchronous"), [(True, 2), (False, 0)])
def test_changes_are_flushed_unless_they_may_be_lost(tmp_path: Path, *, durable: bool, synchronous: int) -> None:
    """2 is FULL: a flush for each transaction; 0 is OFF."""
    store = SqliteStore(tmp_path / "m.db", durable=durable)
    assert store._db.execute("PRAGMA synchronous").fetchone() == (synchronous,)
    assert store.change(Change(put={"/a": b"1"})) == ChangeOutcome(1)
    store.close()


def test_a_file_that_is_no_database_raises(tmp_path: Path) -> None:
    (tmp_path / "m.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(DamagedStore, match=r"m\.db is not a metadata store"):
        SqliteStore(tmp_path / "m.db")
    with pytest.raises(OSError, match="cannot open"):
        SqliteStore(tmp_path / "missing" / "m.db")


def test_no_memory_is_mapped_from_a_file_that_may_go_bad(tmp_path: Path, store: SqliteStore) -> None:
    """The mapped index of the write-ahead log once ended the process with SIGBUS when its file could not be extended."""
    store.change(Change(put={"/a": b"1"}))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metadata.db", "metadata.db-wal"]
