"""DescribeCluster: API 60, versions 0-2 (flexible from 0).

Versions by release: 0 in 2.8, 1 in 3.7, 2 in 4.0.
"""

from ottla.protocol.schema import Array, Bool, Int8, Int16, Int32, Request, Response, String, Struct, field, message


@message(api=60, versions="0-2", flexible="0+")
class DescribeClusterRequest(Request["DescribeClusterResponse"]):
    include_cluster_authorized_operations: bool = field(Bool)
    endpoint_type: int = field(Int8, versions="1+", default=1)
    include_fenced_brokers: bool = field(Bool, versions="2+")


class DescribeClusterBroker(Struct):
    broker_id: int = field(Int32)
    host: str = field(String)
    port: int = field(Int32)
    rack: str | None = field(String, nullable="0+", default=None)
    is_fenced: bool = field(Bool, versions="2+")


@message(api=60, versions="0-2", flexible="0+")
class DescribeClusterResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    endpoint_type: int = field(Int8, versions="1+", default=1)
    cluster_id: str = field(String)
    controller_id: int = field(Int32, default=-1)
    brokers: list[DescribeClusterBroker] = field(Array(DescribeClusterBroker))
    cluster_authorized_operations: int = field(Int32, default=-(2**31))
