"""Conversion of columns to pyarrow record batches, and back.

The only module of this layer that imports pyarrow (extras `arrow`, `spark`). Arrays are views of the buffers of
`records/columns.py`: no data is copied, and no work is done for each row.

The schema is that of Spark's own Kafka source, field by field; a projection is any of these columns in any order:

    key binary | value binary | topic string | partition int32 | offset int64 | timestamp timestamp[us, UTC]
    timestampType int32 | headers list<struct<key string, value binary>>
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from ottla.records.columns import (
    HEADERS,
    KEY,
    OFFSET,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    VALUE,
    BinaryColumn,
    Columns,
    HeaderColumns,
    Rows,
)

_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])

TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(_HEADER),
}

_FLAGS: Final = {
    "key": KEY,
    "value": VALUE,
    "offset": OFFSET,
    "timestamp": TIMESTAMP,
    "timestampType": TIMESTAMP_TYPE,
    "headers": HEADERS,
}


def schema(names: Sequence[str]) -> pa.Schema:
    """Return the schema of these columns. Raises KeyError for an unknown column."""
    return pa.schema([(name, TYPES[name]) for name in names])


def column_flags(names: Sequence[str]) -> int:
    """Return the flags of the columns that a ColumnReader must collect; topic and partition need none."""
    flags = 0
    for name in names:
        flags |= _FLAGS.get(name, 0)
    return flags


def record_batch(columns: Columns, topic: str, partition: int, target: pa.Schema) -> pa.RecordBatch:
    """Convert columns to a record batch of the schema `target` (see `schema`). Raises KeyError for a column not read."""
    return pa.RecordBatch.from_arrays([_array(columns, name, topic, partition) for name in target.names], schema=target)


def _array(columns: Columns, name: str, topic: str, partition: int) -> pa.Array:
    rows = columns.rows
    if name == "key" and columns.keys is not None:
        return _binary(columns.keys, rows, pa.binary())
    if name == "value" and columns.values is not None:
        return _binary(columns.values, rows, pa.binary())
    if name == "topic":
        return _repeat(topic, rows)
    if name == "partition":
        return _fixed_size_array(partition.to_bytes(4, "little", signed=True) * rows, rows, pa.int32())
    if name == "offset" and columns.offsets is not None:
        return _fixed_size_array(columns.offsets, rows, pa.int64())
    if name == "timestamp" and columns.timestamps is not None:
        return _fixed_size_array(columns.timestamps, rows, TYPES["timestamp"])
    if name == "timestampType" and columns.timestamp_types is not None:
        return _fixed_size_array(columns.timestamp_types, rows, pa.int32())
    if name == "headers" and columns.headers is not None:
        return _headers(columns.headers, rows)
    raise KeyError(name)


def _fixed_size_array(data: bytes, rows: int, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)])


def _binary(column: BinaryColumn, rows: int, kind: pa.DataType) -> pa.Array:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)])


def _repeat(text: str, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), rows)


def _headers(column: HeaderColumns, rows: int) -> pa.Array:
    import pyarrow.compute as pc  # slow and rarely needed: every Spark process would wait for the import

    items = pa.StructArray.from_arrays(
        [_binary(column.keys, column.count, pa.string()), _binary(column.values, column.count, pa.binary())],
        fields=list(_HEADER),
    )
    offsets = pa.py_buffer(column.offsets)
    ends = pa.Array.from_buffers(pa.int32(), rows + 1, [None, offsets])
    # A record without headers has NULL, as in Spark's own source. The result of the comparison is Arrow's validity bitmap.
    some = pc.not_equal(ends[1:], ends[:-1])
    validity = None if some.true_count == rows else some.buffers()[1]
    return pa.Array.from_buffers(TYPES["headers"], rows, [validity, offsets], children=[items])


def rows_of(
    value: pa.Array,
    key: pa.Array | None = None,
    headers: pa.Array | None = None,
    timestamp: pa.Array | int = -1,
) -> Rows:
    """Convert Arrow arrays of equal length to rows for `RowEncoder`.

    value, key  binary or string, also large, view and dictionary types; nulls are null keys and values
    headers     list<struct<key string, value binary>> or a map; a null list is no headers
    timestamp   timestamps of any unit or integers in ms, or one time in ms for all rows

    For arrays that are slices of their buffers offsets are copied, not data. Raises ValueError for a null timestamp
    and for a header without a key, pyarrow.ArrowInvalid for a column of more than 2 GiB or of a type that cannot be cast.
    """
    timestamps = None
    moment = -1
    if isinstance(timestamp, int):
        moment = timestamp
    else:
        if timestamp.null_count:
            raise ValueError("a record needs a timestamp")
        whole = milliseconds(timestamp)
        timestamps = _window(whole.buffers()[1], whole.offset * 8, len(whole) * 8)
    return Rows(
        len(value),
        value=binary_column(value),
        key=None if key is None else binary_column(key),
        headers=None if headers is None else _header_columns(headers),
        timestamps=timestamps,
        timestamp=moment,
    )


def milliseconds(array: pa.Array) -> pa.Array:
    """Convert timestamps of any unit, or integers in ms, to ms as int64."""
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", tz=array.type.tz), safe=False)
    return array.cast(pa.int64())


def int32_values(array: pa.Array) -> bytes:
    """Return the buffer of an int32 array without nulls."""
    return _window(array.buffers()[1], array.offset * 4, len(array) * 4)


def binary_column(array: pa.Array) -> BinaryColumn:
    """Return the buffers of a binary or string array as `bytes`, with its first row as row 0."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not (pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
        if array.offset:
            array = pa.concat_arrays([array, array[:0]])  # copies the slice, whose own data may be below 2 GiB
        array = array.cast(pa.binary())
    validity = None
    if array.null_count:
        # Arrow's bitmap may start within a byte: create a new one from the boolean column.
        validity = _window(array.is_valid().buffers()[1], 0, (len(array) + 7) // 8)
    _, offsets, data = array.buffers()
    if array.offset or (data is not None and data.size > 2 * array.nbytes):
        # A slice of a larger array: copy only its own part of the data.
        array = pa.concat_arrays([array, array[:0]])
        _, offsets, data = array.buffers()
    if offsets is None or offsets.size == 0:
        return BinaryColumn(bytes(4), b"", validity)
    return BinaryColumn(
        _window(offsets, array.offset * 4, (len(array) + 1) * 4), b"" if data is None else data.to_pybytes(), validity
    )


def _window(buffer: pa.Buffer | None, start: int, size: int) -> bytes:
    if buffer is None or size == 0:
        return b""
    return bytes(memoryview(buffer)[start : start + size])


def _header_columns(array: pa.Array) -> HeaderColumns:
    if array.offset:
        array = pa.concat_arrays([array, array[:0]])  # copies only the headers of the slice
    if array.type != TYPES["headers"]:
        array = array.cast(TYPES["headers"])
    if array.null_count:
        # A null list may still refer to items in its buffers; fill_null makes it empty.
        array = array.fill_null(pa.scalar([], TYPES["headers"]))
    if array.flatten().flatten()[0].null_count:
        raise ValueError("column headers has a header without a key")
    offsets = _window(array.buffers()[1], array.offset * 4, (len(array) + 1) * 4) or bytes(4)
    items = array.values
    return HeaderColumns(
        offsets, len(items), binary_column(items.field(0).cast(pa.binary())), binary_column(items.field(1))
    )
