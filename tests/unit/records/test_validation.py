"""Produce validation, batch by batch, with the answers Apache Kafka 4.4.0 gave to the same bytes.

One file, because each test changes some bytes of the same batches and asks the one function that judges them.
"""

import gzip
import random
import struct
import tracemalloc
from collections.abc import Sequence

import cramjam
import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.batch import crc_ok, decompress_records, read_header, records_of, seal
from ottla.records.compression import compress, newer_than_produce
from ottla.records.validation import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    NONE,
    UNKNOWN_SERVER_ERROR,
    UNSUPPORTED_COMPRESSION_TYPE,
    Prepared,
    ProduceRules,
    prepare,
)

MANY = settings(max_examples=60, deadline=None)

NOW = 1_700_000_000_000
HOUR = 3_600_000
RANGE = f"[{NOW - (2**63 - 1)}, {NOW + HOUR}]"

PLAIN = ProduceRules()
COMPACT = ProduceRules(compacted=True)
APPEND_TIME = ProduceRules(log_append_time=True)
LIMITS = ProduceRules(before_max_ms=HOUR)
SMALL = ProduceRules(max_message_bytes=200)
SMALL_RECORDS = ProduceRules(max_decompressed_bytes=1000)
GZIP_TOPIC = ProduceRules(codec=1)
UNCOMPRESSED = ProduceRules(codec=0)

TIMESTAMPS_REFUSED = "One or more records have been rejected due to invalid timestamp"
NO_KEY = "Compacted topic cannot accept message without key in topic partition t-0"


# An encoder of its own: it writes what no good producer writes.


