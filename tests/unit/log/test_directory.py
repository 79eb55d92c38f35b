"""A log directory: one owner, one identity, and what it remembers of its partitions."""

import errno
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.environment.disk import DiskStore
from ottla.log.config import LogConfig
from ottla.log.directory import Identity, LogDirectory, UnusableDirectory
from ottla.log.log import StorageError
from ottla.protocol.uuids import uuid_bytes, uuid_text
from tests.faulty_store import FaultyStore
from tests.memory_store import MemoryStore

ID = bytes(range(16))


def test_uuids_are_written_as_kafka_does() -> None:
    assert uuid_text(ID) == "AAECAwQFBgcICQoLDA0ODw"
    assert uuid_bytes("AAECAwQFBgcICQoLDA0ODw") == ID
    with pytest.raises(ValueError, match="not a uuid"):
        uuid_bytes("AAEC")


def test_a_directory_has_one_owner(tmp_path: Path) -> None:
    first = LogDirectory(DiskStore(), tmp_path)
    with pytest.raises(UnusableDirectory, match="in use by another broker"):
        LogDirectory(DiskStore(), tmp_path)
    first.release()
    LogDirectory(DiskStore(), tmp_path).release()


def test_a_directory_stores_the_identity_of_its_broker(tmp_path: Path) -> None:
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


def test_a_failed_start_keeps_the_mark_of_a_clean_stop(tmp_path: Path) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":12}')
    LogDirectory(DiskStore(), tmp_path).release()
    directory = LogDirectory(DiskStore(), tmp_path)
    assert directory.stopped_cleanly
    directory.open_partition("t", 0, ID, LogConfig())
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    directory.close()
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":12}'


def test_directories_of_apache_kafka_alone_are_kept(tmp_path: Path) -> None:
    directory = LogDirectory(DiskStore(), tmp_path)
    for name in ("__cluster_metadata-0", "t-0.0123456789abcdef0123456789abcdef-stray"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "partition.metadata").touch()
    assert directory.take_inventory({}) == ([], [], [])
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [
        "__cluster_metadata-0",
        "t-0.0123456789abcdef0123456789abcdef-stray",
    ]
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


