"""IncrementalAlterConfigs: API 44, versions 0-1 (flexible from 1).

Versions by release: 0 in 2.3, 1 in 2.4.
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
    config_operation: int = field(Int8)
    value: str | None = field(String, nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    configs: list[AlterableConfig] = field(Array(AlterableConfig))


@message(api=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest(Request["IncrementalAlterConfigsResponse"]):
    ELEMENTS = MOST_OF_CHANGES
    resources: list[AlterConfigsResource] = field(Array(AlterConfigsResource))
    validate_only: bool = field(Bool)


class AlterConfigsResourceResponse(Struct):
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    resource_type: int = field(Int8)
    resource_name: str = field(String)


@message(api=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse(Response):
    throttle_time_ms: int = field(Int32)
    responses: list[AlterConfigsResourceResponse] = field(Array(AlterConfigsResourceResponse))
