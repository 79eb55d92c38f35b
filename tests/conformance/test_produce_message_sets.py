"""Produce 0 to 2 with message sets of magic 0 and 1. Held against Apache Kafka 3.9.1, the last that takes them."""

import struct

import pytest

from ottla.protocol.errors import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_REQUIRED_ACKS,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    NONE,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
    name_of,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import build, read_header, records_of
from ottla.records.record import Record

from .conftest import Topic, TopicFactory, Wire
from .message_sets import AT, framed, message, packed, pair

API = ProduceRequest
EVERY = pytest.mark.parametrize("version", [0, 1, 2])
NEWEST = pytest.mark.parametrize("version", [2])
EMPTY_BLOBS = struct.pack(">ii", 0, 0)
MAGIC_1 = b"\1\0" + struct.pack(">q", AT)


def stored(topic: Topic) -> bytes:
    """The batches of the topic as a newer consumer gets them."""
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 22)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic.name, partitions=[part])])
    return topic.wire.send(request, 11).responses[0].partitions[0].records or b""


@EVERY
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
def test_a_set_becomes_one_batch(topic: Topic, version: int, magic: int, compressed: bool) -> None:
    data = packed(1, pair(magic), magic) if compressed else pair(magic)
    answer = topic.produce(data, version=version)
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (NONE, 0, -1)
    assert topic.produce(data, version=version).base_offset == 2
    batches = stored(topic)
    header = read_header(batches, 0)
    assert (header.count, header.attributes, header.producer_id) == (2, int(compressed), -1)
    at = AT if magic else -1
    rows = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records_of(batches)]
    assert rows == [(i, at, b"k%d" % (i % 2), b"v%d" % (i % 2), []) for i in range(4)]


@NEWEST
@pytest.mark.parametrize(
    ("data", "records"),
    [
        (message(0, None, None, 1), [(AT, None, None)]),
        (message(7, b"a", b"b", 1) + message(3, b"c", b"d", 1), [(AT, b"a", b"b"), (AT, b"c", b"d")]),
        (message(0, b"a", b"b", 1) + message(1, b"c", b"d", 1)[:-3], [(AT, b"a", b"b")]),
        (packed(0, pair(0), 0), [(-1, b"k0", b"v0"), (-1, b"k1", b"v1")]),
        (packed(5, pair(1), 1), [(AT, b"k0", b"v0"), (AT, b"k1", b"v1")]),
        (packed(1, pair(1)[:-3], 1), [(AT, b"k0", b"v0")]),
        (packed(0, message(0, b"k", b"x" * 1_100_000, 1), 1), [(AT, b"k", b"x" * 1_100_000)]),
        (message(0, b"k", b"v", 1, attributes=8), [(AT, b"k", b"v")]),
        (packed(0, message(0, b"k", b"v", 1), 1, attributes=9), [(AT, b"k", b"v")]),
        (message(0, b"k", b"v", 1, timestamp=-1), [(-1, b"k", b"v")]),
        (framed(0, MAGIC_1 + struct.pack(">ii", -5, 0)), [(AT, None, b"")]),
        (framed(0, MAGIC_1 + EMPTY_BLOBS + b"more"), [(AT, b"", b"")]),
        (build([Record(0, AT, b"k", b"v")]), [(AT, b"k", b"v")]),
    ],
    ids=[
        "nulls",
        "any offsets",
        "a tail that is cut off",
        "wrapper offset of magic 0",
        "wrapper offset of magic 1",
        "an inner tail that is cut off",
        "unpacks to more than max.message.bytes",
        "a timestamp type it may not set",
        "a wrapper with a timestamp type",
        "no timestamp",
        "any negative length is null",
        "bytes after the value",
        "a batch of magic 2",
    ],
)
def test_what_is_taken(topic: Topic, version: int, data: bytes, records: list[tuple[int, bytes, bytes]]) -> None:
    answer = topic.produce(data, version=version)
    assert (name_of(answer.error_code), answer.base_offset) == ("NONE", 0)
    assert [(r.timestamp, r.key, r.value) for r in records_of(stored(topic))] == records


@EVERY
@pytest.mark.parametrize("data", [b"", b"short", message(0, b"k", b"v", 1)[:-3]], ids=["empty", "5 bytes", "cut off"])
def test_a_set_without_a_whole_message_is_no_error(topic: Topic, version: int, data: bytes) -> None:
    answer = topic.produce(data, version=version)
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (NONE, -1, -1)
    assert stored(topic) == b""


