"""Admin client for topics, and the metadata of a cluster."""

from ottla.compat.librdkafka.admin import AdminClient, NewPartitions, NewTopic
from ottla.compat.librdkafka.errors import KafkaError, KafkaException
from ottla.compat.librdkafka.metadata import BrokerMetadata, ClusterMetadata, PartitionMetadata, TopicMetadata

__all__ = [
    "AdminClient",
    "BrokerMetadata",
    "ClusterMetadata",
    "KafkaError",
    "KafkaException",
    "NewPartitions",
    "NewTopic",
    "PartitionMetadata",
    "TopicMetadata",
]
