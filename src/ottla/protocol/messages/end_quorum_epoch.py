"""EndQuorumEpoch: API 54, versions 0-1 (flexible from 1).

Versions by release: 0 in 2.7, 1 in 3.9.
"""

from ottla.protocol.schema import Array, Int16, Int32, Request, Response, String, Struct, Uint16, Uuid, field, message


class ReplicaInfo(Struct):
    candidate_id: int = field(Int32, versions="1+")
    candidate_directory_id: bytes = field(Uuid, versions="1+")


class PartitionData(Struct):
    partition_index: int = field(Int32)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)
    preferred_successors: list[int] = field(Array(Int32), versions="0", ignorable=True)
    preferred_candidates: list[ReplicaInfo] = field(Array(ReplicaInfo), versions="1+", ignorable=True)


class TopicData(Struct):
    topic_name: str = field(String)
    partitions: list[PartitionData] = field(Array(PartitionData))


class LeaderEndpoint(Struct):
    name: str = field(String, versions="1+")
    host: str = field(String, versions="1+")
    port: int = field(Uint16, versions="1+")


@message(api=54, versions="0-1", flexible="1+")
class EndQuorumEpochRequest(Request["EndQuorumEpochResponse"]):
    cluster_id: str | None = field(String, nullable="0+", default=None)
    topics: list[TopicData] = field(Array(TopicData))
    leader_endpoints: list[LeaderEndpoint] = field(Array(LeaderEndpoint), versions="1+", ignorable=True)


class EndQuorumEpochResponsePartitionData(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)


class EndQuorumEpochResponseTopicData(Struct):
    topic_name: str = field(String)
    partitions: list[EndQuorumEpochResponsePartitionData] = field(Array(EndQuorumEpochResponsePartitionData))


class NodeEndpoint(Struct):
    node_id: int = field(Int32, versions="1+")
    host: str = field(String, versions="1+")
    port: int = field(Uint16, versions="1+")


@message(api=54, versions="0-1", flexible="1+")
class EndQuorumEpochResponse(Response):
    error_code: int = field(Int16)
    topics: list[EndQuorumEpochResponseTopicData] = field(Array(EndQuorumEpochResponseTopicData))
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint), versions="1+", tag=0)
