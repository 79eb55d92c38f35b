"""Segments that retention deletes, and those that it never does."""

import errno
import os
from pathlib import Path

import pytest

from ottla.environment.disk import DiskStore
from ottla.log.config import LogConfig
from ottla.log.log import Log, OffsetNotInLog, StorageError
from ottla.log.retention import Candidate, Retention, expired
from ottla.records.batch import build, records_of
from ottla.records.record import Record
from tests.faulty_store import FaultyStore

NOW = 1_700_000_000_000
FOUR = [
    Candidate(10, 100, NOW - 400),
    Candidate(20, 100, NOW - 300),
    Candidate(30, 100, NOW - 200),
    Candidate(40, 50, NOW),
]


@pytest.mark.parametrize(
    ("retention", "start", "high_watermark", "count"),
    [
        (Retention(True, -1, -1), 0, 40, 0),
        (Retention(True, 250, -1), 0, 40, 2),
        (Retention(True, 300, -1), 0, 40, 1),
        (Retention(True, 0, -1), 0, 40, 3),
        (Retention(True, -1, 350), 0, 40, 0),
        (Retention(True, -1, 250), 0, 40, 1),
        (Retention(True, -1, 249), 0, 40, 1),
        (Retention(True, -1, 150), 0, 40, 2),
        (Retention(True, -1, 0), 0, 40, 4),
        (Retention(True, 250, 250), 0, 40, 2),
        (Retention(True, 250, -1), 0, 15, 1),
        (Retention(True, 250, -1), 0, 9, 0),
        (Retention(False, 0, 0), 0, 40, 0),
        (Retention(False, 0, 0), 20, 40, 2),
        (Retention(True, -1, -1), 19, 40, 1),
        (Retention(True, -1, -1), 40, 40, 3),
    ],
)
def test_retention_by_time_and_size_expires_segments(
    retention: Retention, start: int, high_watermark: int, count: int
) -> None:
    assert expired(FOUR, retention, start, high_watermark, NOW) == count


def test_an_empty_last_segment_stays() -> None:
    segments = [Candidate(10, 100, NOW - 400), Candidate(10, 0, NOW - 400)]
    assert expired(segments, Retention(True, 1, 0), 0, 10, NOW) == 1


def test_old_records_behind_a_young_one_stay() -> None:
    segments = [Candidate(10, 100, NOW), Candidate(20, 100, NOW - 900), Candidate(30, 1, NOW)]
    assert expired(segments, Retention(True, 500, -1), 0, 30, NOW) == 0


def open_log(directory: Path, **config: object) -> Log:
    directory.mkdir(exist_ok=True)
    return Log(DiskStore(), directory, LogConfig(segment_bytes=400, **config))  # type: ignore[arg-type]


def append(log: Log, timestamp: int) -> int:
    batch = build([Record(0, timestamp, b"k", b"." * 100)])
    offset = log.append(batch, 0, len(batch), 0, NOW).base_offset
    log.high_watermark = log.end_offset
    return offset


def offsets_from(log: Log, offset: int) -> list[int]:
    region = log.read(offset, 1 << 20, log.end_offset, whole_first=True)
    return [] if region is None else [record.offset for record in records_of(region.read())]


