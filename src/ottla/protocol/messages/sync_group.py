"""SyncGroup: API 14, versions 0-5 (flexible from 4).

Versions by release: 0 in 0.9.0, 1 in 0.11.0, 2 in 2.0, 3 in 2.3, 4 in 2.4, 5 in 2.5.
"""

from ottla.protocol.schema import Array, Bytes, Int16, Int32, Request, Response, String, Struct, field, message


class SyncGroupRequestAssignment(Struct):
    member_id: str = field(String)
    assignment: bytes = field(Bytes)


@message(api=14, versions="0-5", flexible="4+")
class SyncGroupRequest(Request["SyncGroupResponse"]):
    group_id: str = field(String)
    generation_id: int = field(Int32)
    member_id: str = field(String)
    group_instance_id: str | None = field(String, versions="3+", nullable="3+", default=None)
    protocol_type: str | None = field(String, versions="5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = field(String, versions="5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field(Array(SyncGroupRequestAssignment))


@message(api=14, versions="0-5", flexible="4+")
class SyncGroupResponse(Response):
    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True)
    error_code: int = field(Int16)
    protocol_type: str | None = field(String, versions="5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = field(String, versions="5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = field(Bytes)
