"""Batches to columns, columns to batches, and both against records one by one."""

import struct
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from librt.strings import BytesWriter

from ottla.records.batch import BatchHeader, build, crc_ok, read_header, records_of, scan, seal
from ottla.records.columns import ALL, KEY, OFFSET, VALUE, BinaryColumn, ColumnReader, RowEncoder, Rows
from ottla.records.control import build_marker
from ottla.records.digest import digest_of
from ottla.records.errors import CorruptRecords
from ottla.records.partitioner import partition_of
from ottla.records.record import Record
from ottla.records.varints import varint_size

pa = pytest.importorskip("pyarrow", reason="columns are looked at as Arrow arrays (extra spark)")
arrow = pytest.importorskip("ottla.records.arrow", reason="columns are looked at as Arrow arrays (extra spark)")

MANY = settings(max_examples=60, deadline=None)

T = 1_700_000_000_000
BYTES = st.none() | st.binary(max_size=150)
HEADERS = st.lists(st.tuples(st.text(max_size=10), BYTES), max_size=3)
RECORDS = st.lists(
    st.builds(Record, st.just(0), st.integers(min_value=-1, max_value=2**41), BYTES, BYTES, HEADERS), max_size=20
)
NAMES = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


def batches(records: list[Record], sizes: list[int], codec: int = 0) -> bytes:
    """Records numbered from 0, in batches of these sizes (the last size repeats)."""
    for offset, record in enumerate(records):
        record.offset = offset
    out = b""
    start = 0
    while start < len(records):
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        out += build(records[start : start + size], base_offset=start, codec=codec)
        start += size
    return out


def rows(data: bytes, names: list[str] = NAMES, **limits: int) -> list[dict[str, object]]:
    """All chunks of `data` as rows, each chunk validated by Arrow itself."""
    collected: list[dict[str, object]] = []
    reader = ColumnReader(arrow.column_flags(names), **limits)
    offset = 0
    while True:
        chunk = reader.read(data, offset)
        table = arrow.record_batch(chunk, "topic-é", 3, arrow.schema(names))
        table.validate(full=True)
        collected += table.to_pylist()
        assert chunk.next_offset >= offset
        if chunk.complete:
            return collected
        assert chunk.next_offset > offset, "every chunk goes on"
        offset = chunk.next_offset


def as_row(record: Record, timestamp_type: int = 0) -> dict[str, object]:
    return {
        "key": record.key,
        "value": record.value,
        "topic": "topic-é",
        "partition": 3,
        "offset": record.offset,
        "timestamp": pa.scalar(record.timestamp * 1000, arrow.TYPES["timestamp"]).as_py(),
        "timestampType": timestamp_type,
        "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
    }


@MANY
@given(
    records=RECORDS,
    sizes=st.lists(st.integers(min_value=1, max_value=9), min_size=1, max_size=4),
    codec=st.sampled_from([0, 0, 1, 2, 3, 4]),
    max_rows=st.integers(min_value=1, max_value=30),
)
def test_columns_have_the_values_of_the_records(
    records: list[Record], sizes: list[int], codec: int, max_rows: int
) -> None:
    data = batches(records, sizes, codec)
    expected = [as_row(record) for record in records]
    assert rows(data) == expected
    assert rows(data + build([Record(len(records), T, None, b"cut")], base_offset=len(records))[:-1]) == expected
    assert rows(data, max_rows=max_rows) == expected
    assert rows(data, max_bytes=700) == expected


@MANY
@given(records=RECORDS, names=st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
def test_a_projection_is_the_columns_asked_for(records: list[Record], names: list[str]) -> None:
    data = batches(records, [4])
    assert rows(data, names) == [{name: as_row(record)[name] for name in names} for record in records]


@MANY
@given(records=RECORDS, low=st.integers(min_value=0, max_value=25), high=st.integers(min_value=0, max_value=25))
def test_offsets_are_a_half_open_range(records: list[Record], low: int, high: int) -> None:
    chunk = ColumnReader(OFFSET).read(batches(records, [6]), low, high)
    assert chunk.offsets is not None
    offsets = list(struct.unpack(f"<{chunk.rows}q", chunk.offsets))
    assert offsets == [offset for offset in range(len(records)) if low <= offset < high]
    assert chunk.next_offset == (max(low, min(high, len(records))) if records else low)


def test_the_schema_is_that_of_sparks_own_source() -> None:
    assert arrow.schema(NAMES) == pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ]
    )
    empty = arrow.record_batch(ColumnReader().read(b""), "t", 0, arrow.schema(NAMES))
    assert (empty.num_rows, empty.schema) == (0, arrow.schema(NAMES))


