"""Metadata: API 3, versions 0-13 (flexible from 9).

Versions by release: 0 in 0.8.0, 1 in 0.10.0, 2 in 0.10.1, 3-4 in 0.11.0, 5 in 1.0, 6 in 2.0, 7 in 2.1, 8 in
    2.3, 9 in 2.4, 10-11 in 2.8, 12 in 3.1, 13 in 4.0.
"""

from typing import ClassVar

from ottla.protocol.schema import Array, Bool, Int16, Int32, Request, Response, String, Struct, Uuid, field, message


class MetadataRequestTopic(Struct):
    topic_id: bytes = field(Uuid, versions="10+", ignorable=True)
    name: str | None = field(String, nullable="10+")


@message(api=3, versions="0-13", flexible="9+")
class MetadataRequest(Request["MetadataResponse"]):
    topics: list[MetadataRequestTopic] | None = field(Array(MetadataRequestTopic), nullable="1+")
    allow_auto_topic_creation: bool = field(Bool, versions="4+", default=True)
    include_cluster_authorized_operations: bool = field(Bool, versions="8-10")
    include_topic_authorized_operations: bool = field(Bool, versions="8+")


class MetadataResponseBroker(Struct):
    node_id: int = field(Int32)
    host: str = field(String)
    port: int = field(Int32)
    rack: str | None = field(String, versions="1+", nullable="1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: int = field(Int16)
    partition_index: int = field(Int32)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32, versions="7+", default=-1, ignorable=True)
    replica_nodes: list[int] = field(Array(Int32))
    isr_nodes: list[int] = field(Array(Int32))
    offline_replicas: list[int] = field(Array(Int32), versions="5+", ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: int = field(Int16)
    name: str | None = field(String, nullable="12+")
    topic_id: bytes = field(Uuid, versions="10+", ignorable=True)
    is_internal: bool = field(Bool, versions="1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = field(Array(MetadataResponsePartition))
    topic_authorized_operations: int = field(Int32, versions="8+", default=-(2**31))


@message(api=3, versions="0-13", flexible="9+")
class MetadataResponse(Response):
    ELEMENTS: ClassVar[int] = 2_000_000  # 285,000 partitions with three replicas each
    throttle_time_ms: int = field(Int32, versions="3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = field(Array(MetadataResponseBroker))
    cluster_id: str | None = field(String, versions="2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = field(Int32, versions="1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = field(Array(MetadataResponseTopic))
    cluster_authorized_operations: int = field(Int32, versions="8-10", default=-(2**31))
    error_code: int = field(Int16, versions="13+", ignorable=True)
