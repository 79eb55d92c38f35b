"""Conversion of record batches to columns and back, in one pass and without an object for each record.

Strategy: columns use Arrow's layout. A binary column has three buffers,

    validity  one bit a row, least significant first; absent without nulls
    offsets   rows + 1 little-endian int32: begin and end of each value in `data`
    data      the values, one after another

so reading is one pass over the records that appends to a few buffers, and writing is one pass over the offsets that appends
to one buffer. `records/arrow.py` wraps the buffers in pyarrow arrays without copying; this module does not use pyarrow.

    fetched bytes --ColumnReader--> Columns --(arrow.py)--> RecordBatch
    RecordBatch --(arrow.py)--> Rows --RowEncoder--> records, row by row, in whatever batch (client/producer/accumulator.py)

int32 offsets are limited to 2 GiB: a chunk ends before a column would exceed its limit, and `next_offset` is the offset of the
next chunk. The two long functions are hot loops: a function call for each field would cost more than the field.
Both directions are in one file because they share the column classes, and each is reviewed against the other.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i64, u8

from ottla.records.batch import (
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchHeader,
    decompress_records,
    read_header,
    wrapping_add,
)
from ottla.records.errors import CorruptRecords
from ottla.records.partitioner import partition_between
from ottla.records.varints import read_varint, read_varlong, varint_size, write_varint

KEY: Final = 1
VALUE: Final = 2
OFFSET: Final = 4
TIMESTAMP: Final = 8
TIMESTAMP_TYPE: Final = 16
HEADERS: Final = 32
ALL: Final = 63

_END_OF_TIME: Final = 2**63 - 1
_DEFAULT_ROWS: Final = 1 << 20
# Limit of a chunk's binary data, well below the range of int32 offsets.
_DEFAULT_BYTES: Final = 1 << 30
_INT32_MAX: Final = 2**31 - 1


@final
class BinaryColumn:
    """Buffers of one nullable binary (or utf8) column.

    validity  bitmap, None when no row is null
    offsets   int32 little-endian, one more than rows
    data      the values
    """

    def __init__(self, offsets: bytes, data: bytes, validity: bytes | None = None) -> None:
        self.offsets = offsets
        self.data = data
        self.validity = validity


@final
class HeaderColumns:
    """Buffers of a list<struct<key: utf8, value: binary>> column.

    offsets  int32 little-endian, rows + 1: begin and end of the headers of each row
    count    total number of headers
    """

    def __init__(self, offsets: bytes, count: int, keys: BinaryColumn, values: BinaryColumn) -> None:
        self.offsets = offsets
        self.count = count
        self.keys = keys
        self.values = values


@final
class Columns:
    """Chunk of records as columns; columns that were not requested are None.

    rows             number of records
    next_offset      offset after the last record that was read, and not below the requested one
    complete         False if the chunk ended at its limit before the end of the data
    offsets          int64 little-endian
    timestamps       int64 little-endian, us since the epoch
    timestamp_types  int32 little-endian: 0 CreateTime, 1 LogAppendTime
    """

    def __init__(self) -> None:
        self.rows: int = 0
        self.next_offset: int = 0
        self.complete: bool = True
        self.offsets: bytes | None = None
        self.timestamps: bytes | None = None
        self.timestamp_types: bytes | None = None
        self.keys: BinaryColumn | None = None
        self.values: BinaryColumn | None = None
        self.headers: HeaderColumns | None = None


@final
class _ColumnWriter:
    """Writer of a binary column."""

    def __init__(self) -> None:
        self.offsets = BytesWriter()
        self.data = BytesWriter()
        self.nulls = BytesWriter()  # row numbers, int32: nulls are rare or all
        self.size: i64 = 0

    def clear(self) -> None:
        self.offsets.truncate(0)
        self.data.truncate(0)
        self.nulls.truncate(0)
        self.size = 0
        write_i32_le(self.offsets, 0)

    def column(self, rows: i64) -> BinaryColumn:
        return BinaryColumn(self.offsets.getvalue(), self.data.getvalue(), _bitmap(self.nulls.getvalue(), rows))


def _bitmap(nulls: bytes, rows: i64) -> bytes | None:
    """Build the validity bitmap of a column from the numbers of its null rows (int32, ascending)."""
    if not nulls:
        return None
    size: i64 = (rows + 7) >> 3
    if len(nulls) == rows * 4:
        return bytes(size)
    out = BytesWriter()
    i: i64 = 0
    count: i64 = len(nulls) >> 2
    first: int = read_i32_le(nulls, 0)
    null: i64 = first
    row: i64 = 0
    while row < rows:
        bits: i64 = 0xFF if rows - row >= 8 else (1 << (rows - row)) - 1
        while null < row + 8:
            bits &= ~(1 << (null - row))
            i += 1
            if i < count:
                following: int = read_i32_le(nulls, i * 4)
                null = following
            else:
                null = rows + 8
        out.append(u8(bits))
        row += 8
    return out.getvalue()


@final
class ColumnReader:
    """Converts fetched bytes to columns, chunk after chunk; its buffers are reused.

    columns    KEY | VALUE | OFFSET | TIMESTAMP | TIMESTAMP_TYPE | HEADERS; other columns are skipped
    max_rows   maximum number of rows in a chunk
    max_bytes  maximum size of each binary column, at most 2^31 - 1. A single larger record is an error

    Not thread-safe. Raises ValueError for limits out of range.
    """

    def __init__(self, columns: int = ALL, *, max_rows: int = _DEFAULT_ROWS, max_bytes: int = _DEFAULT_BYTES) -> None:
        if not 0 < max_bytes <= _INT32_MAX:
            raise ValueError(f"max_bytes {max_bytes} is not in 1 to 2^31 - 1")
        if max_rows <= 0:
            raise ValueError(f"max_rows {max_rows} is not positive")
        self.max_rows: i64 = max_rows
        self.max_bytes: i64 = max_bytes
        self.want_offset: bool = columns & OFFSET != 0
        self.want_timestamp: bool = columns & TIMESTAMP != 0
        self.want_type: bool = columns & TIMESTAMP_TYPE != 0
        self.want_key: bool = columns & KEY != 0
        self.want_value: bool = columns & VALUE != 0
        self.want_headers: bool = columns & HEADERS != 0
        self.from_offset: i64 = 0
        self.end_offset: i64 = 0
        self.next_offset: i64 = 0
        self.rows: i64 = 0
        self.full: bool = False
        self.offsets = BytesWriter()
        self.timestamps = BytesWriter()
        self.types: list[bytes] = []
        self.keys = _ColumnWriter()
        self.values = _ColumnWriter()
        self.header_offsets = BytesWriter()
        self.header_count: i64 = 0
        self.header_keys = _ColumnWriter()
        self.header_values = _ColumnWriter()

    def read(
        self,
        data: bytes,
        from_offset: int = 0,
        end_offset: int = _END_OF_TIME,
        *,
        start: int = 0,
        end: int | None = None,
    ) -> Columns:
        """Convert the batches in `data[start:end]` to one chunk; a truncated batch at the end is left out.

        from_offset  first requested offset (inclusive): a fetch returns whole batches, which may begin earlier
        end_offset   offset at which to stop (exclusive)

        Control batches are skipped, but `next_offset` moves past them. For read_committed the caller removes aborted batches
        before. Raises CorruptRecords for malformed batches or records; the caller checks CRCs.
        """
        self._begin(from_offset, end_offset)
        pos: i64 = start
        size: i64 = len(data) if end is None else end
        while pos + HEADER_SIZE <= size and not self.full:
            header = read_header(data, pos)
            if header.end > size:
                break
            pos = header.end
            base = header.base_offset
            following: i64 = wrapping_add(wrapping_add(base, header.last_offset_delta), 1)
            if following <= self.from_offset:
                continue
            if base >= self.end_offset:
                break
            if header.count > 0 and header.attributes & CONTROL == 0:
                section, begin, stop = decompress_records(data, header, _INT32_MAX)
                _read_batch(section, begin, stop, header, self)
            if not self.full:
                self.next_offset = max(self.next_offset, min(following, self.end_offset))
        return self._columns()

    def _begin(self, from_offset: i64, end_offset: i64) -> None:
        self.from_offset = from_offset
        self.end_offset = end_offset
        self.next_offset = from_offset
        self.rows = 0
        self.full = False
        self.offsets.truncate(0)
        self.timestamps.truncate(0)
        self.types = []
        self.keys.clear()
        self.values.clear()
        self.header_offsets.truncate(0)
        write_i32_le(self.header_offsets, 0)
        self.header_count = 0
        self.header_keys.clear()
        self.header_values.clear()

    def _columns(self) -> Columns:
        out = Columns()
        rows = self.rows
        out.rows = rows
        out.next_offset = self.next_offset
        out.complete = not self.full
        if self.want_offset:
            out.offsets = self.offsets.getvalue()
        if self.want_timestamp:
            out.timestamps = self.timestamps.getvalue()
        if self.want_type:
            out.timestamp_types = b"".join(self.types)
        if self.want_key:
            out.keys = self.keys.column(rows)
        if self.want_value:
            out.values = self.values.column(rows)
        if self.want_headers:
            count = self.header_count
            out.headers = HeaderColumns(
                self.header_offsets.getvalue(), count, self.header_keys.column(count), self.header_values.column(count)
            )
        return out


def _read_batch(data: bytes, start: i64, end: i64, header: BatchHeader, reader: ColumnReader) -> None:
    """Read the requested columns of one batch. One function, as this is the hot loop of every columnar read."""
    pos: i64 = start
    b: i64
    c: i64
    v: i64
    timestamp: i64
    delta: i64
    size: i64
    stop: i64
    left: i64 = header.count
    append_time = header.attributes & LOG_APPEND_TIME != 0
    base_offset: i64 = header.base_offset
    base_timestamp: i64 = header.base_timestamp
    # Sums and products of timestamps and deltas within these limits cannot overflow int64; real timestamps are within them.
    near = -(1 << 52) < base_timestamp < (1 << 52) and -(1 << 52) < header.max_timestamp < (1 << 52)
    fixed: i64 = header.max_timestamp * 1000 if near else _microseconds(header.max_timestamp)
    near_offsets = 0 <= base_offset < (1 << 61)
    from_offset: i64 = reader.from_offset
    end_offset: i64 = reader.end_offset
    max_rows: i64 = reader.max_rows
    max_bytes: i64 = reader.max_bytes
    want_offset = reader.want_offset
    want_timestamp = reader.want_timestamp
    want_key = reader.want_key
    want_value = reader.want_value
    want_headers = reader.want_headers
    offsets = reader.offsets
    timestamps = reader.timestamps
    key_offsets = reader.keys.offsets
    key_data = reader.keys.data
    key_size: i64 = reader.keys.size
    value_offsets = reader.values.offsets
    value_data = reader.values.data
    value_size: i64 = reader.values.size
    row: i64 = reader.rows
    first: i64 = row
    n: int  # an i64 is converted to an i32 through an int
    while left > 0:
        left -= 1
        # length, attributes
        if pos >= end:
            raise CorruptRecords("record beyond its batch")
        # varint: begin v, pos = read_varint(data, pos, end)
        b = data[pos]
        c = data[pos + 1] if b >= 0x80 and pos + 1 < end else 0
        if b < 0x80:
            pos += 1
            v = (b >> 1) ^ -(b & 1)
        elif 0 < c < 0x80:
            pos += 2
            b = (b & 0x7F) | (c << 7)
            v = (b >> 1) ^ -(b & 1)
        else:
            v, pos = read_varint(data, pos, end)
        # varint: end
        stop = pos + v
        if pos < 0 or stop > end or stop < pos + 6:
            raise CorruptRecords("record length beyond its batch")
        pos += 1
        # timestamp delta
        # varint: begin timestamp, pos = read_varlong(data, pos, stop)
        # varint: if pos < 0 or pos >= stop: raise CorruptRecords("record cut short")
        b = data[pos]
        c = data[pos + 1] if b >= 0x80 and pos + 1 < stop else 0
        if b < 0x80:
            pos += 1
            timestamp = (b >> 1) ^ -(b & 1)
        elif 0 < c < 0x80:
            pos += 2
            b = (b & 0x7F) | (c << 7)
            timestamp = (b >> 1) ^ -(b & 1)
        else:
            timestamp, pos = read_varlong(data, pos, stop)
            if pos < 0 or pos >= stop:
                raise CorruptRecords("record cut short")
        # varint: end
        # offset delta
        # varint: begin delta, pos = read_varint(data, pos, stop)
        # varint: if pos < 0: raise CorruptRecords("record cut short")
        b = data[pos]
        c = data[pos + 1] if b >= 0x80 and pos + 1 < stop else 0
        if b < 0x80:
            pos += 1
            delta = (b >> 1) ^ -(b & 1)
        elif 0 < c < 0x80:
            pos += 2
            b = (b & 0x7F) | (c << 7)
            delta = (b >> 1) ^ -(b & 1)
        else:
            delta, pos = read_varint(data, pos, stop)
            if pos < 0:
                raise CorruptRecords("record cut short")
        # varint: end
        offset: i64 = base_offset + delta if near_offsets else wrapping_add(base_offset, delta)
        if offset < from_offset:
            pos = stop
            continue
        if offset >= end_offset:
            pos = end
            break
        if row >= max_rows:
            reader.full = True
            break
        # key
        if pos >= stop:
            raise CorruptRecords("record cut short")
        # varint: begin size, pos = read_varint(data, pos, stop)
        # varint: if pos < 0: raise CorruptRecords("record cut short")
        b = data[pos]
        c = data[pos + 1] if b >= 0x80 and pos + 1 < stop else 0
        if b < 0x80:
            pos += 1
            size = (b >> 1) ^ -(b & 1)
        elif 0 < c < 0x80:
            pos += 2
            b = (b & 0x7F) | (c << 7)
            size = (b >> 1) ^ -(b & 1)
        else:
            size, pos = read_varint(data, pos, stop)
            if pos < 0:
                raise CorruptRecords("record cut short")
        # varint: end
        if size >= stop - pos or pos >= stop:
            raise CorruptRecords("record key beyond its record")
        key_start: i64 = pos
        key_length: i64 = size
        if size > 0:
            pos += size
        # value
        # varint: begin size, pos = read_varint(data, pos, stop)
        # varint: if pos < 0: raise CorruptRecords("record cut short")
        b = data[pos]
        c = data[pos + 1] if b >= 0x80 and pos + 1 < stop else 0
        if b < 0x80:
            pos += 1
            size = (b >> 1) ^ -(b & 1)
        elif 0 < c < 0x80:
            pos += 2
            b = (b & 0x7F) | (c << 7)
            size = (b >> 1) ^ -(b & 1)
        else:
            size, pos = read_varint(data, pos, stop)
            if pos < 0:
                raise CorruptRecords("record cut short")
        # varint: end
        if size >= stop - pos:
            raise CorruptRecords("record value beyond its record")
        if key_size + key_length > max_bytes or value_size + size > max_bytes:
            if row == 0:
                raise CorruptRecords(f"record of more than {max_bytes} bytes")
            reader.full = True
            break
        if want_headers:
            header_start: i64 = pos + size if size > 0 else pos
            if reader.header_keys.size + reader.header_values.size + stop - header_start > max_bytes:
                if row == 0:
                    raise CorruptRecords(f"record of more than {max_bytes} bytes")
                reader.full = True
                break
            _read_headers(data, header_start, stop, reader)
        if want_key:
            if key_length > 0:
                key_data.write(data[key_start : key_start + key_length])
                key_size += key_length
            elif key_length < 0:
                n = row
                write_i32_le(reader.keys.nulls, n)
            n = key_size
            write_i32_le(key_offsets, n)
        if want_value:
            if size > 0:
                value_data.write(data[pos : pos + size])
                value_size += size
            elif size < 0:
                n = row
                write_i32_le(reader.values.nulls, n)
            n = value_size
            write_i32_le(value_offsets, n)
        if want_timestamp:
            if append_time:
                timestamp = fixed
            elif near and -(1 << 52) < timestamp < (1 << 52):
                timestamp = (base_timestamp + timestamp) * 1000
            else:
                timestamp = _microseconds(wrapping_add(base_timestamp, timestamp))
            write_i64_le(timestamps, timestamp)
        if want_offset:
            write_i64_le(offsets, offset)
        row += 1
        reader.next_offset = offset + 1
        pos = stop
    if left == 0 and not reader.full and pos != end:
        raise CorruptRecords("bytes remain after the last record")
    reader.keys.size = key_size
    reader.values.size = value_size
    reader.rows = row
    if reader.want_type and row > first:
        kind = b"\x01\0\0\0" if append_time else b"\0\0\0\0"
        reader.types.append(kind * (row - first))


def _microseconds(timestamp: int) -> int:
    """Convert ms to us, clamped to int64."""
    return max(min(timestamp * 1000, _END_OF_TIME), -_END_OF_TIME - 1)


def _read_headers(data: bytes, pos: i64, stop: i64, reader: ColumnReader) -> None:
    """Append the headers of one record to the list column."""
    count: i64
    size: i64
    n: int
    keys = reader.header_keys
    values = reader.header_values
    count, pos = read_varint(data, pos, stop)
    if pos < 0 or count < 0 or count > stop - pos:
        raise CorruptRecords("record header count out of range")
    while count > 0:
        count -= 1
        size, pos = read_varint(data, pos, stop)
        if pos < 0 or size < 0 or size > stop - pos:
            raise CorruptRecords("record header name beyond its record")
        if size > 0:
            name = data[pos : pos + size]
            if not name.isascii():
                # Arrow does not validate utf8 columns: invalid UTF-8 is replaced here, as in Java.
                name = name.decode("utf-8", "replace").encode()
            keys.data.write(name)
            keys.size += len(name)
        n = keys.size
        write_i32_le(keys.offsets, n)
        pos += size
        size, pos = read_varint(data, pos, stop)
        if pos < 0 or size > stop - pos:
            raise CorruptRecords("record header value beyond its record")
        if size > 0:
            values.data.write(data[pos : pos + size])
            values.size += size
            pos += size
        elif size < 0:
            n = reader.header_count
            write_i32_le(values.nulls, n)
        n = values.size
        write_i32_le(values.offsets, n)
        reader.header_count += 1
    if pos != stop:
        raise CorruptRecords("record length differs from its content")
    n = reader.header_count
    write_i32_le(reader.header_offsets, n)


@final
class Rows:
    """Rows to encode: Arrow buffers and a window of their rows.

    first, rows  window: `rows` rows of every column from row `first` on
    key, value   None for a column of nulls
    headers      None for no headers
    timestamps   int64 little-endian, ms since the epoch, indexed like the columns; None: `timestamp` for every row
    """

    def __init__(
        self,
        rows: int,
        *,
        value: BinaryColumn | None,
        key: BinaryColumn | None = None,
        headers: HeaderColumns | None = None,
        timestamps: bytes | None = None,
        timestamp: int = -1,
        first: int = 0,
    ) -> None:
        self.rows = rows
        self.first = first
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamps = timestamps
        self.timestamp = timestamp


@final
class _ColumnBuffers:
    """Buffers of a column; empty ones for a missing column."""

    def __init__(self, column: BinaryColumn | None) -> None:
        self.absent: bool = column is None
        self.data: bytes = b"" if column is None else column.data
        self.offsets: bytes = b"" if column is None else column.offsets
        self.nullable: bool = column is not None and column.validity is not None
        self.validity: bytes = b""
        if column is not None and column.validity is not None:
            self.validity = column.validity
        self.start: i64 = 0  # start of the value that was located last

    def locate(self, row: i64) -> i64:
        """Return the length of a row's value, -1 for null, and set `start` to its position. Raises CorruptRecords."""
        if self.absent:
            return -1
        if self.nullable and not (self.validity[row >> 3] >> (row & 7)) & 1:
            return -1
        low: int = read_i32_le(self.offsets, row * 4)
        high: int = read_i32_le(self.offsets, row * 4 + 4)
        start: i64 = low
        end: i64 = high
        if start < 0 or end < start or end > len(self.data):
            raise CorruptRecords("column offsets beyond the data")
        self.start = start
        return end - start


