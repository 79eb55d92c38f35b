"""Hot loops of compaction: collects the keys of batches, and copies batches without superseded records.

Records are never decoded to objects. A record that stays is copied unchanged: its offset and timestamp are deltas from the
base values of the batch, which do not change. Compiled where there is a compiler.
"""

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from ottla.records.batch import LOG_APPEND_TIME, NO_TIMESTAMP, BatchHeader, wrapping_add
from ottla.records.errors import CorruptRecords
from ottla.records.varints import read_varint, read_varlong, varint_size, write_varint

_NO_KEY: Final = -1
SHARDS: Final = 64
"""Number of dictionaries that the map of the newest offsets consists of."""
_BLOCK_BITS: Final = 9
_NO_BITS: Final = bytes(1 << (_BLOCK_BITS - 3))


@final
class NewestOffsets:
    """Offset of the newest record of each key, among the records from offset `begin` on (inclusive).

    The scan of a log fills a map of key -> offset. Then `mark` stores the same offsets as bits in the order of the log, since
    the copy goes in that order: a look-up in a map of a million keys misses the processor's cache, several times a record.
    The map remains for records before `begin`, which are superseded if it has their key.

    The map consists of many small dictionaries: resizing one of a million keys would block for a third of a second.
    """

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.shards: list[dict[bytes, int]] = [{} for _ in range(SHARDS)]
        self.blocks: dict[int, bytearray] = {}
        """Bits of the newest offsets, by offset >> _BLOCK_BITS; only blocks with such an offset, as offsets may be sparse."""

    def __len__(self) -> int:
        return sum(len(shard) for shard in self.shards)

    def mark(self, number: int) -> None:
        """Set the bits of the offsets in one shard, after the scan."""
        blocks = self.blocks
        at: i64
        for offset in self.shards[number].values():
            at = offset
            block = blocks.get(at >> _BLOCK_BITS)
            if block is None:
                block = blocks[at >> _BLOCK_BITS] = bytearray(1 << (_BLOCK_BITS - 3))
            at &= (1 << _BLOCK_BITS) - 1
            block[at >> 3] |= 1 << (at & 7)


@final
class Kept:
    """Records of a batch that compaction keeps.

    payload     bytes of the records, decompressed, otherwise unchanged
    count       number of records
    tombstones  number of records without a value
    max_timestamp  in ms, -1 without a record
    """

    def __init__(self, payload: bytes, count: int, tombstones: int, max_timestamp: int) -> None:
        self.payload = payload
        self.count = count
        self.tombstones = tombstones
        self.max_timestamp = max_timestamp


def _outline(data: bytes, start: i64, end: i64) -> tuple[i64, i64, i64, i64, i64, i64]:
    """Parse the record at `start`: its end (-1 for an invalid record), timestamp delta, offset delta, begin and end of its
    key (-1 without one), and the length of its value (-1 without one).
    """
    length, pos = read_varint(data, start, end)
    if pos < 0 or length < 0 or length > end - pos:
        return -1, 0, 0, 0, 0, 0
    stop: i64 = pos + length
    timestamp, pos = read_varlong(data, pos + 1, stop)
    if pos < 0:
        return -1, 0, 0, 0, 0, 0
    delta, pos = read_varint(data, pos, stop)
    if pos < 0:
        return -1, 0, 0, 0, 0, 0
    size, pos = read_varint(data, pos, stop)
    if pos < 0 or size > stop - pos:
        return -1, 0, 0, 0, 0, 0
    key_start: i64 = _NO_KEY
    key_end: i64 = _NO_KEY
    if size >= 0:
        key_start, key_end = pos, pos + size
        pos = key_end
    value, pos = read_varint(data, pos, stop)
    if pos < 0 or value > stop - pos:
        return -1, 0, 0, 0, 0, 0
    return stop, timestamp, delta, key_start, key_end, value


def note_keys(section: bytes, begin: i64, end: i64, count: i64, header: BatchHeader, newest: NewestOffsets) -> None:
    """Store the newest offset of each key among the `count` records in a part of a batch (see `sections`).

    Records before `newest.begin` are skipped. Raises CorruptRecords.
    """
    shards = newest.shards
    from_offset: i64 = newest.begin
    pos: i64 = begin
    base: i64 = header.base_offset
    left: i64 = count
    while left > 0:
        left -= 1
        stop, _, delta, key_start, key_end, _ = _outline(section, pos, end)
        if stop < 0:
            raise CorruptRecords("record cut short")
        if key_start >= 0 and base + delta >= from_offset:
            key = section[key_start:key_end]
            shards[hash(key) & (SHARDS - 1)][key] = base + delta
        pos = stop
    if pos != end:
        raise CorruptRecords("bytes remain after the last record")


