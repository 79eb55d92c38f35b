"""CreateAcls: API 30, versions 0-3 (flexible from 2).

Versions by release: 0 in 0.11.0, 1 in 2.0, 2 in 2.5, 3 in 3.3.
"""

from ottla.protocol.schema import (
    MOST_OF_ADMINISTRATION,
    Array,
    Int8,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    field,
    message,
)


class AclCreation(Struct):
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    resource_pattern_type: int = field(Int8, versions="1+", default=3)
    principal: str = field(String)
    host: str = field(String)
    operation: int = field(Int8)
    permission_type: int = field(Int8)


@message(api=30, versions="0-3", flexible="2+")
class CreateAclsRequest(Request["CreateAclsResponse"]):
    ELEMENTS = MOST_OF_ADMINISTRATION
    creations: list[AclCreation] = field(Array(AclCreation))


class AclCreationResult(Struct):
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")


@message(api=30, versions="0-3", flexible="2+")
class CreateAclsResponse(Response):
    throttle_time_ms: int = field(Int32)
    results: list[AclCreationResult] = field(Array(AclCreationResult))
