"""A record of __consumer_offsets: key type 3, ConsumerGroupMetadata."""

from ottla.protocol.schema import Int32, Int64, Message, String, field, message


@message(api=3, versions="0")
class ConsumerGroupMetadataKey(Message):
    group_id: str = field(String)


@message(api=3, versions="0", flexible="0+")
class ConsumerGroupMetadataValue(Message):
    epoch: int = field(Int32)
    metadata_hash: int = field(Int64, tag=0)
