"""InitializeShareGroupState: API 83, versions 0 (flexible from 0).

Versions by release: 0 in 3.9.
"""

from ottla.protocol.schema import Array, Int16, Int32, Int64, Request, Response, String, Struct, Uuid, field, message


class PartitionData(Struct):
    partition: int = field(Int32)
    state_epoch: int = field(Int32)
    start_offset: int = field(Int64)


class InitializeStateData(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionData] = field(Array(PartitionData))


@message(api=83, versions="0", flexible="0+")
class InitializeShareGroupStateRequest(Request["InitializeShareGroupStateResponse"]):
    group_id: str = field(String)
    topics: list[InitializeStateData] = field(Array(InitializeStateData))


class PartitionResult(Struct):
    partition: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)


class InitializeStateResult(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionResult] = field(Array(PartitionResult))


@message(api=83, versions="0", flexible="0+")
class InitializeShareGroupStateResponse(Response):
    results: list[InitializeStateResult] = field(Array(InitializeStateResult))
