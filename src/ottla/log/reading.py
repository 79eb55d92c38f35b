"""Reads of a log beyond `Log.read`: headers, aborted transactions, message sets, lookups by timestamp, all batches. They change
nothing.

All but `offsets_before`, which reads no bytes, raise StorageError for damaged bytes and failed reads; failed reads are reported
to the directory of the log, too.
"""

import contextlib
from collections.abc import Generator, Iterator
from typing import Final

from ottla.environment.files import Region
from ottla.log.index import Aborted
from ottla.log.log import Log, UnreadableRecords
from ottla.log.segment import DamagedLog
from ottla.records import legacy
from ottla.records.batch import BatchHeader, read_header, records_of
from ottla.records.errors import CorruptRecords
from ottla.records.record import Record

_LOAD_BYTES: Final = 1 << 20


@contextlib.contextmanager
def _storage_errors(log: Log) -> Iterator[None]:
    """Raise StorageError in place of the errors of reading files."""
    try:
        yield
    except DamagedLog as cause:
        raise UnreadableRecords(str(cause)) from cause
    except CorruptRecords as cause:
        raise UnreadableRecords(f"{log.directory}: {cause}") from cause
    except OSError as cause:
        raise log.read_failed(cause) from cause


def headers(log: Log, region: Region) -> Iterator[BatchHeader]:
    """Iterate over the headers of the batches in a region of `Log.read`, with positions in the file. Raises StorageError."""
    end = region.position + region.length
    with _storage_errors(log):
        for segment in reversed(log.segments):
            if segment.log is not region.file:
                continue
            for header in segment.walk(region.position):
                if header.start >= end:
                    return
                yield header
            return


def aborted_in(log: Log, region: Region, offset: int) -> list[Aborted]:
    """Return the aborted transactions for a consumer with read_committed that reads `region` from `offset` on. Raises
    StorageError. Source: KIP-98.
    """
    transactions: list[Aborted] = []
    end_offset = -1
    with _storage_errors(log):
        for segment in log.segments:
            if end_offset < 0:
                if segment.log is not region.file:
                    continue
                end_offset = segment.offset_bound(region.position + region.length)
            aborted, is_last = segment.aborted_between(offset, end_offset)
            transactions += aborted
            if is_last:
                break
    return transactions


def read_message_set(
    log: Log, offset: int, max_bytes: int, limit_offset: int, magic: int
) -> Generator[None, None, bytes]:
    """Read as `Log.read` does and convert to a message set of `magic` for an old consumer; the first batch is always whole.
    Yields after every few milliseconds of work.

    Control batches are skipped if no other batch was read, since old consumers cannot do that. Raises the errors of `Log.read`,
    and NotForOldClients.
    """
    while (region := log.read(offset, max_bytes, limit_offset, whole_first=True)) is not None:
        with _storage_errors(log):
            data = region.read()
            message_set = yield from legacy.convert(data, magic, offset, max_bytes, log.config.largest_record)
            offset = next_offset(data)
        if message_set:
            return message_set
    return b""


def find_offset(log: Log, timestamp: int) -> Generator[None, None, tuple[int, int, int] | None]:
    """Find the first record at or after `timestamp` (ms) from the log start on; return (timestamp, offset, leader epoch).
    Yields after every few milliseconds of work. Raises StorageError.
    """
    with _storage_errors(log):
        for segment in tuple(log.segments):
            if segment.max_timestamp >= timestamp and segment.next_offset > log.start_offset:
                position = yield from segment.offset_at(timestamp, log.config.largest_record, log.start_offset)
                if position is not None:
                    return position
    return None


def offset_at(log: Log, timestamp: int) -> tuple[int, int, int] | None:
    """Find a record by timestamp as `find_offset` does, in one step. Raises StorageError."""
    return legacy.all_at_once(find_offset(log, timestamp))


def find_newest(log: Log) -> Generator[None, None, tuple[int, int, int] | None]:
    """Find the first record with the largest timestamp (KIP-734); return (timestamp, offset, leader epoch). Yields as
    `find_offset` does. Raises StorageError.
    """
    with _storage_errors(log):
        newest = max(log.segments, key=lambda segment: segment.max_timestamp)
        return (yield from newest.offset_of_newest(log.config.largest_record))


def offsets_before(log: Log, timestamp: int) -> list[int]:
    """Return the offsets for ListOffsets 0: the base offsets of segments last written at or before `timestamp` (ms; -1 for any
    time, -2 for the beginning only), newest first, after the log end if the active segment has data.
    """
    if timestamp == -2:
        return [log.start_offset]
    marks = [(segment.base_offset, segment.modified_ms()) for segment in log.segments]
    if log.segments[-1].size:
        marks.append((log.end_offset, marks[-1][1]))
    return [max(base, log.start_offset) for base, at in reversed(marks) if timestamp == -1 or at <= timestamp]


def batches(log: Log) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Iterate over all batches, decoded, for a coordinator that loads its state. Raises StorageError."""
    offset = log.start_offset
    with _storage_errors(log):
        while offset < log.end_offset:
            region = log.read(offset, _LOAD_BYTES, log.end_offset, whole_first=True)
            if region is None:
                return
            data = region.read()
            position = 0
            while position < len(data):
                header = read_header(data, position)
                records = records_of(data[position : header.end]) if header.count else []
                yield header, [record for record in records if record.offset >= log.start_offset]
                position, offset = header.end, header.next_offset


def next_offset(data: bytes) -> int:
    """Return the offset after the last batch in `data`."""
    position, offset = 0, 0
    while position < len(data):
        header = read_header(data, position)
        position, offset = header.end, header.next_offset
    return offset
