"""Compaction: the newest record of every key stays, at its offset, through rolls, restarts and crashes."""

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.environment.disk import DiskStore
from ottla.log import reading
from ottla.log.config import LogConfig
from ottla.log.flush import Flush
from ottla.log.log import Log, StorageError
from ottla.log.segment import SWAP
from ottla.protocol.errors import MESSAGE_TOO_LARGE, NONE
from ottla.records import compression, legacy
from ottla.records.batch import DELETE_HORIZON, build, crc_ok, scan
from ottla.records.record import Record

NOW = 1_700_000_000_000
DAY = 86_400_000
KEYS = [b"a", b"b", b"c", b"d"]


def opened(directory: Path, **config: object) -> Log:
    directory.mkdir(exist_ok=True)
    given_ = {"segment_bytes": 400, "min_cleanable_dirty_ratio": 0.01, **config}
    return Log(DiskStore(), directory, LogConfig(cleanup_policy=("compact",), **given_))  # type: ignore[arg-type]


def append(log: Log, *pairs: tuple[bytes, bytes | None], codec: int = 0, **producer: int) -> None:
    batch = build([Record(at, NOW + at, key, value) for at, (key, value) in enumerate(pairs)], codec=codec, **producer)  # type: ignore[arg-type]
    assert log.append(batch, 0, len(batch), 0, NOW).error_code == NONE
    log.high_watermark = log.end_offset


def compact(log: Log, now_ms: int = NOW) -> int:
    """One pass; returns how many segments it took away."""
    gone = []
    for step in log.compact(now_ms):
        if isinstance(step, Flush):
            step.run()
        else:
            gone += step
    for segment in gone:
        segment.remove()
    return len(gone)


def content(log: Log) -> dict[int, tuple[bytes | None, bytes | None]]:
    return {record.offset: (record.key, record.value) for _, records in reading.batches(log) for record in records}


def newest(pairs: list[tuple[bytes, bytes | None]], clean: int) -> dict[int, tuple[bytes, bytes | None]]:
    """Return the records that a compaction below `clean` must keep: all but those with a newer one of their key below it."""
    last = {key: offset for offset, (key, _) in enumerate(pairs) if offset < clean}
    return {offset: pair for offset, pair in enumerate(pairs) if offset >= clean or last[pair[0]] == offset}


@pytest.mark.parametrize("codec", [0, 1, 4], ids=["plain", "gzip", "zstd"])
def test_the_newest_of_every_key_stays(tmp_path: Path, codec: int) -> None:
    log = opened(tmp_path / "t-0")
    pairs: list[tuple[bytes, bytes | None]] = [(KEYS[at % 3], b"%d" % at * 20) for at in range(30)]
    for at in range(0, 30, 2):
        append(log, *pairs[at : at + 2], codec=codec)
    before = log.size
    assert log.dirtiness(NOW) == 1.0
    assert compact(log) > 2
    assert content(log) == newest(pairs, log.clean_until)
    assert log.size < before
    assert (log.start_offset, log.end_offset, log.dirtiness(NOW)) == (0, 30, 0.0)
    log.close()
    again = Log(DiskStore(), log.directory, log.config, recovery_point=30)
    assert content(again) == newest(pairs, log.clean_until)
    append(again, (b"z", b"z"))
    assert again.end_offset == 31
    again.close()


def in_one_batch(log: Log, pairs: list[tuple[bytes, bytes | None]], codec: int = 4) -> None:
    """Append a batch that is large when decompressed."""
    batch = build([Record(at, NOW + at, key, value) for at, (key, value) in enumerate(pairs)], codec=codec)
    appended = log.append(batch, 0, len(batch), 0, NOW)
    assert appended.unfinished is not None
    for _ in appended.unfinished.steps:
        pass
    assert appended.unfinished.append().error_code == NONE
    log.high_watermark = log.end_offset


