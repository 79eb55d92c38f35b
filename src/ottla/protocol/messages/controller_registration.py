"""ControllerRegistration: API 70, versions 0 (flexible from 0).

Versions by release: 0 in 3.7.
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
    security_protocol: int = field(Int16)


class Feature(Struct):
    name: str = field(String)
    min_supported_version: int = field(Int16)
    max_supported_version: int = field(Int16)


@message(api=70, versions="0", flexible="0+")
class ControllerRegistrationRequest(Request["ControllerRegistrationResponse"]):
    controller_id: int = field(Int32)
    incarnation_id: bytes = field(Uuid)
    zk_migration_ready: bool = field(Bool)
    listeners: list[Listener] = field(Array(Listener))
    features: list[Feature] = field(Array(Feature))


@message(api=70, versions="0", flexible="0+")
class ControllerRegistrationResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
