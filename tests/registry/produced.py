"""Records with a schema, and requests that produce them."""

from typing import Any

from ottla import Admin, ConfigChange, ConfigResource, ResourceType
from ottla.client.errors import KafkaError
from ottla.protocol.errors import INVALID_RECORD
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import build
from ottla.records.record import Record
from ottla.testing import Kafka
from tests.conformance.conftest import Wire

VALIDATED: dict[str, Any] = {"confluent.value.schema.validation": "true"}
NOW = 1_700_000_000_000


def framed(number: int, payload: bytes = b"x") -> bytes:
    """Return a value with the id of its schema."""
    return b"\0" + number.to_bytes(4, "big") + payload


def batch_of(*values: bytes | None, **fields: Any) -> bytes:
    """Return a batch with these values."""
    return build([Record(offset, NOW, b"k", value, []) for offset, value in enumerate(values)], **fields)


def send(wire: Wire, topic: str, batch: bytes, version: int = 9, **fields: Any) -> Any:
    """Produce a batch, and return its row of the response."""
    rows = TopicProduceData(partition_data=[PartitionProduceData(index=0, records=batch)])
    if version >= 13:
        (known,) = wire.send(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics
        rows.topic_id = known.topic_id
    else:
        rows.name = topic
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[rows], **fields)
    return wire.send(request, version).responses[0].partition_responses[0]


def is_accepted(kafka: Kafka, topic: str, value: bytes | None, key: bytes | None = None, **fields: Any) -> bool:
    """Return whether a topic accepts a record; other errors than that of its schema are raised."""
    try:
        kafka.produce(topic, value, key=key, **fields)
    except KafkaError as refused:
        if refused.code != INVALID_RECORD:
            raise
        return False
    return True


def alter_topic(admin: Admin, topic: str, **configs: str) -> None:
    """Set configs of a topic; names have `_` instead of `.`."""
    changes = [ConfigChange(name.replace("_", "."), value) for name, value in configs.items()]
    admin.incremental_alter_configs({ConfigResource(ResourceType.TOPIC, topic): changes}).check()
