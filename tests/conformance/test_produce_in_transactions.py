"""Produce in transactions, over a socket: what is let in, and with which words the rest is refused."""

from typing import Any

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

from .conftest import Topic, TopicFactory, Wire
from .transactions import TransactionalProducer, fetch_partitions, retry_while_busy

API = ProduceRequest
ADDS = [12, 13]
VERIFIES = [3, 8, 9, 10, 11]


@pytest.fixture
def producer(broker: Wire) -> TransactionalProducer:
    made = TransactionalProducer(broker)
    for _ in range(2):  # so that there are older epochs
        made.begin_anew()
    return made


@pytest.mark.parametrize("version", ADDS)
def test_a_partition_is_added_with_its_first_batch(
    producer: TransactionalProducer, make_topic: TopicFactory, version: int
) -> None:
    topic = make_topic(2)
    assert [producer.produce(topic, 1, version=version, count=2) for _ in range(3)] == [0, 2, 4]
    assert producer.described().partitions == {(topic.name, 1)}
    producer.produce(topic, 0, version=version)
    assert producer.described().partitions == {(topic.name, 0), (topic.name, 1)}
    (partition,) = fetch_partitions(producer.wire, topic, 1)
    assert (partition.high_watermark, partition.last_stable_offset, bytes(partition.records)) == (6, 0, b"")


@pytest.mark.parametrize("version", VERIFIES)
def test_no_batch_comes_before_one_that_was_not_verified(
    producer: TransactionalProducer, topic: Topic, version: int
) -> None:
    """Two batches were sent one after the other, and only the second one finds the partition in the transaction."""
    out_of_order = "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert producer.ask_produce(topic, version=version, sequence=3)[0] != "NONE"
    producer.add(topic)
    assert producer.ask_produce(topic, version=version, sequence=4)[0] == out_of_order
    assert producer.ask_produce(topic, version=version, sequence=4, transactional=False)[0] == out_of_order
    assert producer.ask_produce(topic, version=version, sequence=2)[:2] == ("NONE", 0)
    assert producer.ask_produce(topic, version=version, sequence=4)[0] == out_of_order
    assert producer.ask_produce(topic, version=version, sequence=3)[:2] == ("NONE", 1)
    assert producer.ask_produce(topic, version=version, sequence=4)[:2] == ("NONE", 2)


@pytest.mark.parametrize("version", ADDS)
def test_a_transaction_of_version_2_begins_with_0_where_its_producer_is_unknown(
    producer: TransactionalProducer, topic: Topic, version: int
) -> None:
    out_of_order = "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert producer.ask_produce(topic, version=version, sequence=1)[0] == out_of_order
    assert producer.ask_produce(topic, version=version, sequence=1, transactional=False)[0] == out_of_order
    assert producer.ask_produce(topic, version=version, sequence=0)[:2] == ("NONE", 0)
    assert producer.ask_produce(topic, version=version, sequence=1)[:2] == ("NONE", 1)


@pytest.mark.parametrize("version", VERIFIES)
def test_a_newer_epoch_forgets_what_was_not_verified(
    producer: TransactionalProducer, topic: Topic, version: int
) -> None:
    assert producer.ask_produce(topic, version=version, sequence=0)[0] != "NONE"
    producer.begin_anew()
    assert producer.ask_produce(topic, version=version, sequence=5)[0] != "NONE"
    producer.add(topic)
    assert producer.ask_produce(topic, version=version, sequence=6)[0] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert producer.ask_produce(topic, version=version, sequence=5)[:2] == ("NONE", 0)


def test_the_first_unverified_batch_decides_on_the_version_of_the_transaction(
    producer: TransactionalProducer, topic: Topic
) -> None:
    assert producer.ask_produce(topic, version=9, sequence=5)[0] != "NONE"
    assert producer.ask_produce(topic, version=13, sequence=2, epoch_by=1)[0] != "NONE"
    assert producer.ask_produce(topic, version=13, sequence=1, transactional=False)[:2] == ("NONE", 0)


@pytest.mark.parametrize("version", VERIFIES)
def test_a_partition_must_have_been_added(producer: TransactionalProducer, topic: Topic, version: int) -> None:
    refused = (
        ("TRANSACTION_ABORTABLE", -1, None)
        if version >= 11
        else ("INVALID_TXN_STATE", -1, "Partition was not added to the transaction" if version >= 8 else None)
    )
    assert producer.ask_produce(topic, version=version) == refused
    producer.add(topic)
    assert producer.produce(topic, version=version) == 0
    assert producer.produce(topic, version=version) == 1
    producer.end(commit=True, version=4)
    assert producer.ask_produce(topic, version=version) == refused
    assert fetch_partitions(producer.wire, topic, 0)[0].last_stable_offset == 3


