"""A log directory: one owner, one identity, and what it remembers of its partitions."""

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.log.config import LogConfig
from ottla.log.directory import Identity, LogDirectory, UnusableDirectory
from ottla.log.store import DiskStore
from ottla.protocol.uuids import uuid_bytes, uuid_text

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


def test_a_start_that_comes_to_nothing_leaves_a_clean_stop_clean(tmp_path: Path) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":12}')
    LogDirectory(DiskStore(), tmp_path).release()
    directory = LogDirectory(DiskStore(), tmp_path)
    assert directory.stopped_cleanly
    directory.open_partition("t", 0, ID, LogConfig())
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    directory.close()
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":12}'


def test_what_belongs_to_apache_kafka_alone_is_no_leftover(tmp_path: Path) -> None:
    directory = LogDirectory(DiskStore(), tmp_path)
    for name in ("__cluster_metadata-0", "t-0.0123456789abcdef0123456789abcdef-stray"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "partition.metadata").touch()
    assert directory.leftovers([]) == []
    directory.release()


def test_a_lock_of_java_is_seen(tmp_path: Path) -> None:
    """Java locks files by POSIX, which knows nothing of flock, and never against the same process."""
    code = (
        "import fcntl, sys; held = open(sys.argv[1], 'r+'); fcntl.lockf(held, fcntl.LOCK_EX); print(flush=True); "
        "sys.stdin.read()"
    )
    (tmp_path / ".lock").touch()
    command = [sys.executable, "-c", code, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"\n"
        with pytest.raises(UnusableDirectory, match="in use by another broker"):
            LogDirectory(DiskStore(), tmp_path)
    LogDirectory(DiskStore(), tmp_path).release()


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
    assert directory.leftovers([]) == [path]
    (stray,) = tmp_path.glob("*-stray")  # nobody knows it: kept, under another name
    assert (stray.name.startswith("t-1."), (tmp_path / "t-1").exists()) == (True, False)
    assert directory.leftovers([]) == [path]
    directory.remove_discarded(path)
    assert not path.exists()
    directory.release()
