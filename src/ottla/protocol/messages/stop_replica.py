"""StopReplica: API 5, versions 0-4 (flexible from 2).

Versions by release: 0 in 0.8.0, 1 in 2.2, 2 in 2.4, 3 in 2.6, 4 in 3.4.
"""

from ottla.protocol.schema import Array, Bool, Int16, Int32, Int64, Request, Response, String, Struct, field, message


class StopReplicaPartitionV0(Struct):
    topic_name: str = field(String, versions="0")
    partition_index: int = field(Int32, versions="0")


class StopReplicaTopicV1(Struct):
    name: str = field(String, versions="1-2")
    partition_indexes: list[int] = field(Array(Int32), versions="1-2")


class StopReplicaPartitionState(Struct):
    partition_index: int = field(Int32, versions="3+")
    leader_epoch: int = field(Int32, versions="3+", default=-1)
    delete_partition: bool = field(Bool, versions="3+")


class StopReplicaTopicState(Struct):
    topic_name: str = field(String, versions="3+")
    partition_states: list[StopReplicaPartitionState] = field(Array(StopReplicaPartitionState), versions="3+")


@message(api=5, versions="0-4", flexible="2+")
class StopReplicaRequest(Request["StopReplicaResponse"]):
    controller_id: int = field(Int32)
    is_k_raft_controller: bool = field(Bool, versions="4+")
    controller_epoch: int = field(Int32)
    broker_epoch: int = field(Int64, versions="1+", default=-1, ignorable=True)
    delete_partitions: bool = field(Bool, versions="0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = field(Array(StopReplicaPartitionV0), versions="0")
    topics: list[StopReplicaTopicV1] = field(Array(StopReplicaTopicV1), versions="1-2")
    topic_states: list[StopReplicaTopicState] = field(Array(StopReplicaTopicState), versions="3+")


class StopReplicaPartitionError(Struct):
    topic_name: str = field(String)
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


@message(api=5, versions="0-4", flexible="2+")
class StopReplicaResponse(Response):
    error_code: int = field(Int16)
    partition_errors: list[StopReplicaPartitionError] = field(Array(StopReplicaPartitionError))
