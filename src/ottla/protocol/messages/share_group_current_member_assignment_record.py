"""A record of __consumer_offsets: key type 14, ShareGroupCurrentMemberAssignment."""

from ottla.protocol.schema import Array, Int8, Int32, Message, String, Struct, Uuid, field, message


@message(api=14, versions="0")
class ShareGroupCurrentMemberAssignmentKey(Message):
    group_id: str = field(String)
    member_id: str = field(String)


class TopicPartitions(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[int] = field(Array(Int32))


@message(api=14, versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue(Message):
    member_epoch: int = field(Int32)
    previous_member_epoch: int = field(Int32)
    state: int = field(Int8)
    assigned_partitions: list[TopicPartitions] = field(Array(TopicPartitions))
