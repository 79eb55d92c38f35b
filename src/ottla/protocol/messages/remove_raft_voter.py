"""RemoveRaftVoter: API 81, versions 0 (flexible from 0).

Versions by release: 0 in 3.9.
"""

from ottla.protocol.schema import Int16, Int32, Request, Response, String, Uuid, field, message


@message(api=81, versions="0", flexible="0+")
class RemoveRaftVoterRequest(Request["RemoveRaftVoterResponse"]):
    cluster_id: str | None = field(String, nullable="0+")
    voter_id: int = field(Int32)
    voter_directory_id: bytes = field(Uuid)


@message(api=81, versions="0", flexible="0+")
class RemoveRaftVoterResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", ignorable=True)
