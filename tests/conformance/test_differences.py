"""Deliberate differences from Apache Kafka that no test of a single API shows; docs/differences.md lists all of them."""

import pytest

from ottla.protocol.errors import NONE, name_of
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.share_fetch import FetchPartition as SharePartition
from ottla.protocol.messages.share_fetch import FetchTopic as ShareTopic
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.records.batch import build
from ottla.records.record import Record
from ottla.testing import EmbeddedBroker

from .conftest import Topic, TopicFactory, Wire
from .consumers import Consumer, described_consumers
from .members import join_request, new_group
from .share_members import alter, share_group
from .shares import ACCEPT, RELEASE, ShareMember, initialize
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
    assert [name_of(row.error_code) for row in answer.responses] == ["INVALID_REQUEST"] * 2


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
    fetch_topic = ShareTopic(
        topic_id=topic.id, partitions=[SharePartition(partition_index=index) for index in range(3)]
    )
    answer = ShareMember(broker, group).ask_fetch(fetch_topic, max_wait_ms=5_000, min_bytes=1)
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


def test_a_share_fetch_passes_over_deleted_records(broker: Wire, topic: Topic) -> None:
    """Apache Kafka returns nothing, and the records behind them to the next fetch."""
    group = share_group(broker)
    initialize(broker, group, topic)
    member = ShareMember(broker, group)
    assert member.fetch(topic, max_wait_ms=1_000, min_bytes=1)[0].acquired == []  # the state is loaded
    topic.append(5)
    cut = DeleteRecordsTopic(name=topic.name, partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
    (answer,) = broker.send(DeleteRecordsRequest(topics=[cut], timeout_ms=10_000), 2).topics
    assert name_of(answer.partitions[0].error_code) == "NONE"
    assert member.fetch(topic, max_wait_ms=1_000, min_bytes=1)[0].acquired == [(2, 4, 1)]


def test_an_acknowledgement_from_below_the_start_to_what_was_never_given(broker: Wire, topic: Topic) -> None:
    """Apache Kafka fails with UNKNOWN_SERVER_ERROR, also for the other partitions, if nothing is acquired."""
    group = share_group(broker)
    initialize(broker, group, topic)
    topic.append(1)
    member = ShareMember(broker, group)
    member.take(topic, 1)
    assert member.acknowledge(topic, (0, 0, ACCEPT)) == "NONE"
    text = "Batch record not found. The first offset in request is past acquired records."
    assert member.acknowledged(topic, (0, 1, ACCEPT)) == ("INVALID_REQUEST", text)


def test_a_share_group_altered_in_a_topic_without_partitions_can_be_deleted(
    broker: Wire, topic: Topic, make_topic: TopicFactory
) -> None:
    """Apache Kafka 4.4 can never delete such a group."""
    group = share_group(broker)
    alter(broker, group, [(make_topic().name, {}), (topic.name, {0: 0})])
    answer = broker.send(DeleteGroupsRequest(groups_names=[group]), 2)
    assert [name_of(result.error_code) for result in answer.results] == ["NONE"]


def test_clients_are_sent_the_address_that_they_connected_to() -> None:
    """Without advertised.listeners Apache Kafka sends the host of `listeners`, and refuses 0.0.0.0 there."""
    with EmbeddedBroker({"listeners": "PLAINTEXT://0.0.0.0:0"}) as own:
        _, port = own.address
        wire = Wire(("127.0.0.1", port), is_kafka=False)
        answer = wire.send(MetadataRequest(topics=[], allow_auto_topic_creation=False), 12)
        wire.close()
    assert [(node.host, node.port) for node in answer.brokers] == [("127.0.0.1", port)]


def test_a_batch_of_an_unknown_magic_fails_alone(broker: Wire, make_topic: TopicFactory) -> None:
    """Apache Kafka refuses all partitions of the request with CORRUPT_MESSAGE."""
    topic, batch = make_topic(2), build([Record(0, 1_700_000_000_000, None, b"v")])
    data = [
        PartitionProduceData(index=0, records=batch),
        PartitionProduceData(index=1, records=batch[:16] + b"\x03" + batch[17:]),
    ]
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic.name, partition_data=data)]
    )
    rows = broker.send(request, 9).responses[0].partition_responses
    assert [name_of(row.error_code) for row in rows] == ["NONE", "CORRUPT_MESSAGE"]


