"""A record of __share_group_state: key type 1, ShareUpdate."""

from ottla.protocol.schema import Array, Int8, Int16, Int32, Int64, Message, String, Struct, Uuid, field, message


@message(api=1, versions="0")
class ShareUpdateKey(Message):
    group_id: str = field(String)
    topic_id: bytes = field(Uuid)
    partition: int = field(Int32)


class StateBatch(Struct):
    first_offset: int = field(Int64)
    last_offset: int = field(Int64)
    delivery_state: int = field(Int8)
    delivery_count: int = field(Int16)


@message(api=1, versions="0", flexible="0+")
class ShareUpdateValue(Message):
    snapshot_epoch: int = field(Int32)
    leader_epoch: int = field(Int32)
    start_offset: int = field(Int64)
    delivery_complete_count: int = field(Int32, tag=0, default=-1)
    state_batches: list[StateBatch] = field(Array(StateBatch))
