"""The idempotent producer against a peer that loses requests and answers: every batch once, in order."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.client.errors import NotAuthorized, RecordTooLarge, RequestTimedOut, SequenceLost
from ottla.client.producer.batches import BatchProducer
from ottla.client.topics import TopicPartition
from ottla.protocol import errors
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.records.batch import build, read_header
from ottla.records.record import Record
from tests.unit.client.peer import ANSWER_LOST, LOST, OK, REFUSED, Peer, cluster_with

PARTITION = TopicPartition("t", 0)


def batch(number: int, records: int = 1) -> bytes:
    return build([Record(i, 1, None, b"%d.%d" % (number, i)) for i in range(records)])


def values(count: int, records: int = 1) -> list[bytes | None]:
    return [b"%d.%d" % (number, i) for number in range(count) for i in range(records)]


def deliver(producer: BatchProducer, data: bytes) -> None:
    producer.send(PARTITION, data)
    producer.flush()


def produce(peer: Peer, count: int, configs: dict[str, str] | None = None) -> BatchProducer:
    cluster, _ = cluster_with(peer, configs)
    producer = BatchProducer(cluster)
    for number in range(count):
        producer.send(PARTITION, batch(number, 2))
    producer.flush()
    return producer


def test_batches_carry_consecutive_sequences_of_one_producer() -> None:
    peer = Peer()
    producer = produce(peer, 3)
    headers = [read_header(data, 0) for data in peer.logs[0]]
    assert [(header.producer_id, header.producer_epoch, header.base_sequence) for header in headers] == [
        (7, 0, 0),
        (7, 0, 2),
        (7, 0, 4),
    ]
    assert producer.records == 6


def test_up_to_five_requests_are_open_at_once() -> None:
    peer = Peer()
    produce(peer, 20)
    assert peer.most_in_flight == 5


@pytest.mark.parametrize("mishap", [REFUSED, LOST, ANSWER_LOST])
@pytest.mark.parametrize("when", range(7))
def test_one_mishap_neither_loses_nor_repeats_nor_reorders(mishap: str, when: int) -> None:
    peer = Peer([OK] * when + [mishap])
    assert produce(peer, 12).records == 24
    assert peer.values() == values(12, 2)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([OK, REFUSED, LOST, ANSWER_LOST]), max_size=40), st.integers(1, 20))
@example([ANSWER_LOST, REFUSED, OK, LOST, REFUSED], 6)  # the oldest must not leave the five that a broker remembers
def test_any_mishaps_neither_lose_nor_repeat_nor_reorder(mishaps: list[str], count: int) -> None:
    peer = Peer(mishaps)
    produce(peer, count)
    assert peer.values() == values(count, 2)


def test_partitions_share_requests_and_keep_their_own_order() -> None:
    peer = Peer([OK, LOST, REFUSED, ANSWER_LOST], partitions=3)
    cluster, _ = cluster_with(peer)
    producer = BatchProducer(cluster)
    for number in range(12):
        producer.send(TopicPartition("t", number % 3), batch(number))
    producer.flush()
    for partition in range(3):
        assert peer.values(partition) == [b"%d.0" % number for number in range(partition, 12, 3)]


def test_a_broker_without_topic_ids_is_told_names() -> None:
    peer = Peer(with_ids=False)
    produce(peer, 2)
    assert peer.values() == values(2, 2)


def test_without_idempotence_there_is_no_producer_id() -> None:
    peer = Peer()
    produce(peer, 2, {"acks": "1"})
    assert "InitProducerIdRequest" not in peer.asked
    assert [read_header(data, 0).producer_id for data in peer.logs[0]] == [-1, -1]


def test_acks_0_waits_for_nothing() -> None:
    peer = Peer()
    assert produce(peer, 3, {"acks": "0"}).records == 6
    assert peer.values() == values(3, 2)


def test_a_leader_that_never_comes_back_ends_at_the_delivery_timeout() -> None:
    peer = Peer([LOST] * 10_000)
    cluster, time = cluster_with(peer, {"delivery.timeout.ms": "5000"})
    producer = BatchProducer(cluster)
    with pytest.raises(RequestTimedOut, match=r"t-0: not acknowledged within 5000 ms"):
        deliver(producer, batch(0))
    assert 6000 <= time.now < 9000


def answering(code: int, message: str | None = None) -> Peer:
    peer = Peer()

    def answer(request: ProduceRequest) -> ProduceResponse:
        row = PartitionProduceResponse(index=0, error_code=code, error_message=message)
        topic = request.topic_data[0]
        return ProduceResponse(
            responses=[TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[row])]
        )

    peer.answers[ProduceRequest] = answer
    return peer


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        (errors.MESSAGE_TOO_LARGE, RecordTooLarge, "a batch of 2 records, .* max.message.bytes"),
        (errors.TOPIC_AUTHORIZATION_FAILED, NotAuthorized, "produce to t-0: TOPIC_AUTHORIZATION_FAILED"),
        (errors.OUT_OF_ORDER_SEQUENCE_NUMBER, SequenceLost, "acknowledged are gone"),
    ],
)
def test_a_refusal_is_one_clear_error_and_ends_the_producer(code: int, error: type[Exception], said: str) -> None:
    cluster, _ = cluster_with(answering(code))
    producer = BatchProducer(cluster)
    with pytest.raises(error, match=said):
        deliver(producer, batch(0, 2))
    with pytest.raises(error):
        producer.send(PARTITION, batch(1))
    with pytest.raises(error):
        producer.flush()
