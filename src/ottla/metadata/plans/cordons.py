"""Brokers that get no new partitions, because all of their log directories are cordoned (KIP-1066).

cordoned.log.dirs names directories, or all of them by "*". A broker registers its directories and the config's value at
its start; a value that is set later is in the metadata, as every dynamic config.
"""

from collections.abc import Collection
from typing import Final

from ottla.metadata.configs.alteration import BROKER
from ottla.metadata.image import BrokerImage, Image

CORDONED: Final = "cordoned.log.dirs"
ALL: Final = "*"


def is_named(directory: str, entries: Collection[str]) -> bool:
    """Return whether a value of the config names a directory, as it is in log.dirs."""
    return ALL in entries or directory in entries


def is_cordoned(image: Image, broker: BrokerImage) -> bool:
    """Return whether a registered broker has no log directory for new partitions."""
    text = image.configs_of(BROKER, str(broker.node_id)).get(CORDONED)
    entries = set(broker.cordoned if text is None else (entry.strip() for entry in text.split(",")))
    # A value that names another directory is not valid any more, and without effect: the broker's log.dirs have changed.
    return entries == {ALL} or (bool(broker.log_dirs) and entries == set(broker.log_dirs))


def cordoned_brokers(image: Image) -> frozenset[int]:
    """Return the registered brokers without a log directory for new partitions."""
    return frozenset(node for node, broker in image.registered.items() if is_cordoned(image, broker))
