"""LeaveGroup: API 13, versions 0-5 (flexible from 4).

Versions by release: 0 in 0.9.0, 1 in 0.11.0, 2 in 2.0, 3-4 in 2.4, 5 in 3.2.
"""

from ottla.protocol.schema import Array, Int16, Int32, Request, Response, String, Struct, field, message


class MemberIdentity(Struct):
    member_id: str = field(String, versions="3+")
    group_instance_id: str | None = field(String, versions="3+", nullable="3+", default=None)
    reason: str | None = field(String, versions="5+", nullable="5+", default=None, ignorable=True)


@message(api=13, versions="0-5", flexible="4+")
class LeaveGroupRequest(Request["LeaveGroupResponse"]):
    group_id: str = field(String)
    member_id: str = field(String, versions="0-2")
    members: list[MemberIdentity] = field(Array(MemberIdentity), versions="3+")


class MemberResponse(Struct):
    member_id: str = field(String, versions="3+")
    group_instance_id: str | None = field(String, versions="3+", nullable="3+")
    error_code: int = field(Int16, versions="3+")


@message(api=13, versions="0-5", flexible="4+")
class LeaveGroupResponse(Response):
    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True)
    error_code: int = field(Int16)
    members: list[MemberResponse] = field(Array(MemberResponse), versions="3+")
