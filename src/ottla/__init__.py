"""Ottla: Kafka you can pip install.

Everything below is loaded when it is first used: to import `ottla` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.client.admin.topics import NewTopic
    from ottla.client.blocking import Admin, ShareConsumer
    from ottla.client.errors import KafkaError
    from ottla.client.share.delivery import AcknowledgeType
    from ottla.client.topics import EARLIEST, LATEST, TopicPartition
    from ottla.records.record import Record

__version__ = "0.1.0"

_HOMES = {
    "EARLIEST": "ottla.client.topics",
    "LATEST": "ottla.client.topics",
    "AcknowledgeType": "ottla.client.share.delivery",
    "Admin": "ottla.client.blocking",
    "KafkaError": "ottla.client.errors",
    "NewTopic": "ottla.client.admin.topics",
    "Record": "ottla.records.record",
    "ShareConsumer": "ottla.client.blocking",
    "TopicPartition": "ottla.client.topics",
}

__all__ = [
    "EARLIEST",
    "LATEST",
    "AcknowledgeType",
    "Admin",
    "KafkaError",
    "NewTopic",
    "Record",
    "ShareConsumer",
    "TopicPartition",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Load what a name stands for."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
