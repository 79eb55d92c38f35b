"""OffsetForLeaderEpoch: API 23, versions 0-4 (flexible from 4).

Versions by release: 0 in 0.11.0, 1 in 2.0, 2 in 2.1, 3 in 2.3, 4 in 2.8.
"""

from ottla.protocol.schema import Array, Int16, Int32, Int64, Request, Response, String, Struct, field, message


class OffsetForLeaderPartition(Struct):
    partition: int = field(Int32)
    current_leader_epoch: int = field(Int32, versions="2+", default=-1, ignorable=True)
    leader_epoch: int = field(Int32)


class OffsetForLeaderTopic(Struct):
    topic: str = field(String)
    partitions: list[OffsetForLeaderPartition] = field(Array(OffsetForLeaderPartition), many=True)


@message(api=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"]):
    replica_id: int = field(Int32, versions="3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = field(Array(OffsetForLeaderTopic), many=True)


class EpochEndOffset(Struct):
    error_code: int = field(Int16)
    partition: int = field(Int32)
    leader_epoch: int = field(Int32, versions="1+", default=-1, ignorable=True)
    end_offset: int = field(Int64, default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = field(String)
    partitions: list[EpochEndOffset] = field(Array(EpochEndOffset))


@message(api=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochResponse(Response):
    throttle_time_ms: int = field(Int32, versions="2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = field(Array(OffsetForLeaderTopicResult))
