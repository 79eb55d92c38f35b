"""TxnOffsetCommit: API 28, versions 0-6 (flexible from 3).

Versions by release: 0 in 0.11.0, 1 in 2.0, 2 in 2.1, 3 in 2.5, 4 in 3.8, 5 in 4.0, 6 in 4.4.
"""

from ottla.protocol.schema import Array, Int16, Int32, Int64, Request, Response, String, Struct, Uuid, field, message


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = field(Int32)
    committed_offset: int = field(Int64)
    committed_leader_epoch: int = field(Int32, versions="2+", default=-1, ignorable=True)
    committed_metadata: str | None = field(String, nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    name: str = field(String, versions="0-5", ignorable=True)
    topic_id: bytes = field(Uuid, versions="6+", ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = field(Array(TxnOffsetCommitRequestPartition), many=True)


@message(api=28, versions="0-6", flexible="3+")
class TxnOffsetCommitRequest(Request["TxnOffsetCommitResponse"]):
    transactional_id: str = field(String)
    group_id: str = field(String)
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    generation_id_or_member_epoch: int = field(Int32, versions="3+", default=-1)
    member_id: str = field(String, versions="3+")
    group_instance_id: str | None = field(String, versions="3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field(Array(TxnOffsetCommitRequestTopic), many=True)


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class TxnOffsetCommitResponseTopic(Struct):
    name: str = field(String, versions="0-5", ignorable=True)
    topic_id: bytes = field(Uuid, versions="6+", ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = field(Array(TxnOffsetCommitResponsePartition))


@message(api=28, versions="0-6", flexible="3+")
class TxnOffsetCommitResponse(Response):
    throttle_time_ms: int = field(Int32)
    topics: list[TxnOffsetCommitResponseTopic] = field(Array(TxnOffsetCommitResponseTopic))
