"""A log directory: one owner, one identity, and what it remembers of its partitions."""

from pathlib import Path

import pytest

from ottla.log.config import LogConfig
from ottla.log.directory import Identity, LogDirectory, UnusableDirectory, uuid_bytes, uuid_text
from ottla.log.store import DiskStore

ID = bytes(range(16))


def test_uuids_are_written_as_kafka_does() -> None:
    assert uuid_text(ID) == "AAECAwQFBgcICQoLDA0ODw"
    assert uuid_bytes("AAECAwQFBgcICQoLDA0ODw") == ID
    with pytest.raises(ValueError, match="not a uuid"):
        uuid_bytes("AAEC")


def test_it_has_one_owner(tmp_path: Path) -> None:
    first = LogDirectory(DiskStore(), tmp_path)
    with pytest.raises(UnusableDirectory, match="in use by another broker"):
        LogDirectory(DiskStore(), tmp_path)
    first.release()
    LogDirectory(DiskStore(), tmp_path).release()


def test_it_knows_whose_it_is(tmp_path: Path) -> None:
    directory = LogDirectory(DiskStore(), tmp_path)
    assert directory.identity() is None
    mine = Identity(3, "cluster", ID)
    directory.claim(mine)
    assert directory.identity() == mine
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=x\n")
    with pytest.raises(UnusableDirectory, match=r"meta\.properties is damaged"):
        directory.identity()
    directory.release()


def test_a_clean_stop_is_seen_once(tmp_path: Path) -> None:
    directory = LogDirectory(DiskStore(), tmp_path)
    assert not directory.stopped_cleanly
    log = directory.open_partition("t", 0, ID, LogConfig())
    assert log.append_records([(b"k", b"v")], 0, 1).base_offset == 0
    directory.close()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 1\n"
    again = LogDirectory(DiskStore(), tmp_path)
    assert again.stopped_cleanly
    assert again.open_partition("t", 0, ID, LogConfig()).end_offset == 1
    again.release()
    third = LogDirectory(DiskStore(), tmp_path)
    assert not third.stopped_cleanly
    third.release()


def test_a_partition_of_another_topic_of_that_name_is_not_taken(tmp_path: Path) -> None:
    directory = LogDirectory(DiskStore(), tmp_path)
    directory.open_partition("t", 0, ID, LogConfig())
    with pytest.raises(UnusableDirectory, match="another topic of the same name"):
        directory.open_partition("t", 0, bytes(16), LogConfig())
    directory.release()


def test_discarded_partitions_are_renamed_then_removed(tmp_path: Path) -> None:
    directory = LogDirectory(DiskStore(), tmp_path)
    for index in range(2):
        directory.open_partition("t", index, ID, LogConfig())
    path = directory.discard_partition("t", 0)
    assert (path.name.startswith("t-0."), path.name.endswith("-delete")) == (True, True)
    assert directory.leftovers([("t", 1)]) == [path]
    assert directory.leftovers([]) == [path, tmp_path / "t-1"]
    directory.remove_discarded(path)
    assert not path.exists()
    directory.release()
