"""FetchSnapshot: API 59, versions 0-1 (flexible from 0).

Versions by release: 0 in 2.8, 1 in 3.9.
"""

from ottla.protocol.schema import (
    Array,
    Int16,
    Int32,
    Int64,
    Records,
    Request,
    Response,
    String,
    Struct,
    Uint16,
    Uuid,
    field,
    message,
)


class SnapshotId(Struct):
    end_offset: int = field(Int64)
    epoch: int = field(Int32)


class PartitionSnapshot(Struct):
    partition: int = field(Int32)
    current_leader_epoch: int = field(Int32)
    snapshot_id: SnapshotId = field(SnapshotId)
    position: int = field(Int64)
    replica_directory_id: bytes = field(Uuid, versions="1+", tag=0, ignorable=True)


class TopicSnapshot(Struct):
    name: str = field(String)
    partitions: list[PartitionSnapshot] = field(Array(PartitionSnapshot))


@message(api=59, versions="0-1", flexible="0+")
class FetchSnapshotRequest(Request["FetchSnapshotResponse"]):
    cluster_id: str | None = field(String, nullable="0+", tag=0, default=None)
    replica_id: int = field(Int32, default=-1)
    max_bytes: int = field(Int32, default=0x7FFFFFFF)
    topics: list[TopicSnapshot] = field(Array(TopicSnapshot))


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)


class FetchSnapshotResponsePartitionSnapshot(Struct):
    index: int = field(Int32)
    error_code: int = field(Int16)
    snapshot_id: SnapshotId = field(SnapshotId)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, tag=0)
    size: int = field(Int64)
    position: int = field(Int64)
    unaligned_records: bytes = field(Records)


class FetchSnapshotResponseTopicSnapshot(Struct):
    name: str = field(String)
    partitions: list[FetchSnapshotResponsePartitionSnapshot] = field(Array(FetchSnapshotResponsePartitionSnapshot))


class NodeEndpoint(Struct):
    node_id: int = field(Int32, versions="1+")
    host: str = field(String, versions="1+")
    port: int = field(Uint16, versions="1+")


@message(api=59, versions="0-1", flexible="0+")
class FetchSnapshotResponse(Response):
    throttle_time_ms: int = field(Int32, ignorable=True)
    error_code: int = field(Int16)
    topics: list[FetchSnapshotResponseTopicSnapshot] = field(Array(FetchSnapshotResponseTopicSnapshot))
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint), versions="1+", tag=0)
