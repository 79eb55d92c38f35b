"""DescribeAcls: API 29, versions 0-3 (flexible from 2).

Versions by release: 0 in 0.11.0, 1 in 2.0, 2 in 2.5, 3 in 3.3.
"""

from ottla.protocol.schema import Array, Int8, Int16, Int32, Request, Response, String, Struct, field, message


@message(api=29, versions="0-3", flexible="2+")
class DescribeAclsRequest(Request["DescribeAclsResponse"]):
    resource_type_filter: int = field(Int8)
    resource_name_filter: str | None = field(String, nullable="0+")
    pattern_type_filter: int = field(Int8, versions="1+", default=3)
    principal_filter: str | None = field(String, nullable="0+")
    host_filter: str | None = field(String, nullable="0+")
    operation: int = field(Int8)
    permission_type: int = field(Int8)


class AclDescription(Struct):
    principal: str = field(String)
    host: str = field(String)
    operation: int = field(Int8)
    permission_type: int = field(Int8)


class DescribeAclsResource(Struct):
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    pattern_type: int = field(Int8, versions="1+", default=3)
    acls: list[AclDescription] = field(Array(AclDescription))


@message(api=29, versions="0-3", flexible="2+")
class DescribeAclsResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    resources: list[DescribeAclsResource] = field(Array(DescribeAclsResource))
