"""JoinGroup: API 11, versions 0-9 (flexible from 6).

Versions by release: 0 in 0.9.0, 1 in 0.10.1, 2 in 0.11.0, 3 in 2.0, 4 in 2.2, 5 in 2.3, 6 in 2.4, 7 in 2.5,
    8-9 in 3.2.
"""

from ottla.protocol.schema import Array, Bool, Bytes, Int16, Int32, Request, Response, String, Struct, field, message


class JoinGroupRequestProtocol(Struct):
    name: str = field(String)
    metadata: bytes = field(Bytes)


@message(api=11, versions="0-9", flexible="6+")
class JoinGroupRequest(Request["JoinGroupResponse"]):
    group_id: str = field(String)
    session_timeout_ms: int = field(Int32)
    rebalance_timeout_ms: int = field(Int32, versions="1+", default=-1, ignorable=True)
    member_id: str = field(String)
    group_instance_id: str | None = field(String, versions="5+", nullable="5+", default=None)
    protocol_type: str = field(String)
    protocols: list[JoinGroupRequestProtocol] = field(Array(JoinGroupRequestProtocol))
    reason: str | None = field(String, versions="8+", nullable="8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = field(String)
    group_instance_id: str | None = field(String, versions="5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = field(Bytes)


@message(api=11, versions="0-9", flexible="6+")
class JoinGroupResponse(Response):
    throttle_time_ms: int = field(Int32, versions="2+", ignorable=True)
    error_code: int = field(Int16)
    generation_id: int = field(Int32, default=-1)
    protocol_type: str | None = field(String, versions="7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = field(String, nullable="7+")
    leader: str = field(String)
    skip_assignment: bool = field(Bool, versions="9+")
    member_id: str = field(String)
    members: list[JoinGroupResponseMember] = field(Array(JoinGroupResponseMember))
