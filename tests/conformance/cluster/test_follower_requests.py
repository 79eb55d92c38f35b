"""ListOffsets, OffsetForLeaderEpoch, Produce and DescribeProducers at replicas that do not lead, and the leader that their
answers name.
"""

from typing import Any

import pytest

from ottla.protocol.errors import NONE, name_of
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import build
from ottla.records.record import Record
from tests.conformance.conftest import Topic, Wire
from tests.conformance.shares import ACCEPT, ShareMember

from .conftest import Cluster, fetch, list_offset

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
BATCH = build([Record(0, 1, None, b"v")])


def end_of_epoch(
    wire: Wire, topic: Topic, epoch: int, *, replica: int = -1, current_epoch: int = -1
) -> tuple[str, int, int]:
    """Return (error, epoch, end offset)."""
    row = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current_epoch)
    place = OffsetForLeaderTopic(topic=topic.name, partitions=[row])
    answer = wire.send(OffsetForLeaderEpochRequest(replica_id=replica, topics=[place]), 4)
    (end,) = answer.topics[0].partitions
    return name_of(end.error_code), end.leader_epoch, end.end_offset


def test_list_offsets_at_a_follower(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2])
    topic.append(3)
    cluster.wait(lambda: list_offset(cluster[2], topic.name, LATEST, replica=-2) == (0, 3))
    for timestamp in (LATEST, EARLIEST, 1_700_000_000_001):
        for replica in (-1, 1, 2, 3):
            code, offset = list_offset(cluster[2], topic.name, timestamp, replica=replica)
            assert (name_of(code), offset) == ("NOT_LEADER_OR_FOLLOWER", -1), (timestamp, replica)
    assert list_offset(cluster[2], topic.name, EARLIEST, replica=-2) == (0, 0)
    assert list_offset(cluster[2], topic.name, 1_700_000_000_001, replica=-2) == (0, 1)
    for epoch, error in [(1, "UNKNOWN_LEADER_EPOCH"), (0, "NONE")]:
        code, _ = list_offset(cluster[2], topic.name, LATEST, replica=-2, epoch=epoch)
        assert name_of(code) == error
    code, _ = list_offset(cluster[2], topic.name, LATEST, epoch=1)
    assert name_of(code) == "UNKNOWN_LEADER_EPOCH"
    code, _ = list_offset(cluster[3], topic.name, LATEST, replica=-2)
    assert name_of(code) == "NOT_LEADER_OR_FOLLOWER"


def test_ends_of_epochs_at_a_follower(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2])
    topic.append(3)
    cluster.wait(lambda: list_offset(cluster[2], topic.name, LATEST, replica=-2) == (0, 3))
    for replica in (-1, -2, 1, 2):
        assert end_of_epoch(cluster[2], topic, 0, replica=replica) == ("NOT_LEADER_OR_FOLLOWER", -1, -1)
    assert end_of_epoch(cluster[2], topic, 0, replica=-2, current_epoch=1) == ("UNKNOWN_LEADER_EPOCH", -1, -1)
    assert end_of_epoch(cluster[3], topic, 0, replica=-2) == ("NOT_LEADER_OR_FOLLOWER", -1, -1)
    assert end_of_epoch(cluster[1], topic, 0, replica=2) == ("NONE", 0, 3)
    assert end_of_epoch(cluster[1], topic, 0, replica=-2) == ("NONE", 0, 3)


def produce(wire: Wire, topic: str, records: bytes, version: int) -> Any:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    return wire.send(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), version)