def varint(value: int) -> bytes:
    value = ((value << 1) ^ (value >> 63)) & (2**64 - 1)
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def field(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def rec(
    delta: int,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    ts: int = 0,
    headers: bytes = b"\0",
    length: int | None = None,
    tail: bytes = b"",
) -> bytes:
    body = b"\0" + varint(ts) + varint(delta) + field(key) + field(value) + headers + tail
    return varint(len(body) if length is None else length) + body


def batch(
    records: Sequence[bytes],
    *,
    base: int = 0,
    attributes: int = 0,
    last: int | None = None,
    count: int | None = None,
    first_ts: int = NOW,
    max_ts: int | None = None,
    producer_id: int = -1,
    sequence: int = -1,
    magic: int = 2,
    crc: int | None = None,
    length: int | None = None,
) -> bytes:
    section = b"".join(records)
    if attributes & 7 in (1, 2, 3, 4):
        section = gzip.compress(section) if attributes & 7 == 1 else compress(attributes & 7, section)
    number = len(records)
    covered = struct.pack(
        ">hiqqqhii",
        attributes,
        number - 1 if last is None else last,
        first_ts,
        first_ts if max_ts is None else max_ts,
        producer_id,
        -1 if producer_id < 0 else 0,
        sequence,
        number if count is None else count,
    )
    covered += section
    checksum = crc32c.crc32c(covered) if crc is None else crc
    size = 9 + len(covered) if length is None else length
    return struct.pack(">qiibI", base, size, -1, magic, checksum) + covered


GOOD = [rec(0), rec(1), rec(2)]


def check(data: bytes, rules: ProduceRules = PLAIN) -> Prepared:
    return prepare(data, 0, len(data), rules, NOW, "t-0")


def raw(key: bytes = b"\x02k", value: bytes = b"\x02v", headers: bytes = b"\0", start: bytes = b"\0\0\0") -> bytes:
    body = start + key + value + headers
    return varint(len(body)) + body


BATCHES = {
    "good": (batch(GOOD), PLAIN, NONE),
    "base offset 5": (batch(GOOD, base=5), PLAIN, INVALID_RECORD),
    "last offset delta 5": (batch(GOOD, last=5), PLAIN, INVALID_RECORD),
    "last offset delta -1": (batch(GOOD, last=-1), PLAIN, INVALID_RECORD),
    "empty": (batch([]), PLAIN, INVALID_RECORD),
    "count 0": (batch(GOOD, count=0), PLAIN, INVALID_RECORD),
    "count -1": (batch(GOOD, count=-1), PLAIN, INVALID_RECORD),
    "count 5 of 3": (batch(GOOD, count=5, last=4), PLAIN, INVALID_RECORD),
    "count 2 of 3": (batch(GOOD, count=2, last=1), PLAIN, INVALID_RECORD),
    "control": (batch(GOOD, attributes=0x20), PLAIN, INVALID_RECORD),
    "producer id without sequence": (batch(GOOD, producer_id=5), PLAIN, INVALID_RECORD),
    "sequence without producer id": (batch(GOOD, sequence=4), PLAIN, NONE),
    "unused attribute": (batch(GOOD, attributes=0x80), PLAIN, NONE),
    "delete horizon": (batch(GOOD, attributes=0x40), PLAIN, NONE),
    "codec 5": (batch(GOOD, attributes=5), PLAIN, UNKNOWN_SERVER_ERROR),
    "codec 7": (batch(GOOD, attributes=7), PLAIN, UNKNOWN_SERVER_ERROR),
    "codec 5, bad crc": (batch(GOOD, attributes=5, crc=1), PLAIN, CORRUPT_MESSAGE),
    "codec 5, base offset": (batch(GOOD, attributes=5, base=4), PLAIN, INVALID_RECORD),
    "codec 5, count 0": (batch(GOOD, attributes=5, count=0), PLAIN, UNKNOWN_SERVER_ERROR),
    "magic 1": (batch(GOOD, magic=1), PLAIN, INVALID_RECORD),
    "magic 3": (batch(GOOD, magic=3), PLAIN, CORRUPT_MESSAGE),
    "magic -1": (batch(GOOD, magic=-1), PLAIN, CORRUPT_MESSAGE),
    "two batches": (batch(GOOD) * 2, PLAIN, INVALID_RECORD),
    "a second one of magic 3": (batch(GOOD) + batch(GOOD, magic=3), PLAIN, CORRUPT_MESSAGE),
    "a second one of length 2": (batch(GOOD) + batch(GOOD, length=2), PLAIN, CORRUPT_MESSAGE),
    "a second one cut short": (batch(GOOD) + batch(GOOD)[:-1], PLAIN, NONE),
    "nothing": (b"", PLAIN, INVALID_RECORD),
    "ten bytes": (b"a" * 10, PLAIN, INVALID_RECORD),
    "cut in the header": (batch(GOOD)[:60], PLAIN, INVALID_RECORD),
    "cut at the end": (batch(GOOD)[:-1], PLAIN, INVALID_RECORD),
    "one byte more": (batch(GOOD) + b"x", PLAIN, NONE),
    "sixteen bytes more": (batch(GOOD) + bytes(16), PLAIN, CORRUPT_MESSAGE),
    "length 48": (batch(GOOD, length=48), PLAIN, CORRUPT_MESSAGE),
    "length 13": (batch(GOOD, length=13), PLAIN, CORRUPT_MESSAGE),
    "length -1": (batch(GOOD, length=-1), PLAIN, CORRUPT_MESSAGE),
    "bad crc": (batch(GOOD, crc=1), PLAIN, CORRUPT_MESSAGE),
    "bad crc, base offset 5": (batch(GOOD, crc=1, base=5), PLAIN, INVALID_RECORD),
    "bad crc, count 0": (batch(GOOD, crc=1, count=0), PLAIN, CORRUPT_MESSAGE),
    "too large": (batch([rec(0, value=b"x" * 300)]), SMALL, MESSAGE_TOO_LARGE),
    "too large, bad crc": (batch([rec(0, value=b"x" * 300)], crc=3), SMALL, MESSAGE_TOO_LARGE),
    "too large, base offset 3": (batch([rec(0, value=b"x" * 300)], base=3), SMALL, INVALID_RECORD),
    "exactly as large as allowed": (batch([rec(0, value=b"x" * 129)]), SMALL, NONE),
    "too large once decompressed": (
        batch([rec(0, value=b"x" * 600)], attributes=1),
        ProduceRules(max_message_bytes=200, codec=0),
        MESSAGE_TOO_LARGE,
    ),
}

RECORDS = {
    "offset deltas 0 0 0": ([rec(0), rec(0), rec(0)], NONE),
    "offset deltas 0 2 1": ([rec(0), rec(2), rec(1)], NONE),
    "offset delta -1": ([rec(-1)], NONE),
    "length 0": ([rec(0, length=0)], INVALID_RECORD),
    "length -1": ([rec(0, length=-1)], INVALID_RECORD),
    "length beyond the batch": ([rec(0, length=100)], INVALID_RECORD),
    "length too short": ([rec(0, length=5)], INVALID_RECORD),
    "length into the next record": ([rec(0, length=9), rec(1)], INVALID_RECORD),
    "length of six bytes": ([b"\x8e\x80\x80\x80\x80\x00" + rec(0)[1:]], UNKNOWN_SERVER_ERROR),
    "length cut short": ([b"\xff\xff"], INVALID_RECORD),
    "padded length": ([b"\x90\x80\x80\x80\x00" + rec(0)[1:]], NONE),
    "bytes left in the record": ([rec(0, tail=b"xx")], INVALID_RECORD),
    "key length -2 is null": ([raw(key=varint(-2))], NONE),
    "value length -2 is null": ([raw(value=varint(-2))], NONE),
    "key beyond the record": ([raw(key=varint(50))], INVALID_RECORD),
    "value beyond the record": ([raw(value=varint(50))], INVALID_RECORD),
    "key length of six bytes": ([raw(key=b"\x80" * 17, value=b"", headers=b"")], INVALID_RECORD),
    "offset delta of six bytes": ([raw(start=b"\0\0", key=b"\x80" * 18)], INVALID_RECORD),
    "timestamp delta of eleven bytes": ([raw(start=b"\0", key=b"\x80" * 19)], INVALID_RECORD),
    "cut in the timestamp delta": ([varint(2) + b"\0\x80"], INVALID_RECORD),
    "cut in the key length": ([varint(4) + b"\0\0\0\x80"], INVALID_RECORD),
    "header count missing": ([rec(0, headers=b"")], INVALID_RECORD),
    "header count -1": ([rec(0, headers=varint(-1))], INVALID_RECORD),
    "header count 1000": ([rec(0, headers=varint(1000))], INVALID_RECORD),
    "header name length -1": ([rec(0, headers=varint(1) + varint(-1) + varint(0))], INVALID_RECORD),
    "header name beyond the record": ([rec(0, headers=varint(1) + varint(60) + varint(0))], INVALID_RECORD),
    "header name no utf-8": ([rec(0, headers=varint(1) + varint(2) + b"\xff\xfe" + varint(0))], NONE),
    "header value null": ([rec(0, headers=varint(1) + varint(0) + varint(-1))], NONE),
    "header value length -2 is null": ([rec(0, headers=varint(1) + varint(0) + varint(-2))], NONE),
    "header value beyond the record": ([rec(0, headers=varint(1) + varint(0) + varint(60))], INVALID_RECORD),
    "a timestamp out of range, then garbage": ([rec(0, ts=2 * HOUR), rec(1, length=100)], INVALID_RECORD),
}


@pytest.mark.parametrize("name", BATCHES)
def test_batches(name: str) -> None:
    data, rules, expected = BATCHES[name]
    result = check(data, rules)
    assert (result.error_code, result.record_errors) == (expected, [])


@pytest.mark.parametrize("name", RECORDS)
def test_records(name: str) -> None:
    records, expected = RECORDS[name]
    result = check(batch(records))
    assert (result.error_code, result.record_errors) == (expected, [])


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("name", RECORDS)
def test_records_of_a_compressed_batch(name: str, codec: int) -> None:
    records, expected = RECORDS[name]
    if name.startswith("offset delta") and expected == NONE:
        expected = UNKNOWN_SERVER_ERROR  # Kafka cannot rebuild what it has read without keys and values
    elif name == "length of six bytes":
        expected = INVALID_RECORD
    result = check(batch(records, attributes=codec))
    assert (result.error_code, result.record_errors) == (expected, [])


def test_bytes_after_the_last_record() -> None:
    assert check(batch([*GOOD, b"zz"], count=3, last=2)).error_code == INVALID_RECORD
    assert check(batch([*GOOD, b"zz"], count=3, last=2, attributes=4)).error_code == INVALID_RECORD


@pytest.mark.parametrize("version", [3, 6, 7])
@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_zstd_needs_produce_7(codec: int, version: int) -> None:
    code = UNSUPPORTED_COMPRESSION_TYPE if codec == 4 and version < 7 else NONE
    good = batch(GOOD, attributes=codec)
    assert prepare(good, 0, len(good), PLAIN, NOW, "t-0", newer_than_produce(version)).error_code == code


@pytest.mark.parametrize("frame", [batch(GOOD, attributes=4, crc=1), batch(GOOD, attributes=4) * 2], ids=["crc", "two"])
def test_a_codec_that_is_too_new_is_refused_before_the_crc_and_a_second_batch(frame: bytes) -> None:
    result = prepare(frame, 0, len(frame), PLAIN, NOW, "t-0", newer_than_produce(6))
    assert result.error_code == UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_undecompressible_records_return_unknown_server_error(codec: int) -> None:
    data = bytearray(batch([b"U" * 40], attributes=5, count=3, last=2))
    data[22] = codec
    data[17:21] = struct.pack(">I", crc32c.crc32c(bytes(data[21:])))
    assert check(bytes(data)).error_code == UNKNOWN_SERVER_ERROR


def test_errors_that_carry_a_text() -> None:
    assert check(batch(GOOD, magic=3)).error_message == "Invalid magic found in record: 3"
    assert check(batch(GOOD, magic=-1)).error_message == "Invalid magic found in record: -1"
    assert check(batch(GOOD, length=13)).error_message == "Record size 13 is less than the minimum record overhead (14)"
    assert check(batch(GOOD, crc=1)).error_message is None
    assert check(batch(GOOD, base=5)).error_message is None


def test_one_decompressed_record_may_be_as_large_as_max_decompressed_message_bytes() -> None:
    whole = batch([rec(0, value=b"x" * 990)], attributes=4)
    assert check(whole, SMALL_RECORDS).error_code == NONE
    assert check(batch([rec(0, value=b"x" * 997)], attributes=4), SMALL_RECORDS).error_code == INVALID_RECORD
    assert check(batch([rec(i, value=b"x" * 900) for i in range(200)], attributes=4), SMALL_RECORDS).error_code == NONE
    assert check(batch([rec(0, value=b"x" * 2000)]), SMALL_RECORDS).error_code == NONE, (
        "a plain batch is not decompressed"
    )


def finish(result: Prepared) -> Prepared:
    """`result` once its remaining steps are through."""
    for _ in result.remaining or ():
        pass
    return result


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_few_kilobytes_that_decompress_to_a_lot_are_checked_in_bounded_memory(codec: int) -> None:
    bomb = batch([rec(i, value=bytes(60_000)) for i in range(1200)], attributes=codec)  # 72 MB
    tracemalloc.start()
    try:
        result = check(bomb, ProduceRules(max_message_bytes=8 << 20))
        assert result.remaining is not None, "the batch is not checked at once"
        steps = sum(1 for _ in result.remaining)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (result.error_code, result.max_timestamp) == (NONE, NOW)
    assert steps >= 16, "each step decompresses a few MB at most"
    assert peak < 16 << 20
    assert b"".join(bytes(part) for part in result.stamp(0, 0))[61:] == bomb[61:]


def in_parts(records: list[bytes], rules: ProduceRules, codec: int, **fields: int) -> Prepared:
    """The check of a batch that is too large to be checked at once: `records`, and then enough of zeros."""
    large = [rec(len(records) + i, value=bytes(60_000)) for i in range(80)]
    result = check(batch([*records, *large], attributes=codec, **fields), rules)
    assert result.remaining is not None
    return finish(result)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_large_batches_are_judged_as_small_ones_are(codec: int) -> None:
    assert in_parts(GOOD, PLAIN, codec).error_code == NONE
    assert in_parts([rec(0, ts=2 * HOUR)], PLAIN, codec).record_errors == [(0, out_of_range(NOW + 2 * HOUR, 0))]
    keyless = in_parts([rec(0), rec(1, key=None)], COMPACT, codec)
    assert [index for index, _ in keyless.record_errors] == [1]
    assert in_parts([rec(0), rec(7)], PLAIN, codec).error_code == UNKNOWN_SERVER_ERROR, "deltas are not 0, 1, 2..."
    assert in_parts([rec(0, length=3)], PLAIN, codec).error_code == INVALID_RECORD
    assert in_parts(GOOD, PLAIN, codec, count=900, last=899).error_code == INVALID_RECORD, "fewer records"
    assert in_parts(GOOD, PLAIN, codec, count=2, last=1).error_code == INVALID_RECORD, "bytes remain"
    assert in_parts(GOOD, SMALL_RECORDS, codec).error_code == INVALID_RECORD, "max.decompressed.message.bytes"


def test_one_record_may_take_the_memory_of_a_part() -> None:
    assert finish(check(batch([rec(0, value=bytes(15 << 20))], attributes=4))).error_code == NONE
    too_large = batch([rec(0, value=bytes(17 << 20))], attributes=4)
    assert finish(check(too_large)).error_code == INVALID_RECORD
    assert finish(check(too_large, ProduceRules(max_message_bytes=32 << 20))).error_code == NONE


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "sizes", [(9_000_000, 9_000_000), (1_000_000, 9_000_000, 9_000_000), (100, 15_000_000, 1, 15_000_000)]
)
def test_a_compressed_batch_of_several_large_records_is_accepted(codec: int, sizes: tuple[int, ...]) -> None:
    large = batch([rec(i, value=bytes(size)) for i, size in enumerate(sizes)], attributes=codec)
    assert finish(check(large, ProduceRules(max_message_bytes=10_000_000))).error_code == NONE


