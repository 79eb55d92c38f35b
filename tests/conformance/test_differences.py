"""Deliberate differences from Apache Kafka that no test of a single API shows; docs/differences.md lists all of them."""

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.share_fetch import FetchPartition, FetchTopic
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.records.batch import build
from ottla.records.record import Record
from ottla.testing import EmbeddedBroker

from .conftest import Topic, TopicFactory, Wire
from .members import new_group
from .share_members import alter, share_group
from .shares import RELEASE, ShareMember, initialize
from .transactions import TransactionalProducer

API = AddPartitionsToTxnRequest
pytestmark = pytest.mark.usefixtures("ottla_only")
_TOPIC = 2
"""Resource type of topics in AlterConfigs."""


@pytest.mark.parametrize("version", [4, 5])
def test_add_partitions_without_transactions_is_answered(broker: Wire, version: int) -> None:
    """Apache Kafka 4.4 never answers this request."""
    answer = broker.send(AddPartitionsToTxnRequest(transactions=[]), version)
    assert (answer.error_code, answer.results_by_transaction) == (0, [])


@pytest.mark.parametrize("commit", [True, False])
def test_end_txn_is_answered_after_the_markers(broker: Wire, topic: Topic, commit: bool) -> None:
    """Apache Kafka answers before the markers are written, and CONCURRENT_TRANSACTIONS to the next request."""
    producer = TransactionalProducer(broker)
    for _ in range(3):
        assert producer.ask_add({topic.name: [0]}, 3) == {(topic.name, 0): "NONE"}
        producer.produce(topic, version=11)
        assert producer.ask_end(commit=commit, version=3)[0] == "NONE"
        assert producer.described().state == ("CompleteCommit" if commit else "CompleteAbort")


def test_a_marker_refused_for_a_newer_coordinator_counts_as_written(broker: Wire, topic: Topic) -> None:
    """Apache Kafka leaves the transaction in its Prepare state until the coordinator is restarted."""
    producer = TransactionalProducer(broker)
    producer.add(topic)
    producer.produce(topic, version=11)
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        coordinator_epoch=1000,
        topics=[WritableTxnMarkerTopic(name=topic.name, partition_indexes=[0])],
    )
    answer = broker.send(WriteTxnMarkersRequest(markers=[marker]), 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == 0
    assert producer.ask_end(commit=False, version=3)[0] == "NONE"
    assert producer.wait_until_complete() == "CompleteAbort"


def test_a_resource_twice_in_alter_configs_is_refused(broker: Wire, topic: Topic) -> None:
    """Apache Kafka 4.4 never answers this request."""
    configs = [AlterableConfig(name="retention.ms", value="99")]
    resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=topic.name, configs=configs)
    answer = broker.send(AlterConfigsRequest(resources=[resource, resource]), 2)
    assert [name_of(each.error_code) for each in answer.responses] == ["INVALID_REQUEST"] * 2


def test_a_created_topic_can_be_written_to_at_once(broker: Wire) -> None:
    """Apache Kafka answers CreateTopics before its brokers know the topic."""
    for _ in range(5):
        name = new_group(broker)
        created = CreatableTopic(name=name, num_partitions=3, replication_factor=1)
        answer = broker.send(CreateTopicsRequest(topics=[created], timeout_ms=10_000), 7).topics[0]
        assert name_of(answer.error_code) == "NONE"
        topic = Topic(broker, name, answer.topic_id)
        for partition in range(3):
            appended = topic.produce(build([Record(0, 0, None, b"v")]), partition=partition)
            assert (name_of(appended.error_code), appended.base_offset) == ("NONE", 0)


def test_the_first_share_fetch_brings_records_of_all_partitions(broker: Wire, make_topic: TopicFactory) -> None:
    """Apache Kafka answers with the partition whose state is loaded first."""
    topic, group = make_topic(3), share_group(broker)
    initialize(broker, group, topic, 0, 1, 2)
    for partition in range(3):
        topic.append(2, partition=partition)
    wanted = FetchTopic(topic_id=topic.id, partitions=[FetchPartition(partition_index=index) for index in range(3)])
    answer = ShareMember(broker, group).ask_fetch(wanted, max_wait_ms=5_000, min_bytes=1)
    acquired = {part.partition_index: len(part.acquired_records) for part in answer.responses[0].partitions}
    assert acquired == {0: 1, 1: 1, 2: 1}


def test_records_released_one_by_one_are_acquired_as_one_range(broker: Wire, topic: Topic) -> None:
    """Apache Kafka names each offset of a batch whose records were acknowledged one by one."""
    group = share_group(broker)
    initialize(broker, group, topic)
    topic.append(10)
    member = ShareMember(broker, group)
    member.take(topic, 10)
    assert member.acknowledge(topic, *((offset, offset, RELEASE) for offset in range(10))) == "NONE"
    assert member.take(topic, 10) == [(0, 9, 2)]


def test_a_share_group_altered_in_a_topic_without_partitions_can_be_deleted(
    broker: Wire, topic: Topic, make_topic: TopicFactory
) -> None:
    """Apache Kafka 4.4 can never delete such a group."""
    group = share_group(broker)
    alter(broker, group, [(make_topic().name, {}), (topic.name, {0: 0})])
    answer = broker.send(DeleteGroupsRequest(groups_names=[group]), 2)
    assert [name_of(each.error_code) for each in answer.results] == ["NONE"]


def test_clients_are_sent_the_address_that_they_connected_to() -> None:
    """Without advertised.listeners Apache Kafka sends the host of `listeners`, and refuses 0.0.0.0 there."""
    with EmbeddedBroker({"listeners": "PLAINTEXT://0.0.0.0:0"}) as own:
        _, port = own.address
        wire = Wire(("127.0.0.1", port), is_kafka=False)
        answer = wire.send(MetadataRequest(topics=[], allow_auto_topic_creation=False), 12)
        wire.close()
    assert [(node.host, node.port) for node in answer.brokers] == [("127.0.0.1", port)]
