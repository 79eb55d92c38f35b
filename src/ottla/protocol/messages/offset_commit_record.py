"""The records of __consumer_offsets that hold committed offsets: keys of type 0 and 1."""

from ottla.protocol.schema import Int32, Int64, Message, String, Uuid, field, message


@message(api=0, versions="0")
class LegacyOffsetCommitKey(Message):
    group: str = field(String)
    topic: str = field(String)
    partition: int = field(Int32)


@message(api=0, versions="0")
class LegacyOffsetCommitValue(Message):
    offset: int = field(Int64)
    metadata: str = field(String)
    commit_timestamp: int = field(Int64)


@message(api=1, versions="0")
class OffsetCommitKey(Message):
    group: str = field(String)
    topic: str = field(String)
    partition: int = field(Int32)


@message(api=1, versions="0-4", flexible="4+")
class OffsetCommitValue(Message):
    offset: int = field(Int64)
    leader_epoch: int = field(Int32, versions="3+", default=-1, ignorable=True)
    metadata: str = field(String)
    commit_timestamp: int = field(Int64)
    expire_timestamp: int = field(Int64, versions="1", default=-1, ignorable=True)
    topic_id: bytes = field(Uuid, versions="4+", tag=0, ignorable=True)
