"""AlterShareGroupOffsets: API 91, versions 0 (flexible from 0).

Versions by release: 0 in 4.1.
"""

from ottla.protocol.schema import Array, Int16, Int32, Int64, Request, Response, String, Struct, Uuid, field, message


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int = field(Int32)
    start_offset: int = field(Int64)


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = field(String)
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field(Array(AlterShareGroupOffsetsRequestPartition))


@message(api=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest(Request["AlterShareGroupOffsetsResponse"]):
    group_id: str = field(String)
    topics: list[AlterShareGroupOffsetsRequestTopic] = field(Array(AlterShareGroupOffsetsRequestTopic))


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = field(String)
    topic_id: bytes = field(Uuid)
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field(Array(AlterShareGroupOffsetsResponsePartition))


@message(api=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = field(Array(AlterShareGroupOffsetsResponseTopic))
