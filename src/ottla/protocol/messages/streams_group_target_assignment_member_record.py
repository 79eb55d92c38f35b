"""A record of __consumer_offsets: key type 21, StreamsGroupTargetAssignmentMember."""

from ottla.protocol.schema import Array, Int32, Message, String, Struct, field, message


@message(api=21, versions="0")
class StreamsGroupTargetAssignmentMemberKey(Message):
    group_id: str = field(String)
    member_id: str = field(String)


class TaskIds(Struct):
    subtopology_id: str = field(String)
    partitions: list[int] = field(Array(Int32))


@message(api=21, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue(Message):
    active_tasks: list[TaskIds] = field(Array(TaskIds))
    standby_tasks: list[TaskIds] = field(Array(TaskIds))
    warmup_tasks: list[TaskIds] = field(Array(TaskIds))
