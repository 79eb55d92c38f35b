"""A follower's log: batches of a leader byte for byte, truncation where the two diverge, a new start where they cannot meet."""

import logging
from pathlib import Path
from typing import Any

import pytest

from ottla.environment.disk import DiskStore
from ottla.log import reading
from ottla.log.config import LogConfig
from ottla.log.flush import Flush
from ottla.log.log import Log, OffsetNotInLog, StorageError
from ottla.log.relocation import Relocation
from ottla.protocol.errors import NONE
from ottla.records.batch import build, read_header
from ottla.records.errors import CorruptRecords
from ottla.records.record import Record
from tests.faulty_store import FaultyStore
from tests.memory_store import MemoryStore

NOW = 1_700_000_000_000


def open_log(directory: Path, *, recovery_point: int = 0, clean: bool = False, **config: Any) -> Log:
    directory.mkdir(exist_ok=True)
    return Log(DiskStore(), directory, LogConfig(**config), recovery_point=recovery_point, clean=clean)


def append(log: Log, count: int = 1, *, epoch: int = 0, size: int = 100, timestamp: int = NOW) -> int:
    batch = build([Record(at, timestamp, b"k%d" % at, b"." * size) for at in range(count)])
    appended = log.append(batch, 0, len(batch), epoch, NOW)
    assert appended.error_code == NONE
    return appended.base_offset


def content(log: Log, offset: int | None = None) -> bytes:
    """All batches from `offset` on."""
    data = b""
    at = log.start_offset if offset is None else offset
    while (region := log.read(at, 1 << 30, log.end_offset, whole_first=True)) is not None:
        data += region.read()
        at = reading.next_offset(region.read())
    return data


def replicate(leader: Log, follower: Log, epoch: int = 9) -> int:
    data = content(leader, follower.end_offset)
    return follower.append_replicated(data, 0, len(data), epoch, NOW)


def shape(log: Log) -> list[tuple[int, int, int]]:
    return [(segment.base_offset, segment.next_offset, segment.size) for segment in log.segments]


def state(log: Log) -> tuple[object, ...]:
    aborted = [entry for segment in log.segments for entry in segment.transaction_index.entries()]
    return content(log), log.end_offset, log.epochs._entries, log.producers.active(), aborted, log.last_stable_offset


