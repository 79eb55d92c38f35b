"""A record of __consumer_offsets: key type 4, ConsumerGroupPartitionMetadata."""

from ottla.protocol.schema import Array, Int32, Message, String, Struct, Uuid, field, message


@message(api=4, versions="0")
class ConsumerGroupPartitionMetadataKey(Message):
    group_id: str = field(String)


class PartitionMetadata(Struct):
    partition: int = field(Int32)
    racks: list[str] = field(Array(String))


class TopicMetadata(Struct):
    topic_id: bytes = field(Uuid)
    topic_name: str = field(String)
    num_partitions: int = field(Int32)
    partition_metadata: list[PartitionMetadata] = field(Array(PartitionMetadata))


@message(api=4, versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue(Message):
    topics: list[TopicMetadata] = field(Array(TopicMetadata))
