"""confluent-kafka's interface on Ottla's client: `import ottla.compat.confluent_kafka as confluent_kafka`."""

from ottla.compat.confluent_kafka.cimpl import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    ConcurrentModificationException,
    Consumer,
    IllegalStateException,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
    Uuid,
    consistent,
    fnv1a,
    libversion,
    murmur2,
    version,
)
from ottla.compat.confluent_kafka.deserializing_consumer import DeserializingConsumer
from ottla.compat.confluent_kafka.deserializing_share_consumer import DeserializingShareConsumer
from ottla.compat.confluent_kafka.serializing_producer import SerializingProducer
from ottla.compat.librdkafka.admin.groups import ConsumerGroupTopicPartitions
from ottla.compat.librdkafka.admin.requests import Node
from ottla.compat.librdkafka.admin.topics import TopicCollection, TopicPartitionInfo
from ottla.compat.librdkafka.enums import (
    AcknowledgeType,
    ConsumerGroupState,
    ConsumerGroupType,
    ElectionType,
    IsolationLevel,
)
from ottla.compat.librdkafka.events import ThrottleEvent
from ottla.compat.librdkafka.share import Messages

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "AcknowledgeType",
    "ConcurrentModificationException",
    "Consumer",
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "ConsumerGroupType",
    "DeserializingConsumer",
    "DeserializingShareConsumer",
    "ElectionType",
    "IllegalStateException",
    "IsolationLevel",
    "KafkaError",
    "KafkaException",
    "Message",
    "Messages",
    "Node",
    "Producer",
    "SerializingProducer",
    "ShareConsumer",
    "ThrottleEvent",
    "TopicCollection",
    "TopicPartition",
    "TopicPartitionInfo",
    "Uuid",
    "consistent",
    "fnv1a",
    "libversion",
    "murmur2",
    "version",
]

__version__ = version()