@pytest.mark.parametrize("version", VERIFIES + ADDS)
def test_wrong_producers_and_epochs_are_refused(producer: TransactionalProducer, topic: Topic, version: int) -> None:
    for fields, code in (
        ({"epoch_by": -1}, "INVALID_PRODUCER_EPOCH"),
        ({"epoch_by": 1}, "INVALID_PRODUCER_EPOCH"),
        ({"producer_id": producer.producer_id + 1000}, "INVALID_PRODUCER_ID_MAPPING"),
        ({"transactional_id": "never-seen"}, "INVALID_PRODUCER_ID_MAPPING"),
        ({"transactional_id": ""}, "INVALID_REQUEST"),
        ({"transactional_id": None}, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    ):
        for begun in (False, True):
            if begun and version < 12:
                producer.add(topic)
            assert producer.ask_produce(topic, version=version, **fields) == (code, -1, None)
    assert fetch_partitions(producer.wire, topic, 0)[0].high_watermark == 0


@pytest.mark.parametrize("version", ADDS)
def test_sequences_begin_with_each_transaction_of_version_2(
    producer: TransactionalProducer, topic: Topic, version: int
) -> None:
    assert producer.ask_produce(topic, version=version, sequence=5)[0] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    for commit in (True, False):
        assert retry_while_busy(lambda: producer.ask_produce(topic, version=version))[0] == "NONE"
        assert producer.ask_produce(topic, version=version, sequence=2)[0] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        producer.end(commit=commit)
        answer = retry_while_busy(lambda: producer.ask_produce(topic, version=version, sequence=1))
        assert answer[0] == "OUT_OF_ORDER_SEQUENCE_NUMBER"


@pytest.mark.parametrize("version", VERIFIES)
def test_sequences_go_on_in_version_1(producer: TransactionalProducer, topic: Topic, version: int) -> None:
    for commit in (True, False, True):
        producer.add(topic)
        producer.produce(topic, version=version, count=3)
        producer.end(commit=commit, version=4)
    assert producer.sequences[topic.name, 0] == 9


@pytest.mark.parametrize("version", VERIFIES + ADDS)
def test_a_batch_that_is_sent_again(producer: TransactionalProducer, topic: Topic, version: int) -> None:
    producer.add(topic)
    batches = [producer.batch(topic, sequence=at) for at in range(3)]
    for offset, batch in enumerate(batches):
        assert producer.ask_produce(topic, version=version, batch=batch) == ("NONE", offset, None)
    for offset, batch in enumerate(batches):
        assert producer.ask_produce(topic, version=version, batch=batch) == ("NONE", offset, None)
    assert fetch_partitions(producer.wire, topic, 0)[0].high_watermark == 3


@pytest.mark.parametrize("version", VERIFIES + ADDS)
def test_a_batch_that_is_too_late(producer: TransactionalProducer, topic: Topic, version: int) -> None:
    """The transaction is over when it comes. If it were accepted, no request would end the new transaction."""
    producer.add(topic)
    late = producer.batch(topic, sequence=1)
    producer.produce(topic, version=version)
    producer.end(commit=True, version=5 if version >= 12 else 4)
    answer = retry_while_busy(lambda: producer.ask_produce(topic, version=version, batch=late, epoch_by=0))
    if version >= 12:
        assert answer[0] == "INVALID_PRODUCER_EPOCH"
    else:
        assert answer[0] == ("TRANSACTION_ABORTABLE" if version >= 11 else "INVALID_TXN_STATE")
    (partition,) = fetch_partitions(producer.wire, topic, 0)
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)


@pytest.mark.parametrize("version", VERIFIES + ADDS)
def test_no_plain_batch_while_a_transaction_is_open(
    producer: TransactionalProducer, topic: Topic, version: int
) -> None:
    producer.add(topic)
    producer.produce(topic, version=version)
    for transactional_id in (producer.transactional_id, None):
        plain = producer.batch(topic, transactional=False)
        answer = producer.ask_produce(topic, version=version, batch=plain, transactional_id=transactional_id)
        assert answer[0] == "INVALID_TXN_STATE"


