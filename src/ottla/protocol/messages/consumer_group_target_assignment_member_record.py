"""A record of __consumer_offsets: key type 7, ConsumerGroupTargetAssignmentMember."""

from ottla.protocol.schema import Array, Int32, Message, String, Struct, Uuid, field, message


@message(api=7, versions="0")
class ConsumerGroupTargetAssignmentMemberKey(Message):
    group_id: str = field(String)
    member_id: str = field(String)


class TopicPartition(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[int] = field(Array(Int32))


@message(api=7, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue(Message):
    topic_partitions: list[TopicPartition] = field(Array(TopicPartition))