def one_byte_at_a_time(codec: int, plain: bytes, empty_frames: int) -> bytes:
    """`plain` compressed as badly as the format allows: in frames or blocks of one byte, after many empty ones."""
    one = [plain[at : at + 1] for at in range(len(plain))]
    if codec == 2:
        header = compress(2, b"")[:16]
        blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in [b""] * empty_frames + one]
        return header + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
    if codec == 3:
        return compress(3, b"")[:7] + b"".join(compress(3, part)[7:-4] for part in one) + bytes(4)
    return compress(codec, b"") * empty_frames + b"".join(compress(codec, part) for part in one)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_compressed_batch_of_thousands_of_tiny_frames_is_checked_in_steps(codec: int) -> None:
    """A megabyte of empty frames of zstd held back every other request for 3.5 s."""
    section = b"".join(rec(i, value=bytes(500)) for i in range(5))
    header = read_header(batch([rec(0)], attributes=codec, count=5, last=4), 0)
    payload = one_byte_at_a_time(codec, section, 2_000)
    result = check(seal(header, payload))
    assert result.remaining is not None, "the batch is not checked at once"
    assert sum(1 for _ in result.remaining) >= 10
    assert result.error_code == NONE
    cut = finish(check(seal(header, payload[:-20])))
    assert cut.error_code in (UNKNOWN_SERVER_ERROR, INVALID_RECORD)


