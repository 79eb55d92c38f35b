"""Heartbeat: API 12, versions 0-4 (flexible from 4).

Versions by release: 0 in 0.9.0, 1 in 0.11.0, 2 in 2.0, 3 in 2.3, 4 in 2.4.
"""

from ottla.protocol.schema import Int16, Int32, Request, Response, String, field, message


@message(api=12, versions="0-4", flexible="4+")
class HeartbeatRequest(Request["HeartbeatResponse"]):
    group_id: str = field(String)
    generation_id: int = field(Int32)
    member_id: str = field(String)
    group_instance_id: str | None = field(String, versions="3+", nullable="3+", default=None)


@message(api=12, versions="0-4", flexible="4+")
class HeartbeatResponse(Response):
    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True)
    error_code: int = field(Int16)
