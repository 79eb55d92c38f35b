"""UnregisterBroker: API 64, versions 0 (flexible from 0).

Versions by release: 0 in 2.8.
"""

from ottla.protocol.schema import Int16, Int32, Request, Response, String, field, message


@message(api=64, versions="0", flexible="0+")
class UnregisterBrokerRequest(Request["UnregisterBrokerResponse"]):
    broker_id: int = field(Int32)


@message(api=64, versions="0", flexible="0+")
class UnregisterBrokerResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
