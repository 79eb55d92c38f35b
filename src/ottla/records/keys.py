"""The keys of a batch, and the batch without some of its records: what compaction does a million times a second.

Records are never made into objects. A record that stays is copied as it stands: its offset and its timestamp are distances from
the batch's own, and those do not change. Compiled where there is a compiler.
"""

from typing import Final, final

from mypy_extensions import i64

from ottla.records.batch import LOG_APPEND_TIME, NO_TIMESTAMP, BatchHeader, unpacked, wrapped
from ottla.records.errors import CorruptRecords
from ottla.records.varints import read_varint, read_varlong

_NO_KEY: Final = -1
_SHARDS: Final = 64


@final
class NewestOffsets:
    """Key -> the offset at which it is newest. Many small dictionaries: one that grows to a million keys stands still for a
    third of a second when it takes a larger table."""

    def __init__(self) -> None:
        self.shards: list[dict[bytes, int]] = [{} for _ in range(_SHARDS)]

    def __len__(self) -> int:
        return sum(len(shard) for shard in self.shards)

    def get(self, key: bytes) -> int:
        """The offset, -1 for a key that was not seen."""
        return self.shards[hash(key) & (_SHARDS - 1)].get(key, -1)


@final
class Kept:
    """What stays of a batch.

    payload     the records, unpacked, as they stood
    count       how many
    tombstones  how many of them have no value
    max_timestamp  in ms, -1 without a record
    """

    def __init__(self, payload: bytes, count: int, tombstones: int, max_timestamp: int) -> None:
        self.payload = payload
        self.count = count
        self.tombstones = tombstones
        self.max_timestamp = max_timestamp


def _outline(data: bytes, start: i64, end: i64) -> tuple[i64, i64, i64, i64, i64, i64]:
    """The record at `start`: where it ends (-1 for no record), the distances of its timestamp and offset, where its key is
    (from and to; -1 for none), and the length of its value (-1 for none).
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


def note_keys(data: bytes, header: BatchHeader, newest: NewestOffsets, from_offset: int) -> None:
    """Remember for each key of the batch at which offset it is newest; records below `from_offset` are known already. Raises
    CorruptRecords.
    """
    section, begin, finish = unpacked(data, header)
    shards = newest.shards
    pos: i64 = begin
    end: i64 = finish
    base: i64 = header.base_offset
    first: i64 = from_offset
    left: i64 = header.count
    while left > 0:
        left -= 1
        stop, _, delta, key_start, key_end, _ = _outline(section, pos, end)
        if stop < 0:
            raise CorruptRecords("record cut short")
        if key_start >= 0 and base + delta >= first:
            key = section[key_start:key_end]
            shards[hash(key) & (_SHARDS - 1)][key] = base + delta
        pos = stop
    if pos != end:
        raise CorruptRecords("bytes remain after the last record")


def newest_of(
    data: bytes, header: BatchHeader, newest: NewestOffsets, end_offset: int, *, without_tombstones: bool
) -> Kept:
    """The records of the batch that are the newest of their key, or lie at or behind `end_offset`, where nobody looked. Raises
    CorruptRecords.

    without_tombstones  those without a value have had their time
    """
    section, begin, finish = unpacked(data, header)
    shards = newest.shards
    pos: i64 = begin
    end: i64 = finish
    base: i64 = header.base_offset
    beyond: i64 = end_offset
    base_timestamp: i64 = header.base_timestamp
    max_timestamp: i64 = NO_TIMESTAMP
    append_time = header.attributes & LOG_APPEND_TIME != 0
    count: i64 = 0
    tombstones: i64 = 0
    left: i64 = header.count
    pieces: list[bytes] = []
    run: i64 = -1  # where the records that stay one after the other begin
    while left > 0:
        left -= 1
        stop, timestamp, delta, key_start, key_end, value = _outline(section, pos, end)
        if stop < 0:
            raise CorruptRecords("record cut short")
        offset = base + delta
        stays = offset >= beyond
        if not stays and key_start >= 0:
            key = section[key_start:key_end]
            known: i64 = shards[hash(key) & (_SHARDS - 1)].get(key, -1)
            stays = known <= offset and (value >= 0 or not without_tombstones)
        if stays:
            if run < 0:
                run = pos
            count += 1
            if value < 0:
                tombstones += 1
            timestamp = wrapped(base_timestamp, timestamp)
            max_timestamp = max(max_timestamp, timestamp)
        elif run >= 0:
            pieces.append(section[run:pos])
            run = -1
        pos = stop
    if pos != end:
        raise CorruptRecords("bytes remain after the last record")
    if run >= 0:
        pieces.append(section[run:end])
    newest_time: int = header.max_timestamp if append_time else max_timestamp
    return Kept(b"".join(pieces), count, tombstones, newest_time)
