"""AddPartitionsToTxn, over a socket: as clients before transaction.version 2 send it, and as brokers ask each other."""

from typing import Any

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestAddPartitionsToTxnTopic,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

from .conftest import Topic, TopicFactory, Wire, versions
from .transactions import TransactionalProducer, retry_while_busy

API = AddPartitionsToTxnRequest
BY_CLIENTS = [version for version in versions(API) if version < 4]
BY_BROKERS = [version for version in versions(API) if version >= 4]


@pytest.fixture
def producer(broker: Wire) -> TransactionalProducer:
    return TransactionalProducer(broker)


@pytest.mark.parametrize("version", BY_CLIENTS)
def test_the_first_partition_begins_the_transaction_and_others_are_added(
    producer: TransactionalProducer, make_topic: TopicFactory, version: int
) -> None:
    topic = make_topic(3)
    assert producer.described().state == "Empty"
    assert producer.ask_add({topic.name: [0, 2]}, version) == {(topic.name, 0): "NONE", (topic.name, 2): "NONE"}
    begun = producer.described()
    assert (begun.state, begun.partitions) == ("Ongoing", {(topic.name, 0), (topic.name, 2)})
    assert begun.started_ms > 0
    for parts in ([0], [1, 1, 2]):
        assert set(producer.ask_add({topic.name: parts}, version).values()) == {"NONE"}
    again = producer.described()
    assert again.partitions == {(topic.name, index) for index in range(3)}
    assert (again.started_ms, again.epoch) == (begun.started_ms, producer.epoch)


@pytest.mark.parametrize("version", BY_CLIENTS)
def test_a_transaction_follows_another_one(producer: TransactionalProducer, topic: Topic, version: int) -> None:
    for commit in (True, False):
        assert retry_while_busy(lambda: producer.ask_add({topic.name: [0]}, version)) == {(topic.name, 0): "NONE"}
        producer.end(commit=commit, version=3)
    assert producer.described().state == "CompleteAbort"


@pytest.mark.parametrize("version", BY_CLIENTS)
def test_wrong_producers_and_epochs_are_refused(producer: TransactionalProducer, topic: Topic, version: int) -> None:
    fenced = "PRODUCER_FENCED" if version >= 2 else "INVALID_PRODUCER_EPOCH"
    for fields, code in (
        ({"producer_id": producer.producer_id + 1000}, "INVALID_PRODUCER_ID_MAPPING"),
        ({"transactional_id": "never-seen"}, "INVALID_PRODUCER_ID_MAPPING"),
        ({"transactional_id": ""}, "INVALID_REQUEST"),
        ({"epoch_by": -1}, fenced),
        ({"epoch_by": 1}, fenced),
    ):
        assert producer.ask_add({topic.name: [0]}, version, **fields) == {(topic.name, 0): code}
    assert producer.described().state == "Empty"


@pytest.mark.parametrize("version", BY_CLIENTS)
def test_of_a_list_with_an_unknown_partition_nothing_is_added(
    producer: TransactionalProducer, topic: Topic, version: int
) -> None:
    answer = producer.ask_add({topic.name: [0, 9, -1], "no-such-topic": [0], "__consumer_offsets": [0]}, version)
    assert answer == {
        (topic.name, 0): "OPERATION_NOT_ATTEMPTED",
        (topic.name, 9): "UNKNOWN_TOPIC_OR_PARTITION",
        (topic.name, -1): "UNKNOWN_TOPIC_OR_PARTITION",
        ("no-such-topic", 0): "UNKNOWN_TOPIC_OR_PARTITION",
        ("__consumer_offsets", 0): "TOPIC_AUTHORIZATION_FAILED",
    }
    assert producer.described().state == "Empty"
    assert producer.ask_add({}, version) == {}
    assert producer.ask_add({topic.name: []}, version) == {}


@pytest.mark.parametrize("version", versions(API))
def test_a_topic_without_partitions_has_no_row(producer: TransactionalProducer, topic: Topic, version: int) -> None:
    who: dict[str, Any] = {
        "transactional_id": producer.transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }
    if version < 4:
        topics = [AddPartitionsToTxnTopic(name=topic.name), AddPartitionsToTxnTopic(name="other", partitions=[0])]
        fields: dict[str, Any] = {f"v3_and_below_{name}": value for name, value in who.items()}
        answer = producer.wire.send(AddPartitionsToTxnRequest(v3_and_below_topics=topics, **fields), version)
        assert [row.name for row in answer.results_by_topic_v3_and_below] == ["other"]
        return
    asked = [
        AddPartitionsToTxnRequestAddPartitionsToTxnTopic(name=topic.name),
        AddPartitionsToTxnRequestAddPartitionsToTxnTopic(name="other", partitions=[0]),
    ]
    transaction = AddPartitionsToTxnTransaction(topics=asked, **who)
    answer = producer.wire.send(AddPartitionsToTxnRequest(transactions=[transaction]), version)
    (result,) = answer.results_by_transaction
    assert [row.name for row in result.topic_results] == ["other"]


