"""GetTelemetrySubscriptions: API 71, versions 0 (flexible from 0).

Versions by release: 0 in 3.7.
"""

from ottla.protocol.schema import Array, Bool, Int8, Int16, Int32, Request, Response, String, Uuid, field, message


@message(api=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest(Request["GetTelemetrySubscriptionsResponse"]):
    client_instance_id: bytes = field(Uuid)


@message(api=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    client_instance_id: bytes = field(Uuid)
    subscription_id: int = field(Int32)
    accepted_compression_types: list[int] = field(Array(Int8))
    push_interval_ms: int = field(Int32)
    telemetry_max_bytes: int = field(Int32)
    delta_temporality: bool = field(Bool)
    requested_metrics: list[str] = field(Array(String))
