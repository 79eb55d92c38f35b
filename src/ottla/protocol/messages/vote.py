"""Vote: API 52, versions 0-2 (flexible from 0).

Versions by release: 0 in 2.7, 1 in 3.9, 2 in 4.0.
"""

from ottla.protocol.schema import (
    Array,
    Bool,
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
    replica_epoch: int = field(Int32)
    replica_id: int = field(Int32)
    replica_directory_id: bytes = field(Uuid, versions="1+", ignorable=True)
    voter_directory_id: bytes = field(Uuid, versions="1+", ignorable=True)
    last_offset_epoch: int = field(Int32)
    last_offset: int = field(Int64)
    pre_vote: bool = field(Bool, versions="2+")


class TopicData(Struct):
    topic_name: str = field(String)
    partitions: list[PartitionData] = field(Array(PartitionData))


@message(api=52, versions="0-2", flexible="0+")
class VoteRequest(Request["VoteResponse"]):
    cluster_id: str | None = field(String, nullable="0+", default=None)
    voter_id: int = field(Int32, versions="1+", default=-1, ignorable=True)
    topics: list[TopicData] = field(Array(TopicData))


class VoteResponsePartitionData(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)
    vote_granted: bool = field(Bool)


class VoteResponseTopicData(Struct):
    topic_name: str = field(String)
    partitions: list[VoteResponsePartitionData] = field(Array(VoteResponsePartitionData))


class NodeEndpoint(Struct):
    node_id: int = field(Int32, versions="1+")
    host: str = field(String, versions="1+")
    port: int = field(Uint16, versions="1+")


@message(api=52, versions="0-2", flexible="0+")
class VoteResponse(Response):
    error_code: int = field(Int16)
    topics: list[VoteResponseTopicData] = field(Array(VoteResponseTopicData))
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint), versions="1+", tag=0)
