"""BrokerRegistration: API 62, versions 0-4 (flexible from 0).

Versions by release: 0 in 2.8, 1 in 3.4, 2-3 in 3.7, 4 in 3.9.
"""

from ottla.protocol.schema import (
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
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


@message(api=62, versions="0-4", flexible="0+")
class BrokerRegistrationRequest(Request["BrokerRegistrationResponse"]):
    broker_id: int = field(Int32)
    cluster_id: str = field(String)
    incarnation_id: bytes = field(Uuid)
    listeners: list[Listener] = field(Array(Listener))
    features: list[Feature] = field(Array(Feature))
    rack: str | None = field(String, nullable="0+")
    is_migrating_zk_broker: bool = field(Bool, versions="1+")
    log_dirs: list[bytes] = field(Array(Uuid), versions="2+", ignorable=True)
    previous_broker_epoch: int = field(Int64, versions="3+", default=-1, ignorable=True)


@message(api=62, versions="0-4", flexible="0+")
class BrokerRegistrationResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    broker_epoch: int = field(Int64, default=-1)