def test_a_large_batch_changes_its_codec_if_it_fits_into_memory() -> None:
    to_gzip = ProduceRules(codec=1)
    result = finish(check(batch([rec(i, value=bytes(60_000)) for i in range(100)], attributes=4), to_gzip))
    assert (result.error_code, result.header.compression) == (NONE, 1)
    huge = finish(check(batch([rec(i, value=bytes(60_000)) for i in range(300)], attributes=4), to_gzip))
    assert huge.error_code == MESSAGE_TOO_LARGE


def test_a_large_batch_that_is_cut_in_its_compressed_data() -> None:
    payload = compress(4, b"".join(rec(i, value=random.Random(i).randbytes(60_000)) for i in range(100)))
    rules = ProduceRules(max_message_bytes=32 << 20)
    whole = batch([rec(0)], attributes=4, count=100, last=99)
    for data, code in ((payload, NONE), (payload[:-7], UNKNOWN_SERVER_ERROR)):
        header = read_header(whole, 0)
        sealed = seal(header, data)
        assert finish(check(sealed, rules)).error_code == code


def out_of_range(timestamp: int, offset: int, bounds: str = RANGE) -> str:
    return f"Timestamp {timestamp} of message with offset {offset} is out of range. The timestamp should be within {bounds}"


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_each_timestamp_out_of_range_is_named(codec: int) -> None:
    late = NOW + 2 * HOUR
    result = check(batch([rec(0), rec(1, ts=2 * HOUR), rec(2, ts=3 * HOUR)], attributes=codec))
    assert (result.error_code, result.error_message) == (INVALID_TIMESTAMP, TIMESTAMPS_REFUSED)
    assert result.record_errors == [(1, out_of_range(late, 1)), (2, out_of_range(late + HOUR, 2))]


