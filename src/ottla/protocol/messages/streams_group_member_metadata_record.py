"""A record of __consumer_offsets: key type 19, StreamsGroupMemberMetadata."""

from ottla.protocol.schema import Array, Int32, Message, String, Struct, Uint16, field, message


@message(api=19, versions="0")
class StreamsGroupMemberMetadataKey(Message):
    group_id: str = field(String)
    member_id: str = field(String)


class Endpoint(Struct):
    host: str = field(String)
    port: int = field(Uint16)


class KeyValue(Struct):
    key: str = field(String)
    value: str = field(String)


@message(api=19, versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue(Message):
    instance_id: str | None = field(String, nullable="0+")
    rack_id: str | None = field(String, nullable="0+")
    client_id: str = field(String)
    client_host: str = field(String)
    rebalance_timeout_ms: int = field(Int32, default=-1)
    topology_epoch: int = field(Int32)
    process_id: str = field(String)
    user_endpoint: Endpoint | None = field(Endpoint, nullable="0+", default=None)
    client_tags: list[KeyValue] = field(Array(KeyValue))
