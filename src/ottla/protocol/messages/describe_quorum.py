"""DescribeQuorum: API 55, versions 0-2 (flexible from 0).

Versions by release: 0 in 2.7, 1 in 3.3, 2 in 3.9.
"""

from ottla.protocol.schema import (
    Array,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    String,
    Struct,
    Uint16,
    Uuid,
    field,
    message,
)


class PartitionData(Struct):
    partition_index: int = field(Int32)


class TopicData(Struct):
    topic_name: str = field(String)
    partitions: list[PartitionData] = field(Array(PartitionData))


@message(api=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest(Request["DescribeQuorumResponse"]):
    topics: list[TopicData] = field(Array(TopicData))


class ReplicaState(Struct):
    replica_id: int = field(Int32)
    replica_directory_id: bytes = field(Uuid, versions="2+")
    log_end_offset: int = field(Int64)
    last_fetch_timestamp: int = field(Int64, versions="1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = field(Int64, versions="1+", default=-1, ignorable=True)


class DescribeQuorumResponsePartitionData(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, versions="2+", nullable="2+", ignorable=True)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)
    high_watermark: int = field(Int64)
    current_voters: list[ReplicaState] = field(Array(ReplicaState))
    observers: list[ReplicaState] = field(Array(ReplicaState))


class DescribeQuorumResponseTopicData(Struct):
    topic_name: str = field(String)
    partitions: list[DescribeQuorumResponsePartitionData] = field(Array(DescribeQuorumResponsePartitionData))


class Listener(Struct):
    name: str = field(String, versions="2+")
    host: str = field(String, versions="2+")
    port: int = field(Uint16, versions="2+")


class Node(Struct):
    node_id: int = field(Int32, versions="2+")
    listeners: list[Listener] = field(Array(Listener), versions="2+")


@message(api=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse(Response):
    error_code: int = field(Int16)
    error_message: str | None = field(String, versions="2+", nullable="2+", ignorable=True)
    topics: list[DescribeQuorumResponseTopicData] = field(Array(DescribeQuorumResponseTopicData))
    nodes: list[Node] = field(Array(Node), versions="2+")
