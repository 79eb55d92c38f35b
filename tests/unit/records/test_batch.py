"""Batches: the vectors of the format, round trips, another implementation's word, and bytes that are no batches."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from librt.strings import BytesWriter

from ottla.records.batch import BatchHeader, build, crc_ok, read_header, records_of, scan, seal
from ottla.records.codec_names import CODEC_NAMES
from ottla.records.errors import CorruptRecords
from ottla.records.record import Record
from ottla.records.varints import CUT, TOO_LONG, read_varint, read_varlong, varint_size, write_varint

MANY = settings(max_examples=60, deadline=None)

T = 1_700_000_000_000
INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)
BYTES = st.none() | st.binary(max_size=150)
HEADERS = st.lists(st.tuples(st.text(max_size=10), BYTES), max_size=3)
FIELDS = st.lists(st.tuples(INT64, BYTES, BYTES, HEADERS), min_size=1, max_size=8)

TWO_RECORDS = bytes.fromhex(
    "000000000000000000000047ffffffff02fd17427f0000000000010000018bcfe568000000018bcfe56805ffffffffffffffffffffffffffff"
    "0000000218000000026b0276020268027810000a020104763200"
)


def records(fields: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]) -> list[Record]:
    return [Record(i, timestamp, key, value, headers) for i, (timestamp, key, value, headers) in enumerate(fields)]


def test_the_vector_is_written_and_read() -> None:
    expected = [Record(0, T, b"k", b"v", [("h", b"x")]), Record(1, T + 5, None, b"v2")]
    assert build(expected) == TWO_RECORDS
    assert records_of(TWO_RECORDS) == expected
    header = read_header(TWO_RECORDS, 0)
    assert crc_ok(TWO_RECORDS, header)
    assert (header.start, header.end, header.length, header.count, header.last_offset) == (0, 83, 71, 2, 1)
    assert (header.base_timestamp, header.max_timestamp, header.crc) == (T, T + 5, 0xFD17427F)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.leader_epoch) == (-1, -1, -1, -1)
    assert (header.compression, header.is_control, header.is_transactional, header.timestamp_type) == (
        0,
        False,
        False,
        0,
    )


def test_every_header_field_comes_back() -> None:
    data = build(
        [Record(2**40, T, b"k", b"v"), Record(2**40 + 7, T - 9, b"k", None)],
        base_offset=2**40,
        codec=4,
        producer_id=2**50,
        producer_epoch=32767,
        base_sequence=2**31 - 1,
        transactional=True,
        leader_epoch=12,
        control=True,
    )
    header = read_header(b"xxx" + data, 3)
    assert (header.base_offset, header.last_offset, header.next_offset) == (2**40, 2**40 + 7, 2**40 + 8)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**50, 32767, 2**31 - 1)
    assert (header.compression, header.is_control, header.is_transactional) == (4, True, True)
    assert (header.leader_epoch, header.max_timestamp, header.size) == (12, T, len(data))


def test_log_append_time_gives_all_records_the_newest_timestamp() -> None:
    data = build([Record(0, T, None, b"a"), Record(1, T + 5, None, b"b")], timestamp_type=1)
    assert [record.timestamp for record in records_of(data)] == [T + 5, T + 5]


@pytest.mark.parametrize("offsets", [[1, 0], [0, 0], [-1], [2**31]])
def test_offsets_that_cannot_share_a_batch_are_refused(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="offset"):
        build([Record(offset, T, None, None) for offset in offsets])


@MANY
@given(fields=FIELDS, codec=st.sampled_from([0, 0, 1, 2, 3, 4]), base=st.integers(min_value=0, max_value=2**62))
def test_round_trip(
    fields: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]], codec: int, base: int
) -> None:
    expected = records(fields)
    for record in expected:
        record.offset += base
    data = build(expected, base_offset=base, codec=codec)
    assert crc_ok(data, read_header(data, 0))
    assert records_of(data) == expected
    assert records_of(data + data[:-1]) == expected


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@settings(MANY, max_examples=50)
@given(fields=FIELDS)
def test_kafka_python_agrees(
    fields: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]], codec: str
) -> None:
    oracle = pytest.importorskip("kafka.record.memory_records", reason="kafka-python is the independent reader")
    codecs = pytest.importorskip("kafka.codec", reason="kafka-python is the independent reader")
    if codec != "none" and not getattr(codecs, f"has_{codec}")():
        pytest.skip(f"kafka-python lacks its {codec} library here")
    codec_id = CODEC_NAMES.index(codec)
    # Its varints are Python integers: timestamps whose differences leave int64 mean something else there.
    expected = records([(timestamp % 2**41, key, value, headers) for timestamp, key, value, headers in fields])
    theirs = oracle.MemoryRecords(build(expected, codec=codec_id)).next_batch()
    assert theirs.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in theirs] == [
        (r.offset, r.timestamp, r.key, r.value, r.headers) for r in expected
    ]
    builder = oracle.MemoryRecordsBuilder(2, codec_id, 1 << 20)
    for r in expected:
        builder.append(timestamp=r.timestamp, key=r.key, value=r.value, headers=r.headers)
    builder.close()
    data = bytes(builder.buffer())
    assert crc_ok(data, read_header(data, 0))
    assert records_of(data) == expected


def test_scan_reports_where_a_cut_batch_begins() -> None:
    data = build([Record(0, T, None, b"a")])
    for cut in range(len(data)):
        scanned = scan(data + data[:cut])
        assert [header.start for header in scanned.batches] == [0]
        assert (scanned.end, scanned.corrupt) == (len(data), None)
    scanned = scan(data + data)
    assert [(header.start, header.end) for header in scanned.batches] == [(0, len(data)), (len(data), 2 * len(data))]


def test_scan_stops_at_what_is_no_batch() -> None:
    data = build([Record(0, T, None, b"a")])
    old = bytearray(data)
    old[16] = 1
    assert (scan(data + bytes(old)).end, scan(data + bytes(old)).corrupt) == (len(data), "batch of magic 1")
    short = bytearray(data)
    short[8:12] = (48).to_bytes(4, "big")
    assert scan(bytes(short)).corrupt == "batch length 48 is below the minimum"


def test_crc_notices_every_byte_from_the_attributes_on() -> None:
    for position in range(len(TWO_RECORDS)):
        data = bytearray(TWO_RECORDS)
        data[position] ^= 1
        try:
            header = read_header(bytes(data), 0)
        except CorruptRecords:
            assert position in (11, 16)
            continue
        free = position < 8 or 12 <= position < 16  # base offset and leader epoch are not covered
        assert crc_ok(bytes(data), header) is free


@MANY
@given(data=st.binary(max_size=200))
def test_random_bytes_raise_the_one_error(data: bytes) -> None:
    scan(data)
    with suppress(CorruptRecords):
        assert records_of(data) == []


@settings(MANY, max_examples=200)
@given(
    fields=FIELDS,
    codec=st.sampled_from([0, 0, 0, 1, 2, 3, 4]),
    changes=st.lists(st.tuples(st.integers(min_value=0), st.integers(min_value=0, max_value=255)), max_size=4),
)
def test_mutated_records_raise_the_one_error(
    fields: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: int,
    changes: list[tuple[int, int]],
) -> None:
    data = bytearray(build(records(fields), codec=codec))
    for position, value in changes:
        data[17 + position % (len(data) - 17)] = value
    with suppress(CorruptRecords):
        assert len(records_of(bytes(data), limit=1 << 16)) <= 1 << 16


def test_a_count_beyond_the_records_neither_loops_nor_allocates() -> None:
    header = BatchHeader()
    header.count = 2**31 - 1
    with pytest.raises(CorruptRecords):
        records_of(seal(header, b"\x0c\0\0\0\1\1\0"))


@MANY
@given(value=INT64)
def test_varints(value: int) -> None:
    out = BytesWriter()
    write_varint(out, value)
    data = out.getvalue()
    assert read_varlong(data, 0, len(data)) == (value, len(data))
    assert len(data) == varint_size(value) <= 10
    assert read_varlong(data, 0, len(data) - 1) == (0, CUT)
    if -(2**31) <= value < 2**31:
        assert read_varint(data, 0, len(data)) == (value, len(data))


def test_varints_at_their_edges() -> None:
    assert read_varint(b"\x80" * 5 + b"\0", 0, 6) == (0, TOO_LONG)
    assert read_varlong(b"\x80" * 10 + b"\0", 0, 11) == (0, TOO_LONG)
    assert read_varint(b"\x80\x80\x80\x80\0", 0, 5) == (0, 5)
    # Java drops what does not fit.
    assert read_varint(b"\xff\xff\xff\xff\x7f", 0, 5) == (-(2**31), 5)
    assert read_varlong(b"\xff" * 9 + b"\x7f", 0, 10) == (-(2**63), 10)
