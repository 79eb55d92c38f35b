"""A record of __consumer_offsets: key type 15, ShareGroupStatePartitionMetadata."""

from ottla.protocol.schema import Array, Int32, Message, String, Struct, Uuid, field, message


@message(api=15, versions="0")
class ShareGroupStatePartitionMetadataKey(Message):
    group_id: str = field(String)


class TopicPartitionsInfo(Struct):
    topic_id: bytes = field(Uuid)
    topic_name: str = field(String)
    partitions: list[int] = field(Array(Int32))


class TopicInfo(Struct):
    topic_id: bytes = field(Uuid)
    topic_name: str = field(String)


@message(api=15, versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue(Message):
    initializing_topics: list[TopicPartitionsInfo] = field(Array(TopicPartitionsInfo))
    initialized_topics: list[TopicPartitionsInfo] = field(Array(TopicPartitionsInfo))
    deleting_topics: list[TopicInfo] = field(Array(TopicInfo))
