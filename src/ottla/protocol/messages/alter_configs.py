"""AlterConfigs: API 33, versions 0-2 (flexible from 2).

Versions by release: 0 in 0.11.0, 1 in 2.0, 2 in 2.8.
"""

from ottla.protocol.schema import (
    MOST_OF_CHANGES,
    Array,
    Bool,
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


class AlterableConfig(Struct):
    name: str = field(String)
    value: str | None = field(String, nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    configs: list[AlterableConfig] = field(Array(AlterableConfig))


@message(api=33, versions="0-2", flexible="2+")
class AlterConfigsRequest(Request["AlterConfigsResponse"]):
    ELEMENTS = MOST_OF_CHANGES
    resources: list[AlterConfigsResource] = field(Array(AlterConfigsResource))
    validate_only: bool = field(Bool)


class AlterConfigsResourceResponse(Struct):
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    resource_type: int = field(Int8)
    resource_name: str = field(String)


@message(api=33, versions="0-2", flexible="2+")
class AlterConfigsResponse(Response):
    throttle_time_ms: int = field(Int32)
    responses: list[AlterConfigsResourceResponse] = field(Array(AlterConfigsResourceResponse))