def append_rebased(out: BytesWriter, records: bytes, begin: i64, most: i64, shift: i64) -> i64:
    """Copy up to `most` records from position `begin` on, and add `shift` to their timestamp deltas for a new base
    timestamp of the batch. Returns the position after them. Raises CorruptRecords.
    """
    pos: i64 = begin
    end: i64 = len(records)
    size: i64
    timestamp: i64
    left: i64 = most
    while left > 0 and pos < end:
        left -= 1
        size, pos = read_varint(records, pos, end)
        if pos < 0 or size < 1 or size > end - pos:
            raise CorruptRecords("record cut short")
        stop: i64 = pos + size
        attributes = records[pos : pos + 1]
        timestamp, pos = read_varlong(records, pos + 1, stop)
        if pos < 0:
            raise CorruptRecords("record cut short")
        timestamp = wrapping_add(timestamp, shift)
        write_varint(out, 1 + varint_size(timestamp) + stop - pos)
        out.write(attributes)
        write_varint(out, timestamp)
        out.write(records[pos:stop])
        pos = stop
    return pos


@final
class Selection:
    """Selects the records of a batch that are the newest of their key, or at or after `end_offset`, the end of the scan.

    most_bytes          maximum memory for the selected records, in bytes
    without_tombstones  whether to leave out records without a value, as their retention time has passed
    """

    def __init__(
        self, header: BatchHeader, newest: NewestOffsets, end_offset: int, most_bytes: int, *, without_tombstones: bool
    ) -> None:
        self._most_bytes: i64 = most_bytes
        self._header = header
        self._newest = newest
        self._end_offset = end_offset
        self._without_tombstones = without_tombstones
        self._max_timestamp: int = NO_TIMESTAMP
        self._count = 0
        self._tombstones = 0
        self._pieces: list[bytes] = []
        self._size = 0

    def take(self, section: bytes, begin: i64, end: i64, count: i64) -> None:
        """Select records from the next part of the batch (see `sections`). Raises CorruptRecords."""
        header = self._header
        shards = self._newest.shards
        blocks = self._newest.blocks
        marked: i64 = self._newest.begin
        number: i64 = -1
        bits = _NO_BITS
        pos: i64 = begin
        base: i64 = header.base_offset
        beyond: i64 = self._end_offset
        base_timestamp: i64 = header.base_timestamp
        max_timestamp: i64 = self._max_timestamp
        kept: i64 = 0
        tombstones: i64 = 0
        left: i64 = count
        run: i64 = -1  # start of the current run of consecutive selected records
        while left > 0:
            left -= 1
            stop, timestamp, delta, key_start, key_end, value = _outline(section, pos, end)
            if stop < 0:
                raise CorruptRecords("record cut short")
            offset = base + delta
            stays = offset >= beyond
            if not stays and key_start >= 0 and (value >= 0 or not self._without_tombstones):
                if offset >= marked:
                    if offset >> _BLOCK_BITS != number:
                        number = offset >> _BLOCK_BITS
                        block = blocks.get(number)
                        bits = _NO_BITS if block is None else bytes(block)
                    at: i64 = offset & ((1 << _BLOCK_BITS) - 1)
                    stays = bits[at >> 3] >> (at & 7) & 1 != 0
                else:
                    key = section[key_start:key_end]
                    stays = key not in shards[hash(key) & (SHARDS - 1)]
            if stays:
                if run < 0:
                    run = pos
                kept += 1
                if value < 0:
                    tombstones += 1
                timestamp = wrapping_add(base_timestamp, timestamp)
                max_timestamp = max(max_timestamp, timestamp)
            elif run >= 0:
                self._keep(section[run:pos])
                run = -1
            pos = stop
        if pos != end:
            raise CorruptRecords("bytes remain after the last record")
        if run >= 0:
            self._keep(section[run:end])
        self._count += kept
        self._tombstones += tombstones
        self._max_timestamp = max_timestamp

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._most_bytes:
            self._pieces.append(piece)
        else:
            self._pieces.clear()

    @property
    def is_too_large(self) -> bool:
        """True if the selected records exceed the memory limit: the batch then has to stay unchanged."""
        return self._size > self._most_bytes

    def build(self) -> Kept:
        """Return the selected records."""
        header = self._header
        append_time = header.attributes & LOG_APPEND_TIME != 0
        newest_time: int = header.max_timestamp if append_time else self._max_timestamp
        return Kept(b"".join(self._pieces), self._count, self._tombstones, newest_time)