def test_a_follower_has_the_same_bytes_and_segments(tmp_path: Path) -> None:
    leader = open_log(tmp_path / "a-0", segment_bytes=1500, index_interval_bytes=200, segment_ms=1000)
    follower = open_log(tmp_path / "b-0", segment_bytes=1500, index_interval_bytes=200, segment_ms=1000)
    for number in range(60):
        append(leader, 1 + number % 3, epoch=number // 20, timestamp=NOW + 40 * number)
    frame = b"header" + content(leader) + b"trailer"
    assert follower.append_replicated(frame, 6, len(frame) - 7, 2, NOW) == len(frame) - 13
    assert len(leader.segments) > 10
    assert shape(follower) == shape(leader)
    assert state(follower) == state(leader)
    assert follower.epochs._entries == [(0, 0), (1, 39), (2, 79)]
    assert [len(segment.index) for segment in follower.segments] == [len(segment.index) for segment in leader.segments]
    follower.close()
    again = open_log(tmp_path / "b-0", recovery_point=follower.end_offset, clean=True, segment_bytes=1500)
    assert state(again)[:5] == state(leader)[:5]
    leader.close()
    again.close()


def test_consecutive_batches_are_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    writes: list[str] = []
    log = Log(FaultyStore(store, lambda operation, path: writes.append(operation)), Path("/log/t-0"), LogConfig())
    batches = b"".join(build([Record(at, NOW, b"k", b"v")], base_offset=at, leader_epoch=0) for at in range(100))
    log.append_replicated(batches, 0, len(batches), 0, NOW)
    assert log.end_offset == 100
    assert writes.count("append") == 2


def test_a_segment_rolls_when_its_index_is_full(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"segment_index_bytes": 40, "index_interval_bytes": 150}
    leader, follower = open_log(tmp_path / "a-0", **settings), open_log(tmp_path / "b-0", **settings)
    for _ in range(40):
        append(leader)
    replicate(leader, follower)
    assert len(leader.segments) > 2
    assert shape(follower) == shape(leader)
    leader.close()
    follower.close()


def test_batches_of_a_later_epoch_are_left(tmp_path: Path) -> None:
    leader, follower = open_log(tmp_path / "a-0"), open_log(tmp_path / "b-0")
    append(leader, 2, epoch=3)
    taken = len(content(leader))
    append(leader, 2, epoch=4)
    assert replicate(leader, follower, epoch=3) == taken
    assert (follower.end_offset, follower.epochs.latest) == (2, 3)
    assert replicate(leader, follower, epoch=3) == 0
    assert replicate(leader, follower, epoch=4) > 0
    assert state(follower) == state(leader)
    leader.close()
    follower.close()


@pytest.mark.parametrize("left", [0, 1, 16, 60, 61, 100])
def test_an_incomplete_batch_is_left(tmp_path: Path, left: int) -> None:
    leader, follower = open_log(tmp_path / "a-0"), open_log(tmp_path / "b-0")
    append(leader, 2)
    taken = len(content(leader))
    append(leader, 2)
    data = content(leader)
    assert follower.append_replicated(data, 0, taken + left, 0, NOW) == taken
    assert follower.end_offset == 2
    leader.close()
    follower.close()


def _damaged(data: bytes, start: int, kind: str) -> bytes:
    damaged = bytearray(data)
    if kind == "crc":
        damaged[start + 80] ^= 1
    elif kind == "magic":
        damaged[start + 16] = 1
    elif kind == "length":
        damaged[start + 8 : start + 12] = (20).to_bytes(4, "big")
    elif kind == "below":
        damaged[start : start + 8] = (1).to_bytes(8, "big")
    return bytes(damaged)


@pytest.mark.parametrize("kind", ["crc", "magic", "length", "below"])
def test_a_damaged_batch_is_not_appended(tmp_path: Path, kind: str) -> None:
    leader, follower = open_log(tmp_path / "a-0"), open_log(tmp_path / "b-0")
    append(leader, 2)
    second = len(content(leader))
    append(leader, 2)
    data = _damaged(content(leader), second, kind)
    with pytest.raises(CorruptRecords, match="at offset 2, from its leader"):
        follower.append_replicated(data, 0, len(data), 0, NOW)
    assert content(follower) == data[:second]
    replicate(leader, follower)
    assert state(follower) == state(leader)
    leader.close()
    follower.close()


def test_a_batch_that_ends_before_it_begins_is_not_appended(tmp_path: Path) -> None:
    follower = open_log(tmp_path / "b-0")
    empty = build([], base_offset=0, leader_epoch=0)
    assert read_header(empty, 0).last_offset_delta == -1
    with pytest.raises(CorruptRecords):
        follower.append_replicated(empty, 0, len(empty), 0, NOW)
    follower.close()


def test_gaps_that_compaction_leaves_are_taken_over(tmp_path: Path) -> None:
    follower = open_log(tmp_path / "b-0", segment_bytes=300)
    offsets = [5, 6, 20, 40, 3_000_000_000, 3_000_000_001, 9_000_000_000]
    for offset in offsets:
        batch = build([Record(offset, NOW, b"k", b"." * 100)], base_offset=offset, leader_epoch=1)
        assert follower.append_replicated(batch, 0, len(batch), 1, NOW) == len(batch)
    assert follower.end_offset == 9_000_000_001
    assert [header.base_offset for header, _ in reading.batches(follower)] == offsets
    before = content(follower, 0)
    follower.close()
    again = open_log(tmp_path / "b-0", recovery_point=follower.end_offset, clean=True, segment_bytes=300)
    assert (content(again, 5), again.end_offset) == (before, 9_000_000_001)
    again.truncate_to(30)
    assert [header.base_offset for header, _ in reading.batches(again)] == [5, 6, 20]
    again.close()


def test_flush_messages_counts_the_records_of_a_leader(tmp_path: Path) -> None:
    leader, follower = open_log(tmp_path / "a-0"), open_log(tmp_path / "b-0", flush_messages=5)
    append(leader, 4)
    replicate(leader, follower)
    assert not follower.wants_flush
    append(leader, 1)
    append(leader, 2)
    replicate(leader, follower)
    assert (follower.wants_flush, follower.settled_offset) == (True, 0)
    flush = follower.begin_flush()
    flush.run()
    follower.flushed(flush, 0)
    assert (follower.recovery_point, follower.settled_offset) == (7, 7)
    leader.close()
    follower.close()


def test_a_failed_write_leaves_the_log_unchanged() -> None:
    failing: list[OSError] = []
    memory = MemoryStore()
    store = FaultyStore(memory, lambda operation, path: failing[0] if failing and operation == "append" else None)
    log = Log(store, Path("/log/t-0"), LogConfig())
    batch = build([Record(0, NOW, b"k", b"v")], leader_epoch=0, producer_id=1, producer_epoch=0, base_sequence=0)
    failing.append(OSError(28, "No space left on device"))
    with pytest.raises(StorageError):
        log.append_replicated(batch, 0, len(batch), 0, NOW)
    assert (log.end_offset, log.size, log.producers.active()) == (0, 0, [])
    failing.clear()
    assert log.append_replicated(batch, 0, len(batch), 0, NOW) == len(batch)
    assert len(log.producers.active()) == 1


def test_transactions_of_a_leader(tmp_path: Path) -> None:
    leader, follower = open_log(tmp_path / "a-0", segment_bytes=400), open_log(tmp_path / "b-0", segment_bytes=400)
    for sequence in range(6):
        for producer in (1, 2):
            batch = build(
                [Record(0, NOW, b"k", b"v" * 50)],
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=True,
            )
            assert leader.append(batch, 0, len(batch), 0, NOW).error_code == NONE
        for producer in (1, 2):
            marker = leader.append_marker(producer, 0, 7, 0, NOW, commit=producer == 1, new_epoch=False)
            assert marker.error_code == NONE
        replicate(leader, follower)
        assert len(follower.producers._undecided) <= 4  # those of this round, and of the one before
        leader.high_watermark = follower.high_watermark = leader.end_offset
    assert len(state(leader)[4]) == 6  # type: ignore[arg-type]
    assert state(follower) == state(leader)
    follower.truncate_to(9)
    replicate(leader, follower)
    leader.high_watermark = follower.high_watermark = leader.end_offset
    assert state(follower) == state(leader)
    leader.close()
    follower.close()


def test_a_transaction_stays_undecided_over_a_restart_until_its_marker_is_committed(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a-0")
    append(log)
    batch = build([Record(0, NOW, b"k", b"v")], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    assert log.append(batch, 0, len(batch), 0, NOW).base_offset == 1
    append(log)
    log.append_marker(1, 0, 0, 0, NOW, commit=False, new_epoch=False)
    log.high_watermark = 3
    assert log.last_stable_offset == 1
    log.close()
    again = Log(DiskStore(), tmp_path / "a-0", LogConfig(), recovery_point=4, high_watermark=3, clean=True)
    assert (again.high_watermark, again.last_stable_offset) == (3, 1)
    again.high_watermark = 4
    assert again.last_stable_offset == 4
    again.close()


def test_a_follower_begins_within_a_batch(tmp_path: Path) -> None:
    """DeleteRecords may set the log start of the leader to any offset."""
    leader, follower = open_log(tmp_path / "a-0"), open_log(tmp_path / "b-0")
    append(leader, 5)
    append(leader, 5)
    leader.high_watermark = 10
    leader.delete_records(7)
    follower.restart_at(7)
    data = content(leader)
    with pytest.raises(CorruptRecords):
        follower.append_replicated(_damaged(data, 0, "crc"), 0, len(data), 0, NOW)
    assert (follower.start_offset, follower.end_offset) == (7, 7)
    assert follower.append_replicated(data, 0, len(data), 0, NOW) == len(data)
    assert (follower.start_offset, follower.high_watermark, follower.end_offset) == (7, 7, 10)
    assert [record.offset for _, records in reading.batches(follower) for record in records] == [7, 8, 9]
    leader.close()
    follower.close()


# Divergence.


def test_a_prefix_does_not_diverge(tmp_path: Path) -> None:
    leader = open_log(tmp_path / "a-0")
    for epoch in (2, 2, 5, 7):
        append(leader, 5, epoch=epoch)
    assert leader.divergence(2, 3) is None
    assert leader.divergence(2, 10) is None
    assert leader.divergence(5, 15) is None
    assert leader.divergence(7, 20) is None
    assert leader.divergence(-1, 4) is None
    assert leader.divergence(2, 11) == (2, 10)
    assert leader.divergence(3, 4) == (2, 10)
    assert leader.divergence(6, 12) == (5, 15)
    assert leader.divergence(7, 21) == (7, 20)
    assert leader.divergence(1, 4) == (1, 0)
    with pytest.raises(OffsetNotInLog):
        leader.divergence(8, 4)
    leader.close()


def test_a_follower_truncates_step_by_step_to_the_common_prefix(tmp_path: Path) -> None:
    leader, follower = open_log(tmp_path / "a-0"), open_log(tmp_path / "b-0")
    for log in (leader, follower):
        append(log, 10, epoch=1)
    for epoch in (2, 4, 6):
        append(follower, 3, epoch=epoch)
    for epoch in (3, 5, 7):
        append(leader, 2, epoch=epoch)
    steps = []
    while (diverging := leader.divergence(follower.epochs.latest, follower.end_offset)) is not None:
        steps.append(point := follower.truncation_point(*diverging))
        follower.truncate_to(point)
    assert steps[-1] == follower.end_offset == 10
    replicate(leader, follower)
    assert state(follower) == state(leader)
    leader.close()
    follower.close()


def test_a_log_without_epochs_truncates_to_its_high_watermark(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a-0")
    log.high_watermark = 0
    append(log, 4, epoch=-1)
    log.high_watermark = 3
    assert log.truncation_point(5, 100) == 3
    log.close()


def test_an_epoch_without_batches_is_forgotten(tmp_path: Path) -> None:
    """A broker that led, and appended nothing, follows a leader that does not know its epoch: it must not ask for ever."""
    leader, follower = open_log(tmp_path / "a-0"), open_log(tmp_path / "b-0")
    for log in (leader, follower):
        append(log, 5, epoch=1)
    follower.epochs.begin(2, 5)
    leader.epochs.begin(3, 5)
    diverging = leader.divergence(follower.epochs.latest, follower.end_offset)
    assert diverging == (1, 5)
    follower.truncate_to(follower.truncation_point(*diverging))
    assert (follower.end_offset, follower.epochs.latest) == (5, 1)
    assert leader.divergence(follower.epochs.latest, follower.end_offset) is None
    append(leader, 1, epoch=3)
    replicate(leader, follower)
    assert follower.epochs._entries == leader.epochs._entries == [(1, 0), (3, 5)]
    leader.close()
    follower.close()


# Truncation.


def test_a_flush_during_a_truncation_does_not_cover_what_comes_after(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a-0")
    append(log, 10)
    flush = log.begin_flush()
    flush.run()
    log.truncate_to(0)
    append(log, 20)
    log.flushed(flush, 0)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 20
    log.close()


def test_a_flush_of_rolled_segments_survives_a_truncation(tmp_path: Path) -> None:
    memory = MemoryStore()
    log = Log(memory, Path("/log/t-0"), LogConfig(segment_bytes=400))
    for _ in range(10):
        append(log)
    flush = log.begin_flush()
    flush.run()
    log.truncate_to(5)
    append(log, 2)
    log.flushed(flush, 0)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 7


def test_the_log_start_never_lies_beyond_the_end(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a-0")
    for _ in range(10):
        append(log)
    log.high_watermark = 10
    log.delete_records(8)
    log.truncate_to(5)
    assert (log.start_offset, log.high_watermark, log.end_offset) == (5, 5, 5)
    log.close()


def test_a_truncation_below_the_high_watermark_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path / "a-0")
    append(log)
    append(log)
    log.high_watermark = 2
    with caplog.at_level(logging.WARNING):
        log.truncate_to(1)
    assert "truncated to 1, below its high watermark 2" in caplog.text
    log.close()


def test_discarded_segments_are_removed_later(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a-0", segment_bytes=400)
    for _ in range(20):
        append(log)
    log.truncate_to(4)
    assert max(int(path.stem) for path in log.directory.glob("*.snapshot")) <= 4
    discarded = log.take_discarded()
    assert discarded
    assert all((log.directory / f"{segment.base_offset:020d}.log.deleted").exists() for segment in discarded)
    for segment in discarded:
        segment.remove()
    assert not list(log.directory.glob("*.deleted"))
    assert log.take_discarded() == []
    log.close()


def test_a_truncation_that_fails_is_repeated() -> None:
    failing: list[OSError] = []
    store = FaultyStore(
        MemoryStore(), lambda operation, path: failing[0] if failing and operation == "rename" else None
    )
    log = Log(store, Path("/log/t-0"), LogConfig(segment_bytes=400))
    for _ in range(20):
        append(log)
    failing.append(OSError(13, "Permission denied"))
    with pytest.raises(StorageError):
        log.truncate_to(4)
    batch = build([Record(20, NOW, b"k", b"v")], base_offset=20, leader_epoch=0)
    with pytest.raises(StorageError, match="not truncated completely"):
        log.append_replicated(batch, 0, len(batch), 0, NOW)
    failing.clear()
    log.truncate_to(4)
    assert append(log) == 4


def test_a_truncation_ends_the_compaction_of_what_it_cuts(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a-0", segment_bytes=400, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    for _ in range(30):
        append(log)
    log.high_watermark = log.end_offset
    steps = log.compact(NOW)
    next(steps)
    log.truncate_to(7)
    for done in steps:
        assert not done
    assert [header.base_offset for header, _ in reading.batches(log)] == list(range(7))
    assert not list(log.directory.glob("*.cleaned"))
    append(log)
    log.high_watermark = log.end_offset
    assert log.dirtiness(NOW) > 0
    log.close()


def test_a_truncation_beyond_the_compacted_segments_leaves_the_compaction(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a-0", segment_bytes=400, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    for _ in range(30):
        append(log)
    log.high_watermark = 20
    steps = log.compact(NOW)
    next(steps)
    log.truncate_to(25)
    for done in steps:
        if isinstance(done, Flush):
            done.run()
    bases = [header.base_offset for header, _ in reading.batches(log)]
    assert bases[-1] == 24
    assert len(bases) < 12
    log.close()


def test_a_truncation_during_a_move_begins_the_copy_again(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a-0", segment_bytes=400)
    for _ in range(12):
        append(log)
    target = tmp_path / "b-0"
    target.mkdir()
    relocation = Relocation(DiskStore(), log, target)
    steps = relocation.steps()
    next(steps)
    next(steps)
    log.truncate_to(2)
    append(log, 5, epoch=1, size=30)
    flushes = 0
    for done in steps:
        if done is not None:
            done.run()
            flushes += 1
            log.truncate_to(5)
            append(log, 1, epoch=2)
    assert flushes == 1
    assert relocation.flushed_offset == 0
    end = log.end_offset
    copy = open_log(target, recovery_point=end, clean=True, segment_bytes=400)
    assert state(copy)[:5] == state(log)[:5]
    log.close()
    copy.close()


def test_retention_after_a_truncation(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a-0", segment_bytes=400, retention_bytes=500)
    for _ in range(20):
        append(log)
    log.high_watermark = 20
    log.truncate_to(10)
    removed = log.retain(NOW)
    assert removed
    assert removed[-1].next_offset == log.start_offset == log.segments[0].base_offset
    assert log.end_offset == 10
    assert append(log) == 10
    log.close()


# Restart, and the log start of the leader.


def test_a_follower_starts_again_where_its_leader_begins(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a-0", segment_bytes=400)
    for number in range(20):
        append(log, epoch=number // 5)
    flush = log.begin_flush()
    flush.run()
    log.restart_at(500)
    log.flushed(flush, 0)
    assert (log.start_offset, log.high_watermark, log.end_offset, log.recovery_point) == (500, 500, 500, 0)
    assert (log.size, log.epochs.latest, log.producers.active()) == (0, -1, [])
    batch = build([Record(510, NOW, b"k", b"v")], base_offset=510, leader_epoch=8)
    log.append_replicated(batch, 0, len(batch), 8, NOW)
    log.close()
    again = open_log(tmp_path / "a-0", recovery_point=511, clean=True, segment_bytes=400)
    assert (again.start_offset, again.end_offset, again.epochs._entries) == (500, 511, [(8, 510)])
    again.close()


def test_a_follower_starts_again_below_its_own_end(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a-0", segment_bytes=400)
    for _ in range(20):
        append(log)
    log.restart_at(0)
    assert (log.start_offset, log.end_offset, log.size) == (0, 0, 0)
    assert append(log) == 0
    assert len(content(log)) == log.size
    log.close()


def test_an_empty_log_keeps_its_new_start_after_a_crash(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a-0")
    append(log)
    log.restart_at(70)
    log.close(clean=False)
    again = open_log(tmp_path / "a-0", recovery_point=0)
    assert (again.start_offset, again.end_offset) == (70, 70)
    again.close()


def test_the_log_start_follows_the_leader(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a-0")
    log.high_watermark = 0
    for epoch in (1, 2, 3):
        append(log, 10, epoch=epoch)
    log.raise_start(15)
    assert (log.start_offset, log.high_watermark) == (15, 15)
    assert log.epochs._entries == [(2, 15), (3, 20)]
    log.raise_start(3)
    assert log.start_offset == 15
    log.raise_start(1000)
    assert (log.start_offset, log.high_watermark) == (30, 30)
    log.close()
