"""LeaderAndIsr: API 4, versions 0-7 (flexible from 4).

Versions by release: 0 in 0.8.0, 1 in 1.0, 2 in 2.2, 3-4 in 2.4, 5 in 2.8, 6 in 3.2, 7 in 3.4.
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


class LeaderAndIsrPartitionState(Struct):
    topic_name: str = field(String, versions="0-1", ignorable=True)
    partition_index: int = field(Int32, versions="0-1")
    controller_epoch: int = field(Int32, versions="0-1")
    leader: int = field(Int32, versions="0-1")
    leader_epoch: int = field(Int32, versions="0-1")
    isr: list[int] = field(Array(Int32), versions="0-1")
    partition_epoch: int = field(Int32, versions="0-1")
    replicas: list[int] = field(Array(Int32), versions="0-1")
    is_new: bool = field(Bool, versions="1", ignorable=True)


class LeaderAndIsrRequestLeaderAndIsrPartitionState(Struct):
    partition_index: int = field(Int32, versions="2+")
    controller_epoch: int = field(Int32, versions="2+")
    leader: int = field(Int32, versions="2+")
    leader_epoch: int = field(Int32, versions="2+")
    isr: list[int] = field(Array(Int32), versions="2+")
    partition_epoch: int = field(Int32, versions="2+")
    replicas: list[int] = field(Array(Int32), versions="2+")
    adding_replicas: list[int] = field(Array(Int32), versions="3+", ignorable=True)
    removing_replicas: list[int] = field(Array(Int32), versions="3+", ignorable=True)
    is_new: bool = field(Bool, versions="2+", ignorable=True)
    leader_recovery_state: int = field(Int8, versions="6+")


class LeaderAndIsrTopicState(Struct):
    topic_name: str = field(String, versions="2+")
    topic_id: bytes = field(Uuid, versions="5+", ignorable=True)
    partition_states: list[LeaderAndIsrRequestLeaderAndIsrPartitionState] = field(
        Array(LeaderAndIsrRequestLeaderAndIsrPartitionState), versions="2+"
    )


class LeaderAndIsrLiveLeader(Struct):
    broker_id: int = field(Int32)
    host_name: str = field(String)
    port: int = field(Int32)


@message(api=4, versions="0-7", flexible="4+")
class LeaderAndIsrRequest(Request["LeaderAndIsrResponse"]):
    controller_id: int = field(Int32)
    is_k_raft_controller: bool = field(Bool, versions="7+")
    controller_epoch: int = field(Int32)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = field(
        Array(LeaderAndIsrPartitionState), versions="0-1"
    )
    broker_epoch: int = field(Int64, versions="2+", default=-1, ignorable=True)
    type: int = field(Int8, versions="5+")
    topic_states: list[LeaderAndIsrTopicState] = field(Array(LeaderAndIsrTopicState), versions="2+")
    live_leaders: list[LeaderAndIsrLiveLeader] = field(Array(LeaderAndIsrLiveLeader))


class LeaderAndIsrPartitionError(Struct):
    topic_name: str = field(String, versions="0-4", ignorable=True)
    partition_index: int = field(Int32, versions="0-4")
    error_code: int = field(Int16, versions="0-4")


class LeaderAndIsrResponseLeaderAndIsrPartitionError(Struct):
    partition_index: int = field(Int32, versions="5+")
    error_code: int = field(Int16, versions="5+")


class LeaderAndIsrTopicError(Struct):
    topic_id: bytes = field(Uuid, versions="5+")
    partition_errors: list[LeaderAndIsrResponseLeaderAndIsrPartitionError] = field(
        Array(LeaderAndIsrResponseLeaderAndIsrPartitionError), versions="5+"
    )


@message(api=4, versions="0-7", flexible="4+")
class LeaderAndIsrResponse(Response):
    error_code: int = field(Int16)
    partition_errors: list[LeaderAndIsrPartitionError] = field(Array(LeaderAndIsrPartitionError), versions="0-4")
    topics: list[LeaderAndIsrTopicError] = field(Array(LeaderAndIsrTopicError), versions="5+")