@pytest.mark.parametrize("at", [9, 10, 12])
def test_produce_at_a_follower(cluster: Cluster, at: int) -> None:
    topic = cluster.topic([1, 2])
    for node_id in (2, 3):
        answer = produce(cluster[node_id], topic.name, BATCH, at)
        (row,) = answer.responses[0].partition_responses
        assert name_of(row.error_code) == "NOT_LEADER_OR_FOLLOWER"
        leader = (row.current_leader.leader_id, row.current_leader.leader_epoch)
        endpoints = [(node.node_id, (node.host, node.port), node.rack) for node in answer.node_endpoints]
        if at >= 10:
            assert (leader, endpoints) == ((1, 0), [(1, cluster.addresses[1], "RACK1")])
        else:
            assert (leader, endpoints) == ((-1, -1), [])


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (b"", "INVALID_RECORD"),
        (BATCH * 2, "INVALID_RECORD"),
        (BATCH[:-1], "INVALID_RECORD"),
        (BATCH[:-1] + b"?", "NOT_LEADER_OR_FOLLOWER"),
    ],
    ids=["nothing", "two", "cut off", "damaged"],
)
def test_what_is_not_one_whole_batch_at_a_follower(cluster: Cluster, records: bytes, error: str) -> None:
    topic = cluster.topic([1, 2])
    for node_id in (2, 3):
        answer = produce(cluster[node_id], topic.name, records, 9)
        assert name_of(answer.responses[0].partition_responses[0].error_code) == error
        answer = produce(cluster[node_id], "no-such-topic", records, 9)
        assert name_of(answer.responses[0].partition_responses[0].error_code) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_batches_of_two_producers_of_which_one_is_for_another_leader(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2], [2, 1])
    batches = [
        build([Record(0, 1, None, b"v")], producer_id=at, producer_epoch=0, base_sequence=0, transactional=True)
        for at in (7_002, 7_003)
    ]
    rows = [PartitionProduceData(index=index, records=records) for index, records in enumerate(batches)]
    text = "Transactional records contained more than one producer ID"
    for name, is_refused in ((topic.name, True), ("no-such-topic", False)):
        places = [
            TopicProduceData(name=name, partition_data=rows[:1]),
            TopicProduceData(name=topic.name, partition_data=rows[1:]),
        ]
        request = ProduceRequest(transactional_id="two", acks=-1, timeout_ms=1000, topic_data=places)
        answer = cluster[2].send(request, 9)
        messages = [row.error_message for place in answer.responses for row in place.partition_responses]
        assert [message == text for message in messages] == [is_refused] * 2


def test_producers_at_a_follower(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2])
    batch = build([Record(0, 1_700_000_000_000, None, b"v")], producer_id=7_001, producer_epoch=0, base_sequence=0)
    assert topic.produce(batch).error_code == NONE

    def described(node_id: int) -> tuple[str, list[int]]:
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic.name, partition_indexes=[0])])
        (row,) = cluster[node_id].send(request, 0).topics[0].partitions
        return name_of(row.error_code), [producer.producer_id for producer in row.active_producers]

    assert described(1) == ("NONE", [7_001])
    cluster.wait(lambda: described(2) == ("NONE", [7_001]))
    assert described(3) == ("NOT_LEADER_OR_FOLLOWER", [])


def test_share_requests_at_a_follower(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2])
    member = ShareMember(cluster[2], "share-requests-at-a-follower")
    partition = member.fetch(topic, 0)[0]
    assert (partition.error, partition.acquired) == ("NOT_LEADER_OR_FOLLOWER", [])
    text = "This server does not host this topic-partition."
    assert member.acknowledged(topic, (0, 0, ACCEPT)) == ("UNKNOWN_TOPIC_OR_PARTITION", text)


def test_fetch_where_there_is_no_replica(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2])
    for epoch in (-1, 0, 1):
        row = fetch(cluster[3], topic, 0, current_leader_epoch=epoch)
        leader = (row.current_leader.leader_id, row.current_leader.leader_epoch)
        assert (name_of(row.error_code), leader) == ("NOT_LEADER_OR_FOLLOWER", (1, 0)), epoch


@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_produce_with_three_replicas(cluster: Cluster, acks: int) -> None:
    topic = cluster.topic([1, 2, 3])
    records = build([Record(0, 1_700_000_000_000, None, b"v")])
    if acks:
        answer = topic.produce(records, acks=acks)
        assert (name_of(answer.error_code), answer.base_offset) == ("NONE", 0)
    else:
        data = TopicProduceData(name=topic.name, partition_data=[PartitionProduceData(index=0, records=records)])
        request = ProduceRequest(acks=0, timeout_ms=1000, topic_data=[data])
        topic.wire.send_only(request, 9, expect_answer=False)
    if acks == -1:
        assert list_offset(cluster[1], topic.name, LATEST) == (0, 1)
    cluster.wait(lambda: list_offset(cluster[1], topic.name, LATEST) == (0, 1))
    for node_id in (2, 3):
        cluster.wait(lambda node_id=node_id: fetch(cluster[node_id], topic, 0).high_watermark == 1)  # type: ignore[misc]
