"""Message sets v0 and v1: the vectors of the format, kafka-python as a second opinion, and round trips through v2."""

import random

import cramjam
import pytest

from ottla.protocol.errors import CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, NONE, UNKNOWN_SERVER_ERROR
from ottla.records import compression, legacy
from ottla.records.batch import build, records_of
from ottla.records.control import build_marker
from ottla.records.errors import CorruptRecords
from ottla.records.legacy import all_at_once, convert, for_old_client, messages, rebuild, with_lz4_checksum
from ottla.records.record import Record

kafka_records = pytest.importorskip("kafka.record.memory_records", reason="kafka-python is the second opinion")

FIRST = 1_700_000_000_000
V0 = bytes.fromhex("0000000000000000000000101fecd70a0000000000016b0000000176")
V0_NULL_KEY = bytes.fromhex("00000000000000050000001387a77ab20000ffffffff0000000568656c6c6f")
V1 = bytes.fromhex("00000000000000000000001839268c3301000000018bcfe56800000000016b0000000176")
LIMIT = 1 << 20


def some_records(count: int = 20) -> list[Record]:
    return [
        Record(i, FIRST + i, None if i % 3 == 0 else b"k%d" % i, None if i % 5 == 0 else b"v%d" % i)
        for i in range(count)
    ]


def seen(data: bytes) -> list[tuple[int, int | None, bytes | None, bytes | None]]:
    """Return the records that kafka-python reads in a message set."""
    rows = []
    records = kafka_records.MemoryRecords(data)
    while records.has_next():
        rows += [(record.offset, record.timestamp, record.key, record.value) for record in records.next_batch()]
    return rows


def test_the_vectors_of_the_format() -> None:
    (message,) = messages(V0)
    assert (message.offset, message.magic, message.key, message.value) == (0, 0, b"k", b"v")
    (message,) = messages(V0_NULL_KEY)
    assert (message.offset, message.key, message.value) == (5, None, b"hello")
    (message,) = messages(V1)
    assert (message.magic, message.timestamp, message.key, message.value) == (1, FIRST, b"k", b"v")


def test_batches_are_converted_to_the_vectors() -> None:
    batch = build([Record(0, FIRST, b"k", b"v", [("h", b"dropped")])])
    assert for_old_client(batch, 0, 0, LIMIT) == V0
    assert for_old_client(batch, 1, 0, LIMIT) == V1
    assert for_old_client(build([Record(5, FIRST, None, b"hello")], base_offset=5), 0, 0, LIMIT) == V0_NULL_KEY


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3], ids=["none", "gzip", "snappy", "lz4"])
def test_kafka_python_reads_what_old_clients_get(magic: int, codec: int) -> None:
    records = some_records()
    data = build([Record(r.offset + 100, r.timestamp, r.key, r.value) for r in records], base_offset=100, codec=codec)
    expected = [(r.offset + 100, FIRST + r.offset if magic else None, r.key, r.value) for r in records]
    assert seen(for_old_client(data, magic, 100, LIMIT)) == expected


@pytest.mark.parametrize("magic", [0, 1])
def test_a_batch_that_is_large_when_decompressed_becomes_several_messages(magic: int) -> None:
    """Each of them fits into memory, and a consumer that asks from the middle of the batch gets on."""
    records = [Record(at, FIRST, b"k", bytes(60_000)) for at in range(200)]  # 12 MB
    data = build(records, codec=1)
    assert len(list(messages(for_old_client(data, magic, 0, 32 << 20)))) == 1, "as a producer has to send it"
    whole = all_at_once(convert(data, magic, 0, 32 << 20, LIMIT))
    assert [offset for offset, *_ in seen(whole)] == list(range(200))
    assert len(list(messages(whole))) > 1
    some = all_at_once(convert(data, magic, 150, 1, LIMIT))
    offsets = [offset for offset, *_ in seen(some)]
    assert offsets[0] <= 150 <= offsets[-1] < 199


def steps_of(data: bytes, max_bytes: int) -> tuple[int, bytes]:
    """Return the number of pauses of a conversion, and its result."""
    conversion = convert(data, 1, 0, max_bytes, LIMIT)
    pauses = 0
    while True:
        try:
            next(conversion)
        except StopIteration as stop:
            return pauses, stop.value
        pauses += 1


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("batches", [1, 20])
def test_many_tiny_records_are_converted_for_an_old_consumer_in_steps(codec: int, batches: int) -> None:
    """300,000 of them, in a quarter of a megabyte, held back every other request for two seconds."""
    count = 40_000 // batches
    data = b"".join(
        build([Record(start + at, FIRST, None, b"") for at in range(count)], base_offset=start, codec=codec)
        for start in range(0, 40_000, count)
    )
    pauses, converted = steps_of(data, 32 << 20)
    assert pauses >= 9
    assert [offset for offset, *_ in seen(converted)] == list(range(40_000))


def test_a_batch_of_zeros_is_converted_a_few_megabytes_at_a_time() -> None:
    """Its messages are small when they are compressed again, so that their size alone would never end the answer."""
    data = build([Record(at, FIRST, None, bytes(100_000)) for at in range(500)], codec=1)
    _, converted = steps_of(data, 1 << 20)
    assert 30 < len(seen(converted)) < 60


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3], ids=["none", "gzip", "snappy", "lz4"])
def test_message_sets_of_kafka_python_are_accepted(magic: int, codec: int) -> None:
    builder = kafka_records.MemoryRecordsBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for record in some_records():
        builder.append(record.timestamp, record.key, record.value)
    builder.close()
    data = bytes(builder.buffer())
    rebuilt = all_at_once(rebuild(data, 0, len(data), LIMIT, LIMIT))
    assert rebuilt.error_code == NONE
    original = some_records()
    if magic == 0:
        for record in original:
            record.timestamp = -1
    assert records_of(rebuilt.batch) == original
    assert rebuilt.batch[22] & 0x07 == codec


