"""SaslHandshake: API 17, versions 0-1.

Versions by release: 0 in 0.10.0, 1 in 1.0.
"""

from ottla.protocol.schema import Array, Int16, Request, Response, String, field, message


@message(api=17, versions="0-1")
class SaslHandshakeRequest(Request["SaslHandshakeResponse"]):
    mechanism: str = field(String)


@message(api=17, versions="0-1")
class SaslHandshakeResponse(Response):
    error_code: int = field(Int16)
    mechanisms: list[str] = field(Array(String))