def test_columns_that_were_not_read_are_missed() -> None:
    chunk = ColumnReader(KEY).read(build([Record(0, T, b"k", b"v")]))
    assert (chunk.values, chunk.offsets, chunk.timestamps, chunk.timestamp_types, chunk.headers) == (None,) * 5
    with pytest.raises(KeyError):
        arrow.record_batch(chunk, "t", 0, arrow.schema(["value"]))
    with pytest.raises(KeyError):
        arrow.schema(["colour"])


def test_control_batches_are_skipped_and_their_offsets_count() -> None:
    marker = build_marker(commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=T, base_offset=2)
    data = batches([Record(0, T, b"a", b"1"), Record(1, T, b"b", b"2")], [2]) + marker
    chunk = ColumnReader(OFFSET).read(data)
    assert (chunk.rows, chunk.next_offset, chunk.complete) == (2, 3, True)
    assert ColumnReader(OFFSET).read(data, 2).next_offset == 3


def test_holes_left_by_compaction_are_passed() -> None:
    data = build([Record(10, T, b"a", b"1"), Record(19, T, b"b", b"2")], base_offset=10)
    chunk = ColumnReader(OFFSET).read(data, 12)
    assert (chunk.offsets, chunk.next_offset) == (struct.pack("<q", 19), 20)


def test_log_append_time_is_the_batchs() -> None:
    data = build([Record(0, T, b"a", b"1"), Record(1, T + 5, b"b", b"2")], timestamp_type=1)
    late = pa.scalar((T + 5) * 1000, arrow.TYPES["timestamp"]).as_py()
    read_rows = rows(data + build([Record(2, T, b"c", b"3")], base_offset=2), ["timestamp", "timestampType"])
    assert read_rows[:2] == [{"timestamp": late, "timestampType": 1}] * 2
    assert read_rows[2]["timestampType"] == 0


def test_a_chunk_stops_before_a_column_passes_its_cap() -> None:
    data = batches([Record(0, T, b"k" * 10, b"v" * 60) for _ in range(5)], [5])
    reader = ColumnReader(KEY | VALUE, max_bytes=150)
    chunk = reader.read(data)
    assert (chunk.rows, chunk.next_offset, chunk.complete) == (2, 2, False)
    assert (reader.read(data, 4).rows, reader.read(data, 4).complete) == (1, True)
    with pytest.raises(CorruptRecords, match="more than 59 bytes"):
        ColumnReader(VALUE, max_bytes=59).read(data)


@pytest.mark.parametrize("limits", [{"max_bytes": 0}, {"max_bytes": 2**31}, {"max_rows": 0}])
def test_limits_out_of_range(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="max_"):
        ColumnReader(**limits)


def test_names_of_headers_that_are_no_utf8_are_repaired() -> None:
    good = build([Record(0, T, b"k", b"v", [("ab", b"x")])])
    start = good.index(b"\x04ab") + 1
    assert rows(good[:start] + b"\xff\xfe" + good[start + 2 :], ["headers"]) == [
        {"headers": [{"key": "\ufffd\ufffd", "value": b"x"}]}
    ]


@settings(MANY, max_examples=200)
@given(
    records=RECORDS.filter(bool),
    codec=st.sampled_from([0, 0, 0, 1, 2, 3, 4]),
    changes=st.lists(st.tuples(st.integers(min_value=0), st.integers(min_value=0, max_value=255)), max_size=4),
    columns=st.integers(min_value=0, max_value=ALL),
)
def test_mutated_batches_raise_the_one_error(
    records: list[Record], codec: int, changes: list[tuple[int, int]], columns: int
) -> None:
    data = bytearray(batches(records, [7], codec))
    for position, value in changes:
        data[position % len(data)] = value
    with suppress(CorruptRecords):
        assert ColumnReader(columns).read(bytes(data)).rows <= len(data)


@MANY
@given(data=st.binary(max_size=200))
def test_random_bytes_raise_the_one_error(data: bytes) -> None:
    with suppress(CorruptRecords):
        assert ColumnReader().read(data).rows == 0


# the way back


def batch_of(encoder: RowEncoder, order: list[int] | None = None) -> bytes:
    """Rows as one batch, in this order."""
    out = BytesWriter()
    header = BatchHeader()
    for index in range(encoder.rows) if order is None else order:
        body = encoder.measure(index)
        if header.count == 0:
            header.base_timestamp = encoder.timestamp
        delta = encoder.timestamp - header.base_timestamp
        body += varint_size(delta) + varint_size(header.count)
        encoder.write(out, body, delta, header.count)
        header.max_timestamp = max(header.max_timestamp, encoder.timestamp)
        header.count += 1
    header.last_offset_delta = header.count - 1
    return seal(header, out.getvalue())


