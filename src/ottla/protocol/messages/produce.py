"""Produce: API 0, versions 0-13 (flexible from 9).

Versions by release: 0 in 0.8.0, 1 in 0.9.0, 2 in 0.10.0, 3 in 0.11.0, 4-5 in 1.0, 6 in 2.0, 7 in 2.1, 8 in
    2.4, 9 in 2.8, 10 in 3.7, 11 in 3.8, 12 in 4.0, 13 in 4.1.
"""

from ottla.protocol.schema import (
    Array,
    Int16,
    Int32,
    Int64,
    Records,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    field,
    message,
)


class PartitionProduceData(Struct):
    index: int = field(Int32)
    records: bytes | None = field(Records, nullable="0+")


class TopicProduceData(Struct):
    name: str = field(String, versions="0-12", ignorable=True)
    topic_id: bytes = field(Uuid, versions="13+", ignorable=True)
    partition_data: list[PartitionProduceData] = field(Array(PartitionProduceData))


@message(api=0, versions="0-13", flexible="9+")
class ProduceRequest(Request["ProduceResponse"]):
    transactional_id: str | None = field(String, versions="3+", nullable="3+", default=None)
    acks: int = field(Int16)
    timeout_ms: int = field(Int32)
    topic_data: list[TopicProduceData] = field(Array(TopicProduceData))


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = field(Int32, versions="8+")
    batch_index_error_message: str | None = field(String, versions="8+", nullable="8+", default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(Int32, versions="10+", default=-1)
    leader_epoch: int = field(Int32, versions="10+", default=-1)


class PartitionProduceResponse(Struct):
    index: int = field(Int32)
    error_code: int = field(Int16)
    base_offset: int = field(Int64)
    log_append_time_ms: int = field(Int64, versions="2+", default=-1, ignorable=True)
    log_start_offset: int = field(Int64, versions="5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(
        Array(BatchIndexAndErrorMessage), versions="8+", ignorable=True
    )
    error_message: str | None = field(String, versions="8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, versions="10+", tag=0)


class TopicProduceResponse(Struct):
    name: str = field(String, versions="0-12", ignorable=True)
    topic_id: bytes = field(Uuid, versions="13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field(Array(PartitionProduceResponse))


class NodeEndpoint(Struct):
    node_id: int = field(Int32, versions="10+")
    host: str = field(String, versions="10+")
    port: int = field(Int32, versions="10+")
    rack: str | None = field(String, versions="10+", nullable="10+", default=None)


@message(api=0, versions="0-13", flexible="9+")
class ProduceResponse(Response):
    responses: list[TopicProduceResponse] = field(Array(TopicProduceResponse))
    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint), versions="10+", tag=0)
