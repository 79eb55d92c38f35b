"""Offsets at a leader that does not know yet what is committed (KIP-207)."""

import pytest

from ottla.protocol.errors import NONE, name_of
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.records.batch import build
from ottla.records.record import Record
from tests.conformance.conftest import Topic

from .conftest import Cluster, list_offset, partition_of

LATEST, EARLIEST = -1, -2
AFTER_ALL = 1_800_000_000_000
BATCH = build([Record(0, 1_700_000_000_000, None, b"v")])


def led_by_2(cluster: Cluster, topic: Topic) -> bool:
    """Elect the first replica, and return True if broker 2 says that it leads."""
    row = TopicPartitions(topic=topic.name, partitions=[0])
    cluster[1].send(ElectLeadersRequest(topic_partitions=[row], timeout_ms=10_000), 2)
    described = cluster.described(topic.name, 2)
    return bool(described.error_code == NONE and partition_of(described, 0).leader_id == 2)


def at_2(cluster: Cluster, topic: Topic, timestamp: int, version: int = 7, isolation_level: int = 0) -> tuple[str, int]:
    """Return the error and offset of a timestamp at broker 2."""
    row = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    place = ListOffsetsTopic(name=topic.name, partitions=[row])
    request = ListOffsetsRequest(replica_id=-1, topics=[place], isolation_level=isolation_level)
    (answer,) = cluster[2].send(request, version).topics[0].partitions
    return name_of(answer.error_code), answer.offset


@pytest.mark.api(request=ListOffsetsRequest)
def test_offsets_at_a_leader_that_does_not_know_what_is_committed(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2, 3])
    assert topic.produce(BATCH).error_code == NONE
    placed = ReassignablePartition(partition_index=0, replicas=[2, 1, 3])
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic.name, partitions=[placed])])
    assert cluster[1].send(request, 0).error_code == NONE
    cluster.wait(lambda: list_offset(cluster[2], topic.name, LATEST, replica=-2) == (NONE, 1))
    with cluster.frozen(3):
        assert topic.produce(BATCH, acks=1).error_code == NONE
        cluster.wait(lambda: list_offset(cluster[2], topic.name, LATEST, replica=-2) == (NONE, 2))
        cluster.wait(lambda: led_by_2(cluster, topic))
        assert at_2(cluster, topic, EARLIEST) == ("NONE", 0)
        for timestamp in (LATEST, AFTER_ALL):
            for isolation_level in (0, 1):
                assert at_2(cluster, topic, timestamp, 5, isolation_level) == ("OFFSET_NOT_AVAILABLE", -1)
                assert at_2(cluster, topic, timestamp, 4, isolation_level) == ("LEADER_NOT_AVAILABLE", -1)
    cluster.wait(lambda: at_2(cluster, topic, LATEST) == ("NONE", 2))
    assert at_2(cluster, topic, AFTER_ALL) == ("NONE", -1)
