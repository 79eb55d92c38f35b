"""ShareGroupDescribe: API 77, versions 0-1 (flexible from 0).

Versions by release: 0 in 3.9, 1 in 4.1.
"""

from ottla.protocol.schema import Array, Bool, Int16, Int32, Request, Response, String, Struct, Uuid, field, message


@message(api=77, versions="0-1", flexible="0+")
class ShareGroupDescribeRequest(Request["ShareGroupDescribeResponse"]):
    group_ids: list[str] = field(Array(String), many=True)
    include_authorized_operations: bool = field(Bool)


class TopicPartitions(Struct):
    topic_id: bytes = field(Uuid)
    topic_name: str = field(String)
    partitions: list[int] = field(Array(Int32))


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = field(Array(TopicPartitions))


class Member(Struct):
    member_id: str = field(String)
    rack_id: str | None = field(String, nullable="0+", default=None)
    member_epoch: int = field(Int32)
    client_id: str = field(String)
    client_host: str = field(String)
    subscribed_topic_names: list[str] = field(Array(String))
    assignment: Assignment = field(Assignment)


class DescribedGroup(Struct):
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    group_id: str = field(String)
    group_state: str = field(String)
    group_epoch: int = field(Int32)
    assignment_epoch: int = field(Int32)
    assignor_name: str = field(String)
    members: list[Member] = field(Array(Member))
    authorized_operations: int = field(Int32, default=-(2**31))


@message(api=77, versions="0-1", flexible="0+")
class ShareGroupDescribeResponse(Response):
    throttle_time_ms: int = field(Int32)
    groups: list[DescribedGroup] = field(Array(DescribedGroup))
