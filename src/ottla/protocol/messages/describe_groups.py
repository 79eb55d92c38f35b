"""DescribeGroups: API 15, versions 0-6 (flexible from 5).

Versions by release: 0 in 0.9.0, 1 in 0.11.0, 2 in 2.0, 3 in 2.3, 4-5 in 2.4, 6 in 4.0.
"""

from ottla.protocol.schema import Array, Bool, Bytes, Int16, Int32, Request, Response, String, Struct, field, message


@message(api=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest(Request["DescribeGroupsResponse"]):
    groups: list[str] = field(Array(String), many=True)
    include_authorized_operations: bool = field(Bool, versions="3+")


class DescribedGroupMember(Struct):
    member_id: str = field(String)
    group_instance_id: str | None = field(String, versions="4+", nullable="4+", default=None, ignorable=True)
    client_id: str = field(String)
    client_host: str = field(String)
    member_metadata: bytes = field(Bytes)
    member_assignment: bytes = field(Bytes)


class DescribedGroup(Struct):
    error_code: int = field(Int16)
    error_message: str | None = field(String, versions="6+", nullable="6+", default=None)
    group_id: str = field(String)
    group_state: str = field(String)
    protocol_type: str = field(String)
    protocol_data: str = field(String)
    members: list[DescribedGroupMember] = field(Array(DescribedGroupMember))
    authorized_operations: int = field(Int32, versions="3+", default=-(2**31))


@message(api=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse(Response):
    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True)
    groups: list[DescribedGroup] = field(Array(DescribedGroup))
