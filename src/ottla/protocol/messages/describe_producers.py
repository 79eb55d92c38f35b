"""DescribeProducers: API 61, versions 0 (flexible from 0).

Versions by release: 0 in 2.8.
"""

from ottla.protocol.schema import Array, Int16, Int32, Int64, Request, Response, String, Struct, field, message


class TopicRequest(Struct):
    name: str = field(String)
    partition_indexes: list[int] = field(Array(Int32))


@message(api=61, versions="0", flexible="0+")
class DescribeProducersRequest(Request["DescribeProducersResponse"]):
    topics: list[TopicRequest] = field(Array(TopicRequest))


class ProducerState(Struct):
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int32)
    last_sequence: int = field(Int32, default=-1)
    last_timestamp: int = field(Int64, default=-1)
    coordinator_epoch: int = field(Int32)
    current_txn_start_offset: int = field(Int64, default=-1)


class PartitionResponse(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    active_producers: list[ProducerState] = field(Array(ProducerState))


class TopicResponse(Struct):
    name: str = field(String)
    partitions: list[PartitionResponse] = field(Array(PartitionResponse))


@message(api=61, versions="0", flexible="0+")
class DescribeProducersResponse(Response):
    throttle_time_ms: int = field(Int32)
    topics: list[TopicResponse] = field(Array(TopicResponse))
