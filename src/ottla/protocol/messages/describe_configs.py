"""DescribeConfigs: API 32, versions 0-4 (flexible from 4).

Versions by release: 0 in 0.11.0, 1 in 1.1, 2 in 2.0, 3 in 2.6, 4 in 2.8.
"""

from ottla.protocol.schema import Array, Bool, Int8, Int16, Int32, Request, Response, String, Struct, field, message


class DescribeConfigsResource(Struct):
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    configuration_keys: list[str] | None = field(Array(String), nullable="0+")


@message(api=32, versions="0-4", flexible="4+")
class DescribeConfigsRequest(Request["DescribeConfigsResponse"]):
    resources: list[DescribeConfigsResource] = field(Array(DescribeConfigsResource), many=True)
    include_synonyms: bool = field(Bool, versions="1+")
    include_documentation: bool = field(Bool, versions="3+")


class DescribeConfigsSynonym(Struct):
    name: str = field(String, versions="1+")
    value: str | None = field(String, versions="1+", nullable="1+")
    source: int = field(Int8, versions="1+")


class DescribeConfigsResourceResult(Struct):
    name: str = field(String)
    value: str | None = field(String, nullable="0+")
    read_only: bool = field(Bool)
    is_default: bool = field(Bool, versions="0")
    config_source: int = field(Int8, versions="1+", default=-1, ignorable=True)
    is_sensitive: bool = field(Bool)
    synonyms: list[DescribeConfigsSynonym] = field(Array(DescribeConfigsSynonym), versions="1+", ignorable=True)
    config_type: int = field(Int8, versions="3+", ignorable=True)
    documentation: str | None = field(String, versions="3+", nullable="3+", ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    configs: list[DescribeConfigsResourceResult] = field(Array(DescribeConfigsResourceResult))


@message(api=32, versions="0-4", flexible="4+")
class DescribeConfigsResponse(Response):
    throttle_time_ms: int = field(Int32)
    results: list[DescribeConfigsResult] = field(Array(DescribeConfigsResult))
