"""Fetch: API 1, versions 0-18 (flexible from 12).

Versions by release: 0 in 0.8.0, 1 in 0.9.0, 2 in 0.10.0, 3 in 0.10.1, 4-5 in 0.11.0, 6 in 1.0, 7 in 1.1, 8 in
    2.0, 9-10 in 2.1, 11 in 2.3, 12 in 2.7, 13 in 3.1, 14-15 in 3.5, 16 in 3.7, 17 in 3.9, 18 in 4.1.
"""

from ottla.protocol.schema import (
    MOST_OF_CHANGES,
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    Piece,
    Records,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    field,
    message,
)


class ReplicaState(Struct):
    replica_id: int = field(Int32, versions="15+", default=-1)
    replica_epoch: int = field(Int64, versions="15+", default=-1)


class FetchPartition(Struct):
    partition: int = field(Int32)
    current_leader_epoch: int = field(Int32, versions="9+", default=-1, ignorable=True)
    fetch_offset: int = field(Int64)
    last_fetched_epoch: int = field(Int32, versions="12+", default=-1)
    log_start_offset: int = field(Int64, versions="5+", default=-1, ignorable=True)
    partition_max_bytes: int = field(Int32)
    replica_directory_id: bytes = field(Uuid, versions="17+", tag=0, ignorable=True)
    high_watermark: int = field(Int64, versions="18+", tag=1, default=9223372036854775807, ignorable=True)


class FetchTopic(Struct):
    topic: str = field(String, versions="0-12", ignorable=True)
    topic_id: bytes = field(Uuid, versions="13+", ignorable=True)
    partitions: list[FetchPartition] = field(Array(FetchPartition))


class ForgottenTopic(Struct):
    topic: str = field(String, versions="7-12", ignorable=True)
    topic_id: bytes = field(Uuid, versions="13+", ignorable=True)
    partitions: list[int] = field(Array(Int32), versions="7+")


@message(api=1, versions="0-18", flexible="12+")
class FetchRequest(Request["FetchResponse"]):
    ELEMENTS = MOST_OF_CHANGES  # a partition of 16 bytes takes 420 of memory until it is answered

    cluster_id: str | None = field(String, versions="12+", nullable="12+", tag=0, default=None, ignorable=True)
    replica_id: int = field(Int32, versions="0-14", default=-1)
    replica_state: ReplicaState = field(ReplicaState, versions="15+", tag=1)
    max_wait_ms: int = field(Int32)
    min_bytes: int = field(Int32)
    max_bytes: int = field(Int32, versions="3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = field(Int8, versions="4+", ignorable=True)
    session_id: int = field(Int32, versions="7+", ignorable=True)
    session_epoch: int = field(Int32, versions="7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = field(Array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(Array(ForgottenTopic), versions="7+")
    rack_id: str = field(String, versions="11+", ignorable=True)


class EpochEndOffset(Struct):
    epoch: int = field(Int32, versions="12+", default=-1)
    end_offset: int = field(Int64, versions="12+", default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(Int32, versions="12+", default=-1)
    leader_epoch: int = field(Int32, versions="12+", default=-1)


class SnapshotId(Struct):
    end_offset: int = field(Int64, versions="12+", default=-1)
    epoch: int = field(Int32, versions="12+", default=-1)


class AbortedTransaction(Struct):
    producer_id: int = field(Int64, versions="4+")
    first_offset: int = field(Int64, versions="4+")


class PartitionData(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    high_watermark: int = field(Int64)
    last_stable_offset: int = field(Int64, versions="4+", default=-1, ignorable=True)
    log_start_offset: int = field(Int64, versions="5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = field(EpochEndOffset, versions="12+", tag=0)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, versions="12+", tag=1)
    snapshot_id: SnapshotId = field(SnapshotId, versions="12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field(
        Array(AbortedTransaction), versions="4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = field(Int32, versions="11+", default=-1)
    records: Piece | None = field(Records, nullable="0+")


class FetchableTopicResponse(Struct):
    topic: str = field(String, versions="0-12", ignorable=True)
    topic_id: bytes = field(Uuid, versions="13+", ignorable=True)
    partitions: list[PartitionData] = field(Array(PartitionData))


class NodeEndpoint(Struct):
    node_id: int = field(Int32, versions="16+")
    host: str = field(String, versions="16+")
    port: int = field(Int32, versions="16+")
    rack: str | None = field(String, versions="16+", nullable="16+", default=None)


@message(api=1, versions="0-18", flexible="12+")
class FetchResponse(Response):
    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True)
    error_code: int = field(Int16, versions="7+", ignorable=True)
    session_id: int = field(Int32, versions="7+")
    responses: list[FetchableTopicResponse] = field(Array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint), versions="16+", tag=0)
