"""A log directory that lives in memory: what a loss of power leaves of it, and of a store's names."""

import errno
import os
import random
from pathlib import Path

import pytest

from ottla.environment.disk import DiskStore
from ottla.log import reading
from ottla.log.config import LogConfig
from ottla.log.directory import LogDirectory, UnusableDirectory
from ottla.log.log import Log, StorageError
from tests.faulty_store import FaultyStore
from tests.memory_store import MemoryStore

HOME = Path("/data/a")
ID = bytes(range(16))


def read(directory: LogDirectory) -> list[int]:
    """The base offsets of the batches of t-0."""
    log = directory.logs()["t", 0]
    region = log.read(0, 1 << 20, log.end_offset, whole_first=True)
    return [] if region is None else [header.base_offset for header in reading.headers(log, region)]


@pytest.mark.parametrize("seed", range(30))
def test_a_power_loss_loses_only_data_that_was_not_flushed(seed: int) -> None:
    store = MemoryStore()
    directory = LogDirectory(store, HOME)
    log = directory.open_partition("t", 0, ID, LogConfig())
    for _ in range(3):
        log.append_records([(b"k", b"v")], 0, 1)
    log.flush()
    directory.checkpoint()
    for _ in range(3):
        log.append_records([(b"k", b"v")], 0, 1)
    directory.open_partition("t", 1, ID, LogConfig()).append_records([(b"k", b"v")], 0, 1)
    after = LogDirectory(store.power_loss(random.Random(seed)), HOME)
    assert not after.stopped_cleanly
    assert after.take_inventory({("t", 0): ID, ("t", 1): ID}).leftovers == []
    again = after.open_partition("t", 0, ID, LogConfig())
    assert 3 <= again.end_offset <= 6
    assert read(after) == list(range(again.end_offset))
    assert after.open_partition("t", 1, ID, LogConfig()).end_offset in (0, 1)


@pytest.mark.parametrize("reserved", [0, 64])
def test_a_flush_keeps_the_bytes_of_the_file(reserved: int) -> None:
    """Also where some before the end of the last flush were removed, and others written in their place."""
    store, path = MemoryStore(), HOME / "file"
    file = store.open(path)
    written = b""
    for kept, data in ((0, b"abcdef"), (6, b"ghi"), (4, b"XY"), (2, b"cdXYz"), (7, b"")):
        file.truncate(kept)
        file.reserve(reserved)
        file.append([data])
        written = written[:kept] + data
        file.flush()
        store.flush(HOME)
        survivors = {store.power_loss(random.Random(seed)).read_text(path) for seed in range(8)}
        assert survivors == {written.decode()}


def test_a_clean_stop_survives_a_power_loss() -> None:
    store = MemoryStore()
    directory = LogDirectory(store, HOME)
    directory.open_partition("t", 0, ID, LogConfig()).append_records([(b"k", b"v")], 0, 1)
    directory.close()
    after = LogDirectory(store.power_loss(random.Random(7)), HOME)
    assert after.stopped_cleanly
    assert after.open_partition("t", 0, ID, LogConfig()).end_offset == 1


def test_a_directory_has_one_owner() -> None:
    store = MemoryStore()
    first = LogDirectory(store, HOME)
    with pytest.raises(UnusableDirectory, match="/data/a is in use by another broker"):
        LogDirectory(store, HOME)
    first.release()
    LogDirectory(store, HOME).release()
    LogDirectory(store, HOME.parent / "b").release()


def test_discarded_partitions_are_renamed_then_removed() -> None:
    store = MemoryStore()
    directory = LogDirectory(store, HOME)
    directory.open_partition("t", 0, ID, LogConfig()).append_records([(b"k", b"v")], 0, 1)
    renamed = directory.discard_partition("t", 0)
    assert renamed is not None
    assert not store.exists(HOME / "t-0")
    assert f"{0:020d}.log" in store.names(renamed)
    directory.remove_discarded(renamed)
    assert renamed.name not in store.names(HOME)


def test_names_are_lost_in_the_order_of_their_changes() -> None:
    store = MemoryStore()
    store.make_directory(HOME, parents=True)
    for path in (Path("/"), HOME.parent):
        store.flush(path)
    store.replace(HOME / "x", b"1")
    store.rename(HOME / "x", HOME / "y")
    store.make_directory(HOME / "z")
    outcomes = {tuple(store.power_loss(random.Random(seed)).names(HOME)) for seed in range(30)}
    assert outcomes == {("x",), ("y",), ("y", "z")}


def test_a_new_data_directory_survives_a_power_loss() -> None:
    """Its own name, and those of the directories above it, are on disk before anything is written in it."""
    store = MemoryStore()
    LogDirectory(store, HOME).release()
    assert all(store.power_loss(random.Random(seed)).is_directory(HOME) for seed in range(10))


@pytest.mark.parametrize("seed", range(10))
def test_a_log_with_flush_messages_is_flushed_when_it_is_opened_after_a_kill(seed: int) -> None:
    store = MemoryStore()
    config = LogConfig(flush_messages=1)
    killed = LogDirectory(store, HOME)
    killed.open_partition("t", 0, ID, config).append_records([(b"k", b"v")], 0, 1)
    killed.release()
    LogDirectory(store, HOME).open_partition("t", 0, ID, config)
    after = LogDirectory(store.power_loss(random.Random(seed)), HOME)
    assert after.open_partition("t", 0, ID, config).end_offset == 1


def test_a_log_that_cannot_be_flushed_when_it_is_opened_closes_its_files(tmp_path: Path) -> None:
    config = LogConfig(flush_messages=1)
    (tmp_path / "t-0").mkdir()
    log = Log(DiskStore(), tmp_path / "t-0", config)
    log.append_records([(b"k", b"v")], 0, 1)
    log.close(clean=False)

    def fails(operation: str, path: Path) -> OSError | None:
        return OSError(errno.EIO, "Input/output error") if operation == "flush" and path.suffix == ".log" else None

    before = os.listdir("/proc/self/fd")
    with pytest.raises(StorageError, match="Input/output error"):
        Log(FaultyStore(DiskStore(), fails), tmp_path / "t-0", config)
    assert os.listdir("/proc/self/fd") == before
