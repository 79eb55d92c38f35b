"""A real broker inside a test.

Everything below is loaded when it is first used: pytest imports this package for its plugin, whether or not a test wants a
broker.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ottla.testing.embedded import EmbeddedBroker
    from ottla.testing.kafka import Kafka

_HOMES = {"EmbeddedBroker": "ottla.testing.embedded", "Kafka": "ottla.testing.kafka"}

__all__ = ["EmbeddedBroker", "Kafka", "broker"]


def broker(configs: "Mapping[str, object] | None" = None, *, data_dir: "Path | None" = None, port: int = 0) -> "Kafka":
    """The broker that the fixture `kafka` gives, for unittest and scripts: `with ottla.testing.broker() as kafka`.

    Its arguments, and what it raises, are those of `Kafka`.
    """
    from ottla.testing.kafka import Kafka

    return Kafka(configs, data_dir=data_dir, port=port)


def __getattr__(name: str) -> Any:
    """Load what a name stands for."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
