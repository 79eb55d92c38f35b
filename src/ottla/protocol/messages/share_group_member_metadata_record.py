"""A record of __consumer_offsets: key type 10, ShareGroupMemberMetadata."""

from ottla.protocol.schema import Array, Message, String, field, message


@message(api=10, versions="0")
class ShareGroupMemberMetadataKey(Message):
    group_id: str = field(String)
    member_id: str = field(String)


@message(api=10, versions="0", flexible="0+")
class ShareGroupMemberMetadataValue(Message):
    rack_id: str | None = field(String, nullable="0+")
    client_id: str = field(String)
    client_host: str = field(String)
    subscribed_topic_names: list[str] = field(Array(String))
