"""SaslAuthenticate: API 36, versions 0-2 (flexible from 2).

Versions by release: 0 in 1.0, 1 in 2.2, 2 in 2.5.
"""

from ottla.protocol.schema import Bytes, Int16, Int64, Request, Response, String, field, message


@message(api=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"]):
    auth_bytes: bytes = field(Bytes)


@message(api=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse(Response):
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    auth_bytes: bytes = field(Bytes)
    session_lifetime_ms: int = field(Int64, versions="1+", ignorable=True)
