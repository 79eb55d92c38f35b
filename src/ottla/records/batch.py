"""RecordBatch v2: the unit that producers send, logs store and fetches return.

Strategy: a batch is never converted to an object graph, but stays in its bytes. `BatchHeader` has the fields of its first 61
bytes, `scan` walks from header to header, and only `records_of` decodes single records. Layout (KIP-98), big-endian:

     0            8            12       16     17       21          23                 27
    +------------+------------+--------+------+--------+-----------+------------------+----------------
    | baseOffset | batchLength| leader | magic| crc u32| attributes| lastOffsetDelta  | baseTimestamp
    | i64        | i32        | epoch  | i8 =2|        | i16       | i32              | i64
    +------------+------------+--------+------+--------+-----------+------------------+----------------
     35             43           51              53             57             61
    +--------------+------------+---------------+--------------+--------------+------------------------
    | maxTimestamp | producerId | producerEpoch | baseSequence | recordsCount | records, plain or one
    | i64          | i64        | i16           | i32          | i32          | compressed block
    +--------------+------------+---------------+--------------+--------------+------------------------

    batchLength is the number of bytes after it; crc is CRC-32C of bytes 21 to the end, so that base offset and leader epoch
    can be changed without a new CRC.
    attributes: 0-2 codec | 3 timestamp type (1 = LogAppendTime) | 4 transactional | 5 control | 6 delete horizon

    record:  length varint | attributes i8 | timestamp delta varlong | offset delta varint | key length varint | key
             | value length varint | value | header count varint | headers (key length, key, value length, value)

With LogAppendTime every record's timestamp is maxTimestamp; the deltas are ignored.

One file, because writing and reading mirror each other: every field of the layout above occurs in both, and `scan`, `seal`
and the decoders share the positions of the header fields.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i64, mypyc_attr

from ottla.records.checksum import crc32c
from ottla.records.compression import compress, decompress, decompress_at_once, pieces
from ottla.records.errors import BeyondLimit, CorruptRecords, MalformedRecord
from ottla.records.record import NOWHERE, Header, Origin, Record
from ottla.records.varints import CUT, read_varint, read_varlong, write_varint

HEADER_SIZE: Final = 61
MAGIC: Final = 2
NO_TIMESTAMP: Final = -1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
"""Flag: the base timestamp is the time until which tombstones are retained (KIP-534); deltas are relative to it as usual."""

# Kafka has no limit for the decompressed size of a batch; this one prevents decompression bombs from exhausting memory.
DECOMPRESS_LIMIT: Final = 2**31 - 1
DECOMPRESS_AT_ONCE: Final = 4 << 20
"""Decompressed size up to which a batch is decompressed in one step of a few milliseconds, in bytes."""
_RECORDS_AT_ONCE: Final = 2_000
"""Number of records that are decoded to objects in one step of a few milliseconds."""
SECTION_BYTES: Final = 16 << 20
"""Memory for decompressing a batch of any size, in bytes, unless one record needs more."""


_MAGIC_AT: Final = 16
_ATTRIBUTES_LOW_AT: Final = 22
_PRODUCER_ID_AT: Final = 43
_PRODUCER_EPOCH_AT: Final = 51
_BASE_SEQUENCE_AT: Final = 53


@final
@mypyc_attr(acyclic=True)
class BatchHeader:
    """Header (first 61 bytes) of a batch, and the position of the batch in its buffer: start (inclusive) to end (exclusive)."""

    def __init__(self, start: i64 = 0, end: i64 = 0) -> None:
        self.start: i64 = start
        self.end: i64 = end
        self.base_offset: i64 = 0
        self.length: i64 = 0
        self.leader_epoch: i64 = -1
        self.magic: i64 = MAGIC
        self.crc: i64 = 0
        self.attributes: i64 = 0
        self.last_offset_delta: i64 = -1
        self.base_timestamp: i64 = NO_TIMESTAMP
        self.max_timestamp: i64 = NO_TIMESTAMP
        self.producer_id: i64 = -1
        self.producer_epoch: i64 = -1
        self.base_sequence: i64 = -1
        self.count: i64 = 0

    @property
    def compression(self) -> int:
        """Return the codec id; 0 means uncompressed."""
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def timestamp_type(self) -> int:
        """Return the timestamp type: 0 CreateTime, 1 LogAppendTime."""
        return (self.attributes & LOG_APPEND_TIME) >> 3

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Return the offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size(self) -> int:
        """Return the size of the whole batch in bytes, header included."""
        return self.end - self.start


def read_header(data: bytes, pos: i64) -> BatchHeader:
    """Decode the header of the batch at `pos`. Raises CorruptRecords for fewer than 61 bytes, another magic or a bad length.

    The batch may extend beyond `data`: compare `end`.
    """
    if pos < 0 or pos + HEADER_SIZE > len(data):
        raise CorruptRecords("batch header cut short")
    magic: i64 = data[pos + 16]
    if magic != MAGIC:
        raise CorruptRecords(f"batch of magic {magic}")
    length: int = read_i32_be(data, pos + 8)
    if length < HEADER_SIZE - 12:
        raise CorruptRecords(f"batch length {length} is below the minimum")
    header = BatchHeader(pos, pos + 12 + length)
    header.length = length
    header.base_offset = read_i64_be(data, pos)
    # Narrow reads widen through int: see the compiler's conversion rules.
    n: int = read_i32_be(data, pos + 12)
    header.leader_epoch = n
    n = read_i32_be(data, pos + 17)
    header.crc = n & 0xFFFFFFFF
    n = read_i16_be(data, pos + 21)
    header.attributes = n
    n = read_i32_be(data, pos + 23)
    header.last_offset_delta = n
    header.base_timestamp = read_i64_be(data, pos + 27)
    header.max_timestamp = read_i64_be(data, pos + 35)
    header.producer_id = read_i64_be(data, pos + 43)
    n = read_i16_be(data, pos + 51)
    header.producer_epoch = n
    n = read_i32_be(data, pos + 53)
    header.base_sequence = n
    n = read_i32_be(data, pos + 57)
    header.count = n
    return header


@final
class Scan:
    """Result of `scan`.

    batches  whole batches, in order
    end      position at which the scan stopped: the end of the data, a truncated batch, or bytes that are no batch
    corrupt  reason why the scan cannot continue at `end`; None at the end of the data or a truncated batch
    """

    def __init__(self, batches: list[BatchHeader], end: int, corrupt: str | None) -> None:
        self.batches = batches
        self.end = end
        self.corrupt = corrupt


def scan(data: bytes, start: int = 0, end: int | None = None) -> Scan:
    """Scan the headers of the batches in `data[start:end]`; checks magic and lengths only (`crc_ok` checks the CRC). Never
    raises.
    """
    batches: list[BatchHeader] = []
    pos: i64 = start
    size: i64 = len(data) if end is None else end
    while pos + HEADER_SIZE <= size:
        magic: i64 = data[pos + 16]
        if magic != MAGIC:
            return Scan(batches, pos, f"batch of magic {magic}")
        length: int = read_i32_be(data, pos + 8)
        if length < HEADER_SIZE - 12:
            return Scan(batches, pos, f"batch length {length} is below the minimum")
        if pos + 12 + length > size:
            break
        header = read_header(data, pos)
        batches.append(header)
        pos = header.end
    return Scan(batches, pos, None)


def crc_ok(data: bytes, header: BatchHeader) -> bool:
    """Return True if the whole batch is in `data` and its CRC-32C is valid."""
    return header.end <= len(data) and crc32c(memoryview(data)[header.start + 21 : header.end]) == header.crc


def number_records(pairs: Sequence[tuple[bytes | None, bytes | None]], first: int, timestamp: int) -> list[Record]:
    """Return records of (key, value) pairs with consecutive offsets from `first` on, all with one timestamp."""
    return [Record(first + at, timestamp, key, value) for at, (key, value) in enumerate(pairs)]


def build(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: int = 0,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    timestamp_type: int = 0,
    leader_epoch: int = -1,
    control: bool = False,
    base_timestamp: int | None = None,
) -> bytes:
    """Build one batch of `records`, whose offsets are absolute and not below `base_offset`. One function: a loop over the
    records that also collects the fields of the header.

    Timestamps are written as deltas from `base_timestamp`, by default that of the first record.

    With timestamp_type 1 (LogAppendTime) all records get the newest timestamp. Raises ValueError for an unknown codec or
    offsets out of range.
    """
    out = BytesWriter()
    body = BytesWriter()
    base_at: i64 = NO_TIMESTAMP if base_timestamp is None else base_timestamp
    max_timestamp: i64 = NO_TIMESTAMP
    count: i64 = 0
    last_delta: i64 = -1
    base: i64 = base_offset
    for record in records:
        timestamp: i64 = record.timestamp
        if count == 0 and base_timestamp is None:
            base_at = timestamp
        max_timestamp = max(max_timestamp, timestamp)
        delta: i64 = record.offset
        delta -= base
        if delta <= last_delta or delta > 0x7FFFFFFF:
            raise ValueError(f"offset {record.offset} does not follow in a batch based at {base_offset}")
        last_delta = delta
        body.truncate(0)
        body.append(0)
        write_varint(body, wrapping_add(timestamp, -base_at))
        write_varint(body, delta)
        _write_bytes(body, record.key)
        _write_bytes(body, record.value)
        write_varint(body, len(record.headers))
        for name, value in record.headers:
            _write_bytes(body, name.encode())
            _write_bytes(body, value)
        write_varint(out, len(body))
        out.write(body.getvalue())
        count += 1
    attributes = codec | (timestamp_type << 3)
    if transactional:
        attributes |= TRANSACTIONAL
    if control:
        attributes |= CONTROL
    header = BatchHeader()
    header.base_offset = base_offset
    header.leader_epoch = leader_epoch
    header.attributes = attributes
    header.last_offset_delta = last_delta
    header.base_timestamp = base_at
    header.max_timestamp = max_timestamp
    header.producer_id = producer_id
    header.producer_epoch = producer_epoch
    header.base_sequence = base_sequence
    header.count = count
    return seal(header, compress(codec, out.getvalue(), level) if codec else out.getvalue())


def seal(header: BatchHeader, payload: bytes) -> bytes:
    """Build a batch from the fields of a header and `payload` (the records section); length and CRC are computed."""
    return seal_header(header, payload) + payload


def seal_header(header: BatchHeader, payload: bytes | memoryview) -> bytes:
    """Build the 61 header bytes before `payload`; length and CRC are computed, and stored in `header` too."""
    covered = BytesWriter()
    attributes: int = header.attributes
    write_i16_be(covered, attributes)
    number: int = header.last_offset_delta
    write_i32_be(covered, number)
    write_i64_be(covered, header.base_timestamp)
    write_i64_be(covered, header.max_timestamp)
    write_i64_be(covered, header.producer_id)
    number = header.producer_epoch
    write_i16_be(covered, number)
    number = header.base_sequence
    write_i32_be(covered, number)
    number = header.count
    write_i32_be(covered, number)
    tail = covered.getvalue()
    crc: int = crc32c(payload, crc32c(tail))
    header.crc = crc
    header.length = HEADER_SIZE - 12 + len(payload)
    out = BytesWriter()
    write_i64_be(out, header.base_offset)
    number = header.length
    write_i32_be(out, number)
    number = header.leader_epoch
    write_i32_be(out, number)
    out.append(MAGIC)
    # Convert to an int32 with the same bits.
    write_i32_be(out, crc - 0x100000000 if crc >= 0x80000000 else crc)
    out.write(tail)
    return out.getvalue()


def _write_bytes(out: BytesWriter, value: bytes | None) -> None:
    if value is None:
        out.append(1)
    else:
        write_varint(out, len(value))
        out.write(value)


def decompress_records(data: bytes, header: BatchHeader, limit: int = DECOMPRESS_LIMIT) -> tuple[bytes, int, int]:
    """Return the decompressed records section of a batch: a buffer, and start and end of the section in it.

    An uncompressed batch is not copied. Raises CorruptRecords for a truncated batch, bad compressed data, or more than
    `limit` bytes.
    """
    if header.end > len(data):
        raise CorruptRecords("batch cut short")
    if header.attributes & CODEC_MASK == 0:
        return data, header.start + HEADER_SIZE, header.end
    plain = decompress(header.compression, memoryview(data)[header.start + HEADER_SIZE : header.end], limit)
    return plain, 0, len(plain)


def _decompress_at_once(data: bytes, header: BatchHeader) -> tuple[bytes, int, int]:
    """Decompress as `decompress_records` does if that takes a few milliseconds at most. Raises BeyondLimit otherwise."""
    if header.end > len(data) or header.attributes & CODEC_MASK == 0:
        return decompress_records(data, header)
    compressed = memoryview(data)[header.start + HEADER_SIZE : header.end]
    plain = decompress_at_once(header.compression, compressed, DECOMPRESS_AT_ONCE)
    return plain, 0, len(plain)


def sections(data: bytes, header: BatchHeader, largest: int) -> Iterator[tuple[bytes, int, int, int]]:
    """Iterate over the decompressed records section in parts of whole records: buffer, start, end, number of records.

    largest  maximum decompressed size of one record, in bytes: bounds the memory, independent of the batch's size

    An uncompressed or small batch is one part; parts of other batches may be empty. Each part takes a few milliseconds of
    work. Raises, after the parts before it, CorruptRecords for bad compressed data, MalformedRecord for bad decompressed
    data, BeyondLimit for too large a record.
    """
    try:
        section, start, end = _decompress_at_once(data, header)
    except BeyondLimit:
        pass
    else:
        yield section, start, end, header.count
        return
    compressed = memoryview(data)[header.start + HEADER_SIZE : header.end]
    parts: list[bytes] = []  # decompressed and not yielded yet; begins with a record
    size = 0
    needed = 0  # number of bytes that complete the first record in `parts`
    left: int = header.count
    for piece in pieces(header.compression, compressed, largest):
        parts.append(piece)
        size += len(piece)
        if size < needed:
            yield b"", 0, 0, 0
            continue
        plain = b"".join(parts)
        count, stop, needed = _whole_records(plain, 0, size, left)
        needed -= stop
        if count:
            yield plain, 0, stop, count
            left -= count
        if needed > largest:
            raise BeyondLimit(f"a record decompresses to more than {largest} bytes")
        size -= stop
        parts = [plain[stop:]] if size else []
        if size and not left:
            raise MalformedRecord("bytes remain after the last record")
    if left:
        raise MalformedRecord("fewer records than the batch says")


def _whole_records(data: bytes, begin: i64, end: i64, most: i64) -> tuple[int, int, int]:
    """Return (number of whole records, end position, bytes needed for the next record), for at most `most` records between
    `begin` and `end`. The needed bytes are counted from the start of `data`, as positions are.
    """
    pos: i64 = begin
    count: i64 = 0
    while count < most and pos < end:
        length, start = read_varint(data, pos, end)
        if start == CUT:
            return count, pos, end + 1
        if start < 0 or length < 0:
            raise MalformedRecord("record length beyond its batch")
        if length > end - start:
            return count, pos, start + length
        pos = start + length
        count += 1
    return count, pos, pos + 1


def records_of(data: bytes, start: int = 0, limit: int = DECOMPRESS_LIMIT) -> list[Record]:
    """Decode all records of the whole batches in `data` from `start` on, including control records.

    limit  maximum decompressed size of one batch, in bytes

    A truncated batch at the end of the data is left out. Raises CorruptRecords for malformed batches or records; the caller
    checks CRCs (`crc_ok`).
    """
    scanned = scan(data, start)
    if scanned.corrupt is not None:
        raise CorruptRecords(scanned.corrupt)
    records: list[Record] = []
    for header in scanned.batches:
        section, begin, end = decompress_records(data, header, limit)
        _decode(section, begin, end, header, header.count, records, NOWHERE)
    return records


def records_in_parts(data: bytes, header: BatchHeader, largest: int) -> Iterator[list[Record]]:
    """Decode the records of one batch in steps of a few milliseconds; the list of a step may be empty. Raises the errors of
    `sections`.
    """
    for section, begin, end, count in sections(data, header, largest):
        start, left = begin, count
        while left > _RECORDS_AT_ONCE:
            whole, stop, _ = _whole_records(section, start, end, _RECORDS_AT_ONCE)
            if whole < _RECORDS_AT_ONCE:
                raise MalformedRecord("fewer records than the batch says")
            some: list[Record] = []
            _decode(section, start, stop, header, whole, some, NOWHERE)
            yield some
            start, left = stop, left - whole
        records: list[Record] = []
        _decode(section, start, end, header, left, records, NOWHERE)
        yield records


def read_records(data: bytes, header: BatchHeader, origin: Origin, limit: int = DECOMPRESS_LIMIT) -> list[Record]:
    """Decode the records of one batch, each with this origin. Raises the errors of `records_of`."""
    section, begin, end = decompress_records(data, header, limit)
    records: list[Record] = []
    _decode(section, begin, end, header, header.count, records, origin)
    return records


def _decode(
    data: bytes, start: i64, end: i64, header: BatchHeader, count: int, records: list[Record], origin: Origin
) -> None:
    """Decode the `count` records between `start` and `end`, and append them to `records`.

    One function of straight-line code, as this loop is hot, compiled and interpreted; varints of one and two bytes are read
    in place. A field that extends beyond its record is detected at the end of the record, where the positions differ, or at
    the end of the data.
    """
    pos: i64 = start
    b: i64
    c: i64
    v: i64
    delta: i64
    timestamp: i64
    stop: i64
    left: i64 = count
    append_time = header.attributes & LOG_APPEND_TIME != 0
    max_timestamp: i64 = header.max_timestamp
    base_timestamp: i64 = header.base_timestamp
    base_offset: i64 = header.base_offset
    # Sums of values within this distance of zero cannot overflow int64.
    near = -(1 << 61) < base_timestamp < (1 << 61) and -(1 << 61) < base_offset < (1 << 61)
    try:
        while left > 0:
            left -= 1
            if pos >= end:
                raise CorruptRecords("fewer records than the batch says")
            # varint: begin v, pos = read_varint(data, pos, end), or IndexError
            b = data[pos]
            if b < 0x80:
                pos += 1
                v = (b >> 1) ^ -(b & 1)
            else:
                c = data[pos + 1]
                if c < 0x80:
                    pos += 2
                    b = (b & 0x7F) | (c << 7)
                    v = (b >> 1) ^ -(b & 1)
                else:
                    v, pos = read_varint(data, pos, end)
            # varint: end
            if pos < 0 or v < 0 or v > end - pos:
                raise CorruptRecords("record length beyond its batch")
            stop = pos + v
            # The attributes are unused.
            # varint: begin timestamp, pos = read_varlong(data, pos + 1, stop), or IndexError
            # varint: if pos < 0: raise CorruptRecords("record cut short")
            b = data[pos + 1]
            if b < 0x80:
                pos += 2
                timestamp = (b >> 1) ^ -(b & 1)
            else:
                c = data[pos + 2]
                if c < 0x80:
                    pos += 3
                    b = (b & 0x7F) | (c << 7)
                    timestamp = (b >> 1) ^ -(b & 1)
                else:
                    timestamp, pos = read_varlong(data, pos + 1, stop)
                    if pos < 0:
                        raise CorruptRecords("record cut short")
            # varint: end
            # varint: begin delta, pos = read_varint(data, pos, stop), or IndexError
            # varint: if pos < 0: raise CorruptRecords("record cut short")
            b = data[pos]
            if b < 0x80:
                pos += 1
                delta = (b >> 1) ^ -(b & 1)
            else:
                c = data[pos + 1]
                if c < 0x80:
                    pos += 2
                    b = (b & 0x7F) | (c << 7)
                    delta = (b >> 1) ^ -(b & 1)
                else:
                    delta, pos = read_varint(data, pos, stop)
                    if pos < 0:
                        raise CorruptRecords("record cut short")
            # varint: end
            key: bytes | None = None
            b = data[pos]
            if b == 1:
                pos += 1
            else:
                # varint: begin v, pos = read_varint(data, pos, stop), or IndexError, b is data[pos]
                if b < 0x80:
                    pos += 1
                    v = (b >> 1) ^ -(b & 1)
                else:
                    c = data[pos + 1]
                    if c < 0x80:
                        pos += 2
                        b = (b & 0x7F) | (c << 7)
                        v = (b >> 1) ^ -(b & 1)
                    else:
                        v, pos = read_varint(data, pos, stop)
                # varint: end
                if pos < 0 or v > stop - pos:
                    raise CorruptRecords("record key beyond its record")
                if v >= 0:
                    key = data[pos : pos + v]
                    pos += v
            value: bytes | None = None
            b = data[pos]
            if b == 1:
                pos += 1
            else:
                # varint: begin v, pos = read_varint(data, pos, stop), or IndexError, b is data[pos]
                if b < 0x80:
                    pos += 1
                    v = (b >> 1) ^ -(b & 1)
                else:
                    c = data[pos + 1]
                    if c < 0x80:
                        pos += 2
                        b = (b & 0x7F) | (c << 7)
                        v = (b >> 1) ^ -(b & 1)
                    else:
                        v, pos = read_varint(data, pos, stop)
                # varint: end
                if pos < 0 or v > stop - pos:
                    raise CorruptRecords("record value beyond its record")
                if v >= 0:
                    value = data[pos : pos + v]
                    pos += v
            headers: list[Header] | None = None
            if data[pos] == 0:
                pos += 1
            else:
                headers = []
                pos = _decode_headers(data, pos, stop, headers)
            if pos != stop:
                raise CorruptRecords("record length differs from its content")
            if append_time:
                timestamp = max_timestamp
            elif near and -(1 << 61) < timestamp < (1 << 61):
                timestamp += base_timestamp
            else:
                timestamp = wrapping_add(base_timestamp, timestamp)
            delta = delta + base_offset if near else wrapping_add(base_offset, delta)
            records.append(Record(delta, timestamp, key, value, headers, origin))
    except IndexError:
        raise CorruptRecords("record cut short") from None
    if pos != end:
        raise CorruptRecords("bytes remain after the last record")


def wrapping_add(base: i64, delta: i64) -> i64:
    """Return base + delta with the overflow of a Java long, which occurs only in corrupt batches."""
    low: i64 = (base & 0xFFFFFFFF) + (delta & 0xFFFFFFFF)
    high: i64 = (base >> 32) + (delta >> 32) + (low >> 32)
    high = ((high & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
    return high * 0x100000000 + (low & 0xFFFFFFFF)


def _decode_headers(data: bytes, pos: i64, stop: i64, headers: list[Header]) -> i64:
    count: i64
    size: i64
    count, pos = read_varint(data, pos, stop)
    if pos < 0 or count < 0 or count > stop - pos:
        raise CorruptRecords("record header count out of range")
    while count > 0:
        count -= 1
        size, pos = read_varint(data, pos, stop)
        if pos < 0 or size < 0 or size > stop - pos:
            raise CorruptRecords("record header name beyond its record")
        # As in Java, invalid UTF-8 in a name is replaced, so that the record stays readable.
        name = data[pos : pos + size].decode("utf-8", "replace")
        pos += size
        size, pos = read_varint(data, pos, stop)
        if pos < 0 or size > stop - pos:
            raise CorruptRecords("record header value beyond its record")
        value: bytes | None = None
        if size >= 0:
            value = data[pos : pos + size]
            pos += size
        headers.append((name, value))
    return pos


def magic_of(data: bytes, start: i64, end: i64) -> int:
    """Return the magic of the batch or message from `start` (inclusive) to `end` (exclusive); -1 if it is too short."""
    return data[start + _MAGIC_AT] if end - start > _MAGIC_AT else -1


def transactional_producer(data: bytes, start: i64, end: i64) -> tuple[int, int] | None:
    """Return producer id and epoch of a transactional batch, None for other batches. Nothing else is checked."""
    if end - start < HEADER_SIZE or data[start + _MAGIC_AT] != MAGIC:
        return None
    if not data[start + _ATTRIBUTES_LOW_AT] & TRANSACTIONAL:
        return None
    return read_i64_be(data, start + _PRODUCER_ID_AT), read_i16_be(data, start + _PRODUCER_EPOCH_AT)


def base_sequence(data: bytes, start: i64) -> int:
    """Return the base sequence of a whole batch of magic 2. Nothing is checked."""
    return read_i32_be(data, start + _BASE_SEQUENCE_AT)
