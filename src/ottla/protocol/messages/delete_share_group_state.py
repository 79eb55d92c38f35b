"""DeleteShareGroupState: API 86, versions 0 (flexible from 0).

Versions by release: 0 in 3.9.
"""

from ottla.protocol.schema import Array, Int16, Int32, Request, Response, String, Struct, Uuid, field, message


class PartitionData(Struct):
    partition: int = field(Int32)


class DeleteStateData(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionData] = field(Array(PartitionData))


@message(api=86, versions="0", flexible="0+")
class DeleteShareGroupStateRequest(Request["DeleteShareGroupStateResponse"]):
    group_id: str = field(String)
    topics: list[DeleteStateData] = field(Array(DeleteStateData))


class PartitionResult(Struct):
    partition: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)


class DeleteStateResult(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionResult] = field(Array(PartitionResult))


@message(api=86, versions="0", flexible="0+")
class DeleteShareGroupStateResponse(Response):
    results: list[DeleteStateResult] = field(Array(DeleteStateResult))
