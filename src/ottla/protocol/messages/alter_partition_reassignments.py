"""AlterPartitionReassignments: API 45, versions 0-1 (flexible from 0).

Versions by release: 0 in 2.4, 1 in 4.1.
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
    field,
    message,
)


class ReassignablePartition(Struct):
    partition_index: int = field(Int32)
    replicas: list[int] | None = field(Array(Int32), nullable="0+", default=None)


class ReassignableTopic(Struct):
    name: str = field(String)
    partitions: list[ReassignablePartition] = field(Array(ReassignablePartition))


@message(api=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest(Request["AlterPartitionReassignmentsResponse"]):
    ELEMENTS = MOST_OF_CHANGES
    timeout_ms: int = field(Int32, default=60000)
    allow_replication_factor_change: bool = field(Bool, versions="1+", default=True)
    topics: list[ReassignableTopic] = field(Array(ReassignableTopic))


class ReassignablePartitionResponse(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")


class ReassignableTopicResponse(Struct):
    name: str = field(String)
    partitions: list[ReassignablePartitionResponse] = field(Array(ReassignablePartitionResponse))


@message(api=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse(Response):
    throttle_time_ms: int = field(Int32)
    allow_replication_factor_change: bool = field(Bool, versions="1+", default=True, ignorable=True)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    responses: list[ReassignableTopicResponse] = field(Array(ReassignableTopicResponse))
