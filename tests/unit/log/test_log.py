"""One partition's log: when it rolls, what it refuses, what it does when the disk fails, and what recovery makes of damage."""

import errno
import logging
import os
from pathlib import Path

import pytest

from ottla.environment.disk import DiskStore
from ottla.environment.files import Region
from ottla.log import reading
from ottla.log.config import LogConfig
from ottla.log.log import Log, OffsetNotInLog, StorageError
from ottla.protocol.errors import INVALID_RECORD, NONE, RECORD_LIST_TOO_LARGE
from ottla.records import legacy
from ottla.records.batch import build
from ottla.records.legacy import for_old_client
from ottla.records.record import Record
from tests.faulty_store import FaultyStore

NOW = 1_700_000_000_000


def open_log(directory: Path, *, recovery_point: int = 0, clean: bool = False, **config: int) -> Log:
    directory.mkdir(exist_ok=True)
    settings = LogConfig(**config)  # type: ignore[arg-type]
    return Log(DiskStore(), directory, settings, recovery_point=recovery_point, clean=clean)


def append(log: Log, count: int = 1, *, size: int = 100, timestamp: int = NOW, epoch: int = 0) -> int:
    batch = build([Record(i, timestamp, b"k", b"." * size) for i in range(count)])
    answer = log.append(batch, 0, len(batch), epoch, NOW)
    assert answer.error_code == NONE
    return answer.base_offset


def segments(log: Log) -> list[int]:
    return sorted(int(path.stem) for path in log.directory.glob("*.log"))


def test_it_rolls_before_a_segment_grows_too_large(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=600)
    assert [append(log) for _ in range(7)] == list(range(7))
    assert segments(log) == [0, 3, 6]
    assert (log.recovery_point, log.wants_flush) == (0, True)  # two segments are full
    log.flush()
    assert (log.recovery_point, log.wants_flush) == (7, False)
    assert (log.directory / f"{3:020d}.snapshot").exists()
    log.close()


def test_it_rolls_when_a_segment_is_old(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_ms=1000)
    for timestamp in (NOW - 5000, NOW - 4000, NOW - 3999, NOW):
        append(log, timestamp=timestamp)
    assert segments(log) == [0, 2, 3]
    log.close()


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=600)
    batch = build([Record(0, NOW, b"k", b"." * 1000)])
    assert log.append(batch, 0, len(batch), 0, NOW).error_code == RECORD_LIST_TOO_LARGE
    assert (log.end_offset, log.size) == (0, 0)
    log.close()


def test_flush_messages_moves_the_recovery_point(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", flush_messages=3)
    append(log, 2)
    assert (log.wants_flush, log.settled_offset) == (False, 2)
    log.high_watermark = 2
    append(log, 2)
    assert (log.wants_flush, log.settled_offset) == (True, 2)
    flush = log.begin_flush()
    append(log, 1)
    assert log.settled_offset == 2
    flush.run()
    log.flushed(flush, 0)
    assert (log.recovery_point, log.wants_flush, log.settled_offset) == (4, False, 5)
    log.close()


@pytest.mark.replaces_code
def test_a_disk_that_fails_while_a_coordinator_reads_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path / "t-0")
    append(log)
    failures: list[OSError] = []
    log._failed = failures.append

    def failing(region: Region) -> bytes:
        raise OSError(errno.EIO, "Input/output error", str(region.file))

    monkeypatch.setattr(Region, "read", failing)
    with pytest.raises(StorageError, match="Input/output error"):
        list(reading.batches(log))
    assert [failure.errno for failure in failures] == [errno.EIO]


def test_a_disk_that_fails_leaves_the_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path / "t-0")
    append(log)

    def full(fd: int, buffers: object, at: int) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", full)
        with pytest.raises(StorageError, match=r"0\.log: No space left on device"):
            append(log)
    assert log.end_offset == 1
    assert append(log) == 1
    assert [record.offset for _, records in reading.batches(log) for record in records] == [0, 1]
    log.close()


def test_reads_outside_of_the_log_raise_offset_not_in_log(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, 3)
    log.start_offset = 2
    with pytest.raises(OffsetNotInLog, match="offset 1 is below the log start offset 2 of t-0"):
        log.read(1, 100, 3, whole_first=True)
    with pytest.raises(OffsetNotInLog, match="offset 4 is beyond the log end offset 3 of t-0"):
        log.read(4, 100, 3, whole_first=True)
    assert log.read(3, 100, 3, whole_first=True) is None
    log.close()


