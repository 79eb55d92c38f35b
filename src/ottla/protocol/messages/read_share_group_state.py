"""ReadShareGroupState: API 84, versions 0 (flexible from 0).

Versions by release: 0 in 3.9.
"""

from ottla.protocol.schema import (
    Array,
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


class PartitionData(Struct):
    partition: int = field(Int32)
    leader_epoch: int = field(Int32)


class ReadStateData(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionData] = field(Array(PartitionData))


@message(api=84, versions="0", flexible="0+")
class ReadShareGroupStateRequest(Request["ReadShareGroupStateResponse"]):
    group_id: str = field(String)
    topics: list[ReadStateData] = field(Array(ReadStateData))


class StateBatch(Struct):
    first_offset: int = field(Int64)
    last_offset: int = field(Int64)
    delivery_state: int = field(Int8)
    delivery_count: int = field(Int16)


class PartitionResult(Struct):
    partition: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    state_epoch: int = field(Int32)
    start_offset: int = field(Int64)
    state_batches: list[StateBatch] = field(Array(StateBatch))


class ReadStateResult(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionResult] = field(Array(PartitionResult))


@message(api=84, versions="0", flexible="0+")
class ReadShareGroupStateResponse(Response):
    results: list[ReadStateResult] = field(Array(ReadStateResult))