def test_timestamps_too_old() -> None:
    bounds = f"[{NOW - HOUR}, {NOW + HOUR}]"
    result = check(batch([rec(0)], first_ts=NOW - 2 * HOUR), LIMITS)
    assert result.record_errors == [(0, out_of_range(NOW - 2 * HOUR, 0, bounds))]
    assert check(batch([rec(0)], first_ts=-5), LIMITS).record_errors == [(0, out_of_range(-5, 0, bounds))]
    assert check(batch([rec(0)], first_ts=-1), LIMITS).error_code == NONE, "-1 is no timestamp"
    assert check(batch([rec(0)], first_ts=-5), PLAIN).error_code == NONE
    assert check(batch([rec(0)], first_ts=NOW + 2 * HOUR), APPEND_TIME).error_code == NONE


def test_the_offset_named_is_the_one_the_record_claims() -> None:
    result = check(batch([rec(5, ts=2 * HOUR)]))
    assert result.record_errors == [(0, out_of_range(NOW + 2 * HOUR, 5))]


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_null_keys_on_a_compacted_topic(codec: int) -> None:
    result = check(batch([rec(0, key=None), rec(1), rec(2, key=None)], attributes=codec), COMPACT)
    assert result.error_code == INVALID_RECORD
    assert result.record_errors == [(0, NO_KEY), (2, NO_KEY)]
    assert result.error_message == (
        "One or more records have been rejected due to 2 record errors in total, and only showing the first three errors "
        f"at most: [RecordError(batchIndex=0, message='{NO_KEY}'), RecordError(batchIndex=2, message='{NO_KEY}')]"
    )


