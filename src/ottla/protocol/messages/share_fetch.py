"""ShareFetch: API 78, versions 0-2 (flexible from 0).

Versions by release: 0 in 3.9, 1 in 4.1, 2 in 4.2.
"""

from ottla.protocol.schema import (
    MOST_OF_CHANGES,
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    field,
    message,
)


class AcknowledgementBatch(Struct):
    first_offset: int = field(Int64)
    last_offset: int = field(Int64)
    acknowledge_types: list[int] = field(Array(Int8))


class FetchPartition(Struct):
    partition_index: int = field(Int32)
    partition_max_bytes: int = field(Int32, versions="0")
    acknowledgement_batches: list[AcknowledgementBatch] = field(Array(AcknowledgementBatch))


class FetchTopic(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[FetchPartition] = field(Array(FetchPartition))


class ForgottenTopic(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[int] = field(Array(Int32))


@message(api=78, versions="0-2", flexible="0+")
class ShareFetchRequest(Request["ShareFetchResponse"]):
    ELEMENTS = MOST_OF_CHANGES

    group_id: str | None = field(String, nullable="0+", default=None)
    member_id: str | None = field(String, nullable="0+")
    share_session_epoch: int = field(Int32)
    max_wait_ms: int = field(Int32)
    min_bytes: int = field(Int32)
    max_bytes: int = field(Int32, default=0x7FFFFFFF)
    max_records: int = field(Int32, versions="1+")
    batch_size: int = field(Int32, versions="1+")
    share_acquire_mode: int = field(Int8, versions="2+", ignorable=True)
    is_renew_ack: bool = field(Bool, versions="2+")
    topics: list[FetchTopic] = field(Array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(Array(ForgottenTopic))


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)


class AcquiredRecords(Struct):
    first_offset: int = field(Int64)
    last_offset: int = field(Int64)
    delivery_count: int = field(Int16)


class PartitionData(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    acknowledge_error_code: int = field(Int16)
    acknowledge_error_message: str | None = field(String, nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch)
    records: bytes | None = field(Records, nullable="0")
    acquired_records: list[AcquiredRecords] = field(Array(AcquiredRecords))


class ShareFetchableTopicResponse(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionData] = field(Array(PartitionData))


class NodeEndpoint(Struct):
    node_id: int = field(Int32)
    host: str = field(String)
    port: int = field(Int32)
    rack: str | None = field(String, nullable="0+", default=None)


@message(api=78, versions="0-2", flexible="0+")
class ShareFetchResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = field(Int32, versions="1+")
    responses: list[ShareFetchableTopicResponse] = field(Array(ShareFetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint))