@pytest.mark.parametrize("codec", [0, 4])
def test_a_timestamp_is_found_among_many_tiny_records_in_steps(tmp_path: Path, codec: int) -> None:
    """300,000 of them, in a quarter of a megabyte, held back every other request for half a second."""
    log = open_log(tmp_path / "t-0")
    batch = build([Record(at, NOW + (at == 39_999), None, b"") for at in range(40_000)], codec=codec)
    assert log.append(batch, 0, len(batch), 0, NOW).error_code == NONE
    for steps, offset in (
        (reading.find_offset(log, NOW + 1), 39_999),
        (reading.find_newest(log), 39_999),
        (reading.find_offset(log, NOW), 0),
    ):
        pauses = 0
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                result = stop.value
                break
            pauses += 1
        assert result == (NOW + (offset > 0), offset, 0)
        assert pauses == (19 if offset else 0)
    log.close()


def test_leader_epochs_are_kept_and_cut_with_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for epoch in (1, 1, 4):
        append(log, epoch=epoch)
    assert legacy.all_at_once(reading.find_newest(log)) == (NOW, 0, 1)
    log.close(clean=False)
    path = log.directory / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1])
    again = open_log(tmp_path / "t-0")
    assert (again.end_offset, again.epochs.latest) == (2, 1)
    again.close()


