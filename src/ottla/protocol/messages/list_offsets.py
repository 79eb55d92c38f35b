"""ListOffsets: API 2, versions 0-11 (flexible from 6).

Versions by release: 0 in 0.8.0, 1 in 0.10.1, 2 in 0.11.0, 3 in 2.0, 4 in 2.1, 5 in 2.2, 6 in 2.8, 7 in 3.0, 8
    in 3.5, 9 in 3.9, 10 in 4.0, 11 in 4.2.
"""

from ottla.protocol.schema import Array, Int8, Int16, Int32, Int64, Request, Response, String, Struct, field, message


class ListOffsetsPartition(Struct):
    partition_index: int = field(Int32)
    current_leader_epoch: int = field(Int32, versions="4+", default=-1, ignorable=True)
    timestamp: int = field(Int64)
    max_num_offsets: int = field(Int32, versions="0", default=1)


class ListOffsetsTopic(Struct):
    name: str = field(String)
    partitions: list[ListOffsetsPartition] = field(Array(ListOffsetsPartition), many=True)


@message(api=2, versions="0-11", flexible="6+")
class ListOffsetsRequest(Request["ListOffsetsResponse"]):
    replica_id: int = field(Int32)
    isolation_level: int = field(Int8, versions="2+")
    topics: list[ListOffsetsTopic] = field(Array(ListOffsetsTopic), many=True)
    timeout_ms: int = field(Int32, versions="10+", ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    old_style_offsets: list[int] = field(Array(Int64), versions="0")
    timestamp: int = field(Int64, versions="1+", default=-1)
    offset: int = field(Int64, versions="1+", default=-1)
    leader_epoch: int = field(Int32, versions="4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = field(String)
    partitions: list[ListOffsetsPartitionResponse] = field(Array(ListOffsetsPartitionResponse))


@message(api=2, versions="0-11", flexible="6+")
class ListOffsetsResponse(Response):
    throttle_time_ms: int = field(Int32, versions="2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field(Array(ListOffsetsTopicResponse))
