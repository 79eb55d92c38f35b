"""WriteShareGroupState: API 85, versions 0-1 (flexible from 0).

Versions by release: 0 in 3.9, 1 in 4.2.
"""

from ottla.protocol.schema import (
    MOST_OF_CHANGES,
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


class StateBatch(Struct):
    first_offset: int = field(Int64)
    last_offset: int = field(Int64)
    delivery_state: int = field(Int8)
    delivery_count: int = field(Int16)


class PartitionData(Struct):
    partition: int = field(Int32)
    state_epoch: int = field(Int32)
    leader_epoch: int = field(Int32)
    start_offset: int = field(Int64)
    delivery_complete_count: int = field(Int32, versions="1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = field(Array(StateBatch))


class WriteStateData(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionData] = field(Array(PartitionData))


@message(api=85, versions="0-1", flexible="0+")
class WriteShareGroupStateRequest(Request["WriteShareGroupStateResponse"]):
    ELEMENTS = MOST_OF_CHANGES

    group_id: str = field(String)
    topics: list[WriteStateData] = field(Array(WriteStateData))


class PartitionResult(Struct):
    partition: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)


class WriteStateResult(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionResult] = field(Array(PartitionResult))


@message(api=85, versions="0-1", flexible="0+")
class WriteShareGroupStateResponse(Response):
    results: list[WriteStateResult] = field(Array(WriteStateResult))