def ask(
    producer: TransactionalProducer, topic: Topic, version: int, batches: dict[int, bytes]
) -> dict[int, tuple[str, int, str | None]]:
    data = [PartitionProduceData(index=index, records=batch) for index, batch in batches.items()]
    row = TopicProduceData(partition_data=data)
    if version >= 13:
        row.topic_id = topic.id
    else:
        row.name = topic.name
    request = ProduceRequest(transactional_id=producer.transactional_id, acks=-1, timeout_ms=10_000, topic_data=[row])
    return {
        part.index: (name_of(part.error_code), part.base_offset, part.error_message)
        for response in producer.wire.send(request, version).responses
        for part in response.partition_responses
    }


@pytest.mark.parametrize("version", [11, *ADDS])
def test_several_partitions_in_one_request(
    producer: TransactionalProducer, make_topic: TopicFactory, version: int
) -> None:
    topic = make_topic(3)
    if version < 12:
        producer.add(topic, 0, 1)
    batches = {index: producer.batch(topic, index) for index in (0, 1, 9)}
    codes = {index: answer[0] for index, answer in ask(producer, topic, version, batches).items()}
    assert codes == {0: "NONE", 1: "NONE", 9: "UNKNOWN_TOPIC_OR_PARTITION"}
    assert producer.described().partitions == {(topic.name, 0), (topic.name, 1)}
    third = {index: producer.batch(topic, index, sequence=index == 0) for index in (0, 2)}
    codes = {index: answer[0] for index, answer in ask(producer, topic, version, third).items()}
    assert codes == {0: "NONE", 2: "NONE" if version >= 12 else "TRANSACTION_ABORTABLE"}


@pytest.mark.parametrize("version", [11, *ADDS])
def test_one_request_is_of_one_producer(
    producer: TransactionalProducer, make_topic: TopicFactory, version: int
) -> None:
    topic = make_topic(3)
    producer.add(topic, 0, 1)
    batches = {0: producer.batch(topic, 0), 1: producer.batch(topic, 1, producer_id=producer.producer_id + 7)}
    refused = ("INVALID_PRODUCER_ID_MAPPING", -1, "Transactional records contained more than one producer ID")
    assert ask(producer, topic, version, batches) == {0: refused, 1: refused}
    batches = {0: producer.batch(topic, 0), 1: producer.batch(topic, 1, producer_epoch=producer.epoch - 1)}
    batches |= {9: producer.batch(topic, 9), 2: producer.batch(topic, 2, transactional=False)}
    assert ask(producer, topic, version, batches) == dict.fromkeys((0, 1, 9, 2), refused)
    assert fetch_partitions(producer.wire, topic, 0)[0].high_watermark == 0


@pytest.mark.parametrize("version", ADDS)
def test_while_the_transaction_before_is_ending(
    producer: TransactionalProducer, make_topic: TopicFactory, version: int
) -> None:
    """The next transaction may begin at once; only the broker knows that it has to wait."""
    topic = make_topic(8)
    for _ in range(20):
        for index in range(8):
            producer.produce(topic, index, version=version)
        name, producer_id, epoch = producer.ask_end(commit=True)
        assert name == "NONE"
        producer.producer_id, producer.epoch = producer_id, epoch
        producer.sequences.clear()
    producer.end(commit=False)
    partitions = fetch_partitions(producer.wire, topic, *range(8))
    assert {(partition.high_watermark, partition.last_stable_offset) for partition in partitions} == {(40, 40)}


@pytest.mark.parametrize("version", [*VERIFIES, *ADDS])
def test_batches_outside_of_a_transaction_are_fenced_once_the_newer_epoch_has_written(
    producer: TransactionalProducer, topic: Topic, version: int
) -> None:
    """InitProducerId alone fences no producer: a partition learns of the epoch by a batch."""

    def ask(sequence: int, epoch_by: int = 0) -> tuple[str, int]:
        outside: dict[str, Any] = {"transactional": False, "transactional_id": None}
        return producer.ask_produce(topic, version=version, sequence=sequence, epoch_by=epoch_by, **outside)[:2]

    assert ask(0) == ("NONE", 0)
    assert ask(1) == ("NONE", 1)
    producer.begin_anew()
    assert ask(2, epoch_by=-1) == ("NONE", 2)
    assert ask(0) == ("NONE", 3)
    assert ask(3, epoch_by=-1)[0] == "INVALID_PRODUCER_EPOCH"
    assert ask(1) == ("NONE", 4)
