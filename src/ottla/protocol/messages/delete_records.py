"""DeleteRecords: API 21, versions 0-2 (flexible from 2).

Versions by release: 0 in 0.11.0, 1 in 2.0, 2 in 2.6.
"""

from ottla.protocol.schema import Array, Int16, Int32, Int64, Request, Response, String, Struct, field, message


class DeleteRecordsPartition(Struct):
    partition_index: int = field(Int32)
    offset: int = field(Int64)


class DeleteRecordsTopic(Struct):
    name: str = field(String)
    partitions: list[DeleteRecordsPartition] = field(Array(DeleteRecordsPartition))


@message(api=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest(Request["DeleteRecordsResponse"]):
    topics: list[DeleteRecordsTopic] = field(Array(DeleteRecordsTopic))
    timeout_ms: int = field(Int32)


class DeleteRecordsPartitionResult(Struct):
    partition_index: int = field(Int32)
    low_watermark: int = field(Int64)
    error_code: int = field(Int16)


class DeleteRecordsTopicResult(Struct):
    name: str = field(String)
    partitions: list[DeleteRecordsPartitionResult] = field(Array(DeleteRecordsPartitionResult))


@message(api=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse(Response):
    throttle_time_ms: int = field(Int32)
    topics: list[DeleteRecordsTopicResult] = field(Array(DeleteRecordsTopicResult))