def by_broker(
    producer: TransactionalProducer, version: int, topics: dict[str, list[int]], *, verify: bool, **fields: object
) -> dict[tuple[str, int], str]:
    """AddPartitionsToTxn as brokers send it, about one transaction."""
    who = {
        "transactional_id": producer.transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }
    asked = AddPartitionsToTxnTransaction(
        verify_only=verify,
        topics=[
            AddPartitionsToTxnRequestAddPartitionsToTxnTopic(name=name, partitions=parts)
            for name, parts in topics.items()
        ],
        **(who | fields),  # type: ignore[arg-type]
    )
    answer = producer.wire.send(AddPartitionsToTxnRequest(transactions=[asked]), version)
    assert answer.error_code == 0
    (result,) = answer.results_by_transaction
    assert result.transactional_id == asked.transactional_id
    return {
        (topic.name, partition.partition_index): name_of(partition.partition_error_code)
        for topic in result.topic_results
        for partition in topic.results_by_partition
    }


@pytest.mark.parametrize("version", BY_BROKERS)
def test_verification_adds_nothing(producer: TransactionalProducer, make_topic: TopicFactory, version: int) -> None:
    topic = make_topic(2)
    partitions = {topic.name: [0, 1]}
    missing = {(topic.name, 0): "TRANSACTION_ABORTABLE", (topic.name, 1): "TRANSACTION_ABORTABLE"}
    assert by_broker(producer, version, partitions, verify=True) == missing
    assert producer.described().state == "Empty"
    producer.add(topic, 1)
    assert by_broker(producer, version, partitions, verify=True) == missing | {(topic.name, 1): "NONE"}
    assert producer.described().partitions == {(topic.name, 1)}


@pytest.mark.parametrize("version", BY_BROKERS)
def test_a_broker_adds_for_clients_of_version_2(
    producer: TransactionalProducer, make_topic: TopicFactory, version: int
) -> None:
    topic = make_topic(2)
    assert by_broker(producer, version, {topic.name: [1]}, verify=False) == {(topic.name, 1): "NONE"}
    internal = {"__transaction_state": [0]}
    assert by_broker(producer, version, internal, verify=False) == {("__transaction_state", 0): "NONE"}
    assert producer.described().partitions == {(topic.name, 1), ("__transaction_state", 0)}
    assert by_broker(producer, version, {}, verify=False) == {}


@pytest.mark.parametrize("version", BY_BROKERS)
@pytest.mark.parametrize("verify", [True, False])
def test_what_brokers_are_refused(producer: TransactionalProducer, topic: Topic, version: int, verify: bool) -> None:
    for fields, code in (
        ({"producer_id": producer.producer_id + 1000}, "INVALID_PRODUCER_ID_MAPPING"),
        ({"transactional_id": "never-seen"}, "INVALID_PRODUCER_ID_MAPPING"),
        ({"transactional_id": ""}, "INVALID_REQUEST"),
        ({"producer_epoch": producer.epoch + 1}, "PRODUCER_FENCED"),
    ):
        assert by_broker(producer, version, {topic.name: [0]}, verify=verify, **fields) == {(topic.name, 0): code}
    answer = by_broker(producer, version, {topic.name: [0], "no-such-topic": [3]}, verify=verify)
    assert answer == {
        (topic.name, 0): "OPERATION_NOT_ATTEMPTED",
        ("no-such-topic", 3): "UNKNOWN_TOPIC_OR_PARTITION",
    }


@pytest.mark.parametrize("version", BY_BROKERS)
def test_several_transactions_in_one_request(broker: Wire, topic: Topic, version: int) -> None:
    producers = [TransactionalProducer(broker) for _ in range(3)]
    producers[1].add(topic)
    asked = [
        AddPartitionsToTxnTransaction(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=producer is not producers[2],
            topics=[AddPartitionsToTxnRequestAddPartitionsToTxnTopic(name=topic.name, partitions=[0])],
        )
        for producer in producers
    ]
    answer = broker.send(AddPartitionsToTxnRequest(transactions=asked), version)
    codes = {
        result.transactional_id: name_of(result.topic_results[0].results_by_partition[0].partition_error_code)
        for result in answer.results_by_transaction
    }
    expected = ["TRANSACTION_ABORTABLE", "NONE", "NONE"]
    assert codes == {producer.transactional_id: code for producer, code in zip(producers, expected, strict=True)}
