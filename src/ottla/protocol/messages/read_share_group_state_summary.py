"""ReadShareGroupStateSummary: API 87, versions 0-1 (flexible from 0).

Versions by release: 0 in 3.9, 1 in 4.2.
"""

from ottla.protocol.schema import Array, Int16, Int32, Int64, Request, Response, String, Struct, Uuid, field, message


class PartitionData(Struct):
    partition: int = field(Int32)
    leader_epoch: int = field(Int32)


class ReadStateSummaryData(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionData] = field(Array(PartitionData))


@message(api=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest(Request["ReadShareGroupStateSummaryResponse"]):
    group_id: str = field(String)
    topics: list[ReadStateSummaryData] = field(Array(ReadStateSummaryData))


class PartitionResult(Struct):
    partition: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    state_epoch: int = field(Int32)
    leader_epoch: int = field(Int32)
    start_offset: int = field(Int64)
    delivery_complete_count: int = field(Int32, versions="1+", default=-1, ignorable=True)


class ReadStateSummaryResult(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionResult] = field(Array(PartitionResult))


@message(api=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse(Response):
    results: list[ReadStateSummaryResult] = field(Array(ReadStateSummaryResult))
