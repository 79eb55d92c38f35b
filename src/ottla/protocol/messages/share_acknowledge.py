"""ShareAcknowledge: API 79, versions 0-2 (flexible from 0).

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


class AcknowledgePartition(Struct):
    partition_index: int = field(Int32)
    acknowledgement_batches: list[AcknowledgementBatch] = field(Array(AcknowledgementBatch))


class AcknowledgeTopic(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[AcknowledgePartition] = field(Array(AcknowledgePartition))


@message(api=79, versions="0-2", flexible="0+")
class ShareAcknowledgeRequest(Request["ShareAcknowledgeResponse"]):
    ELEMENTS = MOST_OF_CHANGES

    group_id: str | None = field(String, nullable="0+", default=None)
    member_id: str | None = field(String, nullable="0+")
    share_session_epoch: int = field(Int32)
    is_renew_ack: bool = field(Bool, versions="2+")
    topics: list[AcknowledgeTopic] = field(Array(AcknowledgeTopic))


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)


class PartitionData(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionData] = field(Array(PartitionData))


class NodeEndpoint(Struct):
    node_id: int = field(Int32)
    host: str = field(String)
    port: int = field(Int32)
    rack: str | None = field(String, nullable="0+", default=None)


@message(api=79, versions="0-2", flexible="0+")
class ShareAcknowledgeResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = field(Int32, versions="2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = field(Array(ShareAcknowledgeTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint))
