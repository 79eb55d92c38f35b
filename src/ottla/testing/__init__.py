"""Embedded brokers for tests.

Modules are loaded on first use: pytest imports this package for its plugin even if no test uses a broker.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ottla.testing.cluster import KafkaCluster
    from ottla.testing.embedded import EmbeddedBroker
    from ottla.testing.kafka import Kafka
    from ottla.testing.security import Security

_HOMES = {
    "EmbeddedBroker": "ottla.testing.embedded",
    "Kafka": "ottla.testing.kafka",
    "KafkaCluster": "ottla.testing.cluster",
    "Security": "ottla.testing.security",
}

__all__ = ["EmbeddedBroker", "Kafka", "KafkaCluster", "Security", "broker"]


def broker(
    configs: "Mapping[str, object] | None" = None, *, data_dir: "Path | str | None" = None, port: int = 0
) -> "Kafka":
    """Return a broker as the fixture `kafka` provides it, for unittest and scripts: `with ottla.testing.broker() as kafka`.

    Arguments and errors are those of `Kafka`.
    """
    from ottla.testing.kafka import Kafka

    __tracebackhide__ = True
    return Kafka(configs, data_dir=data_dir, port=port)


def __getattr__(name: str) -> Any:
    """Import a name of `__all__` on first use."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