def test_three_of_many_record_errors_are_shown() -> None:
    result = check(batch([rec(i, key=None) for i in range(12)]), COMPACT)
    assert len(result.record_errors) == 12
    assert result.error_message is not None
    assert "12 record errors" in result.error_message
    assert result.error_message.count("RecordError(") == 3


@pytest.mark.parametrize("codec", [0, 1])
def test_timestamps_decide_when_keys_are_missing_too(codec: int) -> None:
    records = [rec(0, key=None, ts=2 * HOUR), rec(1, key=None), rec(2, ts=2 * HOUR)]
    result = check(batch(records, attributes=codec), COMPACT)
    assert (result.error_code, result.error_message) == (INVALID_TIMESTAMP, TIMESTAMPS_REFUSED)
    assert result.record_errors == [(0, NO_KEY), (1, NO_KEY), (2, out_of_range(NOW + 2 * HOUR, 2))]


def test_record_errors_come_before_compressed_offset_deltas() -> None:
    result = check(batch([rec(0, key=None), rec(2)], attributes=1), COMPACT)
    assert (result.error_code, result.record_errors) == (INVALID_RECORD, [(0, NO_KEY)])


@pytest.mark.parametrize(
    ("attributes", "key", "name", "sizes"),
    [
        (0x08, b"k", "DefaultRecord", "key=1 bytes, value=1 bytes"),
        (0x09, b"k", "PartialDefaultRecord", "key=1 bytes, value=1 bytes"),
        (0x08, None, "DefaultRecord", "key=0 bytes, value=1 bytes"),
        (0x09, None, "PartialDefaultRecord", "key=-1 bytes, value=1 bytes"),
    ],
)
def test_a_producer_may_not_claim_log_append_time(attributes: int, key: bytes | None, name: str, sizes: str) -> None:
    result = check(batch([rec(0, key=key)], attributes=attributes), APPEND_TIME)
    assert (result.error_code, result.error_message) == (INVALID_TIMESTAMP, TIMESTAMPS_REFUSED)
    assert result.record_errors == [
        (
            0,
            f"Invalid timestamp type in message {name}(offset=0, timestamp={NOW}, {sizes}). "
            "Producer should not set timestamp type to LogAppendTime.",
        )
    ]


