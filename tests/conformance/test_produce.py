"""Produce, over a socket."""

import struct
import time
import uuid

import pytest

from ottla.protocol.errors import (
    CORRUPT_MESSAGE,
    INVALID_PRODUCER_EPOCH,
    INVALID_RECORD,
    INVALID_REQUIRED_ACKS,
    INVALID_TIMESTAMP,
    INVALID_TOPIC_EXCEPTION,
    MESSAGE_TOO_LARGE,
    NONE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    RECORD_LIST_TOO_LARGE,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import build, records_of
from ottla.records.codec_names import CODEC_NAMES
from ottla.records.record import Record

from .conftest import Closed, Topic, TopicFactory, Wire, versions
from .members import new_group

API = ProduceRequest
AT = 1_700_000_000_000
ZSTD = CODEC_NAMES.index("zstd")
CODECS = range(len(CODEC_NAMES))
ONE = build([Record(0, AT, b"k", b"v")])


def some(count: int) -> list[Record]:
    return [
        Record(at, AT + at, b"key-%d" % at, b"value-%d" % at * 20, [("h", b"x"), ("h", None)]) for at in range(count)
    ]


def request(topic: Topic, batches: dict[int, bytes | None], version: int, acks: int = -1) -> ProduceRequest:
    data = TopicProduceData(
        partition_data=[PartitionProduceData(index=at, records=batch) for at, batch in batches.items()]
    )
    if version >= 13:
        data.topic_id = topic.id
    else:
        data.name = topic.name
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data])


def end_of(topic: Topic, partition: int = 0) -> int:
    query = ListOffsetsTopic(
        name=topic.name, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=-1)]
    )
    answer = topic.wire.send(ListOffsetsRequest(replica_id=-1, topics=[query]), 5)
    return int(answer.topics[0].partitions[0].offset)


def stored(topic: Topic, version: int = 11) -> bytes:
    fetch_topic = FetchTopic(topic=topic.name, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 24)])
    answer = topic.wire.send(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[fetch_topic]), version)
    return bytes(answer.responses[0].partitions[0].records)


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("version", versions(API))
def test_every_version_appends(broker: Wire, topic: Topic, version: int, acks: int) -> None:
    for expected in (0, 3):
        answer = topic.produce(build(some(3)), version=version, acks=acks)
        assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (NONE, expected, -1)
        assert answer.log_start_offset == (0 if version >= 5 else -1)
        assert (answer.record_errors, answer.error_message) == ([], None)
        assert answer.current_leader.leader_id == -1
    assert [record.offset for record in records_of(stored(topic))] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("version", versions(API))
def test_acks_0_appends_without_an_answer(broker: Wire, topic: Topic, version: int) -> None:
    for _ in range(3):
        broker.send_only(request(topic, {0: ONE}, version, acks=0), version, expect_answer=False)
    assert end_of(topic) == 3


@pytest.mark.parametrize("version", versions(API))
def test_an_error_with_acks_0_closes_the_connection(broker: Wire, topic: Topic, version: int) -> None:
    other = broker.another()
    other.send_only(request(topic, {7: ONE}, version, acks=0), version, expect_answer=False)
    with pytest.raises(Closed):
        other.receive_raw(1)
    assert end_of(topic) == 0


@pytest.mark.parametrize("version", versions(API))
@pytest.mark.parametrize("acks", [2, -2])
def test_other_acks_are_refused(topic: Topic, version: int, acks: int) -> None:
    if version == 0 and acks > 0:
        pytest.skip("in version 0 a producer may require the acknowledgements of several replicas")
    answer = topic.produce(ONE, version=version, acks=acks)
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (INVALID_REQUIRED_ACKS, -1, -1)
    assert answer.log_start_offset == -1
    assert end_of(topic) == 0


