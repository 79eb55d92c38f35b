"""Names of confluent-kafka's compiled module."""

from ottla.compat.librdkafka.admin.topics import NewPartitions, NewTopic
from ottla.compat.librdkafka.constants import *  # noqa: F403
from ottla.compat.librdkafka.consumer import Consumer
from ottla.compat.librdkafka.errors import (
    ConcurrentModificationException,
    IllegalStateException,
    KafkaError,
    KafkaException,
)
from ottla.compat.librdkafka.producer import Producer
from ottla.compat.librdkafka.share import ShareConsumer
from ottla.compat.librdkafka.values import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
    TopicPartition,
    Uuid,
    consistent,
    fnv1a,
    murmur2,
)

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "ConcurrentModificationException",
    "Consumer",
    "IllegalStateException",
    "KafkaError",
    "KafkaException",
    "Message",
    "NewPartitions",
    "NewTopic",
    "Producer",
    "ShareConsumer",
    "TopicPartition",
    "Uuid",
    "consistent",
    "fnv1a",
    "libversion",
    "murmur2",
    "version",
]


def version() -> str:
    """Return the version of confluent-kafka whose interface this is."""
    return "2.16.1"


def libversion() -> tuple[str, int]:
    """Return the version of librdkafka whose behaviour this is, as text and number."""
    return "2.16.0", 0x021000FF