@NEWEST
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\0" * 17, CORRUPT_MESSAGE),
        (struct.pack(">qi", 0, 13) + b"\0" * 30, CORRUPT_MESSAGE),
        (struct.pack(">qi", 0, -1) + b"\0" * 30, CORRUPT_MESSAGE),
        (struct.pack(">qiIb", 0, 32, 0, 3) + b"\0" * 40, CORRUPT_MESSAGE),
        (message(0, b"k", b"v", 1, crc=1), CORRUPT_MESSAGE),
        (message(0, b"k", b"v", 1) + message(1, b"k", b"v", 1, crc=1), CORRUPT_MESSAGE),
        (packed(0, message(0, b"k", b"v", 1, crc=1), 1), CORRUPT_MESSAGE),
        (message(0, b"k", b"v", 0) + message(1, b"k", b"v", 1), INVALID_RECORD),
        (message(0, b"k", b"v", 1) + message(1, b"k", b"v", 0), INVALID_RECORD),
        (packed(1, pair(1), 1) + packed(1, pair(1), 1), INVALID_RECORD),
        (packed(1, pair(1), 1) + message(2, b"k", b"v", 1), INVALID_RECORD),
        (message(0, b"k", b"v", 1) + packed(1, pair(1), 1), INVALID_RECORD),
        (packed(0, b"", 1), INVALID_RECORD),
        (message(0, None, None, 1, attributes=1), INVALID_RECORD),
        (packed(0, packed(0, pair(1), 1), 1), INVALID_RECORD),
        (packed(0, message(0, b"k", b"v", 0), 1), INVALID_RECORD),
        (packed(0, message(0, b"k", b"v", 1), 0), INVALID_RECORD),
        (packed(1, message(3, b"k", b"v", 1) + message(4, b"k", b"v", 1), 1), INVALID_RECORD),
        (message(0, None, b"x", 1, attributes=4), INVALID_RECORD),
        (message(0, None, b"garbage", 1, attributes=1), UNKNOWN_SERVER_ERROR),
        (message(0, None, b"x", 1, attributes=7), UNKNOWN_SERVER_ERROR),
        (message(0, None, b"x", 0, attributes=5), UNKNOWN_SERVER_ERROR),
        (message(0, b"k", b"v", 1, timestamp=-2), UNKNOWN_SERVER_ERROR),
        (framed(0, MAGIC_1), UNKNOWN_SERVER_ERROR),
        (framed(0, MAGIC_1 + struct.pack(">ii", 50, 0)), UNKNOWN_SERVER_ERROR),
        (message(0, b"k", b"x" * 1_100_000, 1), MESSAGE_TOO_LARGE),
        (message(0, b"k", b"x" * 600_000, 1) * 2, MESSAGE_TOO_LARGE),
    ],
    ids=[
        "size 0",
        "size 13",
        "size -1",
        "magic 3",
        "checksum",
        "second checksum",
        "inner checksum",
        "magic 0 then 1",
        "magic 1 then 0",
        "two packed",
        "packed then plain",
        "plain then packed",
        "packed nothing",
        "packed null",
        "packed twice",
        "magic 0 in 1",
        "magic 1 in 0",
        "wrapper offset before its last",
        "zstd",
        "garbage",
        "codec 7",
        "codec 5",
        "timestamp -2",
        "no key and value",
        "key beyond the end",
        "one too large",
        "together too large",
    ],
)
def test_what_is_refused(topic: Topic, version: int, data: bytes, code: int) -> None:
    answer = topic.produce(data, version=version)
    assert (name_of(answer.error_code), answer.base_offset) == (name_of(code), -1)
    assert stored(topic) == b""


@NEWEST
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
def test_log_append_time(make_topic: TopicFactory, version: int, compressed: bool) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    answer = topic.produce(packed(1, pair(0), 0) if compressed else pair(0), version=version)
    assert (answer.error_code, answer.log_append_time_ms > AT) == (NONE, True)
    header = read_header(stored(topic), 0)
    assert (header.attributes, header.max_timestamp) == (8 + compressed, answer.log_append_time_ms)


@NEWEST
@pytest.mark.parametrize(("codec", "bits"), [("gzip", 1), ("uncompressed", 0), ("zstd", 4)])
def test_the_topic_decides_on_compression(make_topic: TopicFactory, version: int, codec: str, bits: int) -> None:
    topic = make_topic(compression_type=codec)
    assert topic.produce(packed(1, pair(1), 1), version=version).error_code == NONE
    assert read_header(stored(topic), 0).attributes == bits


@NEWEST
def test_a_compacted_topic_takes_no_message_without_key(make_topic: TopicFactory, version: int) -> None:
    topic = make_topic(cleanup_policy="compact")
    assert topic.produce(message(0, None, b"v", 1), version=version).error_code == INVALID_RECORD
    assert topic.produce(message(0, b"k", b"v", 1), version=version).error_code == NONE


@NEWEST
def test_a_timestamp_out_of_range(make_topic: TopicFactory, version: int) -> None:
    topic = make_topic(message_timestamp_before_max_ms="60000")
    assert topic.produce(message(0, b"k", b"v", 1), version=version).error_code == INVALID_TIMESTAMP
    assert topic.produce(message(0, b"k", b"v", 0), version=version).error_code == NONE


@EVERY
def test_unknown_topics_and_acks(broker: Wire, topic: Topic, version: int) -> None:
    # Kafka 0.8 waited for so many replicas, or for all in sync if they are fewer.
    expected = NONE if version == 0 else INVALID_REQUIRED_ACKS
    assert topic.produce(pair(0), version=version, acks=2).error_code == expected
    assert topic.produce(pair(0), version=version, acks=-2).error_code == INVALID_REQUIRED_ACKS
    assert topic.produce(pair(0), version=version, partition=9).error_code == UNKNOWN_TOPIC_OR_PARTITION
    data = TopicProduceData(name="nobody", partition_data=[PartitionProduceData(index=0, records=pair(0))])
    answer = broker.send(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), version)
    assert answer.responses[0].partition_responses[0].error_code == UNKNOWN_TOPIC_OR_PARTITION


@EVERY
def test_acks_0_is_not_answered(topic: Topic, version: int) -> None:
    data = TopicProduceData(name=topic.name, partition_data=[PartitionProduceData(index=0, records=pair(1))])
    request = ProduceRequest(acks=0, timeout_ms=1000, topic_data=[data])
    topic.wire.send_only(request, version, expect_answer=False)
    assert topic.produce(pair(1), version=version).base_offset == 2
