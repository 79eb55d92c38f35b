"""UnregisterController: API 94, versions 0 (flexible from 0).

Versions by release: 0 in 4.4.
"""

from ottla.protocol.schema import Int16, Int32, Request, Response, String, field, message


@message(api=94, versions="0", flexible="0+")
class UnregisterControllerRequest(Request["UnregisterControllerResponse"]):
    controller_id: int = field(Int32)


@message(api=94, versions="0", flexible="0+")
class UnregisterControllerResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
