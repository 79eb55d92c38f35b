"""A record of __consumer_offsets: key type 11, ShareGroupMetadata."""

from ottla.protocol.schema import Int32, Int64, Message, String, field, message


@message(api=11, versions="0")
class ShareGroupMetadataKey(Message):
    group_id: str = field(String)


@message(api=11, versions="0", flexible="0+")
class ShareGroupMetadataValue(Message):
    epoch: int = field(Int32)
    metadata_hash: int = field(Int64)
