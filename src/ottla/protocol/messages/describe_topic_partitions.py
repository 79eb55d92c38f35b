"""DescribeTopicPartitions: API 75, versions 0 (flexible from 0).

Versions by release: 0 in 3.8.
"""

from ottla.protocol.schema import (
    MOST_OF_CHANGES,
    Array,
    Bool,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    field,
    message,
)


class TopicRequest(Struct):
    name: str = field(String)


class Cursor(Struct):
    topic_name: str = field(String)
    partition_index: int = field(Int32)


@message(api=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest(Request["DescribeTopicPartitionsResponse"]):
    ELEMENTS = MOST_OF_CHANGES  # a topic takes 430 bytes of memory, and its names are sorted in one pass

    topics: list[TopicRequest] = field(Array(TopicRequest))
    response_partition_limit: int = field(Int32, default=2000)
    cursor: Cursor | None = field(Cursor, nullable="0+", default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = field(Int16)
    partition_index: int = field(Int32)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32, default=-1, ignorable=True)
    replica_nodes: list[int] = field(Array(Int32))
    isr_nodes: list[int] = field(Array(Int32))
    eligible_leader_replicas: list[int] | None = field(Array(Int32), nullable="0+", default=None)
    last_known_elr: list[int] | None = field(Array(Int32), nullable="0+", default=None)
    offline_replicas: list[int] = field(Array(Int32), ignorable=True)


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = field(Int16)
    name: str | None = field(String, nullable="0+")
    topic_id: bytes = field(Uuid, ignorable=True)
    is_internal: bool = field(Bool, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(Array(DescribeTopicPartitionsResponsePartition))
    topic_authorized_operations: int = field(Int32, default=-(2**31))


@message(api=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse(Response):
    throttle_time_ms: int = field(Int32, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = field(Array(DescribeTopicPartitionsResponseTopic))
    next_cursor: Cursor | None = field(Cursor, nullable="0+", default=None)