def test_a_batch_that_is_large_when_decompressed_is_compacted_in_bounded_memory(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0", segment_bytes=1 << 20)
    pairs: list[tuple[bytes, bytes | None]] = [(b"%d" % (at % 50), bytes(60_000)) for at in range(400)]  # 24 MB
    in_one_batch(log, pairs)
    in_one_batch(log, [(b"0", bytes(60_000)) for _ in range(100)])
    log.config = LogConfig(cleanup_policy=("compact",), segment_bytes=400, min_cleanable_dirty_ratio=0.01)
    append(log, *[(b"x", b"." * 100)] * 3)  # rolls
    append(log, *[(b"x", b"." * 100)] * 3)
    tracemalloc.start()
    try:
        compact(log)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 24 << 20
    assert [offset for offset in content(log) if offset < 500] == [*range(351, 400), 499]
    log.close()


def test_a_batch_of_which_more_stays_than_memory_allows_stays_whole(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0", segment_bytes=1 << 20)
    pairs: list[tuple[bytes, bytes | None]] = [(b"%d" % (at % 399), bytes(60_000)) for at in range(400)]  # 24 MB
    in_one_batch(log, pairs)
    log.config = LogConfig(cleanup_policy=("compact",), segment_bytes=400, min_cleanable_dirty_ratio=0.01)
    append(log, *[(b"x", b"." * 100)] * 3)
    append(log, *[(b"x", b"." * 100)] * 3)
    compact(log)
    assert [offset for offset in content(log) if offset < 400] == list(range(400))
    log.close()


@pytest.mark.parametrize("max_message_bytes", [32 << 20, 1 << 20], ids=["allowed", "no longer allowed"])
def test_a_record_of_20_mb_can_be_read_and_its_log_compacted(tmp_path: Path, max_message_bytes: int) -> None:
    """One that its topic allows, or that Apache Kafka or an earlier configuration took. It is never held for damage."""
    config = {"segment_bytes": 64 << 20, "max_message_bytes": 32 << 20}
    log = opened(tmp_path / "t-0", **config)
    append(log, (b"a", b"older"), (b"b", b"older"))
    large = bytes(20 << 20)
    in_one_batch(log, [(b"a", b"."), (b"large", large), (b"b", b".")])
    log.config = replace(log.config, segment_bytes=400, max_message_bytes=max_message_bytes)
    append(log, *[(b"x", b"." * 100)] * 3)  # rolls
    append(log, *[(b"x", b"." * 100)] * 3)
    is_allowed = max_message_bytes > 20 << 20
    for timestamp, offset in (
        (NOW, 0),
        (NOW + 2, 4 if is_allowed else 3),
    ):  # at or before the record that was asked for
        looked_up = reading.offset_at(log, timestamp)
        assert looked_up is not None
        assert looked_up[:2] == (timestamp, offset)
    compact(log)
    assert not log.is_damaged
    kept = {offset: (key, len(value or b"")) for offset, (key, value) in content(log).items() if offset < 5}
    if is_allowed:
        assert kept == {2: (b"a", 1), 3: (b"large", 20 << 20), 4: (b"b", 1)}
    else:  # the batch stays whole, and so does what it may replace
        assert kept == {1: (b"b", 5), 2: (b"a", 1), 3: (b"large", 20 << 20), 4: (b"b", 1)}
    log.close()


@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_consumer_reads_a_record_of_20_mb_where_its_topic_allows_it(tmp_path: Path, magic: int) -> None:
    log = opened(tmp_path / "t-0", segment_bytes=64 << 20, max_message_bytes=32 << 20)
    in_one_batch(log, [(b"small", b"."), (b"large", bytes(20 << 20))], codec=1)
    messages = legacy.all_at_once(reading.read_message_set(log, 0, 1 << 20, 2, magic))
    assert legacy.as_batch(messages, 32 << 20)[57:61] == (2).to_bytes(4, "big")
    log.config = replace(log.config, max_message_bytes=1 << 20)
    assert legacy.as_batch(legacy.all_at_once(reading.read_message_set(log, 0, 1 << 20, 2, magic)), 32 << 20)[
        57:61
    ] == (1).to_bytes(4, "big")
    with pytest.raises(legacy.NotForOldClients, match="more than 16777216 bytes") as refused:
        legacy.all_at_once(reading.read_message_set(log, 1, 1 << 20, 2, magic))
    assert refused.value.code == MESSAGE_TOO_LARGE
    log.close()


def test_offsets_in_gaps_are_read_on_from_what_follows(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0", segment_bytes=200)
    for at in range(20):
        append(log, (b"k", b"%d" % at * 30))
    compact(log)
    left = sorted(content(log))
    for offset in range(20):
        region = log.read(offset, 1 << 20, log.end_offset, whole_first=True)
        assert region is not None
        first = min(header.base_offset for header in scan(region.read()).batches)
        assert first == min(kept_offset for kept_offset in left if kept_offset >= offset)
    log.close()


def test_tombstones_stay_until_their_horizon(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0", delete_retention_ms=DAY)
    append(log, (b"a", b"1"), (b"b", b"1"))
    append(log, (b"a", None))
    append(log, *[(b"x", b"." * 100)] * 3)
    append(log, *[(b"x", b"." * 100)] * 3)
    compact(log)
    assert (content(log)[2], 0 in content(log)) == ((b"a", None), False)
    region = log.read(2, 1 << 20, log.end_offset, whole_first=True)
    assert region is not None
    header = scan(region.read()).batches[0]
    assert (header.attributes & DELETE_HORIZON, header.base_timestamp) == (DELETE_HORIZON, NOW + DAY)
    (tombstone,) = [record for _, records in reading.batches(log) for record in records if record.offset == 2]
    assert tombstone.timestamp == NOW
    for now, there in ((NOW + DAY - 1, True), (NOW + DAY, False)):
        for _ in range(2):
            append(log, *[(b"x", b"." * 100)] * 3)
        compact(log, now)
        assert (2 in content(log)) == there
    assert content(log)[1] == (b"b", b"1")
    log.close()


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("codec", [0, 1])
def test_records_beside_a_tombstone_keep_timestamps_and_headers(
    tmp_path: Path, codec: int, timestamp_type: str
) -> None:
    log = opened(tmp_path / "t-0", timestamp_type=timestamp_type)
    headers = [("h", b"1"), ("i", None)]
    batch = build(
        [
            Record(0, NOW - 5, b"a", b"old"),
            Record(1, NOW - DAY, b"b", b"far", headers),
            Record(2, NOW, b"t", None, headers),
            Record(3, NOW + 7, b"a", b""),
        ],
        codec=codec,
    )
    assert log.append(batch, 0, len(batch), 0, NOW).error_code == NONE
    for _ in range(4):
        append(log, (b"x", b"." * 100))  # rolls
    before = {record.offset: record for _, records in reading.batches(log) for record in records}
    compact(log)
    after = [record for _, records in reading.batches(log) for record in records if record.offset < 4]
    assert after == [before[1], before[2], before[3]]
    region = log.read(0, 100, 4, whole_first=True)
    assert region is not None
    (header,) = scan(region.read()).batches[:1]
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == NOW + DAY
    assert header.max_timestamp == (NOW + 7 if timestamp_type == "CreateTime" else NOW)
    assert crc_ok(region.read(), header)
    log.close()


def test_a_large_batch_with_a_tombstone_is_compacted_in_short_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a gigabyte was decompressed in one step for the tombstone, a second time."""
    log = opened(tmp_path / "t-0", segment_bytes=1 << 20)
    in_one_batch(log, [*((b"k", bytes(100_000)) for _ in range(400)), (b"tombstone", None)])
    log.config = replace(log.config, segment_bytes=400)
    append(log, *[(b"x", b"." * 100)] * 3)
    append(log, *[(b"x", b"." * 100)] * 3)
    decompressed = [0]
    pieces = compression._zstd_pieces

    def counted(data: memoryview, size: int) -> Iterator[bytes]:
        for piece in pieces(data, size):
            decompressed[-1] += len(piece)
            yield piece

    monkeypatch.setattr(compression, "_zstd_pieces", counted)
    for step in log.compact(NOW):
        decompressed.append(0)
        if isinstance(step, Flush):
            step.run()
    assert max(decompressed) <= 6 << 20
    assert sum(decompressed) < 2.5 * 40_000_000, "once for the keys and once for the records"
    assert [offset for offset in content(log) if offset < 401] == [399, 400]
    log.close()


def test_the_last_batch_of_a_producer_stays_though_empty(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0")
    append(log, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    append(log, (b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=1)
    for _ in range(4):
        append(log, *[(b"a", b"." * 100)] * 3)
    compact(log)
    region = log.read(0, 1 << 20, log.end_offset, whole_first=True)
    assert region is not None
    first = scan(region.read()).batches[0]
    assert (first.base_offset, first.count, first.producer_id, first.base_sequence) == (1, 0, 7, 1)
    log.close(clean=False)
    again = Log(DiskStore(), log.directory, log.config)
    batch = build([Record(0, NOW, b"a", b"3")], producer_id=7, producer_epoch=0, base_sequence=1)
    assert again.append(batch, 0, len(batch), 0, NOW).base_offset == 1  # a repeated batch is known
    again.close()


def test_records_within_min_compaction_lag_are_not_compacted(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0", min_compaction_lag_ms=1000)
    for _ in range(6):
        append(log, *[(b"a", b"." * 100)] * 3)
    assert (log.dirtiness(NOW + 500), log.dirtiness(NOW + 5000)) == (0.0, 1.0)
    log.close()


def test_records_beyond_max_compaction_lag_are_compacted(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0", min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000)
    for _ in range(6):
        append(log, *[(b"a", b"." * 100)] * 3)
    compact(log)
    append(log, *[(b"b", b"." * 100)] * 3)
    append(log, *[(b"b", b"." * 100)] * 3)
    assert log.dirtiness(NOW + 500) == 0.0
    assert 0.0 < log.dirtiness(NOW + 2000) < 1.0
    log.close()


def test_records_without_timestamps_are_not_older_than_all_others(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0", min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000)
    for timestamp in (-1, -1, -1, NOW, -1, -1):
        batch = build([Record(at, timestamp, b"a", b"." * 100) for at in range(3)])
        assert log.append(batch, 0, len(batch), 0, NOW).error_code == NONE
        log.high_watermark = log.end_offset
        if timestamp < 0:
            assert log.dirtiness(NOW + 500) in (0.0, 1.0), "by the ratio alone"
    log.clean_until = 3
    assert log.dirtiness(NOW + 500) == 0.0
    assert 0.0 < log.dirtiness(NOW + 2000) < 1.0
    log.close()


def test_damage_stops_compaction_and_changes_nothing(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0")
    for _ in range(6):
        append(log, *[(b"a", b"." * 100)] * 3)
    path = log.directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    names = sorted(file.name for file in log.directory.iterdir())
    with pytest.raises(StorageError, match=r"00000000000000000000\.log at position 0: the CRC"):
        compact(log)
    assert sorted(file.name for file in log.directory.iterdir()) == names
    assert log.dirtiness(NOW) == 0.0
    log.close()


class Crash(Exception):
    """The process dies here."""


class MortalStore(DiskStore):
    """Dies before its n-th rename or removal."""

    def __init__(self) -> None:
        super().__init__()
        self.left = -1

    def _maybe_die(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Crash

    def rename(self, old: Path, new: Path) -> None:
        self._maybe_die()
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        self._maybe_die()
        super().remove(path)


@pytest.mark.parametrize("at", range(1, 40))
def test_a_crash_at_any_rename_loses_nothing(tmp_path: Path, at: int) -> None:
    store = MortalStore()
    directory = tmp_path / "t-0"
    directory.mkdir()
    config = LogConfig(segment_bytes=400, cleanup_policy=("compact",))
    log = Log(store, directory, config)
    pairs: list[tuple[bytes, bytes | None]] = [(KEYS[at % 3], b"%d" % at * 20) for at in range(30)]
    for number in range(0, 30, 2):
        append(log, *pairs[number : number + 2])
    store.left = at
    try:
        compact(log)
    except Crash:
        log.close(clean=False)
    else:
        log.close()
    store.left = -1
    again = Log(store, directory, config, recovery_point=log.recovery_point)
    kept = content(again)
    assert not [name for name in directory.iterdir() if name.suffix in (".cleaned", SWAP, ".deleted")]
    assert again.end_offset == 30
    assert newest(pairs, 30).items() <= kept.items() <= dict(enumerate(pairs)).items()
    for offset in kept:  # by time: the indexes are there too
        looked_up = reading.offset_at(again, NOW + offset % 2)
        assert looked_up is not None
        assert looked_up[1] == min(kept_offset for kept_offset in kept if kept_offset % 2 >= offset % 2)
    compact(again)
    assert content(again) == newest(pairs, again.clean_until)
    again.close()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 60), st.booleans()), min_size=1, max_size=80), st.data()
)
def test_any_history_is_compacted_to_its_newest(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[bytes, int, bool]], data: st.DataObject
) -> None:
    log = opened(tmp_path_factory.mktemp("compaction") / "t-0", segment_bytes=data.draw(st.integers(200, 2000)))
    pairs: list[tuple[bytes, bytes | None]] = []
    at = 0
    while at < len(history):
        count = data.draw(st.integers(1, 4))
        chunk = [(key, None if dead else b"v" * size) for key, size, dead in history[at : at + count]]
        append(log, *chunk, codec=data.draw(st.sampled_from([0, 1])))
        pairs += chunk
        at += count
        if data.draw(st.integers(0, 5)) == 0:
            compact(log)
            assert content(log) == newest(pairs, log.clean_until)
    compact(log)
    assert content(log) == newest(pairs, log.clean_until)
    log.close()
    again = Log(DiskStore(), log.directory, log.config, recovery_point=log.end_offset)
    assert content(again) == newest(pairs, log.clean_until)
    again.close()


def test_an_emptied_segment_keeps_its_place_after_an_unclean_stop(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0", segment_bytes=400)
    for number in range(12):
        append(log, *[(key, b"%d" % number * 30) for key in KEYS])
    compact(log)
    assert log.directory.joinpath(f"{0:020d}.log").stat().st_size == 0
    before = content(log)
    log.close(clean=False)
    again = Log(DiskStore(), log.directory, log.config)
    assert again.retain(NOW) == []
    assert (again.start_offset, content(again)) == (0, before)
    again.close()


def test_a_producer_with_an_aborted_transaction_before_the_pass_supersedes_records(tmp_path: Path) -> None:
    """Its marker is in the clean part of the log, which the scan for keys does not read."""
    log = opened(tmp_path / "t-0", delete_retention_ms=1 << 40)
    producer = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
    append(log, (b"a", b"old" * 20))
    append(log, (b"b", b"aborted" * 20), base_sequence=0, **producer)
    log.append_marker(1, 0, 0, 0, NOW, commit=False, new_epoch=False)
    while log.clean_until < 3:
        append(log, (b"x", b"." * 100))
        compact(log)
    append(log, (b"a", b"new" * 20), base_sequence=1, **producer)
    log.append_marker(1, 0, 0, 0, NOW, commit=True, new_epoch=False)
    for _ in range(6):
        append(log, (b"x", b"." * 100))
    compact(log)
    assert [value for key, value in content(log).values() if key == b"a"] == [b"new" * 20]
    assert b"b" not in {key for key, _ in content(log).values()}
    log.close()


def test_a_sparse_log_and_one_of_many_keys_keep_what_is_newest(tmp_path: Path) -> None:
    """Offsets far from each other lie in different blocks of bits; keys from before the pass are looked up."""
    log = opened(tmp_path / "t-0", segment_bytes=4000)
    pairs: list[tuple[bytes, bytes | None]] = [(b"%d" % (at * at % 701), b"%d" % at) for at in range(3000)]
    for at in range(0, 3000, 20):
        append(log, *pairs[at : at + 20])
        if at in (1000, 2000):
            compact(log)
            assert content(log) == newest(pairs[: at + 20], log.clean_until)
    compact(log)
    assert content(log) == newest(pairs, log.clean_until)
    log.close()
