"""Envelope: API 58, versions 0 (flexible from 0).

Versions by release: 0 in 2.8.
"""

from ottla.protocol.schema import Bytes, Int16, Request, Response, field, message


@message(api=58, versions="0", flexible="0+")
class EnvelopeRequest(Request["EnvelopeResponse"]):
    request_data: bytes = field(Bytes)
    request_principal: bytes | None = field(Bytes, nullable="0+")
    client_host_address: bytes = field(Bytes)


@message(api=58, versions="0", flexible="0+")
class EnvelopeResponse(Response):
    response_data: bytes | None = field(Bytes, nullable="0+", default=None)
    error_code: int = field(Int16)