def test_acks_are_looked_at_after_the_partition(topic: Topic) -> None:
    assert topic.produce(ONE, partition=7, acks=2).error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_which_refusals_name_the_start_of_the_log(broker: Wire, make_topic: TopicFactory) -> None:
    topic, compacted = make_topic(max_message_bytes="300"), make_topic(cleanup_policy="compact")
    damaged = bytearray(ONE)
    damaged[-1] ^= 1
    producer = Idempotent(topic)
    producer.send(0, epoch=1)
    for asked, batch, code, start in (
        (topic, bytes(damaged), CORRUPT_MESSAGE, -1),
        (topic, build([Record(0, AT, b"k", bytes(300))]), MESSAGE_TOO_LARGE, -1),
        (topic, b"", INVALID_RECORD, -1),
        (topic, ONE + ONE, INVALID_RECORD, -1),
        (topic, struct.pack(">q", 5) + ONE[8:], INVALID_RECORD, 0),
        (compacted, build([Record(0, AT, None, b"v")]), INVALID_RECORD, 0),
        (topic, producer.batch(7, epoch=1), OUT_OF_ORDER_SEQUENCE_NUMBER, 0),
        (topic, producer.batch(7, epoch=0), INVALID_PRODUCER_EPOCH, 0),
    ):
        answer = asked.produce(batch)
        assert (answer.error_code, answer.log_start_offset) == (code, start)


