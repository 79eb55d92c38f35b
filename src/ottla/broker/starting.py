"""A start as its user sees it: why it failed, which configs have no effect, the listeners, and what it has started."""

import logging
from typing import TYPE_CHECKING

from ottla.broker.config import BrokerConfig
from ottla.broker.security.listener_configs import PLAINTEXT
from ottla.protocol import plan
from ottla.version import VERSION

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.connections.listener_security import ListenerSecurity
    from ottla.broker.connections.socket_server import SocketServer
    from ottla.environment import Environment

_logger = logging.getLogger("ottla.broker")


class CannotStart(Exception):
    """Failed start of a broker: the reason and its remedy, in one line."""


def report_configs(config: BrokerConfig) -> None:
    """Warn of configs without effect: of a file for another broker, or with a misspelt name."""
    if config.unknown:
        _logger.warning("unknown configs in the file are left out: %s", ", ".join(config.unknown))
    if config.idle:
        _logger.warning("these configs are set and have no effect in Ottla: %s", ", ".join(config.idle))


def open_listeners(config: BrokerConfig, broker: "Broker", sockets: "SocketServer", environment: "Environment") -> None:
    """Listen, and note the addresses in `broker.listeners`. Raises CannotStart, InvalidConfig."""
    for listener in config.listeners:
        security: ListenerSecurity | None = None
        if listener.protocol != PLAINTEXT or ":" in str(config["principal.builder.class"]):
            # A broker without secured listeners starts without these modules.
            from ottla.broker.connections.listener_security import secure_listener

            security = secure_listener(listener, broker, environment)
        try:
            address = sockets.listen(listener.name, listener.host, listener.port, security)
        except OSError as cause:
            raise CannotStart(f"cannot listen on {listener.address}: {cause.strerror or cause}") from None
        broker.listeners.bound.append((listener, address))


def report_start(broker: "Broker", log_dirs: list[str], took_ms: int) -> None:
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