def test_after_a_clean_stop_nothing_is_scanned(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", index_interval_bytes=100)
    for _ in range(10):
        append(log)
    log.close()
    path = log.directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1  # within the first batch, which a scan would find
    path.write_bytes(data)
    again = open_log(tmp_path / "t-0", recovery_point=10, clean=True)
    assert again.end_offset == 10
    again.close()


def test_only_what_lies_behind_the_recovery_point_is_checked(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for _ in range(10):
        append(log)
    log.close(clean=False)
    path = log.directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    size = len(data) // 10
    data[100] ^= 1  # in the first batch
    data[7 * size + 100] ^= 1  # in the eighth
    path.write_bytes(data)
    again = open_log(tmp_path / "t-0", recovery_point=5)
    assert again.end_offset == 7
    again.close(clean=False)
    data[2 * size + 16] = 9  # a magic that does not exist, in a batch that was flushed to disk
    path.write_bytes(data)
    with pytest.raises(StorageError, match=r"0\.log at position .*: batch of magic 9"):
        open_log(tmp_path / "t-0", recovery_point=5)


def test_damage_in_an_older_segment_cuts_all_that_follows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=600)
    for _ in range(7):
        append(log)
    log.close(clean=False)
    path = log.directory / f"{3:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        again = open_log(tmp_path / "t-0", segment_bytes=600, recovery_point=3)
    assert "the CRC of a batch is wrong; the log is cut there, at offset 5" in caplog.text
    assert (again.end_offset, segments(again)) == (5, [0, 3])
    assert append(again) == 5
    again.close()


def test_leftovers_of_deletions_are_removed(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    for name in (f"{0:020d}.log.deleted", "x.cleaned", "y.tmp"):
        (tmp_path / "t-0" / name).touch()
    log = open_log(tmp_path / "t-0")
    log.close()
    assert not [name for name in DiskStore().names(tmp_path / "t-0") if name.endswith(("deleted", "cleaned", "tmp"))]


def test_a_damaged_snapshot_is_rebuilt_from_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path / "t-0")
    batch = build([Record(0, NOW, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0)
    assert log.append(batch, 0, len(batch), 0, NOW).base_offset == 0
    log.close()
    (log.directory / f"{1:020d}.snapshot").write_bytes(b"nonsense")
    again = open_log(tmp_path / "t-0", recovery_point=1, clean=True)
    assert "it is removed and rebuilt from the log" in caplog.text
    assert again.append(batch, 0, len(batch), 0, NOW).base_offset == 0
    assert again.end_offset == 1
    again.close()


def test_a_batch_that_does_not_fit_is_not_passed_over(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=600)
    append(log, size=450)
    append(log, size=100)
    append(log, size=100)
    assert len(segments(log)) > 1
    assert log.read(0, 300, log.end_offset, whole_first=False) is None
    region = log.read(0, 300, log.end_offset, whole_first=True)
    assert region is not None
    assert region.position == 0
    log.close()


@pytest.mark.parametrize("failing", ["read", "write", "truncate"])
def test_a_log_that_cannot_be_opened_for_lack_of_descriptors_keeps_none(tmp_path: Path, failing: str) -> None:
    """It is tried again every second; each attempt must leave as many descriptors as it found."""
    log = open_log(tmp_path / "t-0", segment_bytes=600)
    for _ in range(9):
        append(log)
    log.close(clean=False)
    with log.segments[-1].path.open("ab") as file:
        file.write(b"torn")  # a reason to truncate
    fails: list[int] = []

    def fault(operation: str, _: Path) -> OSError | None:
        if operation == failing:
            fails.append(0)
        return OSError(errno.EMFILE, "Too many open files") if operation == failing and len(fails) > 1 else None

    files = DiskStore()
    for _ in range(3):
        fails.clear()
        fails.extend([0] if failing != "read" else [])
        with pytest.raises(OSError, match="Too many open files"):
            Log(FaultyStore(files, fault), log.directory, log.config)
        assert files.open_files == 0
    again = Log(files, log.directory, log.config)
    assert again.end_offset == 9
    again.close()


@pytest.mark.parametrize("size", [900, 1100])
def test_max_decompressed_message_bytes_bounds_each_message_of_an_old_producer(tmp_path: Path, size: int) -> None:
    log = open_log(tmp_path / "t-0", max_decompressed_bytes=1000)
    messages = for_old_client(build([Record(at, NOW, None, bytes(size)) for at in range(200)], codec=1), 1, 0, 1 << 20)
    appended = log.append_message_set(messages, 0, len(messages), 0, NOW)
    assert appended.unfinished is None
    assert appended.error_code == (NONE if size < 1000 else INVALID_RECORD)
    assert log.end_offset == (200 if size < 1000 else 0)
    log.close()


def test_jitter_lets_segments_roll_earlier(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    asked: list[int] = []

    def half(most: int) -> int:
        asked.append(most)
        return most // 2

    config = LogConfig(segment_ms=1000, segment_jitter_ms=600)
    log = Log(DiskStore(), tmp_path / "t-0", config, jitter=half)
    for timestamp in (0, 700, 701, 1000):
        append(log, timestamp=NOW + timestamp)
    assert (segments(log), asked) == ([0, 2], [600, 600])
    log.close()


def test_batches_without_a_timestamp_roll_by_the_clock(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_ms=1000)
    batch = build([Record(0, -1, b"k", b"v")])
    for now in (0, 1000, 1001):
        log.append(batch, 0, len(batch), 0, NOW + now)
    assert segments(log) == [0, 2]
    log.close()


def test_a_preallocated_segment_has_its_room_and_gives_it_back(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=10_000, preallocate=True)
    append(log)
    path = log.directory / f"{0:020d}.log"
    assert (path.stat().st_size, log.size) == (10_000, log.segments[0].size)
    log.close(clean=False)
    again = open_log(tmp_path / "t-0", segment_bytes=10_000, preallocate=True)
    assert (again.end_offset, append(again)) == (1, 1)  # the zeros behind the batch are no damage worth keeping
    again.close()
    assert path.stat().st_size == again.segments[0].size


@pytest.mark.parametrize("at", range(1, 12))
def test_an_operation_without_descriptors_leaves_a_log_that_goes_on(tmp_path: Path, at: int) -> None:
    """The system has none left for the `at`-th file that is written from some time on; the next attempt has one."""
    count, fails_at = 0, 0

    def fails(operation: str, path: Path) -> OSError | None:
        nonlocal count
        if operation not in ("append", "write", "remove", "truncate"):
            return None
        count += 1
        return OSError(errno.EMFILE, "Too many open files") if count == fails_at else None

    config = LogConfig(segment_bytes=400, index_interval_bytes=100)
    log = Log(FaultyStore(DiskStore(), fails), tmp_path, config)
    values: list[bytes] = []

    def put(epoch: int) -> int:
        value = b"%d" % len(values) * 50
        batch = build([Record(0, NOW, b"k", value)])
        try:
            assert log.append(batch, 0, len(batch), epoch, NOW).error_code == 0
        except StorageError:
            return 1
        values.append(value)
        return 0

    for _ in range(7):
        assert put(0) == 0
    fails_at = count + at
    errors = sum(put(1) for _ in range(10))
    assert errors == 1
    log.high_watermark = log.end_offset
    assert [record.value for _, records in reading.batches(log) for record in records] == values
    log.close()
    again = Log(DiskStore(), tmp_path, config, recovery_point=len(values), clean=True)
    assert [record.value for _, records in reading.batches(again) for record in records] == values
    assert (again.epochs.latest, again.epochs.epoch_at(6)) == (1, 0)
    again.close()
