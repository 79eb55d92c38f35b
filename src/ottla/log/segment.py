"""A segment: one .log file with its indexes, named by the offset it begins with.

Reading. An offset is found in three steps: the index gives a batch at or before it, headers are walked from there, and the
batches since the newest index entry (which the index does not know) are kept in a short list, so that consumers at the tail
of a log never read it to find their place. A read ends on the last batch boundary that the index knows below the limit:
whole batches cross the socket, and the client's next offset is one the index finds at once.
"""

import logging
from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Final

from ottla.environment.files import LogFile, Region, Store
from ottla.log.index import Aborted, Checksum, OffsetIndex, TimeIndex, TransactionIndex
from ottla.records.batch import HEADER_SIZE, BatchHeader, read_header, records_in_parts
from ottla.records.errors import BeyondLimit, CorruptRecords

CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
DELETED: Final = ".deleted"
_WALK_BYTES: Final = 8192
_SCAN_BYTES: Final = 1 << 20
MOST_CHECKED: Final = 500
"""Batches of an earlier process whose headers one read compares: a fetch of tiny ones took 200 ms for 100,000, interpreted."""
_MAX_RELATIVE_OFFSET: Final = 0x7FFFFFFF  # an int32 in the indexes
_logger = logging.getLogger("ottla.log")


class DamagedLog(Exception):
    """Damage of a log; the message names file and position, and a remedy if there is one.

    damage  the message without the remedy
    """

    def __init__(self, damage: str, remedy: str = "") -> None:
        super().__init__(damage + remedy)
        self.damage = damage


