"""WriteTxnMarkers, over a socket: what coordinators send, and operators against a transaction that hangs."""

from typing import Any

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

from .conftest import Topic, TopicFactory, Wire, versions
from .members import new_group
from .transactions import TransactionalProducer, committed_offsets, fetch_partitions

API = WriteTxnMarkersRequest


@pytest.fixture
def producer(broker: Wire) -> TransactionalProducer:
    made = TransactionalProducer(broker)
    for _ in range(2):  # so that there are older epochs
        made.begin_anew()
    return made


def begin(producer: TransactionalProducer, topic: Topic, partition: int = 0, count: int = 1) -> None:
    """A batch of an open transaction, of version 1: Apache Kafka 3.9 is the judge of the oldest markers."""
    producer.add(topic, partition)
    producer.produce(topic, partition, count=count, version=11)


def write_marker(
    wire: Wire,
    version: int,
    producer_id: int,
    epoch: int,
    topics: dict[str, list[int]],
    *,
    commit: bool = False,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> dict[tuple[str, int], str]:
    """One marker: the error's name of each (topic, partition)."""
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        coordinator_epoch=coordinator_epoch,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=parts) for name, parts in topics.items()],
    )
    if version >= 2:
        marker.transaction_version = transaction_version
    (result,) = wire.send(WriteTxnMarkersRequest(markers=[marker]), version).markers
    assert result.producer_id == producer_id
    return {
        (topic.name, partition.partition_index): name_of(partition.error_code)
        for topic in result.topics
        for partition in topic.partitions
    }


def state_of(wire: Wire, topic: Topic, producer_id: int) -> tuple[Any, ...]:
    """Epoch, last sequence, coordinator epoch, start of the open transaction."""
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic.name, partition_indexes=[0])])
    states = wire.send(request, 0).topics[0].partitions[0].active_producers
    (state,) = (state for state in states if state.producer_id == producer_id)
    return state.producer_epoch, state.last_sequence, state.coordinator_epoch, state.current_txn_start_offset


@pytest.mark.parametrize("version", versions(API))
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_ends_the_transaction(
    producer: TransactionalProducer, topic: Topic, version: int, commit: bool
) -> None:
    begin(producer, topic, count=2)
    at = topic.name, 0
    epoch = producer.epoch
    assert state_of(producer.wire, topic, producer.producer_id) == (epoch, 1, -1, 0)
    answer = write_marker(producer.wire, version, producer.producer_id, epoch, {topic.name: [0]}, commit=commit)
    assert answer == {at: "NONE"}
    assert state_of(producer.wire, topic, producer.producer_id) == (epoch, 1, 0, -1)
    (partition,) = fetch_partitions(producer.wire, topic, 0)
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 3)
    aborted = [(transaction.producer_id, transaction.first_offset) for transaction in partition.aborted_transactions]
    assert aborted == ([] if commit else [(producer.producer_id, 0)])


