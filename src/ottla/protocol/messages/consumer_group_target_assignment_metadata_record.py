"""A record of __consumer_offsets: key type 6, ConsumerGroupTargetAssignmentMetadata."""

from ottla.protocol.schema import Int32, Int64, Message, String, field, message


@message(api=6, versions="0")
class ConsumerGroupTargetAssignmentMetadataKey(Message):
    group_id: str = field(String)


@message(api=6, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int = field(Int32)
    assignment_timestamp: int = field(Int64, tag=0, ignorable=True)
