"""Transactions in a log: open ones hold readers back, aborted ones are in the index, compaction removes aborted records."""

import struct
from pathlib import Path
from typing import Any

from ottla.environment.disk import DiskStore
from ottla.log import reading
from ottla.log.config import LogConfig
from ottla.log.flush import Flush
from ottla.log.index import Aborted
from ottla.log.log import Log
from ottla.protocol.errors import (
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    NONE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    TRANSACTION_COORDINATOR_FENCED,
)
from ottla.records.batch import build, read_header, records_of, scan
from ottla.records.record import Record

NOW = 1_700_000_000_000
HOUR = 3_600_000


def open_log(directory: Path, *, recovery_point: int = 0, clean: bool = False, **config: Any) -> Log:
    directory.mkdir(exist_ok=True)
    log = Log(DiskStore(), directory, LogConfig(**config), recovery_point=recovery_point, clean=clean)
    log.high_watermark = log.end_offset
    return log


def send(
    log: Log,
    producer: int,
    sequence: int,
    *,
    epoch: int = 0,
    key: bytes = b"k",
    transactional: bool = True,
    **more: Any,
) -> int:
    batch = build(
        [Record(0, NOW, key, b"v" * 50)],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    answer = log.append(batch, 0, len(batch), 0, NOW, **more)
    log.high_watermark = log.end_offset
    return answer.error_code


def end(log: Log, producer: int, epoch: int = 0, *, commit: bool, coordinator: int = 0, new_epoch: bool = False) -> int:
    code = log.append_marker(producer, epoch, coordinator, 0, NOW, commit=commit, new_epoch=new_epoch).error_code
    log.high_watermark = log.end_offset
    return code


def aborted_in(log: Log, offset: int, limit: int) -> list[Aborted]:
    region = log.read(offset, 1 << 20, limit, whole_first=True)
    return [] if region is None else reading.aborted_in(log, region, offset)


def test_the_oldest_open_transaction_holds_readers_back(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    assert send(log, -1, -1, transactional=False) == NONE
    for producer in (7, 8):
        assert send(log, producer, 0) == NONE
    assert send(log, 7, 1) == NONE
    assert (log.last_stable_offset, log.end_offset) == (1, 4)
    assert end(log, 7, commit=True) == NONE
    assert log.last_stable_offset == 2
    assert end(log, 8, commit=False) == NONE
    assert log.last_stable_offset == 6
    log.close()


def test_a_marker_decides_when_it_is_below_the_high_watermark(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    send(log, 7, 0)
    log.append_marker(7, 0, 0, 0, NOW, commit=True, new_epoch=False)
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)
    log.high_watermark = 2
    assert log.last_stable_offset == 2
    log.close()


def test_decided_transactions_are_forgotten_without_committed_reads(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for number in range(20):
        send(log, 7, number)
        end(log, 7, commit=number % 2 == 0)
    assert len(log.producers._undecided) == 1  # the newest one was ended before its marker was below the high watermark
    log.close()
    again = open_log(tmp_path / "t-0")  # reads all markers again
    send(again, 7, 20)
    end(again, 7, commit=True)
    assert len(again.producers._undecided) == 1
    again.close()


def test_invalid_batches_and_markers_of_a_producer_are_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.producers.begin_verification(7, 0, 3, NOW, begins_at_zero=True)
    assert send(log, 7, 3) == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 7, 0) == NONE
    assert send(log, 7, 1, transactional=False) == INVALID_TXN_STATE
    assert end(log, 7, epoch=-1, commit=True) == INVALID_PRODUCER_EPOCH
    assert (
        end(log, 7, commit=True, new_epoch=True) == INVALID_PRODUCER_EPOCH
    )  # version 2 has a new epoch for each marker
    assert end(log, 7, 1, commit=True, coordinator=5, new_epoch=True) == NONE
    assert end(log, 7, 1, commit=True, coordinator=5, new_epoch=True) == NONE  # the coordinator sends it again
    assert end(log, 7, 1, commit=True, coordinator=4) == TRANSACTION_COORDINATOR_FENCED
    assert send(log, 7, 1) == INVALID_PRODUCER_EPOCH
    assert send(log, 7, 1, epoch=1) == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 7, 0, epoch=1) == NONE
    assert log.producers.has_open_transaction(7, 1)
    assert not log.producers.has_open_transaction(7, 0)
    (producer,) = log.producers.active()
    assert (producer.coordinator_epoch, producer.transaction_start) == (5, log.end_offset - 1)
    log.close()


def test_a_long_transaction_is_not_forgotten_with_its_producer(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    send(log, 7, 0)
    send(log, 8, 0, transactional=False)
    log.producers.expire(NOW + 1)
    assert [producer.producer_id for producer in log.producers.active()] == [7]
    log.close()


def test_aborted_transactions_are_listed_and_kept(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=400)
    send(log, 7, 0)
    send(log, 8, 0)
    end(log, 7, commit=False)
    send(log, 7, 1)
    end(log, 8, commit=False)
    end(log, 7, commit=True)
    expected = [Aborted(7, 0, 2, 1), Aborted(8, 1, 4, 3)]
    assert [entry for segment in log.segments for entry in segment.transaction_index.entries()] == expected
    assert aborted_in(log, 0, 6) == expected
    assert aborted_in(log, 3, 6) == expected[1:]
    assert aborted_in(log, 5, 6) == []
    for clean in (False, True):
        log.close(clean=clean)
        log = open_log(tmp_path / "t-0", segment_bytes=400, recovery_point=log.recovery_point, clean=clean)
        assert aborted_in(log, 0, 6) == expected
        assert log.last_stable_offset == 6
    log.close()
    written = b"".join(path.read_bytes() for path in sorted((tmp_path / "t-0").glob("*.txnindex")))
    assert written == struct.pack(">hqqqq", 0, 7, 0, 2, 1) + struct.pack(">hqqqq", 0, 8, 1, 4, 3)


def test_an_open_transaction_is_open_after_a_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    send(log, 7, 0)
    send(log, 7, 1)
    for clean in (True, False):
        log.close(clean=clean)
        log = open_log(tmp_path / "t-0", recovery_point=log.recovery_point, clean=clean)
        assert (log.last_stable_offset, log.producers.has_open_transaction(7, 0)) == (0, True)
    log.close()


def compact(log: Log, now_ms: int) -> None:
    for step in log.compact(now_ms):
        if isinstance(step, Flush):
            step.run()
        else:
            for segment in step:
                segment.remove()


def batches(log: Log) -> list[tuple[int, int, bool]]:
    """(last offset, records, control) of every batch."""
    rows = []
    for segment in log.segments:
        data = segment.log.read(0, segment.size)
        rows += [(header.last_offset, header.count, header.is_control) for header in scan(data).batches]
    return rows


def test_compaction_takes_aborted_records_and_keeps_markers_for_a_while(tmp_path: Path) -> None:
    log = open_log(
        tmp_path / "t-0", segment_bytes=700, cleanup_policy=("compact",), delete_retention_ms=HOUR, segment_ms=HOUR
    )
    send(log, -1, -1, key=b"a", transactional=False)
    send(log, 7, 0, key=b"a")  # aborted: it is not the newest of its key
    send(log, 7, 1, key=b"b")
    end(log, 7, commit=False)
    send(log, 8, 0, key=b"c")
    end(log, 8, commit=True)
    for key in (b"x", b"y", b"z") * 4:
        send(log, -1, -1, key=key, transactional=False)
    compact(log, NOW)
    first = [batch for batch in batches(log) if batch[0] < 6]
    # The last batch of producer 7 stays without its record, and with it the marker that ends its transaction.
    assert first == [(0, 1, False), (2, 0, False), (3, 1, True), (4, 1, False), (5, 1, True)]
    assert aborted_in(log, 0, 6) == [Aborted(7, 1, 3, 4)]
    log.producers.expire(NOW + 1)  # once 7 is forgotten, so is its empty batch; its marker gets a horizon, then goes
    for later, left in ((1, [0, 3, 4, 5]), (2, [0, 3, 4, 5]), (2 * HOUR, [0, 4, 5])):
        for key in (b"x", b"y", b"z") * 4:
            send(log, -1, -1, key=key, transactional=False)
        compact(log, NOW + later)
        assert [last for last, _, _ in batches(log) if last < 6] == left
    marker = log.read(5, 100, 6, whole_first=True)
    assert marker is not None
    assert read_header(marker.read(), 0).is_control
    assert records_of(marker.read())[0].offset == 5
    log.close()


def test_a_snapshot_from_before_the_log_begins_opens_no_transaction(tmp_path: Path) -> None:
    """A power failure brings back a removed snapshot and damages the one of the first segment."""
    log = open_log(tmp_path / "t-0", segment_bytes=150, retention_bytes=150)
    for sequence in range(4):
        send(log, 1, sequence)
    stale = next(path for path in sorted(log.directory.glob("*.snapshot")) if int(path.stem))
    held = stale.read_bytes()
    end(log, 1, commit=True)
    for _ in range(4):
        send(log, -1, -1, transactional=False)
    for segment in log.retain(NOW):
        segment.remove()
    first = log.segments[0].base_offset
    assert first > 4
    assert not stale.exists()
    log.close(clean=False)
    stale.write_bytes(held)
    (log.directory / f"{first:020d}.snapshot").write_bytes(b"nonsense")
    again = open_log(tmp_path / "t-0")
    assert again.last_stable_offset == again.end_offset == 9
    again.close()
