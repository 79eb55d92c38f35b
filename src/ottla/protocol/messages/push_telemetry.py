"""PushTelemetry: API 72, versions 0 (flexible from 0).

Versions by release: 0 in 3.7.
"""

from ottla.protocol.schema import Bool, Bytes, Int8, Int16, Int32, Request, Response, Uuid, field, message


@message(api=72, versions="0", flexible="0+")
class PushTelemetryRequest(Request["PushTelemetryResponse"]):
    client_instance_id: bytes = field(Uuid)
    subscription_id: int = field(Int32)
    terminating: bool = field(Bool)
    compression_type: int = field(Int8)
    metrics: bytes = field(Bytes)


@message(api=72, versions="0", flexible="0+")
class PushTelemetryResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