def test_a_log_removes_old_segments_and_open_reads_continue(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", retention_ms=1000)
    for timestamp in (NOW - 5000, NOW - 5000, NOW - 100, NOW - 100, NOW):
        append(log, timestamp)
    reading = log.read(0, 1 << 20, log.end_offset, whole_first=True)
    assert reading is not None
    gone = log.retain(NOW)
    assert [segment.base_offset for segment in gone] == [0]
    assert (log.start_offset, log.end_offset) == (2, 5)
    assert [record.offset for record in records_of(reading.read())] == [0, 1]
    with pytest.raises(OffsetNotInLog):
        log.read(1, 100, log.end_offset, whole_first=True)
    names = sorted(path.name for path in log.directory.iterdir())
    assert f"{0:020d}.log.deleted" in names
    assert f"{0:020d}.log" not in names
    for segment in gone:
        segment.remove()
    assert not list(log.directory.glob(f"{0:020d}*"))
    assert log.epochs.epoch_at(2) == 0
    log.close()


@pytest.mark.parametrize("code", [errno.EPERM, errno.EACCES, errno.ENOENT])
@pytest.mark.parametrize("kind", [".log", ".index"])
def test_a_log_stays_readable_when_one_of_its_segments_cannot_be_renamed(tmp_path: Path, code: int, kind: str) -> None:
    failing = tmp_path / "t-0" / f"{4:020d}{kind}"
    fails = True

    def fault(operation: str, path: Path) -> OSError | None:
        return OSError(code, os.strerror(code)) if fails and (operation, path) == ("rename", failing) else None

    (tmp_path / "t-0").mkdir()
    store = FaultyStore(DiskStore(), fault)
    log = Log(store, tmp_path / "t-0", LogConfig(segment_bytes=400, index_interval_bytes=1, retention_ms=1000))
    for _ in range(9):
        append(log, NOW - 5000)
    gone = log.retain(NOW)
    is_missing = code == errno.ENOENT and kind == ".index"  # as one that was never written
    if not is_missing:
        assert [segment.base_offset for segment in gone] == [0, 2]
        assert (log.start_offset, offsets_from(log, 4), offsets_from(log, 8)) == (4, [4, 5], [8])
        with pytest.raises(OffsetNotInLog):
            log.read(3, 100, log.end_offset, whole_first=True)
        with pytest.raises(StorageError, match=failing.name):
            log.retain(NOW)
        assert offsets_from(log, 4) == [4, 5]
        fails = False
        gone += log.retain(NOW)
    assert [segment.base_offset for segment in gone] == [0, 2, 4, 6, 8]
    assert (log.start_offset, log.end_offset) == (9, 9)
    log.close()


def test_retention_of_many_segments_lists_no_directory_and_goes_in_steps(tmp_path: Path) -> None:
    operations: list[str] = []
    (tmp_path / "t-0").mkdir()
    store = FaultyStore(DiskStore(), lambda operation, _: operations.append(operation))
    log = Log(store, tmp_path / "t-0", LogConfig(segment_bytes=400, retention_ms=1000))
    for _ in range(240):
        append(log, NOW - 5000)
    operations.clear()
    steps = []
    while gone := log.retain(NOW):
        steps.append(len(gone))
    assert steps == [50, 50, 20]
    assert operations.count("list") == 0
    assert (log.start_offset, log.end_offset) == (240, 240)
    log.close()


def test_when_all_of_it_is_old_a_new_segment_begins(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", retention_ms=1000)
    for _ in range(3):
        append(log, NOW - 5000)
    for segment in log.retain(NOW):
        segment.remove()
    assert (log.start_offset, log.end_offset, log.size) == (3, 3, 0)
    assert log.retain(NOW) == []
    assert append(log, NOW) == 3
    log.close()
    again = Log(DiskStore(), log.directory, log.config, recovery_point=4)
    assert (again.start_offset, again.end_offset, offsets_from(again, 3)) == (3, 4, [3])
    again.close()


def test_without_timestamps_the_age_of_the_file_counts(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", retention_ms=60_000)
    for _ in range(4):
        append(log, -1)
    written = log.directory.joinpath(f"{0:020d}.log").stat().st_mtime_ns // 1_000_000
    assert log.retain(written + 60_000) == []
    gone = log.retain(written + 600_000)
    assert len(gone) == 2
    for segment in gone:
        segment.close()
    log.close()


def test_deleted_records_take_their_segments_with_them(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", cleanup_policy=("compact",))
    for _ in range(6):
        append(log, NOW)
    assert log.delete_records(3) == 3
    assert offsets_from(log, 3) == [3]
    assert [segment.base_offset for segment in log.retain(NOW)] == [0]
    assert (log.start_offset, log.delete_records(1), log.delete_records(-1)) == (3, 3, 6)
    assert [segment.base_offset for segment in log.retain(NOW)] == [2]
    for offset in (7, -2):
        with pytest.raises(OffsetNotInLog):
            log.delete_records(offset)
    log.close()


def test_a_start_removes_what_a_crash_left_behind(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", retention_ms=1000)
    for timestamp in (NOW - 5000, NOW - 5000, NOW):
        append(log, timestamp)
    for segment in log.retain(NOW):
        segment.close()
    log.close(clean=False)
    again = Log(DiskStore(), log.directory, log.config)
    assert not list(log.directory.glob("*.deleted"))
    assert (again.start_offset, again.end_offset) == (2, 3)
    again.close()
