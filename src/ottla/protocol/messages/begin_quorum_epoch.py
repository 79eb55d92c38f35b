"""BeginQuorumEpoch: API 53, versions 0-1 (flexible from 1).

Versions by release: 0 in 2.7, 1 in 3.9.
"""

from ottla.protocol.schema import Array, Int16, Int32, Request, Response, String, Struct, Uint16, Uuid, field, message


class PartitionData(Struct):
    partition_index: int = field(Int32)
    voter_directory_id: bytes = field(Uuid, versions="1+", ignorable=True)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)


class TopicData(Struct):
    topic_name: str = field(String)
    partitions: list[PartitionData] = field(Array(PartitionData))


class LeaderEndpoint(Struct):
    name: str = field(String, versions="1+")
    host: str = field(String, versions="1+")
    port: int = field(Uint16, versions="1+")


@message(api=53, versions="0-1", flexible="1+")
class BeginQuorumEpochRequest(Request["BeginQuorumEpochResponse"]):
    cluster_id: str | None = field(String, nullable="0+", default=None)
    voter_id: int = field(Int32, versions="1+", default=-1, ignorable=True)
    topics: list[TopicData] = field(Array(TopicData))
    leader_endpoints: list[LeaderEndpoint] = field(Array(LeaderEndpoint), versions="1+", ignorable=True)


class BeginQuorumEpochResponsePartitionData(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)


class BeginQuorumEpochResponseTopicData(Struct):
    topic_name: str = field(String)
    partitions: list[BeginQuorumEpochResponsePartitionData] = field(Array(BeginQuorumEpochResponsePartitionData))


class NodeEndpoint(Struct):
    node_id: int = field(Int32, versions="1+")
    host: str = field(String, versions="1+")
    port: int = field(Uint16, versions="1+")


@message(api=53, versions="0-1", flexible="1+")
class BeginQuorumEpochResponse(Response):
    error_code: int = field(Int16)
    topics: list[BeginQuorumEpochResponseTopicData] = field(Array(BeginQuorumEpochResponseTopicData))
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint), versions="1+", tag=0)
