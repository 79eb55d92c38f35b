"""A record of __consumer_offsets: key type 9, ShareGroupPartitionMetadata; early releases of share groups wrote it."""

from ottla.protocol.schema import Array, Int32, Message, String, Struct, Uuid, field, message


@message(versions="9")
class ShareGroupPartitionMetadataKey(Message):
    group_id: str = field(String, versions="9+")


class PartitionMetadata(Struct):
    partition: int = field(Int32)
    racks: list[str] = field(Array(String))


class TopicMetadata(Struct):
    topic_id: bytes = field(Uuid)
    topic_name: str = field(String)
    num_partitions: int = field(Int32)
    partition_metadata: list[PartitionMetadata] = field(Array(PartitionMetadata))


@message(versions="0", flexible="0+")
class ShareGroupPartitionMetadataValue(Message):
    topics: list[TopicMetadata] = field(Array(TopicMetadata))