def test_a_partition_of_another_topic_of_that_name_is_kept_as_a_stray(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = LogDirectory(DiskStore(), tmp_path)
    assert directory.open_partition("t", 0, ID, LogConfig()).append_records([(b"k", b"v")], 0, 1).error_code == 0
    directory.close()
    again = LogDirectory(DiskStore(), tmp_path)
    assert again.take_inventory({("t", 0): bytes(16)}) == ([], [], [])
    log = again.open_partition("t", 0, bytes(16), LogConfig())
    assert (log.start_offset, log.end_offset, log.recovery_point) == (0, 0, 0)
    (stray,) = tmp_path.glob("t-0.*-stray")
    assert (stray / "00000000000000000000.log").stat().st_size > 0
    assert caplog.messages == [f"{tmp_path / 't-0'} belongs to another topic of the same name: it is {stray.name} now"]
    again.release()


def test_a_topic_does_not_begin_with_the_records_of_a_deleted_one_whose_metadata_file_was_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a loss of power between the deletion of a topic and the renaming of its directories."""
    directory = LogDirectory(DiskStore(), tmp_path)
    assert directory.open_partition("t", 0, ID, LogConfig()).append_records([(b"k", b"v")], 0, 1).error_code == 0
    directory.close()
    (tmp_path / "t-0" / "partition.metadata").unlink()
    for other in ("backup-1", "logs-2"):  # of the user
        (tmp_path / other).mkdir()
    (tmp_path / "logs-2" / "server.log").write_text("INFO")
    (tmp_path / "file-3").write_text("no directory")
    again = LogDirectory(DiskStore(), tmp_path)
    assert again.take_inventory({}) == ([], [], [])
    assert again.open_partition("t", 0, bytes(16), LogConfig()).end_offset == 0
    (stray,) = tmp_path.glob("*-stray")
    assert caplog.messages == [f"{tmp_path / 't-0'} is no partition of this cluster: it is {stray.name} now"]
    assert (stray / "00000000000000000000.log").stat().st_size > 0
    again.release()


def restart(path: Path, topic_id: bytes = ID, *, only_place: bool = True) -> tuple[int, int]:
    """The start and end offset of t-0 after a start."""
    directory = LogDirectory(DiskStore(), path)
    try:
        directory.take_inventory({("t", 0): topic_id})
        log = directory.open_partition("t", 0, topic_id, LogConfig(), only_place=only_place)
        return log.start_offset, log.end_offset
    finally:
        directory.release()


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A directory after a clean stop, with ten records in t-0 of which two are deleted."""
    directory = LogDirectory(DiskStore(), tmp_path)
    log = directory.open_partition("t", 0, ID, LogConfig())
    for _ in range(10):
        assert log.append_records([(b"k", b"v" * 100)], 0, 1).error_code == 0
        log.high_watermark = log.end_offset
    log.delete_records(2)
    directory.close()
    return tmp_path


CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint")


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("content", [b"", b"0\n7\nt 0 1\n", b"\xff\n1\nt 0 1\n", b"0\n1\nt 0 -1\n"])
def test_a_damaged_checkpoint_does_not_keep_the_broker_from_starting(
    stopped: Path, caplog: pytest.LogCaptureFixture, name: str, content: bytes
) -> None:
    (stopped / name).write_bytes(content)
    assert restart(stopped) == (0 if name.startswith("log-start") else 2, 10)
    (line,) = caplog.messages
    assert str(stopped / name) in line
    assert "the file is written again" in line


def test_records_are_not_lost_to_a_start_offset_that_was_damaged(
    stopped: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (stopped / "log-start-offset-checkpoint").write_text("0\n1\nt 0 92\n")
    assert restart(stopped) == (0, 10)
    (line,) = caplog.messages
    assert (
        line
        == f"log-start-offset-checkpoint says 92 for {stopped / 't-0'}, which ended at 10: it is damaged, and ignored"
    )


@pytest.mark.parametrize("point", [0, 3, 910])
def test_a_recovery_point_that_was_damaged_costs_a_scan_at_most(stopped: Path, point: int) -> None:
    (stopped / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {point}\n")
    assert restart(stopped) == (2, 10)


def test_a_missing_recovery_point_checkpoint_is_noted(stopped: Path, caplog: pytest.LogCaptureFixture) -> None:
    (stopped / "recovery-point-offset-checkpoint").unlink()
    assert restart(stopped) == (2, 10)
    assert caplog.messages == [f"{stopped} has no recovery-point-offset-checkpoint: all records are checked"]


def test_any_flipped_byte_of_partition_metadata_is_repaired(stopped: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = stopped / "t-0" / "partition.metadata"
    sound = path.read_bytes()
    for at in range(len(sound)):
        damaged = bytearray(sound)
        damaged[at] ^= 1
        path.write_bytes(damaged)
        caplog.clear()
        assert restart(stopped, only_place=False) == (2, 10)
        assert path.read_bytes() == sound or path.read_bytes().split() == sound.split()
        assert list(stopped.glob("*-stray")) == []
        if bytes(damaged).split() != sound.split():
            (line,) = [line for line in caplog.messages if "metadata" in line]
            assert line == f"{path} is missing or damaged; it is written again with topic id {uuid_text(ID)}"


@pytest.mark.parametrize("content", [None, b"", b"garbage"])
def test_records_of_an_unknown_topic_are_not_taken_for_this_ones(stopped: Path, content: bytes | None) -> None:
    path = stopped / "t-0" / "partition.metadata"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    directory = LogDirectory(DiskStore(), stopped)
    assert directory.take_inventory({("t", 0): ID}) == ([], [("t", 0)], [])
    with pytest.raises(StorageError, match=f"{path} is missing or damaged, .* else move {stopped / 't-0'} away"):
        directory.open_partition("t", 0, ID, LogConfig(), only_place=False)
    directory.close()
    assert restart(stopped) == (2, 10)  # what the checkpoints say of it was kept; a single directory leaves no doubt


def test_an_empty_partition_directory_left_by_a_power_loss_is_removed(stopped: Path) -> None:
    """Without partition.metadata and segments it holds nothing; records without it may be another topic's, and are kept."""
    (stopped / "t-1").mkdir()
    (stopped / "t-1" / "leader-epoch-checkpoint").write_text("0\n0\n")
    (stopped / "t-0" / "partition.metadata").unlink()
    directory = LogDirectory(DiskStore(), stopped)
    (removed,) = directory.take_inventory({}, {("t", 0): ID, ("t", 1): ID}).leftovers
    directory.release()
    assert removed.name.startswith("t-1.")
    assert removed.name.endswith("-delete")
    assert len(list(stopped.glob("t-0.*-stray"))) == 1


@pytest.mark.parametrize("content", [b"", b"version: 0\ntopic_id: AAEC", b"vers\x00\x8f\x00\x1c"])
def test_a_loss_of_power_may_leave_a_part_of_partition_metadata(stopped: Path, content: bytes) -> None:
    (stopped / ".kafka_cleanshutdown").unlink()
    (stopped / "t-0" / "partition.metadata").write_bytes(content)
    assert restart(stopped, only_place=False) == (2, 10)


def test_a_recreated_topic_does_not_begin_where_its_predecessor_did(stopped: Path) -> None:
    """kill -9 came after the deletion was decided and before the checkpoints were written."""
    (stopped / ".kafka_cleanshutdown").unlink()
    (stopped / "t-0").rename(stopped / f"t-0.{'0' * 32}-delete")
    directory = LogDirectory(DiskStore(), stopped)
    directory.take_inventory({})
    log = directory.open_partition("t", 0, bytes(16), LogConfig())
    assert (log.start_offset, log.end_offset, log.recovery_point) == (0, 0, 0)
    directory.release()


def test_a_topic_is_created_again_after_kill_9_during_its_deletion(stopped: Path) -> None:
    directory = LogDirectory(DiskStore(), stopped)
    directory.take_inventory({})  # the metadata does not know it any more: a stray
    assert len(list(stopped.glob("t-0.*-stray"))) == 1
    log = directory.open_partition("t", 0, bytes(16), LogConfig())
    assert log.append_records([(b"k", b"v")], 0, 1).base_offset == 0
    assert directory.offline is None
    directory.release()


def test_a_removed_log_file_is_damage_and_not_an_empty_partition(stopped: Path) -> None:
    removed = stopped / "t-0" / "00000000000000000000.log"
    content = removed.read_bytes()
    removed.unlink()
    for _ in range(2):  # the second start knows it too
        directory = LogDirectory(DiskStore(), stopped)
        directory.take_inventory({("t", 0): ID})
        with pytest.raises(StorageError, match=f"{removed} is missing, .* put it back from a backup, or move"):
            directory.open_partition("t", 0, ID, LogConfig())
        assert directory.offline is None
        directory.close()
    removed.write_bytes(content)
    assert restart(stopped) == (2, 10)


def test_a_log_file_that_lost_its_last_batches_is_damage(stopped: Path) -> None:
    path = stopped / "t-0" / "00000000000000000000.log"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 9 // 10])  # ten batches of the same size
    for index in path.parent.glob("*index"):
        index.unlink()
    directory = LogDirectory(DiskStore(), stopped)
    with pytest.raises(StorageError, match="ends at offset 9, and records up to 10 were flushed to disk"):
        directory.open_partition("t", 0, ID, LogConfig())
    directory.release()


def test_a_removed_partition_directory_is_reported(stopped: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.rmtree(stopped / "t-0")
    assert restart(stopped) == (0, 0)
    assert caplog.messages == [f"t-0, which ended at offset 10 when the broker stopped, is not in {stopped} any more"]


@pytest.mark.parametrize(
    "code",
    [
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EEXIST, errno.ENOTEMPTY, errno.EINVAL),
        *(errno.EBUSY, errno.EXDEV, errno.EBADF, None),
    ],
)
def test_an_error_that_is_not_the_disks_takes_no_directory_offline(tmp_path: Path, code: int | None) -> None:
    failing = [""]

    def fault(operation: str, _: Path) -> OSError | None:
        if operation not in failing:
            return None
        return OSError("no") if code is None else OSError(code, "no")

    disk = FaultyStore(DiskStore(), fault)
    directory = LogDirectory(disk, tmp_path)
    log = directory.open_partition("t", 0, ID, LogConfig())
    failing[:] = ["append", "write", "replace", "flush"]
    with pytest.raises(StorageError, match="no"):
        log.append_records([(b"k", b"v")], 0, 1)
    with pytest.raises(OSError, match="no"):
        directory.open_partition("t", 1, ID, LogConfig())
    with pytest.raises(StorageError, match="no"):
        log.flush()
    assert directory.offline is None
    failing[:] = []
    assert log.append_records([(b"k", b"v")], 0, 1).base_offset == 0
    assert directory.open_partition("t", 1, ID, LogConfig()).end_offset == 0
    directory.release()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.ENODEV, errno.ESTALE])
def test_an_error_of_the_disk_takes_the_directory_offline(tmp_path: Path, code: int) -> None:
    failing = [""]
    disk = FaultyStore(DiskStore(), lambda operation, _: OSError(code, "no") if operation in failing else None)
    directory = LogDirectory(disk, tmp_path)
    log = directory.open_partition("t", 0, ID, LogConfig())
    failing[:] = ["append"]
    with pytest.raises(StorageError, match="no"):
        log.append_records([(b"k", b"v")], 0, 1)
    assert directory.offline == "no"
    directory.release()


def test_discarded_partitions_are_renamed_then_removed(tmp_path: Path) -> None:
    directory = LogDirectory(DiskStore(), tmp_path)
    for index in range(2):
        directory.open_partition("t", index, ID, LogConfig())
    path = directory.discard_partition("t", 0)
    assert path is not None
    assert (path.name.startswith("t-0."), path.name.endswith("-delete")) == (True, True)
    assert directory.take_inventory({("t", 1): ID}) == ([("t", 1)], [], [path])
    assert directory.take_inventory({}) == ([], [], [path])
    (stray,) = tmp_path.glob("*-stray")  # nobody knows it: kept, under another name
    assert (stray.name.startswith("t-1."), (tmp_path / "t-1").exists()) == (True, False)
    directory.remove_discarded(path)
    assert not path.exists()
    directory.release()


@pytest.mark.parametrize("process", ["that created it", "after a crash"])
def test_a_loss_of_power_after_a_clean_stop_leaves_partition_metadata(process: str) -> None:
    """Without it the partition of a broker with several directories would stay offline, as if it had been removed."""
    store, path = MemoryStore(), Path("/data")
    directory = LogDirectory(store, path)
    log = directory.open_partition("t", 0, ID, LogConfig())
    assert log.append_records([(b"k", b"v")], 0, 1).error_code == 0
    if process == "after a crash":
        log.flush()
        directory.release()
        directory = LogDirectory(store, path)
        directory.take_inventory({("t", 0): ID})
        directory.open_partition("t", 0, ID, LogConfig(), only_place=False)
    directory.close()
    for seed in range(20):  # what was not flushed is there or not, by chance
        after = LogDirectory(store.power_loss(random.Random(seed)), path)
        assert after.stopped_cleanly
        assert after.take_inventory({("t", 0): ID}).certain == [("t", 0)]
        assert after.open_partition("t", 0, ID, LogConfig(), only_place=False).end_offset == 1
        after.release()


def test_the_first_flush_of_records_flushes_their_topic_id() -> None:
    """As in Kafka: records without a known topic might be served as those of a later topic of the same name."""
    store, path = MemoryStore(), Path("/data")
    directory = LogDirectory(store, path)
    log = directory.open_partition("t", 0, ID, LogConfig())
    assert log.append_records([(b"k", b"v")], 0, 1).error_code == 0
    log.flush()
    for seed in range(20):
        after = LogDirectory(store.power_loss(random.Random(seed)), path)
        assert after.take_inventory({("t", 0): ID}).certain == [("t", 0)]
        assert after.open_partition("t", 0, ID, LogConfig(), only_place=False).end_offset == 1
        assert after.take_inventory({}) == ([], [], [])  # the topic was deleted: its records are those of no other
        after.release()
    directory.release()