class Segment:
    """Batches from `base_offset` (inclusive) to `next_offset` (exclusive).

    created_ms  creation time, for batches without a timestamp
    jitter_ms   time by which it is rolled before segment.ms
    has_gaps    True if offsets may be missing between its batches, as after a compaction; also while that is unknown
    """

    __slots__ = (
        "_checked",
        "_inherited",
        "_is_reported",
        "_recent_ends",
        "_recent_from",
        "_recent_positions",
        "_since_index",
        "_store",
        "_suffix",
        "base_offset",
        "created_ms",
        "directory",
        "first_timestamp",
        "has_gaps",
        "index",
        "index_interval",
        "jitter_ms",
        "log",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "time_index",
        "transaction_index",
    )

    def __init__(self, store: Store, directory: Path, base_offset: int, suffix: str = "") -> None:
        self._store = store
        self._suffix = suffix
        self.directory = directory
        self.base_offset = base_offset
        self.log: LogFile = store.open(self.path)
        self.index = OffsetIndex(store, directory, self._name(".index"), base_offset)
        self.time_index = TimeIndex(store, directory, self._name(".timeindex"), base_offset)
        self.transaction_index = TransactionIndex(store, directory, self._name(".txnindex"))
        self.created_ms = -1
        self.jitter_ms = 0
        self.next_offset = base_offset
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.first_timestamp: int | None = None
        self._since_index = 0
        self._recent_ends: list[int] = []
        self._recent_from = base_offset
        self._recent_positions: list[int] = []
        self.index_interval = 0
        self.has_gaps = True
        self._is_reported = False
        self._inherited = 0
        """Position up to which the bytes are of an earlier process, and have not been scanned."""
        self._checked = (0, 0, base_offset)
        """Range of inherited bytes whose headers were checked, from begin to end position, and the offset after it."""

    @property
    def size(self) -> int:
        """Return the size of the .log file in bytes."""
        return self.log.size

    @property
    def path(self) -> Path:
        """Return the path of the .log file."""
        return self._named(".log")

    def _name(self, kind: str) -> str:
        return f"{self.base_offset:020d}{kind}{self._suffix}"

    def _named(self, kind: str) -> Path:
        return self.directory / self._name(kind)

    def start_empty(self) -> None:
        """Reset the state of the segment and its indexes, for a new segment or before a scan."""
        self.index.start_empty()
        self.time_index.start_empty()
        self.transaction_index.start_empty()
        self.next_offset = self.base_offset
        self.max_timestamp = -1
        self.max_timestamp_offset = self.base_offset
        self.first_timestamp = None
        self._since_index = 0
        self._recent_ends = []
        self._recent_positions = []
        self._inherited = 0
        self.has_gaps = False

    def append(
        self, header: BatchHeader, base_offset: int, buffers: Sequence[bytes | memoryview], interval: int
    ) -> None:
        """Write one batch. `interval` is index.interval.bytes. Raises OSError; the segment is unchanged then."""
        position = self.log.size
        self.log.append(buffers)
        size = self.log.size - position
        self.noted(base_offset, base_offset + header.last_offset_delta, header.max_timestamp, position, size, interval)

    def noted(self, first: int, last: int, max_timestamp: int, position: int, size: int, interval: int) -> None:
        """Record a batch of `size` bytes at `position`, after an append or in recovery."""
        if self.first_timestamp is None:
            self.first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last
        if self._since_index > interval:
            self.index.append(last, position)
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
            self._since_index = 0
            self._recent_ends = []
            self._recent_positions = []
        if not self._recent_ends:
            self._recent_from = first
        if first != self.next_offset:
            self.has_gaps = True
        self._recent_ends.append(last + 1)
        self._recent_positions.append(position)
        self._since_index += size
        self.next_offset = last + 1

    def position_of(self, offset: int) -> int:
        """Return the position of the batch that holds `offset`, or of the first one after it. Raises DamagedLog."""
        recent = self._recent_ends
        if recent and offset >= self._recent_from:
            at = bisect_right(recent, offset)  # ends are exclusive: the first batch that reaches beyond the offset
            return self._recent_positions[at] if at < len(recent) else self.log.size
        position, last_offset = self.index.entry_before(offset)
        headers = self.walk(position) if position >= self._inherited else self._compared(position, last_offset)
        for header in headers:
            if header.last_offset >= offset:
                return header.start
        return self.log.size

    def _compared(self, position: int, last_offset: int) -> Iterator[BatchHeader]:
        """Walk inherited batches from an index entry (`position`, `last_offset`; the first batch at 0), and compare their
        offsets with those that must be there. Raises DamagedLog.
        """
        expected = self.base_offset
        is_entry = position > 0
        for header in self.walk(position):
            is_known = header.last_offset == last_offset if is_entry else self._may_follow(expected, header)
            if not is_known:
                raise DamagedLog(
                    f"{self.path} at position {header.start}: a batch has offsets {header.base_offset} to "
                    f"{header.last_offset}, expected {f'up to {last_offset}' if is_entry else f'from {expected} on'}"
                )
            is_entry, expected = False, header.next_offset
            yield header

    def _may_follow(self, expected: int, header: BatchHeader) -> bool:
        """Return whether an inherited batch may have its offsets, `expected` being the next one."""
        has_begin = header.base_offset >= expected if self.has_gaps else header.base_offset == expected
        return has_begin and header.base_offset <= header.last_offset < self.next_offset

    def read(self, position: int, max_bytes: int, end: int, *, whole_first: bool) -> Region | None:
        """Return the batches from `position` (a batch boundary) up to `end` that fit into `max_bytes`.

        end          end position (exclusive) of the readable part
        whole_first  whether the first batch is returned even if it is larger (KIP-74)

        Raises DamagedLog.
        """
        if position >= end:
            return None
        stop = position + max_bytes
        boundary = end
        if stop < end:
            boundary = self.index.boundary_before(stop)
            if boundary <= position:
                boundary = self._walked_boundary(position, stop, end, whole_first=whole_first)
        boundary = min(boundary, end)
        if position < self._inherited:
            boundary = self._sound_until(position, boundary)
        elif boundary > position:
            self._header_at(position)
        return Region(self.log, position, boundary - position) if boundary > position else None

    def _header_at(self, position: int) -> BatchHeader:
        """Read the header of the batch at `position`: what is sent must begin with a batch, as in Kafka. Raises DamagedLog."""
        try:
            return read_header(self.log.read(position, HEADER_SIZE), 0)
        except CorruptRecords as cause:
            raise DamagedLog(f"{self.path} at position {position}: {cause}") from None

    def _sound_until(self, position: int, end: int) -> int:
        """Return the end of the whole batches from `position` up to `end` whose offsets ascend within the segment: bytes of an
        earlier process are checked when they are read first, of so many batches as take a millisecond; the next read goes on
        behind them. Raises DamagedLog without any.
        """
        begin, at, expected = self._checked
        if not begin <= position <= at:
            # The first batch was compared with what must be there when its position was looked up.
            begin, at, expected = position, position, self._header_at(position).base_offset
        stop, checked = min(end, self._inherited), 0
        try:
            for header in self.walk(at) if at < stop else ():
                if not self._may_follow(expected, header):
                    raise DamagedLog(
                        f"{self.path} at position {at}: a batch has offsets {header.base_offset} to {header.last_offset}, "
                        f"expected from {expected} on, below {self.next_offset}"
                    )
                at, expected = header.end, header.next_offset
                checked += 1
                if at >= stop or checked == MOST_CHECKED:
                    break
        except DamagedLog as damage:
            if at <= position:
                raise
            if not self._is_reported:
                self._is_reported = True
                _logger.error("%s; records are served up to there", damage)
            return min(at, end)
        finally:
            self._checked = begin, at, expected
        return min(at, end) if checked == MOST_CHECKED and at < stop else end

    def inherit(self) -> None:
        """Take the bytes of the file as those of an earlier process, which are checked when they are read."""
        self._inherited = self.log.size

    def _rebuild_indexes(self) -> None:
        """Write the offset and the time index again from the batches, up to the first damage. Raises OSError."""
        _logger.warning(
            "an index of %s is not as the last stop left it: it is written again from the records", self.path
        )
        index, times = self.index, self.time_index
        index.start_empty()
        times.start_empty()
        since, newest, offset = 0, -1, self.base_offset
        try:
            for header in self.walk(0):
                if header.max_timestamp > newest:
                    newest, offset = header.max_timestamp, header.last_offset
                if since > self.index_interval:
                    index.append(header.last_offset, header.start)
                    times.append(newest, offset)
                    since = 0
                since += header.end - header.start
        except DamagedLog as damage:
            _logger.warning("%s: the index ends there", damage)
        try:
            times.append(newest, offset)
            index.write()
            times.write()
        finally:
            index.release()
            times.release()

    def expect_indexes(self, index: Checksum, time_index: Checksum) -> None:
        """Compare both indexes with the checksums of the last clean stop before they are used; one that differs is rebuilt."""
        self.index.expect(index, self._rebuild_indexes)
        self.time_index.expect(time_index, self._rebuild_indexes)

    def _walked_boundary(self, position: int, stop: int, end: int, *, whole_first: bool) -> int:
        """Find the last batch boundary at or before `stop` by headers, as the index has none after `position`."""
        boundary = position
        for header in self.walk(position):
            if header.start >= end or header.end > stop:
                if boundary == position and whole_first:
                    boundary = header.end
                break
            boundary = header.end
        return boundary

    def walk(self, position: int) -> Iterator[BatchHeader]:
        """Iterate over the headers of the batches from `position` on, with positions in the file. Raises DamagedLog."""
        size = self.log.size
        chunk, at = b"", position  # chunk begins at file position `at`
        while position < size:
            if position + HEADER_SIZE > at + len(chunk):
                chunk, at = self.log.read(position, _WALK_BYTES), position
            try:
                header = read_header(chunk, position - at)
            except CorruptRecords as cause:
                raise DamagedLog(f"{self.path} at position {position}: {cause}") from None
            header.start, header.end = header.start + at, header.end + at
            if header.end > size:
                raise DamagedLog(f"{self.path} at position {position}: a batch reaches beyond the end of the file")
            yield header
            position = header.end

    def offset_at(
        self, timestamp: int, largest: int, log_start: int
    ) -> Generator[None, None, tuple[int, int, int] | None]:
        """Find the first record at or after `timestamp` (ms); return (timestamp, offset, leader epoch). Yields after every few
        milliseconds of work. Raises DamagedLog.

        largest    maximum decompressed size of a record; a larger one is returned in place of later ones in its batch
        log_start  log start offset: records before it are deleted
        """
        begin = max(self.time_index.offset_before(timestamp), log_start)
        for header in self.walk(self.index.position_before(begin)):
            if header.max_timestamp < timestamp or header.last_offset < log_start:
                continue
            position = yield from self._record_at(header, timestamp, largest, log_start)
            if position is not None:
                return position
        return None

    def offset_of_newest(self, largest: int) -> Generator[None, None, tuple[int, int, int] | None]:
        """Find the first record with the largest timestamp; return (timestamp, offset, leader epoch). `largest` and yields as
        in `offset_at`. Raises DamagedLog.
        """
        if self.max_timestamp < 0:
            return None
        for header in self.walk(self.position_of(self.max_timestamp_offset)):
            return (yield from self._record_at(header, self.max_timestamp, largest, header.base_offset))
        return None

    def _record_at(
        self, header: BatchHeader, timestamp: int, largest: int, log_start: int
    ) -> Generator[None, None, tuple[int, int, int] | None]:
        data = self.log.read(header.start, header.end - header.start)
        next_offset = header.base_offset
        is_first = True
        try:
            for records in records_in_parts(data, read_header(data, 0), largest):
                if not is_first:
                    yield
                is_first = False
                for record in records:
                    if record.timestamp >= timestamp and record.offset >= log_start:
                        return record.timestamp, record.offset, header.leader_epoch
                if records:
                    next_offset = records[-1].offset + 1
        except BeyondLimit:
            # A reader that begins here misses no record: the batch has the timestamp in this record or a later one.
            return header.max_timestamp, max(next_offset, log_start), header.leader_epoch
        except CorruptRecords as cause:
            raise DamagedLog(f"{self.path} at position {header.start}: {cause}") from None
        return None

    def modified_ms(self) -> int:
        """Return the time of the last write to the file, in ms since the epoch."""
        return self._store.modified_ms(self.path)

    def load_end(self) -> bool:
        """Find the end of an intact segment, by its newest index entries and the headers after them, and make it active.
        Returns False if the indexes do not match the segment. Raises DamagedLog.
        """
        sound = (self.index.resume(self.log.size), self.time_index.resume(), self.transaction_index.resume())
        if not all(sound):
            return False
        self._find_end()
        self.inherit()
        return True

    def _find_end(self) -> None:
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last()
        for header in self.walk(0):
            self.first_timestamp = header.max_timestamp
            break
        start = self.index.last_position()
        since = 0
        for header in self.walk(start):
            if not self.follows(header):
                raise DamagedLog(f"{self.path} at position {header.start}: offset {header.base_offset} does not follow")
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
            self.next_offset = header.last_offset + 1
            if not self._recent_ends:
                self._recent_from = header.base_offset
            self._recent_ends.append(header.next_offset)
            self._recent_positions.append(header.start)
            since += header.end - header.start
        self._since_index = since

    def follows(self, header: BatchHeader) -> bool:
        """Return True if a batch may be appended to the segment: offsets ascend, and an index entry can hold them."""
        return self.next_offset <= header.base_offset <= header.last_offset <= self.base_offset + _MAX_RELATIVE_OFFSET

    def seal(self) -> None:
        """Write the indexes, at a roll or clean stop. Raises OSError."""
        if self.log.size or self._since_index:
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
        indexes = (self.index, self.time_index, self.transaction_index)
        for index in indexes:
            index.write()
        self.log.truncate(self.log.size)
        for index in indexes:  # only now: after an error the segment can still be appended to
            index.release()

    def has_sound_indexes(self) -> bool:
        """Return True if the indexes of a closed segment can be what `seal` wrote."""
        if not self.log.size and len(self.time_index):
            return False  # for truncated records
        return self.index.is_sound(self.log.size) and self.time_index.is_sound() and self.transaction_index.is_sound()

    def aborted_between(self, first_offset: int, end_offset: int) -> tuple[list[Aborted], bool]:
        """Return the aborted transactions that ended here and overlap `first_offset` (inclusive) to `end_offset` (exclusive),
        and True if later segments cannot have further ones.
        """
        transactions = []
        for aborted in self.transaction_index.entries():
            if aborted.last_offset >= first_offset and aborted.first_offset < end_offset:
                transactions.append(aborted)
            if aborted.last_stable_offset >= end_offset:
                return transactions, True
        return transactions, False

    def offset_bound(self, position: int) -> int:
        """Return an upper bound (exclusive) of the offsets before `position`."""
        bound = self.index.offset_bound(position)
        return self.next_offset if bound is None else bound

    def truncate(self, offset: int, position: int | None = None) -> None:
        """Remove the batch with `offset` and all after it; the segment becomes the last one. Raises OSError and DamagedLog.

        position  position of that batch; None to find it
        """
        if position is None:
            position = self.position_of(offset)
        self.index.truncate(offset)
        self.time_index.truncate(offset)
        self.transaction_index.truncate(offset)
        self.log.truncate(position)
        self.next_offset = self.base_offset
        self._recent_ends, self._recent_positions = [], []
        self._find_end()

    def close(self) -> None:
        self.log.close()

    def move_to(self, suffix: str) -> None:
        """Rename the files, the .log last; open readers are not affected. Raises OSError; the segment stays readable then, and
        the call can be repeated.

        suffix  CLEANED, SWAP, DELETED, or nothing for a segment of the log
        """
        base = f"{self.base_offset:020d}"
        self.index.move(f"{base}.index{suffix}")
        self.time_index.move(f"{base}.timeindex{suffix}")
        self.transaction_index.move(f"{base}.txnindex{suffix}")
        self.log.move(self.directory / f"{base}.log{suffix}")
        self._suffix = suffix

    def moved(self, directory: Path) -> None:
        """Record a new path of the directory after its rename."""
        self.directory = directory
        self.index.moved(directory, self._name(".index"))
        self.time_index.moved(directory, self._name(".timeindex"))
        self.transaction_index.moved(directory, self._name(".txnindex"))
        self.log.moved(self._named(".log"))

    def remove(self) -> None:
        """Remove the files from disk, the .log last."""
        self.close()
        for path in reversed(self.files()):
            self._store.remove(path)

    def files(self) -> list[Path]:
        """Return the paths of all files that the segment may have."""
        return [self._named(kind) for kind in (".log", ".index", ".timeindex", ".txnindex")]
