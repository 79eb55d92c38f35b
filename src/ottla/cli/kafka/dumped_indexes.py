"""Dumps of index files for `ottla dump-log`, compared with the log beside them (layouts: log/index.py)."""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from ottla.cli.kafka.dumped_messages import old_messages
from ottla.cli.kafka.dumped_records import Dump
from ottla.records.batch import scan
from ottla.records.errors import CorruptRecords

_OFFSET: Final = Struct(">ii")
_TIME: Final = Struct(">qi")
_ABORTED: Final = Struct(">hqqqq")


def _base_offset(path: Path) -> int:
    return int(path.name[:20]) if path.name[:20].isdecimal() else 0


class _BatchPosition(NamedTuple):
    """Position and offsets of a batch, or of a message of an older format (then both are its last offset)."""

    start: int
    base_offset: int
    last_offset: int
    max_timestamp: int


def _batches(path: Path) -> list[_BatchPosition]:
    """Return the entries of the log beside an index, an empty list without a log."""
    log = path.with_suffix(".log")
    data = log.read_bytes() if log.exists() else b""
    entries: list[_BatchPosition] = []
    position, begun = 0, -1
    while begun < position:
        begun = position
        scanned = scan(data, position)
        entries += [
            _BatchPosition(batch.start, batch.base_offset, batch.last_offset, batch.max_timestamp)
            for batch in scanned.batches
        ]
        position = scanned.end
        with suppress(CorruptRecords):
            for message in old_messages(data, position):
                entries.append(_BatchPosition(message.start, message.offset, message.offset, message.timestamp))
                position = message.end
    return entries


def _offsets(data: bytes, base: int) -> Iterator[tuple[int, int]]:
    """Yield (offset, position); a preallocated file ends in zeros."""
    for number, (relative, position) in enumerate(
        _OFFSET.iter_unpack(data[: len(data) // _OFFSET.size * _OFFSET.size])
    ):
        if number and relative == 0:
            return
        yield base + relative, position


def _report_sanity(path: Path, dump: Dump, data: bytes, size: int, *, sound: bool) -> None:
    """Report the result of the sanity check that a broker runs at start."""
    if sound and len(data) % size == 0:
        dump.line(f"{path} passed sanity check.")
    else:
        dump.problem(f"{path} failed sanity check.", [])


def dump_offset_index(path: Path, dump: Dump, *, verify: bool, sanity: bool) -> None:
    """Dump an offset index (.index). Raises OSError."""
    data, base = path.read_bytes(), _base_offset(path)
    entries = list(_offsets(data, base))
    if not entries:
        dump.line(f"{path} is empty.")
        return
    if sanity:
        _report_sanity(path, dump, data, _OFFSET.size, sound=entries[-1][0] >= base)
        return
    at = {batch.start: batch for batch in _batches(path)}
    mismatches = []
    for offset, position in entries:
        batch = at.get(position)
        if batch is None or batch.last_offset != offset:
            log_offset = "none" if batch is None else batch.last_offset
            mismatches.append(f"  Index offset: {offset}, log offset: {log_offset}")
        if not verify:
            dump.entry(f"offset: {offset} position: {position}", {"offset": offset, "position": position})
    if mismatches:
        dump.problem(f"Mismatches in :{path}", mismatches)


def dump_time_index(path: Path, dump: Dump, *, verify: bool, sanity: bool) -> None:
    """Dump a time index (.timeindex). Raises OSError."""
    data, base = path.read_bytes(), _base_offset(path)
    entries: list[tuple[int, int]] = []
    for timestamp, relative in _TIME.iter_unpack(data[: len(data) // _TIME.size * _TIME.size]):
        if entries and timestamp == 0 and relative == 0:
            break
        entries.append((timestamp, base + relative))
    if sanity:
        _report_sanity(path, dump, data, _TIME.size, sound=not entries or entries[-1] >= entries[0])
        return
    if not entries:
        dump.line(f"{path} is empty.")
        return
    batches = _batches(path)
    largest = [-1]
    for batch in batches:
        largest.append(max(largest[-1], batch.max_timestamp))
    ends = [batch.base_offset for batch in batches]
    mismatches, disorder, missing = [], [], []
    before = -1
    for timestamp, offset in entries:
        index = bisect_right(ends, offset) - 1
        if index < 0 or batches[index].last_offset != offset:
            log_offset = -1 if index < 0 else batches[index].last_offset
            missing.append(f"Indexed offset: {offset}, found log offset: {log_offset}")
        else:
            if largest[index + 1] != timestamp:
                mismatches.append(f"  Index timestamp: {timestamp}, log timestamp: {largest[index + 1]}")
            if before >= timestamp:
                disorder.append(f"  Index timestamp: {timestamp}, Previously indexed timestamp: {before}")
        if not verify:
            dump.entry(f"timestamp: {timestamp} offset: {offset}", {"timestamp": timestamp, "offset": offset})
        before = timestamp
    if mismatches:
        dump.problem(f"Found timestamp mismatch in :{path}", mismatches)
    if disorder:
        dump.problem(f"Found out of order timestamp in :{path}", disorder)
    if missing:
        dump.problem(f"The following indexed offsets are not found in :{path}", missing)


def dump_transaction_index(path: Path, dump: Dump) -> None:
    """Dump a transaction index (.txnindex). Raises OSError."""
    data = path.read_bytes()
    names = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
    for row in _ABORTED.iter_unpack(data[: len(data) // _ABORTED.size * _ABORTED.size]):
        line = " ".join(f"{name}: {value}" for name, value in zip(names, row, strict=True))
        dump.entry(
            line,
            dict(
                zip(("version", "producer_id", "first_offset", "last_offset", "last_stable_offset"), row, strict=True)
            ),
        )
    if len(data) % _ABORTED.size:
        dump.problem(f"Found {len(data) % _ABORTED.size} invalid bytes at the end of {path.name}", [])
