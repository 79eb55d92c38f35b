"""DescribeShareGroupOffsets: API 90, versions 0-1 (flexible from 0).

Versions by release: 0 in 4.1, 1 in 4.2.
"""

from ottla.protocol.schema import Array, Int16, Int32, Int64, Request, Response, String, Struct, Uuid, field, message


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = field(String)
    partitions: list[int] = field(Array(Int32))


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = field(String)
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(
        Array(DescribeShareGroupOffsetsRequestTopic), nullable="0+"
    )


@message(api=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest(Request["DescribeShareGroupOffsetsResponse"]):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = field(Array(DescribeShareGroupOffsetsRequestGroup))


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = field(Int32)
    start_offset: int = field(Int64)
    leader_epoch: int = field(Int32)
    lag: int = field(Int64, versions="1+", default=-1, ignorable=True)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = field(String)
    topic_id: bytes = field(Uuid)
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field(
        Array(DescribeShareGroupOffsetsResponsePartition)
    )


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = field(String)
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field(Array(DescribeShareGroupOffsetsResponseTopic))
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)


@message(api=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse(Response):
    throttle_time_ms: int = field(Int32)
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field(Array(DescribeShareGroupOffsetsResponseGroup))