@pytest.mark.parametrize("version", versions(API))
def test_unknown_topics_and_partitions(broker: Wire, topic: Topic, version: int) -> None:
    unknown = Topic(broker, "no-such-topic", uuid.uuid4().bytes)
    answer = unknown.produce(ONE, version=version)
    expected = UNKNOWN_TOPIC_ID if version >= 13 else UNKNOWN_TOPIC_OR_PARTITION
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (expected, -1, -1)
    for partition in (1, -1):
        answer = topic.produce(ONE, partition=partition, version=version)
        assert (answer.index, answer.error_code, answer.base_offset) == (partition, UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_the_zero_id_names_no_topic(broker: Wire) -> None:
    answer = Topic(broker, "", bytes(16)).produce(ONE, version=13)
    assert answer.error_code == UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", versions(API))
def test_a_wrong_crc_is_refused(topic: Topic, version: int) -> None:
    damaged = bytearray(build(some(3)))
    damaged[-3] ^= 0x40
    answer = topic.produce(bytes(damaged), version=version)
    assert (answer.error_code, answer.base_offset) == (CORRUPT_MESSAGE, -1)
    assert end_of(topic) == 0


@pytest.mark.parametrize("codec", CODECS, ids=list(CODEC_NAMES))
@pytest.mark.parametrize("version", [7, 9, 13])
def test_every_compression_is_kept_and_read_back(topic: Topic, version: int, codec: int) -> None:
    batch = build(some(50), codec=codec)
    assert topic.produce(batch, version=version).error_code == NONE
    data = stored(topic)
    assert data[21:] == batch[21:]
    assert records_of(data) == some(50)


@pytest.mark.parametrize("version", [version for version in versions(API) if version >= 3])
def test_zstd_needs_version_7(topic: Topic, version: int) -> None:
    answer = topic.produce(build(some(3), codec=ZSTD), version=version)
    assert answer.error_code == (NONE if version >= 7 else UNSUPPORTED_COMPRESSION_TYPE)


@pytest.mark.parametrize("codec", CODECS, ids=list(CODEC_NAMES))
def test_a_topic_with_a_codec_of_its_own_recompresses(make_topic: TopicFactory, codec: int) -> None:
    topic = make_topic(compression_type="uncompressed" if codec == 0 else CODEC_NAMES[codec])
    assert topic.produce(build(some(20), codec=1)).error_code == NONE
    data = stored(topic)
    assert data[22] & 0x07 == codec
    assert records_of(data) == some(20)


@pytest.mark.parametrize("version", [version for version in versions(API) if version >= 3])
def test_no_batch_two_batches_or_an_old_one_are_refused(topic: Topic, version: int) -> None:
    old = bytes.fromhex(
        "00000000000000000000001839268c3301000000018bcfe56800000000016b0000000176"
    )  # a message of magic 1
    for data in (b"", ONE + ONE, old):
        answer = topic.produce(data, version=version)
        assert (answer.error_code, answer.base_offset) == (INVALID_RECORD, -1), data
    assert end_of(topic) == 0


@pytest.mark.usefixtures("ottla_only")
@pytest.mark.parametrize("version", versions(API))
def test_null_records_are_refused(topic: Topic, version: int) -> None:
    """Apache Kafka 4.4 never answers this request."""
    answer = topic.produce(None, version=version)
    assert (answer.error_code, answer.base_offset) == (INVALID_RECORD, -1)


def test_a_batch_that_is_cut_or_followed_by_junk_is_refused(topic: Topic) -> None:
    assert topic.produce(ONE[:-1]).error_code != NONE
    assert topic.produce(ONE[:30]).error_code != NONE
    assert end_of(topic) == 0


def test_several_partitions_are_answered_each_for_itself(broker: Wire, make_topic: TopicFactory) -> None:
    topic = make_topic(3)
    bad = bytearray(ONE)
    bad[-1] ^= 1
    answer = broker.send(request(topic, {2: ONE, 0: bytes(bad), 9: ONE, 1: build(some(4))}, 9), 9)
    (answered,) = answer.responses
    outcomes = {part.index: (part.error_code, part.base_offset) for part in answered.partition_responses}
    assert outcomes == {
        2: (NONE, 0),
        0: (CORRUPT_MESSAGE, -1),
        9: (UNKNOWN_TOPIC_OR_PARTITION, -1),
        1: (NONE, 0),
    }
    assert [end_of(topic, at) for at in range(3)] == [0, 4, 1]


@pytest.mark.parametrize("version", versions(API))
def test_a_request_for_nothing_is_answered_with_nothing(broker: Wire, topic: Topic, version: int) -> None:
    assert broker.send(ProduceRequest(acks=-1, timeout_ms=1000), version).responses == []
    assert broker.send(request(topic, {}, version), version).responses == []
    assert end_of(topic) == 0


def test_log_append_time_is_the_brokers(make_topic: TopicFactory) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    answer = topic.produce(build(some(3)))
    assert answer.error_code == NONE
    assert answer.log_append_time_ms > AT
    assert {record.timestamp for record in records_of(stored(topic))} == {answer.log_append_time_ms}


def test_a_time_in_the_future_is_refused_record_by_record(topic: Topic) -> None:
    answer = topic.produce(build([Record(0, AT, b"", b""), Record(1, 1 << 50, b"", b"")]))
    assert (answer.error_code, answer.base_offset) == (INVALID_TIMESTAMP, -1)
    assert [error.batch_index for error in answer.record_errors] == [1]
    assert answer.error_message == "One or more records have been rejected due to invalid timestamp"


@pytest.mark.parametrize("version", [7, 8, 13])
def test_a_compacted_topic_requires_keys(make_topic: TopicFactory, version: int) -> None:
    topic = make_topic(cleanup_policy="compact")
    answer = topic.produce(
        build([Record(0, AT, None, b"v"), Record(1, AT, b"k", b"v"), Record(2, AT, None, b"v")]), version=version
    )
    assert (answer.error_code, answer.base_offset) == (INVALID_RECORD, -1)
    assert [error.batch_index for error in answer.record_errors] == ([0, 2] if version >= 8 else [])


def test_sizes_have_limits(make_topic: TopicFactory) -> None:
    topic = make_topic(max_message_bytes="300")
    assert topic.produce(build([Record(0, AT, None, bytes(300))])).error_code == MESSAGE_TOO_LARGE
    small = make_topic(segment_bytes=str(1 << 20), max_message_bytes=str(3 << 20))
    assert small.produce(build([Record(0, AT, None, bytes(2 << 20))])).error_code == RECORD_LIST_TOO_LARGE


class Idempotent:
    """An idempotent producer."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        answer = topic.wire.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4)
        self.id = answer.producer_id

    def batch(self, sequence: int, count: int = 1, epoch: int = 0) -> bytes:
        """A batch of now: a producer whose newest record is older than producer.id.expiration.ms may be forgotten any time."""
        now = time.time_ns() // 1_000_000
        records = [Record(at, now, None, b"value") for at in range(count)]
        return build(records, producer_id=self.id, producer_epoch=epoch, base_sequence=sequence)

    def send(self, sequence: int, count: int = 1, epoch: int = 0) -> tuple[int, int]:
        answer = self.topic.produce(self.batch(sequence, count, epoch))
        return answer.error_code, answer.base_offset


def test_a_repeated_batch_is_answered_with_the_offset_it_has(topic: Topic) -> None:
    producer = Idempotent(topic)
    topic.append(10)
    for number in range(6):
        assert producer.send(number * 3, 3) == (NONE, 10 + number * 3)
    for number in range(1, 6):
        assert producer.send(number * 3, 3) == (NONE, 10 + number * 3)
    assert end_of(topic) == 28


def test_a_repeated_batch_is_answered_with_its_own_time(topic: Topic) -> None:
    batch = Idempotent(topic).batch(0)
    assert topic.produce(batch).log_append_time_ms == -1
    assert topic.produce(batch).log_append_time_ms == int.from_bytes(batch[35:43], "big")


def test_what_is_older_than_five_batches_is_out_of_order(topic: Topic) -> None:
    producer = Idempotent(topic)
    for number in range(6):
        producer.send(number)
    assert producer.send(0) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_gaps_and_overlaps_are_out_of_order(topic: Topic) -> None:
    producer = Idempotent(topic)
    assert producer.send(0, 3) == (NONE, 0)
    assert producer.send(4) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert producer.send(0, 2) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert producer.send(2, 2) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert producer.send(3) == (NONE, 3)


def test_an_unknown_producer_may_start_at_any_sequence(topic: Topic) -> None:
    producer = Idempotent(topic)
    assert producer.send(77) == (NONE, 0)
    assert producer.send(78) == (NONE, 1)


def test_sequences_wrap(topic: Topic) -> None:
    producer = Idempotent(topic)
    assert producer.send(0x7FFFFFFE, 3) == (NONE, 0)
    assert producer.send(0x7FFFFFFE, 3) == (NONE, 0)
    assert producer.send(1) == (NONE, 3)


def test_epochs_fence(topic: Topic) -> None:
    producer = Idempotent(topic)
    assert producer.send(0, epoch=1) == (NONE, 0)
    assert producer.send(1, epoch=0) == (INVALID_PRODUCER_EPOCH, -1)
    assert producer.send(1, epoch=2) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert producer.send(0, epoch=2) == (NONE, 1)
    assert producer.send(1, epoch=2) == (NONE, 2)


def test_a_producer_id_needs_a_sequence(topic: Topic) -> None:
    producer = Idempotent(topic)
    assert producer.send(-1) == (INVALID_RECORD, -1)


def test_transactional_records_need_a_transactional_id(topic: Topic) -> None:
    producer = Idempotent(topic)
    batch = build(some(1), producer_id=producer.id, producer_epoch=0, base_sequence=0, transactional=True)
    assert topic.produce(batch).error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert topic.produce(batch, acks=2).error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert end_of(topic) == 0
    answer = topic.wire.send(request(topic, {0: ONE, 7: batch, 9: ONE}, 9), 9)
    code = TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert [part.error_code for part in answer.responses[0].partition_responses] == [code] * 3
    assert end_of(topic) == 0


def test_base_offsets_and_control_bits_are_the_brokers(topic: Topic) -> None:
    shifted = struct.pack(">q", 5) + ONE[8:]
    assert topic.produce(shifted).error_code == INVALID_RECORD
    assert topic.produce(build(some(1), control=True)).error_code == INVALID_RECORD
    assert end_of(topic) == 0


def test_the_leader_epoch_is_written_by_the_broker(topic: Topic) -> None:
    assert topic.produce(build(some(1), leader_epoch=99)).error_code == NONE
    assert stored(topic)[12:16] == bytes(4)


@pytest.mark.parametrize("version", [3, 9, 12])
def test_internal_topics_cannot_be_written_to(broker: Wire, version: int) -> None:
    """The client id of Kafka's own admin client may: its batch is checked as any other."""
    new_group(broker)
    offsets_topic = Topic(broker, "__consumer_offsets", bytes(16))
    for acks in (-1, 1):
        answer = broker.send(request(offsets_topic, {0: ONE, 9999: ONE}, version, acks), version)
        rows = answer.responses[0].partition_responses
        assert [(row.index, row.error_code, row.error_message) for row in rows] == [
            (0, INVALID_TOPIC_EXCEPTION, None),
            (9999, UNKNOWN_TOPIC_OR_PARTITION, None),
        ]
    admin = broker.another()
    admin.client_id = "__admin_client"
    damaged = ONE[:-1] + bytes([ONE[-1] ^ 1])
    answer = admin.send(request(offsets_topic, {0: damaged}, version), version)
    assert [row.error_code for row in answer.responses[0].partition_responses] == [CORRUPT_MESSAGE]


def test_many_rejected_records_are_not_all_named(broker: Wire, make_topic: TopicFactory) -> None:
    """Apache Kafka names all of them."""
    topic = make_topic(message_timestamp_before_max_ms="1000")
    row = topic.produce(build([Record(at, AT, None, b"", []) for at in range(10_050)]))
    assert row.error_code == INVALID_TIMESTAMP
    assert [error.batch_index for error in row.record_errors] == list(range(10_050 if broker.is_kafka else 10_000))
    if not broker.is_kafka:
        assert row.error_message == "One or more records have been rejected due to invalid timestamp"