def test_the_zero_id_in_a_fetch_fails_alone(topic: Topic) -> None:
    """Apache Kafka answers UNKNOWN_SERVER_ERROR to the request."""
    topic.append(1)
    topics = [
        FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
        for topic_id in (topic.id, bytes(16))
    ]
    answer = topic.wire.send(FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics), 13)
    codes = {row.topic_id: name_of(row.partitions[0].error_code) for row in answer.responses}
    assert codes == {topic.id: "NONE", bytes(16): "UNKNOWN_TOPIC_ID"}


def test_offset_fetch_with_an_epoch_and_no_member(broker: Wire, topic: Topic) -> None:
    """Apache Kafka answers UNKNOWN_SERVER_ERROR for the group."""
    consumer = Consumer(broker, new_group(broker))
    consumer.join(topic.name)
    group = OffsetFetchRequestGroup(group_id=consumer.group_id, member_id=None, member_epoch=1, topics=None)
    (row,) = broker.send(OffsetFetchRequest(groups=[group]), 9).groups
    assert name_of(row.error_code) == "UNKNOWN_MEMBER_ID"


def test_a_refused_join_keeps_an_empty_consumer_group(broker: Wire, topic: Topic) -> None:
    """Apache Kafka forgets the group until its coordinator is restarted."""
    consumer = Consumer(broker, new_group(broker))
    consumer.join(topic.name)
    consumer.leave()
    refused = broker.send(join_request(consumer.group_id, 9, member_id="unknown"), 9)
    assert name_of(refused.error_code) == "UNKNOWN_MEMBER_ID"
    described = described_consumers(broker, consumer.group_id)
    assert (described.error_code, described.group_state) == (0, "Empty")


@pytest.mark.parametrize("version", [0, 1])
def test_a_streams_member_needs_no_process_id(broker: Wire, topic: Topic, version: int) -> None:
    """Apache Kafka answers UNKNOWN_SERVER_ERROR."""
    request = StreamsGroupHeartbeatRequest(
        group_id=new_group(broker),
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        topology=Topology(epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic.name])]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    assert name_of(broker.send(request, version).error_code) == "NONE"


def test_acl_requests_with_unknown_operations_are_answered_without_an_authorizer(broker: Wire) -> None:
    """Apache Kafka closes the connection."""
    request = DescribeAclsRequest(resource_type_filter=2, pattern_type_filter=3, operation=0, permission_type=0)
    assert name_of(broker.send(request, 3).error_code) == "SECURITY_DISABLED"


def test_a_commit_that_is_refused_makes_no_group(broker: Wire, topic: Topic) -> None:
    """Apache Kafka has an empty group from then on."""
    group_id = new_group(broker)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="m" * 4097)
    topics = [OffsetCommitRequestTopic(name=topic.name, partitions=[partition])]
    request = OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=-1, topics=topics)
    assert name_of(broker.send(request, 8).topics[0].partitions[0].error_code) == "OFFSET_METADATA_TOO_LARGE"
    (group,) = broker.send(DescribeGroupsRequest(groups=[group_id]), 6).groups
    assert (name_of(group.error_code), group.group_state) == ("GROUP_ID_NOT_FOUND", "Dead")


def test_numbers_of_threads_change_by_any_factor() -> None:
    """Apache Kafka allows twice as many at most, and half as many at least."""
    with EmbeddedBroker({"node.id": "1"}) as own:
        wire = Wire(own.address, is_kafka=False)
        config = AlterableConfig(name="background.threads", value="100")
        resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
        (answer,) = wire.send(AlterConfigsRequest(resources=[resource]), 2).responses
        wire.close()
    assert name_of(answer.error_code) == "NONE"


def test_transactions_of_version_2_are_served_at_a_lower_level() -> None:
    """Apache Kafka answers UNSUPPORTED_VERSION at level 0, whose records cannot tell of them; no client sends them then."""
    with EmbeddedBroker() as own:
        wire = Wire(own.address, is_kafka=False)
        update = FeatureUpdateKey(feature="transaction.version", max_version_level=0, upgrade_type=2)
        assert wire.send(UpdateFeaturesRequest(feature_updates=[update]), 2).error_code == NONE
        created = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        (row,) = wire.send(CreateTopicsRequest(topics=[created], timeout_ms=10_000), 7).topics
        producer = TransactionalProducer(wire)
        assert producer.produce(Topic(wire, "t", row.topic_id), version=12) == 0
        producer.end(commit=True, version=5)
        assert producer.described().state == "CompleteCommit"
        wire.close()