def test_log_append_time_claimed_on_a_create_time_topic() -> None:
    # Kafka takes it and clears the bit; every record then has the batch's maxTimestamp.
    result = check(batch([rec(0), rec(1, ts=7)], attributes=0x08, max_ts=NOW + 3))
    assert (result.error_code, result.header.timestamp_type, result.max_timestamp) == (NONE, 0, NOW + 3)
    assert check(batch([rec(0)], attributes=0x08, max_ts=NOW + 2 * HOUR)).error_code == INVALID_TIMESTAMP
    assert check(batch([rec(0)], attributes=0x08, first_ts=-1)).error_code == INVALID_TIMESTAMP


def stored(result: Prepared, offset: int = 77, epoch: int = 5) -> bytes:
    assert result.error_code == NONE
    header, records = result.stamp(offset, epoch)
    data = header + bytes(records)
    assert len(header) == 61
    assert len(data) == result.size_in_bytes
    written = read_header(data, 0)
    assert (written.base_offset, written.leader_epoch, written.end) == (offset, epoch, len(data))
    assert crc_ok(data, written)
    return data


def test_a_good_batch_is_stored_as_it_came_but_for_offset_and_epoch() -> None:
    data = batch(GOOD, producer_id=9, sequence=3)
    frame = b"before" + data + b"after"
    result = prepare(frame, 6, 6 + len(data), PLAIN, NOW, "t-0")
    header, records = result.stamp(1234, 5)
    assert header + bytes(records) == struct.pack(">q", 1234) + data[8:12] + struct.pack(">i", 5) + data[16:]
    assert isinstance(records, memoryview), "the records are not copied"
    assert records.obj is frame
    assert (result.max_timestamp, result.append_time, result.size_in_bytes) == (NOW, -1, len(data))
    assert (result.header.producer_id, result.header.base_sequence, result.header.count) == (9, 3, 3)


def test_bytes_behind_the_batch_are_not_stored() -> None:
    data = batch(GOOD)
    assert stored(check(data + b"x"))[16:] == data[16:]


@pytest.mark.parametrize("lie", [NOW + 2 * HOUR, NOW - 2 * HOUR, 0])
@pytest.mark.parametrize("codec", [0, 1])
def test_a_lying_max_timestamp_is_corrected(lie: int, codec: int) -> None:
    data = batch([rec(0), rec(1, ts=9), rec(2, ts=2)], max_ts=lie, attributes=codec | 0x40)
    result = check(data)
    written = stored(result)
    assert result.max_timestamp == NOW + 9
    header = read_header(written, 0)
    assert (header.max_timestamp, header.base_timestamp, header.attributes) == (NOW + 9, NOW, codec | 0x40)
    assert written[61:] == data[61:]


def test_without_timestamps_the_newest_is_minus_one() -> None:
    assert check(batch([rec(0)], first_ts=-5)).max_timestamp == -1


@pytest.mark.parametrize("codec", [0, 1])
def test_log_append_time(codec: int) -> None:
    data = batch([rec(0, ts=3), rec(1)], attributes=codec, first_ts=NOW - 9)
    result = check(data, APPEND_TIME)
    written = stored(result)
    header = read_header(written, 0)
    assert (result.append_time, result.max_timestamp) == (NOW, NOW)
    assert (header.timestamp_type, header.max_timestamp, header.base_timestamp) == (1, NOW, NOW - 9)
    assert written[61:] == data[61:], "deltas stay"
    assert [record.timestamp for record in records_of(written)] == [NOW, NOW]


