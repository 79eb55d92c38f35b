"""A record of __consumer_offsets: key type 22, StreamsGroupCurrentMemberAssignment."""

from ottla.protocol.schema import Array, Int8, Int32, Message, String, Struct, field, message


@message(api=22, versions="0")
class StreamsGroupCurrentMemberAssignmentKey(Message):
    group_id: str = field(String)
    member_id: str = field(String)


class TaskIds(Struct):
    subtopology_id: str = field(String)
    partitions: list[int] = field(Array(Int32))
    assignment_epochs: list[int] | None = field(Array(Int32), nullable="0+", tag=0)


@message(api=22, versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue(Message):
    member_epoch: int = field(Int32)
    previous_member_epoch: int = field(Int32)
    state: int = field(Int8)
    active_tasks: list[TaskIds] = field(Array(TaskIds))
    standby_tasks: list[TaskIds] = field(Array(TaskIds))
    warmup_tasks: list[TaskIds] = field(Array(TaskIds))
    active_tasks_pending_revocation: list[TaskIds] = field(Array(TaskIds))
    standby_tasks_pending_revocation: list[TaskIds] = field(Array(TaskIds))
    warmup_tasks_pending_revocation: list[TaskIds] = field(Array(TaskIds))
