"""BrokerHeartbeat: API 63, versions 0-2 (flexible from 0).

Versions by release: 0 in 2.8, 1 in 3.7, 2 in 4.3.
"""

from ottla.protocol.schema import Array, Bool, Int16, Int32, Int64, Request, Response, Uuid, field, message


@message(api=63, versions="0-2", flexible="0+")
class BrokerHeartbeatRequest(Request["BrokerHeartbeatResponse"]):
    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, default=-1)
    current_metadata_offset: int = field(Int64)
    want_fence: bool = field(Bool)
    want_shut_down: bool = field(Bool)
    offline_log_dirs: list[bytes] = field(Array(Uuid), versions="1+", tag=0)
    cordoned_log_dirs: list[bytes] | None = field(Array(Uuid), versions="2+", nullable="2+", tag=1, default=None)


@message(api=63, versions="0-2", flexible="0+")
class BrokerHeartbeatResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    is_caught_up: bool = field(Bool)
    is_fenced: bool = field(Bool, default=True)
    should_shut_down: bool = field(Bool)
