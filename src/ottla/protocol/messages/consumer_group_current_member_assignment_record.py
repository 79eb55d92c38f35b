"""A record of __consumer_offsets: key type 8, ConsumerGroupCurrentMemberAssignment."""

from ottla.protocol.schema import Array, Int8, Int32, Message, String, Struct, Uuid, field, message


@message(api=8, versions="0")
class ConsumerGroupCurrentMemberAssignmentKey(Message):
    group_id: str = field(String)
    member_id: str = field(String)


class TopicPartitions(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[int] = field(Array(Int32))
    assignment_epochs: list[int] | None = field(Array(Int32), nullable="0+", tag=0)


@message(api=8, versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    member_epoch: int = field(Int32)
    previous_member_epoch: int = field(Int32)
    state: int = field(Int8)
    assigned_partitions: list[TopicPartitions] = field(Array(TopicPartitions))
    partitions_pending_revocation: list[TopicPartitions] = field(Array(TopicPartitions))
