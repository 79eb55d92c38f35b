"""ListConfigResources: API 74, versions 0-1 (flexible from 0).

Versions by release: 0 in 3.7, 1 in 4.1.
"""

from ottla.protocol.schema import Array, Int8, Int16, Int32, Request, Response, String, Struct, field, message


@message(api=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest(Request["ListConfigResourcesResponse"]):
    resource_types: list[int] = field(Array(Int8), versions="1+")


class ConfigResource(Struct):
    resource_name: str = field(String)
    resource_type: int = field(Int8, versions="1+", default=16, ignorable=True)


@message(api=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    config_resources: list[ConfigResource] = field(Array(ConfigResource))
