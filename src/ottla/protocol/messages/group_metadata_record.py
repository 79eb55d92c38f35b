"""The record of __consumer_offsets that holds a classic group: key type 2."""

from ottla.protocol.schema import Array, Bytes, Int32, Int64, Message, String, Struct, field, message


@message(api=2, versions="0")
class GroupMetadataKey(Message):
    group: str = field(String)


class MemberMetadata(Struct):
    member_id: str = field(String)
    group_instance_id: str | None = field(String, versions="3+", nullable="3+", default=None, ignorable=True)
    client_id: str = field(String)
    client_host: str = field(String)
    rebalance_timeout: int = field(Int32, versions="1+", default=-1, ignorable=True)
    session_timeout: int = field(Int32)
    subscription: bytes = field(Bytes)
    assignment: bytes = field(Bytes)


@message(api=2, versions="0-4", flexible="4+")
class GroupMetadataValue(Message):
    protocol_type: str = field(String)
    generation: int = field(Int32)
    protocol: str | None = field(String, nullable="0+")
    leader: str | None = field(String, nullable="0+")
    current_state_timestamp: int = field(Int64, versions="2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = field(Array(MemberMetadata))
