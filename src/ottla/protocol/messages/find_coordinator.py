"""FindCoordinator: API 10, versions 0-6 (flexible from 3).

Versions by release: 0 in 0.8.2, 1 in 0.11.0, 2 in 2.0, 3 in 2.4, 4 in 3.0, 5 in 3.8, 6 in 3.9.
"""

from ottla.protocol.schema import Array, Int8, Int16, Int32, Request, Response, String, Struct, field, message


@message(api=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest(Request["FindCoordinatorResponse"]):
    key: str = field(String, versions="0-3")
    key_type: int = field(Int8, versions="1+")
    coordinator_keys: list[str] = field(Array(String), versions="4+")


class Coordinator(Struct):
    key: str = field(String, versions="4+")
    node_id: int = field(Int32, versions="4+")
    host: str = field(String, versions="4+")
    port: int = field(Int32, versions="4+")
    error_code: int = field(Int16, versions="4+")
    error_message: str | None = field(String, versions="4+", nullable="4+", ignorable=True)


@message(api=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse(Response):
    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True)
    error_code: int = field(Int16, versions="0-3")
    error_message: str | None = field(String, versions="1-3", nullable="1-3", ignorable=True)
    node_id: int = field(Int32, versions="0-3")
    host: str = field(String, versions="0-3")
    port: int = field(Int32, versions="0-3")
    coordinators: list[Coordinator] = field(Array(Coordinator), versions="4+")