def test_records_before_the_wanted_offset_are_left_out_unless_compressed() -> None:
    batch = build(some_records())
    assert [offset for offset, *_ in seen(for_old_client(batch, 1, 15, LIMIT))] == [15, 16, 17, 18, 19]
    assert len(seen(for_old_client(build(some_records(), codec=1), 1, 15, LIMIT))) == 20


def test_control_batches_never_reach_an_old_client() -> None:
    marker = build_marker(
        commit=True, producer_id=7, producer_epoch=1, coordinator_epoch=0, timestamp=FIRST, base_offset=20
    )
    assert len(seen(for_old_client(build(some_records()) + marker, 1, 0, LIMIT))) == 20


def test_zstd_cannot_be_read_by_an_old_client() -> None:
    with pytest.raises(legacy.NotForOldClients):
        for_old_client(build(some_records(), codec=4), 1, 0, LIMIT)


def test_log_append_time_is_in_the_attributes_and_timestamps() -> None:
    batch = build([Record(0, FIRST, None, b"a"), Record(1, FIRST + 9, None, b"b")], timestamp_type=1)
    converted = list(messages(for_old_client(batch, 1, 0, LIMIT)))
    assert [(m.attributes, m.timestamp) for m in converted] == [(8, FIRST + 9), (8, FIRST + 9)]


@pytest.mark.parametrize(("wrong", "checksum"), [(True, 0x1A), (False, 0x82)])
def test_the_two_header_checksums_of_lz4(wrong: bool, checksum: int) -> None:
    frame = bytes.fromhex("04224d186040") + b"\x00" + b"\x00\x00\x00\x00"
    assert with_lz4_checksum(frame, wrong=wrong)[6] == checksum


def wrap(inner: bytes, magic: int, codec: int, value: bytes | None = b"") -> bytes:
    compressed = compression.compress(codec, inner) if value == b"" else value
    return legacy._encode(Record(0, FIRST, None, compressed), magic, 0, 0, codec)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (V1[:-1] + b"x", CORRUPT_MESSAGE),
        (wrap(wrap(V1, 1, 1), 1, 1), INVALID_RECORD),
        (wrap(V0, 1, 1), INVALID_RECORD),
        (wrap(b"", 1, 1), INVALID_RECORD),
        (wrap(b"", 1, 1, None), INVALID_RECORD),
        (wrap(V1, 1, 1, b"no gzip"), UNKNOWN_SERVER_ERROR),
        (wrap(V1, 1, 4), INVALID_RECORD),
        (wrap(V1, 1, 1) + V1, INVALID_RECORD),
        (V0 + V1, INVALID_RECORD),
        (b"\0" * 17, CORRUPT_MESSAGE),
        (wrap(V1 * 100_000, 1, 0, b"x" * (LIMIT + 1)), MESSAGE_TOO_LARGE),
    ],
    ids=[
        "crc",
        "nested twice",
        "inner magic",
        "empty",
        "null",
        "garbage",
        "zstd",
        "not alone",
        "mixed",
        "size",
        "large",
    ],
)
def test_sets_that_are_refused(data: bytes, code: int) -> None:
    assert all_at_once(rebuild(data, 0, len(data), LIMIT, LIMIT)).error_code == code


@pytest.mark.parametrize("data", [b"", b"short", V1[:-3]], ids=["nothing", "a few bytes", "cut off"])
def test_a_set_without_a_whole_message_is_nothing(data: bytes) -> None:
    assert all_at_once(rebuild(data, 0, len(data), LIMIT, LIMIT)) == (b"", NONE)


def test_a_decompression_bomb_returns_invalid_record() -> None:
    bomb = wrap(V1 * 100_000, 1, 1)
    assert all_at_once(rebuild(bomb, 0, len(bomb), LIMIT, 100_000)).error_code == INVALID_RECORD


def test_a_compressed_message_of_thousands_of_tiny_blocks_is_read_in_steps() -> None:
    plain = for_old_client(build(some_records(5)), 1, 0, LIMIT)
    blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in [b""] * 5_000 + [plain[:50], plain[50:]]]
    compressed = compression.compress(2, b"")[:16] + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
    data = wrap(plain, 1, 2, compressed)
    rebuilding = rebuild(data, 0, len(data), LIMIT, LIMIT)
    assert sum(1 for _ in iter(lambda: next(rebuilding, rebuilding), rebuilding)) >= 20
    assert len(records_of(all_at_once(rebuild(data, 0, len(data), LIMIT, LIMIT)).batch)) == 5


def test_damaged_sets_raise_corrupt_records_only() -> None:
    rng = random.Random(5)
    for magic in (0, 1):
        for codec in range(4):
            data = bytearray(for_old_client(build(some_records(), codec=codec), magic, 0, LIMIT))
            for _ in range(300):
                damaged = bytearray(data)
                for _ in range(rng.randrange(1, 4)):
                    damaged[rng.randrange(len(damaged))] = rng.randrange(256)
                cut = bytes(damaged[: rng.randrange(len(damaged) + 1)])
                all_at_once(rebuild(cut, 0, len(cut), LIMIT, LIMIT))
                try:
                    list(messages(cut))
                except CorruptRecords:
                    continue
