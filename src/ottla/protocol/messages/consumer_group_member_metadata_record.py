"""A record of __consumer_offsets: key type 5, ConsumerGroupMemberMetadata."""

from ottla.protocol.schema import Array, Bytes, Int32, Message, String, Struct, field, message


@message(api=5, versions="0")
class ConsumerGroupMemberMetadataKey(Message):
    group_id: str = field(String)
    member_id: str = field(String)


class ClassicProtocol(Struct):
    name: str = field(String)
    metadata: bytes = field(Bytes)


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = field(Int32)
    supported_protocols: list[ClassicProtocol] = field(Array(ClassicProtocol))


@message(api=5, versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue(Message):
    instance_id: str | None = field(String, nullable="0+")
    rack_id: str | None = field(String, nullable="0+")
    client_id: str = field(String)
    client_host: str = field(String)
    subscribed_topic_names: list[str] = field(Array(String))
    subscribed_topic_regex: str | None = field(String, nullable="0+")
    rebalance_timeout_ms: int = field(Int32, default=-1)
    server_assignor: str | None = field(String, nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = field(ClassicMemberMetadata, nullable="0+", tag=0)
