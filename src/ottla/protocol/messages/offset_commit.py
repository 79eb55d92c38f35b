"""OffsetCommit: API 8, versions 0-10 (flexible from 8).

Versions by release: 0 in 0.8.1, 1 in 0.8.2, 2 in 0.9.0, 3 in 0.11.0, 4 in 2.0, 5-6 in 2.1, 7 in 2.3, 8 in
    2.4, 9 in 3.6, 10 in 4.1.
"""

from ottla.protocol.schema import Array, Int16, Int32, Int64, Request, Response, String, Struct, Uuid, field, message


class OffsetCommitRequestPartition(Struct):
    partition_index: int = field(Int32)
    committed_offset: int = field(Int64)
    commit_timestamp: int = field(Int64, versions="1", default=-1)
    committed_leader_epoch: int = field(Int32, versions="6+", default=-1, ignorable=True)
    committed_metadata: str | None = field(String, nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = field(String, versions="0-9", ignorable=True)
    topic_id: bytes = field(Uuid, versions="10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field(Array(OffsetCommitRequestPartition), many=True)


@message(api=8, versions="0-10", flexible="8+")
class OffsetCommitRequest(Request["OffsetCommitResponse"]):
    group_id: str = field(String)
    generation_id_or_member_epoch: int = field(Int32, versions="1+", default=-1, ignorable=True)
    member_id: str = field(String, versions="1+", ignorable=True)
    retention_time_ms: int = field(Int64, versions="2-4", default=-1, ignorable=True)
    group_instance_id: str | None = field(String, versions="7+", nullable="7+", default=None)
    topics: list[OffsetCommitRequestTopic] = field(Array(OffsetCommitRequestTopic), many=True)


class OffsetCommitResponsePartition(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class OffsetCommitResponseTopic(Struct):
    name: str = field(String, versions="0-9", ignorable=True)
    topic_id: bytes = field(Uuid, versions="10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field(Array(OffsetCommitResponsePartition))


@message(api=8, versions="0-10", flexible="8+")
class OffsetCommitResponse(Response):
    throttle_time_ms: int = field(Int32, versions="3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field(Array(OffsetCommitResponseTopic))
