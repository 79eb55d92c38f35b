"""CreatePartitions: API 37, versions 0-3 (flexible from 2).

Versions by release: 0 in 1.0, 1 in 2.0, 2 in 2.5, 3 in 2.7.
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


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = field(Array(Int32))


class CreatePartitionsTopic(Struct):
    name: str = field(String)
    count: int = field(Int32)
    assignments: list[CreatePartitionsAssignment] | None = field(Array(CreatePartitionsAssignment), nullable="0+")


@message(api=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest(Request["CreatePartitionsResponse"]):
    ELEMENTS = MOST_OF_CHANGES
    topics: list[CreatePartitionsTopic] = field(Array(CreatePartitionsTopic))
    timeout_ms: int = field(Int32)
    validate_only: bool = field(Bool)


class CreatePartitionsTopicResult(Struct):
    name: str = field(String)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)


@message(api=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse(Response):
    throttle_time_ms: int = field(Int32)
    results: list[CreatePartitionsTopicResult] = field(Array(CreatePartitionsTopicResult))
