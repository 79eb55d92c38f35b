"""Fetch 0 to 3: batches as message sets for consumers before 0.11. Held against Apache Kafka 3.9.1, the last that writes them.

Where a set is cut differs: Kafka fills up to the size that the batches had with a beginning of a message that never ends,
and gives an empty set where not even a batch fits; Ottla cuts the set itself, which an old consumer understands as well.
"""

from typing import Any

import pytest

from ottla.protocol.errors import NONE, OFFSET_OUT_OF_RANGE, UNSUPPORTED_COMPRESSION_TYPE, name_of
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.records.batch import build
from ottla.records.record import Record

from .conftest import Topic, TopicFactory, Wire
from .message_sets import AT, parsed

API = FetchRequest
EVERY = pytest.mark.parametrize("version", [0, 1, 2, 3])
CODECS = pytest.mark.parametrize("codec", [0, 1, 2, 3], ids=["none", "gzip", "snappy", "lz4"])
THREE = [
    Record(0, AT, b"a", b"x", [("h", b"dropped")]),
    Record(1, AT + 5, None, b"y"),
    Record(2, AT + 3, b"c", None),
]


def fetch(topic: Topic, version: int, offset: int = 0, max_bytes: int = 1 << 20) -> Any:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic.name, partitions=[part])])
    return topic.wire.send(request, version).responses[0].partitions[0]


def three(magic: int, first: int, *, relative: bool = False) -> list[tuple[Any, ...]]:
    """THREE as messages from offset `first` on."""
    delta = (0, 5, 3) if magic else (None, None, None)
    base = 0 if relative else first
    return [
        (base, magic, 0, delta[0], b"a", b"x"),
        (base + 1, magic, 0, delta[1], None, b"y"),
        (base + 2, magic, 0, delta[2], b"c", None),
    ]


@EVERY
@pytest.mark.parametrize("offset", [0, 1, 2])
def test_plain_batches(topic: Topic, version: int, offset: int) -> None:
    topic.produce(build(THREE))
    answer = fetch(topic, version, offset)
    assert (answer.error_code, answer.high_watermark) == (NONE, 3)
    assert parsed(answer.records) == three(version // 2, 0)[offset:]


@EVERY
def test_packed_batches_are_given_whole(topic: Topic, version: int) -> None:
    topic.produce(build(THREE))
    topic.produce(build(THREE, codec=1))
    magic = version // 2
    inner = three(magic, 3, relative=magic == 1)
    messages = parsed(fetch(topic, version, 4).records)
    assert messages == [(5, magic, 1, 5 if magic else None, None, inner)]


@EVERY
@CODECS
def test_kafka_python_reads_them(topic: Topic, version: int, codec: int) -> None:
    memory_records = pytest.importorskip("kafka.record.memory_records", reason="kafka-python is the reader")
    topic.produce(build(THREE))
    topic.produce(build(THREE, codec=codec))
    records = memory_records.MemoryRecords(fetch(topic, version, 3).records)
    rows = []
    while records.has_next():
        rows += [(record.offset, record.timestamp, record.key, record.value) for record in records.next_batch()]
    at = (AT, AT + 5, AT + 3) if version >= 2 else (None, None, None)
    assert rows == [(3, at[0], b"a", b"x"), (4, at[1], None, b"y"), (5, at[2], b"c", None)]


@EVERY
def test_ends_and_errors(topic: Topic, version: int) -> None:
    topic.produce(build(THREE))
    end = fetch(topic, version, 3)
    assert (end.error_code, end.high_watermark, end.records) == (NONE, 3, b"")
    beyond = fetch(topic, version, 4)
    assert (name_of(beyond.error_code), beyond.high_watermark) == (name_of(OFFSET_OUT_OF_RANGE), -1)


@EVERY
def test_limits(topic: Topic, version: int) -> None:
    """Before version 3 the limit is hard, from then on the first batch is given whole (KIP-74)."""
    topic.produce(build(THREE))
    topic.produce(build(THREE))
    data = fetch(topic, version, 0, 120).records
    assert parsed(data)[:2] == three(version // 2, 0)[:2]
    nothing = fetch(topic, version, 0, 0).records
    if version < 3:
        assert (len(data) <= 120, nothing) == (True, b"")
    else:
        assert parsed(data) == parsed(nothing) == three(1, 0)


@EVERY
@pytest.mark.usefixtures("ottla_only")
def test_a_limit_below_the_first_batch_still_gives_what_fits(topic: Topic, version: int) -> None:
    """Kafka gives an empty set, at which an old consumer stands still."""
    topic.produce(build(THREE))
    records = fetch(topic, version, 0, 50).records
    if version < 3:
        assert (len(records), len(parsed(records))) == (50, 1)
    else:
        assert len(parsed(records)) == 3


@pytest.mark.parametrize("version", [0, 1, 2, 3, 10])
def test_a_topic_of_zstd(make_topic: TopicFactory, version: int) -> None:
    topic = make_topic(compression_type="zstd")
    topic.produce(build(THREE))
    code = UNSUPPORTED_COMPRESSION_TYPE if version < 10 else NONE
    assert name_of(fetch(topic, version).error_code) == name_of(code)


@pytest.mark.parametrize("version", [4, 9])
@pytest.mark.usefixtures("ottla_only")
def test_a_topic_of_zstd_before_consumers_knew_it(make_topic: TopicFactory, version: int) -> None:
    """As KIP-110 says and Kafka did up to 3.9; Kafka 4 sends what such a consumer cannot unpack."""
    topic = make_topic(compression_type="zstd")
    topic.produce(build(THREE))
    assert name_of(fetch(topic, version).error_code) == name_of(UNSUPPORTED_COMPRESSION_TYPE)


@EVERY
def test_a_batch_of_zstd_ends_a_set(topic: Topic, version: int) -> None:
    topic.produce(build(THREE))
    topic.produce(build(THREE, codec=4))
    before = fetch(topic, version)
    assert (before.error_code, parsed(before.records)) == (NONE, three(version // 2, 0))
    assert name_of(fetch(topic, version, 3).error_code) == name_of(UNSUPPORTED_COMPRESSION_TYPE)


@pytest.mark.parametrize("version", [2, 3])
def test_log_append_time(make_topic: TopicFactory, version: int) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    answer = topic.produce(build(THREE))
    messages = parsed(fetch(topic, version).records)
    assert [(message[2], message[3] + AT) for message in messages] == [(8, answer.log_append_time_ms)] * 3


@EVERY
def test_a_fetch_waits_for_data(broker: Wire, topic: Topic, version: int) -> None:
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=20_000, min_bytes=1, topics=[FetchTopic(topic=topic.name, partitions=[part])])
    waiting = broker.another()
    waiting.send_only(request, version)
    topic.produce(build(THREE))
    answer = waiting.receive().responses[0].partitions[0]
    assert parsed(answer.records) == three(version // 2, 0)
