"""ExpireDelegationToken: API 40, versions 0-2 (flexible from 2).

Versions by release: 0 in 1.1, 1 in 2.0, 2 in 2.5.
"""

from ottla.protocol.schema import Bytes, Int16, Int32, Int64, Request, Response, field, message


@message(api=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenRequest(Request["ExpireDelegationTokenResponse"]):
    hmac: bytes = field(Bytes)
    expiry_time_period_ms: int = field(Int64)


@message(api=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenResponse(Response):
    error_code: int = field(Int16)
    expiry_timestamp_ms: int = field(Int64)
    throttle_time_ms: int = field(Int32)