@pytest.mark.parametrize("source", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("target", [0, 1, 2, 3, 4])
def test_the_topic_decides_the_codec(source: int, target: int) -> None:
    data = batch([rec(0, ts=3), rec(1), rec(2, ts=9)], attributes=source | 0x10, producer_id=7, sequence=2)
    result = check(data, ProduceRules(codec=target))
    written = stored(result)
    header = read_header(written, 0)
    assert header.attributes == target | 0x10
    assert (header.producer_id, header.base_sequence, header.count, header.last_offset_delta) == (7, 2, 3, 2)
    assert header.max_timestamp == NOW + 9
    assert [(r.offset, r.timestamp, r.key, r.value) for r in records_of(written)] == [
        (77, NOW + 3, b"k", b"v"),
        (78, NOW, b"k", b"v"),
        (79, NOW + 9, b"k", b"v"),
    ]
    if source != target:
        assert header.base_timestamp == NOW + 3, "the first record's, as a producer of that codec would write it"


@pytest.mark.parametrize(("source", "rules"), [(1, UNCOMPRESSED), (0, GZIP_TOPIC)])
def test_recompression_numbers_the_records_again(source: int, rules: ProduceRules) -> None:
    data = batch([rec(5, ts=-3), rec(2, ts=7)], attributes=source)
    written = stored(check(data, rules))
    section, start, end = decompress_records(written, read_header(written, 0))
    assert section[start:end] == rec(0, ts=0) + rec(1, ts=10)


def test_log_append_time_and_another_codec() -> None:
    result = check(batch([rec(0, ts=3), rec(1)]), ProduceRules(log_append_time=True, codec=4))
    header = read_header(stored(result), 0)
    assert (header.timestamp_type, header.compression, header.max_timestamp, header.base_timestamp) == (
        1,
        4,
        NOW,
        NOW + 3,
    )


def test_timestamps_wrap_as_java_longs() -> None:
    result = check(batch([rec(0, ts=-(2**62)), rec(1, ts=-(2**63)), rec(2, ts=2**60)]))
    assert result.error_code == INVALID_TIMESTAMP
    wrapped = NOW - 2**63
    rules = ProduceRules(after_max_ms=2**63 - 1)
    result = check(batch([rec(0, ts=-(2**62)), rec(1, ts=2**63 - 1)]), rules)
    assert result.record_errors == [(1, out_of_range(wrapped - 1, 1, f"[{NOW - (2**63 - 1)}, {2**63 - 1}]"))]


@settings(MANY, max_examples=200)
@given(
    changes=st.lists(st.tuples(st.integers(min_value=0), st.integers(min_value=0, max_value=255)), max_size=4),
    codec=st.sampled_from([0, 0, 0, 1, 2, 3, 4]),
    rules=st.sampled_from([PLAIN, COMPACT, APPEND_TIME, LIMITS, SMALL, GZIP_TOPIC, UNCOMPRESSED]),
    sealed=st.booleans(),
    cut=st.integers(min_value=0, max_value=120),
)
def test_mutated_batches_never_raise(
    changes: list[tuple[int, int]], codec: int, rules: ProduceRules, sealed: bool, cut: int
) -> None:
    records = [rec(0, headers=varint(1) + field(b"h") + field(b"x")), rec(1, key=None), rec(2, value=b"v" * 70, ts=99)]
    data = bytearray(batch(records, attributes=codec))
    for position, value in changes:
        data[position % len(data)] = value
    if sealed:
        data[17:21] = struct.pack(">I", crc32c.crc32c(bytes(data[21:])))
        data = data[: len(data) - max(cut - 100, 0)]
    result = check(bytes(data), rules)
    if result.error_code == NONE:
        header, section = result.stamp(5, 1)
        assert len(records_of(header + bytes(section))) == result.header.count


@MANY
@given(data=st.binary(max_size=150))
def test_random_bytes_never_raise(data: bytes) -> None:
    assert check(data).error_code != NONE
