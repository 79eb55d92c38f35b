"""Requests that only brokers should send, from a client of a broker without an authorizer: served, as in Apache Kafka.

docs/security.md lists them. With an authorizer they need ClusterAction (`authorization/test_rights.py`);
`cluster/test_follower_requests.py` compares what a client does that calls itself a follower in a cluster.
"""

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from .conftest import Topic, Wire
from .share_members import initialize, read, share_group
from .test_write_txn_markers import write_marker

API = FetchRequest
NODE = 1


def fetch_as(broker: Wire, topic: Topic, replica: int, version: int) -> tuple[str, int]:
    """Return the error and the size of the records of a fetch from offset 0."""
    row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    place = FetchTopic(topic_id=topic.id) if version >= 13 else FetchTopic(topic=topic.name)
    place.partitions = [row]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[place])
    if version >= 15:
        request.replica_state = ReplicaState(replica_id=replica, replica_epoch=-1)
    else:
        request.replica_id = replica
    response = broker.send(request, version)
    partition = response.responses[0].partitions[0]
    return name_of(partition.error_code), len(partition.records or b"")


@pytest.mark.parametrize("version", [12, 17])
@pytest.mark.parametrize("replica", [NODE, 2, 4711])
def test_fetch_as_a_follower(broker: Wire, topic: Topic, replica: int, version: int) -> None:
    """A client that names a broker without a replica gets no records, and moves no high watermark."""
    topic.append(3)
    assert fetch_as(broker, topic, replica, version) == ("NOT_LEADER_OR_FOLLOWER", 0)
    assert topic.append(1) == 3


@pytest.mark.parametrize("replica", [NODE, 2])
def test_offsets_as_a_follower(broker: Wire, topic: Topic, replica: int) -> None:
    topic.append(3)
    row = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=replica, topics=[ListOffsetsTopic(name=topic.name, partitions=[row])])
    (result,) = broker.send(request, 5).topics[0].partitions
    assert (name_of(result.error_code), result.offset) == ("NONE", 3)
    place = OffsetForLeaderTopic(topic=topic.name, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
    (end,) = broker.send(OffsetForLeaderEpochRequest(replica_id=replica, topics=[place]), 4).topics[0].partitions
    assert (name_of(end.error_code), end.end_offset) == ("NONE", 3)


def test_markers(broker: Wire, topic: Topic) -> None:
    topic.append(3)
    assert write_marker(broker, 1, 4711, 0, {topic.name: [0]}) == {(topic.name, 0): "NONE"}
    assert topic.append(1) == 4  # the marker is in the log


def test_state_of_share_groups(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    initialize(broker, group_id, topic.id)
    assert read(broker, group_id, topic.id).error == "NONE"
