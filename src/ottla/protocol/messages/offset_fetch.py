"""OffsetFetch: API 9, versions 0-10 (flexible from 6).

Versions by release: 0 in 0.8.1, 1 in 0.8.2, 2 in 0.10.2, 3 in 0.11.0, 4 in 2.0, 5 in 2.1, 6 in 2.4, 7 in 2.5,
    8 in 3.0, 9 in 3.7, 10 in 4.1.
"""

from ottla.protocol.schema import (
    Array,
    Bool,
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


class OffsetFetchRequestTopic(Struct):
    name: str = field(String, versions="0-7")
    partition_indexes: list[int] = field(Array(Int32), versions="0-7", many=True)


class OffsetFetchRequestTopics(Struct):
    name: str = field(String, versions="8-9", ignorable=True)
    topic_id: bytes = field(Uuid, versions="10+", ignorable=True)
    partition_indexes: list[int] = field(Array(Int32), versions="8+", many=True)


class OffsetFetchRequestGroup(Struct):
    group_id: str = field(String, versions="8+")
    member_id: str | None = field(String, versions="9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = field(Int32, versions="9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = field(
        Array(OffsetFetchRequestTopics), versions="8+", nullable="8+", many=True
    )


@message(api=9, versions="0-10", flexible="6+")
class OffsetFetchRequest(Request["OffsetFetchResponse"]):
    group_id: str = field(String, versions="0-7")
    topics: list[OffsetFetchRequestTopic] | None = field(
        Array(OffsetFetchRequestTopic), versions="0-7", nullable="2-7", many=True
    )
    groups: list[OffsetFetchRequestGroup] = field(Array(OffsetFetchRequestGroup), versions="8+", many=True)
    require_stable: bool = field(Bool, versions="7+")


class OffsetFetchResponsePartition(Struct):
    partition_index: int = field(Int32, versions="0-7")
    committed_offset: int = field(Int64, versions="0-7")
    committed_leader_epoch: int = field(Int32, versions="5-7", default=-1, ignorable=True)
    metadata: str | None = field(String, versions="0-7", nullable="0-7")
    error_code: int = field(Int16, versions="0-7")


class OffsetFetchResponseTopic(Struct):
    name: str = field(String, versions="0-7")
    partitions: list[OffsetFetchResponsePartition] = field(Array(OffsetFetchResponsePartition), versions="0-7")


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = field(Int32, versions="8+")
    committed_offset: int = field(Int64, versions="8+")
    committed_leader_epoch: int = field(Int32, versions="8+", default=-1, ignorable=True)
    metadata: str | None = field(String, versions="8+", nullable="8+")
    error_code: int = field(Int16, versions="8+")


class OffsetFetchResponseTopics(Struct):
    name: str = field(String, versions="8-9", ignorable=True)
    topic_id: bytes = field(Uuid, versions="10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = field(Array(OffsetFetchResponsePartitions), versions="8+")


class OffsetFetchResponseGroup(Struct):
    group_id: str = field(String, versions="8+")
    topics: list[OffsetFetchResponseTopics] = field(Array(OffsetFetchResponseTopics), versions="8+")
    error_code: int = field(Int16, versions="8+")


@message(api=9, versions="0-10", flexible="6+")
class OffsetFetchResponse(Response):
    throttle_time_ms: int = field(Int32, versions="3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(Array(OffsetFetchResponseTopic), versions="0-7")
    error_code: int = field(Int16, versions="2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(Array(OffsetFetchResponseGroup), versions="8+")
