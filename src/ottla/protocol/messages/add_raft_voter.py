"""AddRaftVoter: API 80, versions 0-1 (flexible from 0).

Versions by release: 0 in 3.9, 1 in 4.2.
"""

from ottla.protocol.schema import (
    Array,
    Bool,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    Uint16,
    Uuid,
    field,
    message,
)


class Listener(Struct):
    name: str = field(String)
    host: str = field(String)
    port: int = field(Uint16)


@message(api=80, versions="0-1", flexible="0+")
class AddRaftVoterRequest(Request["AddRaftVoterResponse"]):
    cluster_id: str | None = field(String, nullable="0+")
    timeout_ms: int = field(Int32)
    voter_id: int = field(Int32)
    voter_directory_id: bytes = field(Uuid)
    listeners: list[Listener] = field(Array(Listener))
    ack_when_committed: bool = field(Bool, versions="1+", default=True)


@message(api=80, versions="0-1", flexible="0+")
class AddRaftVoterResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", ignorable=True)
