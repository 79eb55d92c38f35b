"""What a start says: why it failed, which configs have no effect, and what it has started."""

import logging

from ottla.broker.broker import Broker
from ottla.broker.config import BrokerConfig
from ottla.protocol import plan
from ottla.version import VERSION

_logger = logging.getLogger("ottla.broker")


class CannotStart(Exception):
    """Failed start of a broker: the reason and its remedy, in one line."""


def report_configs(config: BrokerConfig) -> None:
    """Warn of configs without effect: of a file for another broker, or with a misspelt name."""
    if config.unknown:
        _logger.warning("unknown configs in the file are left out: %s", ", ".join(config.unknown))
    if config.idle:
        _logger.warning("these configs are set and have no effect in Ottla: %s", ", ".join(config.idle))


def report_start(broker: Broker, log_dirs: list[str], took_ms: int) -> None:
    """Log that a broker serves requests."""
    _logger.info(
        "Ottla %s started in %d ms on %s: node %d of cluster %s, %d topics, listening on %s%s",
        VERSION,
        took_ms,
        ", ".join(log_dirs),
        broker.node_id,
        broker.image.cluster_id,
        len(broker.image.topics),
        ", ".join(str(listener._replace(host=host, port=port)) for listener, (host, port) in broker.listeners.bound),
        "" if plan.COMPILED else " (interpreted: slower than with compiled modules)",
    )