@pytest.mark.parametrize("version", versions(API))
def test_partitions_that_are_not_there(broker: Wire, topic: Topic, version: int) -> None:
    answer = write_marker(broker, version, 87_654, 0, {topic.name: [0, 9], "no-such-topic": [0]})
    assert answer == {
        (topic.name, 0): "NONE",
        (topic.name, 9): "UNKNOWN_TOPIC_OR_PARTITION",
        ("no-such-topic", 0): "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert state_of(broker, topic, 87_654) == (0, -1, 0, -1)


@pytest.mark.parametrize("version", versions(API))
def test_epochs_of_producers(producer: TransactionalProducer, topic: Topic, version: int) -> None:
    begin(producer, topic)
    who, epoch, at = producer.producer_id, producer.epoch, (topic.name, 0)
    where = {topic.name: [0]}
    assert write_marker(producer.wire, version, who, epoch - 1, where) == {at: "INVALID_PRODUCER_EPOCH"}
    assert write_marker(producer.wire, version, who, epoch + 3, where) == {at: "NONE"}
    assert state_of(producer.wire, topic, who) == (epoch + 3, -1, 0, -1)
    assert write_marker(producer.wire, version, who, epoch, where) == {at: "INVALID_PRODUCER_EPOCH"}
    assert write_marker(producer.wire, version, who, epoch + 3, where) == {at: "NONE"}


@pytest.mark.parametrize("version", [version for version in versions(API) if version >= 2])
def test_a_marker_of_version_2_has_an_epoch_of_its_own(
    producer: TransactionalProducer, topic: Topic, version: int
) -> None:
    begin(producer, topic)
    who, epoch, at = producer.producer_id, producer.epoch, (topic.name, 0)
    for marker_epoch, code in ((epoch, "INVALID_PRODUCER_EPOCH"), (epoch + 1, "NONE"), (epoch + 1, "NONE")):
        answer = write_marker(producer.wire, version, who, marker_epoch, {topic.name: [0]}, transaction_version=2)
        assert answer == {at: code}
    assert fetch_partitions(producer.wire, topic, 0)[0].last_stable_offset == 3


@pytest.mark.parametrize("version", versions(API))
def test_epochs_of_coordinators(producer: TransactionalProducer, topic: Topic, version: int) -> None:
    begin(producer, topic)
    who, epoch, at = producer.producer_id, producer.epoch, (topic.name, 0)
    for coordinator_epoch, code in ((-1, "NONE"), (4, "NONE"), (3, "TRANSACTION_COORDINATOR_FENCED"), (4, "NONE")):
        answer = write_marker(
            producer.wire, version, who, epoch, {topic.name: [0]}, commit=True, coordinator_epoch=coordinator_epoch
        )
        assert answer == {at: code}


@pytest.mark.parametrize("version", versions(API))
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_count_or_are_forgotten(
    producer: TransactionalProducer, topic: Topic, version: int, commit: bool
) -> None:
    group_id = new_group(producer.wire)
    assert producer.ask_add_offsets(group_id) == "NONE"
    producer.commit_offsets(group_id, topic, {0: 5}, version=4)
    (place,) = producer.described().partitions
    assert committed_offsets(producer.wire, group_id, topic, 0, stable=True) == {0: "UNSTABLE_OFFSET_COMMIT"}
    where = {place[0]: [place[1]]}
    answer = write_marker(producer.wire, version, producer.producer_id, producer.epoch, where, commit=commit)
    assert answer == {place: "NONE"}
    assert committed_offsets(producer.wire, group_id, topic, 0, stable=True) == {0: 5 if commit else -1}


@pytest.mark.parametrize("version", versions(API))
def test_several_markers(broker: Wire, make_topic: TopicFactory, version: int) -> None:
    topic = make_topic(2)
    producers = [TransactionalProducer(broker) for _ in range(3)]
    for producer in producers:
        begin(producer, topic, 0)
        begin(producer, topic, 1)
    markers = [
        WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic.name, partition_indexes=[0, 1])],
        )
        for producer in producers
    ]
    answer = broker.send(WriteTxnMarkersRequest(markers=markers), version)
    assert sorted(marker.producer_id for marker in answer.markers) == sorted(
        producer.producer_id for producer in producers
    )
    codes = {part.error_code for marker in answer.markers for result in marker.topics for part in result.partitions}
    assert codes == {0}
    for partition in fetch_partitions(broker, topic, 0, 1):
        assert partition.last_stable_offset == 6
        aborted = sorted(
            (transaction.producer_id, transaction.first_offset) for transaction in partition.aborted_transactions
        )
        assert aborted == sorted((producer.producer_id, offset) for offset, producer in enumerate(producers))


@pytest.mark.parametrize("version", versions(API))
def test_no_markers(broker: Wire, version: int, ottla_only: None) -> None:
    """Kafka 4.4 answers no request without partitions, ever."""
    assert broker.send(WriteTxnMarkersRequest(markers=[]), version).markers == []