@MANY
@given(records=RECORDS, first=st.integers(min_value=0, max_value=20))
def test_rows_become_records(records: list[Record], first: int) -> None:
    headers = [[{"key": name, "value": value} for name, value in record.headers] for record in records]
    encoder = RowEncoder(
        arrow.rows_of(
            pa.array([record.value for record in records], pa.binary()).slice(first),
            pa.array([record.key for record in records], pa.binary()).slice(first),
            pa.array(headers, arrow.TYPES["headers"]).slice(first),
            pa.array([record.timestamp for record in records], pa.timestamp("ms", tz="UTC")).slice(first),
        )
    )
    expected = [(r.timestamp, r.key, r.value, r.headers) for r in records[first:]]
    data = batch_of(encoder)
    assert [(r.timestamp, r.key, r.value, r.headers) for r in records_of(data)] == expected
    assert crc_ok(data, read_header(data, 0))


@MANY
@given(records=RECORDS.filter(bool))
def test_columns_go_back_as_they_came(records: list[Record]) -> None:
    for record in records:
        record.timestamp = T
    data = batches(records, [len(records)])
    chunk = ColumnReader().read(data)
    back = Rows(chunk.rows, value=chunk.values, key=chunk.keys, headers=chunk.headers, timestamp=T)
    assert batch_of(RowEncoder(back)) == data


def test_rows_may_be_taken_in_any_order() -> None:
    encoder = RowEncoder(arrow.rows_of(pa.array(["a", "b", None, "d"]), timestamp=T))
    assert [(r.offset, r.timestamp, r.key, r.value) for r in records_of(batch_of(encoder, [3, 0, 2]))] == [
        (0, T, None, b"d"),
        (1, T, None, b"a"),
        (2, T, None, None),
    ]


def test_other_arrow_types_of_the_same_meaning() -> None:
    value = pa.array(["a", None, "c"], pa.large_string()).slice(1)
    moments = pa.array([T * 1000 + 999, T * 1000, 1_001], pa.timestamp("us")).slice(1)
    data = batch_of(RowEncoder(arrow.rows_of(value, timestamp=moments)))
    assert [(r.timestamp, r.value) for r in records_of(data)] == [(T, None), (1, b"c")]
    nulls = pa.array([None, [{"key": "h", "value": b"x"}], None], arrow.TYPES["headers"])
    data = batch_of(RowEncoder(arrow.rows_of(pa.array(["a", "b", "c"]), headers=nulls)))
    assert [r.headers for r in records_of(data)] == [[], [("h", b"x")], []]
    with pytest.raises(ValueError, match="timestamp"):
        arrow.rows_of(value, timestamp=pa.array([None, T], pa.timestamp("ms")))


@pytest.mark.parametrize("offsets", [(0, 9), (-1, 2), (3, 1)])
def test_offsets_beyond_the_data_are_an_error(offsets: tuple[int, int]) -> None:
    column = BinaryColumn(struct.pack("<2i", *offsets), b"abc")
    with pytest.raises(CorruptRecords):
        RowEncoder(Rows(1, value=column)).measure(0)


@MANY
@given(keys=st.lists(BYTES, max_size=20), first=st.integers(min_value=0, max_value=20))
def test_the_partition_of_a_row_s_key(keys: list[bytes | None], first: int) -> None:
    array = pa.array(keys, pa.binary()).slice(first)
    encoder = RowEncoder(arrow.rows_of(pa.nulls(len(array), pa.binary()), array))
    partitions = []
    for index in range(encoder.rows):
        encoder.measure(index)
        partitions.append(encoder.partition_by_key(12))
    assert partitions == [-1 if key is None else partition_of(key, 12) for key in keys[first:]]


@MANY
@given(records=RECORDS, seed=st.randoms())
def test_the_digest_of_rows_does_not_depend_on_their_order(records: list[Record], seed: Random) -> None:
    def digest(digested: list[Record]) -> int:
        values, keys = ([getattr(record, name) for record in digested] for name in ("value", "key"))
        return digest_of(RowEncoder(arrow.rows_of(pa.array(values, pa.binary()), pa.array(keys, pa.binary()))))

    shuffled = list(records)
    seed.shuffle(shuffled)
    assert digest(shuffled) == digest(records)
    if records:
        assert digest([*records[:-1], Record(0, T, b"another", b"row of 150 bytes" * 10)]) != digest(records)


def test_whole_batches_only() -> None:
    data = batches([Record(0, T, b"k", b"v") for _ in range(4)], [2])
    assert len(scan(data).batches) == 2
    assert ColumnReader(OFFSET).read(data[:-1]).next_offset == 2
