"""ListPartitionReassignments: API 46, versions 0 (flexible from 0).

Versions by release: 0 in 2.4.
"""

from ottla.protocol.schema import Array, Int16, Int32, Request, Response, String, Struct, field, message


class ListPartitionReassignmentsTopics(Struct):
    name: str = field(String)
    partition_indexes: list[int] = field(Array(Int32))


@message(api=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest(Request["ListPartitionReassignmentsResponse"]):
    timeout_ms: int = field(Int32, default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(
        Array(ListPartitionReassignmentsTopics), nullable="0+", default=None
    )


class OngoingPartitionReassignment(Struct):
    partition_index: int = field(Int32)
    replicas: list[int] = field(Array(Int32))
    adding_replicas: list[int] = field(Array(Int32))
    removing_replicas: list[int] = field(Array(Int32))


class OngoingTopicReassignment(Struct):
    name: str = field(String)
    partitions: list[OngoingPartitionReassignment] = field(Array(OngoingPartitionReassignment))


@message(api=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    topics: list[OngoingTopicReassignment] = field(Array(OngoingTopicReassignment))
