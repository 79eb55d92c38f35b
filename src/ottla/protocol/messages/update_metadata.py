"""UpdateMetadata: API 6, versions 0-8 (flexible from 6).

Versions by release: 0 in 0.8.0, 1 in 0.9.0, 2 in 0.10.0, 3 in 0.10.2, 4 in 1.0, 5 in 2.2, 6 in 2.4, 7 in 2.8,
    8 in 3.4.
"""

from ottla.protocol.schema import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    field,
    message,
)


class UpdateMetadataPartitionState(Struct):
    topic_name: str = field(String, versions="0-4", ignorable=True)
    partition_index: int = field(Int32, versions="0-4")
    controller_epoch: int = field(Int32, versions="0-4")
    leader: int = field(Int32, versions="0-4")
    leader_epoch: int = field(Int32, versions="0-4")
    isr: list[int] = field(Array(Int32), versions="0-4")
    zk_version: int = field(Int32, versions="0-4")
    replicas: list[int] = field(Array(Int32), versions="0-4")
    offline_replicas: list[int] = field(Array(Int32), versions="4", ignorable=True)


class UpdateMetadataRequestUpdateMetadataPartitionState(Struct):
    partition_index: int = field(Int32, versions="5+")
    controller_epoch: int = field(Int32, versions="5+")
    leader: int = field(Int32, versions="5+")
    leader_epoch: int = field(Int32, versions="5+")
    isr: list[int] = field(Array(Int32), versions="5+")
    zk_version: int = field(Int32, versions="5+")
    replicas: list[int] = field(Array(Int32), versions="5+")
    offline_replicas: list[int] = field(Array(Int32), versions="5+", ignorable=True)


class UpdateMetadataTopicState(Struct):
    topic_name: str = field(String, versions="5+")
    topic_id: bytes = field(Uuid, versions="7+", ignorable=True)
    partition_states: list[UpdateMetadataRequestUpdateMetadataPartitionState] = field(
        Array(UpdateMetadataRequestUpdateMetadataPartitionState), versions="5+"
    )


class UpdateMetadataEndpoint(Struct):
    port: int = field(Int32, versions="1+")
    host: str = field(String, versions="1+")
    listener: str = field(String, versions="3+", ignorable=True)
    security_protocol: int = field(Int16, versions="1+")


class UpdateMetadataBroker(Struct):
    id: int = field(Int32)
    v0_host: str = field(String, versions="0", ignorable=True)
    v0_port: int = field(Int32, versions="0", ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = field(Array(UpdateMetadataEndpoint), versions="1+", ignorable=True)
    rack: str | None = field(String, versions="2+", nullable="2+", ignorable=True)


@message(api=6, versions="0-8", flexible="6+")
class UpdateMetadataRequest(Request["UpdateMetadataResponse"]):
    controller_id: int = field(Int32)
    is_k_raft_controller: bool = field(Bool, versions="8+")
    type: int = field(Int8, versions="8+", tag=0)
    controller_epoch: int = field(Int32)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = field(
        Array(UpdateMetadataPartitionState), versions="0-4"
    )
    broker_epoch: int = field(Int64, versions="5+", default=-1, ignorable=True)
    topic_states: list[UpdateMetadataTopicState] = field(Array(UpdateMetadataTopicState), versions="5+")
    live_brokers: list[UpdateMetadataBroker] = field(Array(UpdateMetadataBroker))


@message(api=6, versions="0-8", flexible="6+")
class UpdateMetadataResponse(Response):
    error_code: int = field(Int16)
