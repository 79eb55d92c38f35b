"""OffsetDelete: API 47, versions 0.

Versions by release: 0 in 2.4.
"""

from ottla.protocol.schema import Array, Int16, Int32, Request, Response, String, Struct, field, message


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = field(Int32)


class OffsetDeleteRequestTopic(Struct):
    name: str = field(String)
    partitions: list[OffsetDeleteRequestPartition] = field(Array(OffsetDeleteRequestPartition))


@message(api=47, versions="0")
class OffsetDeleteRequest(Request["OffsetDeleteResponse"]):
    group_id: str = field(String)
    topics: list[OffsetDeleteRequestTopic] = field(Array(OffsetDeleteRequestTopic))


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class OffsetDeleteResponseTopic(Struct):
    name: str = field(String)
    partitions: list[OffsetDeleteResponsePartition] = field(Array(OffsetDeleteResponsePartition))


@message(api=47, versions="0")
class OffsetDeleteResponse(Response):
    error_code: int = field(Int16)
    throttle_time_ms: int = field(Int32, ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = field(Array(OffsetDeleteResponseTopic))
