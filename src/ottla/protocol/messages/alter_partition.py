"""AlterPartition: API 56, versions 0-3 (flexible from 0).

Versions by release: 0 in 2.7, 1 in 3.2, 2 in 3.3, 3 in 3.5.
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


class BrokerState(Struct):
    broker_id: int = field(Int32, versions="3+")
    broker_epoch: int = field(Int64, versions="3+", default=-1)


class PartitionData(Struct):
    partition_index: int = field(Int32)
    leader_epoch: int = field(Int32)
    new_isr: list[int] = field(Array(Int32), versions="0-2")
    new_isr_with_epochs: list[BrokerState] = field(Array(BrokerState), versions="3+")
    leader_recovery_state: int = field(Int8, versions="1+")
    partition_epoch: int = field(Int32)


class TopicData(Struct):
    topic_name: str = field(String, versions="0-1", ignorable=True)
    topic_id: bytes = field(Uuid, versions="2+", ignorable=True)
    partitions: list[PartitionData] = field(Array(PartitionData))


@message(api=56, versions="0-3", flexible="0+")
class AlterPartitionRequest(Request["AlterPartitionResponse"]):
    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, default=-1)
    topics: list[TopicData] = field(Array(TopicData))


class AlterPartitionResponsePartitionData(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)
    isr: list[int] = field(Array(Int32))
    leader_recovery_state: int = field(Int8, versions="1+", ignorable=True)
    partition_epoch: int = field(Int32)


class AlterPartitionResponseTopicData(Struct):
    topic_name: str = field(String, versions="0-1", ignorable=True)
    topic_id: bytes = field(Uuid, versions="2+", ignorable=True)
    partitions: list[AlterPartitionResponsePartitionData] = field(Array(AlterPartitionResponsePartitionData))


@message(api=56, versions="0-3", flexible="0+")
class AlterPartitionResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    topics: list[AlterPartitionResponseTopicData] = field(Array(AlterPartitionResponseTopicData))
