"""ElectLeaders: API 43, versions 0-2 (flexible from 2).

Versions by release: 0 in 2.2, 1-2 in 2.4.
"""

from ottla.protocol.schema import (
    MOST_OF_CHANGES,
    Array,
    Int8,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    field,
    message,
)


class TopicPartitions(Struct):
    topic: str = field(String)
    partitions: list[int] = field(Array(Int32))


@message(api=43, versions="0-2", flexible="2+")
class ElectLeadersRequest(Request["ElectLeadersResponse"]):
    ELEMENTS = MOST_OF_CHANGES
    election_type: int = field(Int8, versions="1+")
    topic_partitions: list[TopicPartitions] | None = field(Array(TopicPartitions), nullable="0+")
    timeout_ms: int = field(Int32, default=60000)


class PartitionResult(Struct):
    partition_id: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")


class ReplicaElectionResult(Struct):
    topic: str = field(String)
    partition_result: list[PartitionResult] = field(Array(PartitionResult))


@message(api=43, versions="0-2", flexible="2+")
class ElectLeadersResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16, versions="1+")
    replica_election_results: list[ReplicaElectionResult] = field(Array(ReplicaElectionResult))