@final
class RowEncoder:
    """Encodes rows as records: each row is measured, then written into its batch.

    rows       number of rows
    timestamp  timestamp of the row that was measured last, in ms
    """

    def __init__(self, rows: Rows) -> None:
        headers = rows.headers
        self.rows: i64 = rows.rows
        self.timestamp: i64 = rows.timestamp
        self._first: i64 = rows.first
        self._timestamps = rows.timestamps
        self._key = _ColumnBuffers(rows.key)
        self._value = _ColumnBuffers(rows.value)
        self._names = _ColumnBuffers(None if headers is None else headers.keys)
        self._values = _ColumnBuffers(None if headers is None else headers.values)
        self._header_offsets = None if headers is None else headers.offsets
        self._header_count: i64 = 0 if headers is None else headers.count
        self._key_length: i64 = -1
        self._value_length: i64 = -1
        self._low: i64 = 0
        self._high: i64 = 0

    def measure(self, index: i64) -> i64:
        """Return the encoded size of a row without its length field and its timestamp and offset deltas.

        Raises CorruptRecords or IndexError if offsets reach beyond their buffers.
        """
        row: i64 = self._first + index
        timestamps = self._timestamps
        if timestamps is not None:
            self.timestamp = read_i64_le(timestamps, row * 8)
        key_length: i64 = self._key.locate(row)
        value_length: i64 = self._value.locate(row)
        self._key_length = key_length
        self._value_length = value_length
        size: i64 = 1 + varint_size(key_length) + varint_size(value_length)
        if key_length > 0:
            size += key_length
        if value_length > 0:
            size += value_length
        offsets = self._header_offsets
        if offsets is None:
            return size + 1
        begin: int = read_i32_le(offsets, row * 4)
        end: int = read_i32_le(offsets, row * 4 + 4)
        self._low = begin
        self._high = end
        if self._low < 0 or self._high < self._low or self._high > self._header_count:
            raise CorruptRecords("header offsets beyond the headers")
        return size + _headers_size(self._names, self._values, self._low, self._high)

    def write(self, out: BytesWriter, body: i64, delta: i64, index: i64) -> None:
        """Write the measured row: its length `body`, then its content with timestamp delta `delta` and offset delta `index`."""
        write_varint(out, body)
        out.append(0)
        write_varint(out, delta)
        write_varint(out, index)
        length: i64 = self._key_length
        write_varint(out, length)
        if length > 0:
            key = self._key
            out.write(key.data[key.start : key.start + length])
        length = self._value_length
        write_varint(out, length)
        if length > 0:
            value = self._value
            out.write(value.data[value.start : value.start + length])
        if self._header_offsets is None:
            out.append(0)
        else:
            _write_headers(self._names, self._values, self._low, self._high, out)

    def key(self) -> bytes | None:
        """Return the key of the measured row."""
        if self._key_length < 0:
            return None
        key = self._key
        return key.data[key.start : key.start + self._key_length]

    def partition_by_key(self, partitions: i64) -> i64:
        """Return the partition (of `partitions`) for the key of the measured row, as in Kafka's producers; -1 without a key."""
        if self._key_length < 0:
            return -1
        start: i64 = self._key.start
        return partition_between(self._key.data, start, start + self._key_length, partitions)


def _headers_size(names: _ColumnBuffers, values: _ColumnBuffers, low: i64, high: i64) -> i64:
    size: i64 = varint_size(high - low)
    while low < high:
        length: i64 = max(names.locate(low), 0)
        size += varint_size(length) + length
        length = values.locate(low)
        size += varint_size(length)
        if length > 0:
            size += length
        low += 1
    return size


def _write_headers(names: _ColumnBuffers, values: _ColumnBuffers, low: i64, high: i64, out: BytesWriter) -> None:
    """Write the headers of one record. No name is null: `records.arrow` refuses such columns."""
    write_varint(out, high - low)
    while low < high:
        length: i64 = max(names.locate(low), 0)
        write_varint(out, length)
        if length > 0:
            out.write(names.data[names.start : names.start + length])
        length = values.locate(low)
        write_varint(out, length)
        if length > 0:
            out.write(values.data[values.start : values.start + length])
        low += 1
