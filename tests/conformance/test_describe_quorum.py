"""DescribeQuorum, over a socket."""

import pytest

from ottla.protocol.errors import NONE, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.schema import ZERO_UUID

from .conftest import TopicFactory, Wire, versions

API = DescribeQuorumRequest
UNKNOWN = "This server does not host this topic-partition."


def quorum(*partitions: tuple[str, int]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[
            TopicData(topic_name=name, partitions=[PartitionData(partition_index=index)]) for name, index in partitions
        ]
    )


@pytest.mark.parametrize("version", versions(API))
def test_the_metadata_has_a_leader_and_voters(broker: Wire, make_topic: TopicFactory, version: int) -> None:
    node = broker.send(MetadataRequest(topics=[]), 12).brokers[0].node_id
    before = broker.send(quorum(("__cluster_metadata", 0)), version)
    assert (before.error_code, before.error_message) == (NONE, "")
    (topic,) = before.topics
    (partition,) = topic.partitions
    assert (topic.topic_name, partition.partition_index, partition.error_code) == ("__cluster_metadata", 0, NONE)
    assert (partition.error_message, partition.leader_id, partition.observers) == ("", node, [])
    assert partition.leader_epoch >= 1
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.replica_directory_id) == (node, ZERO_UUID)
    assert voter.log_end_offset >= partition.high_watermark > 0
    assert (
        (voter.last_fetch_timestamp, voter.last_caught_up_timestamp) == (-1, -1)
        if version == 0
        else (voter.last_fetch_timestamp >= voter.last_caught_up_timestamp > 1_600_000_000_000)
    )
    assert [row.node_id for row in before.nodes] == ([node] if version >= 2 else [])
    for row in before.nodes:
        (listener,) = row.listeners
        assert (listener.host, listener.port > 0) == (broker.address[0], True)
    make_topic()
    after = broker.send(quorum(("__cluster_metadata", 0)), version)
    assert after.topics[0].partitions[0].high_watermark > partition.high_watermark


@pytest.mark.parametrize("version", versions(API))
@pytest.mark.parametrize(
    "asked",
    [
        [("__cluster_metadata", 1)],
        [("t", 0)],
        [("__cluster_metadata", 0), ("__cluster_metadata", 0)],
        [("__cluster_metadata", 0), ("t", 0)],
    ],
)
def test_nothing_else_has_a_quorum(broker: Wire, version: int, asked: list[tuple[str, int]]) -> None:
    answer = broker.send(quorum(*asked), version)
    assert (answer.error_code, answer.nodes) == (NONE, [])
    partitions = [
        (topic.topic_name, partition.partition_index) for topic in answer.topics for partition in topic.partitions
    ]
    assert partitions == asked
    for topic in answer.topics:
        for partition in topic.partitions:
            assert partition.error_code == UNKNOWN_TOPIC_OR_PARTITION
            assert partition.error_message == (UNKNOWN if version >= 2 else "")
            assert (
                partition.leader_id,
                partition.leader_epoch,
                partition.high_watermark,
                partition.current_voters,
            ) == (0, 0, 0, [])


@pytest.mark.parametrize("version", versions(API))
def test_nothing_asked_nothing_answered(broker: Wire, version: int) -> None:
    assert broker.send(DescribeQuorumRequest(topics=[]), version).topics == []
    (topic,) = broker.send(DescribeQuorumRequest(topics=[TopicData(topic_name="__cluster_metadata")]), version).topics
    assert topic.partitions == []
