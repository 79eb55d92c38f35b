"""Configs, quotas and features of this broker in the metadata, applied to its services while they run."""

import logging
from collections.abc import Callable
from pathlib import Path

from ottla.broker.broker import Broker
from ottla.broker.connections.limits import ConnectionLimits, LimitConfigs
from ottla.broker.connections.socket_server import SocketServer
from ottla.broker.requests.throttling import Throttling, connection_quota
from ottla.broker.stored_configs import usable_configs
from ottla.metadata.configs.alteration import BROKER
from ottla.metadata.image import Delta
from ottla.tasks.deferred import Answer

_logger = logging.getLogger("ottla.broker")


class Reconfiguration:
    """Applies configs, quotas and features to the services of a broker, from the current image on.

    limits   limits of connections
    resolve  returns the IP address of a host, None if it has none
    """

    def __init__(
        self,
        broker: Broker,
        sockets: SocketServer,
        *,
        limits: ConnectionLimits,
        resolve: Callable[[str], str | None],
    ) -> None:
        self._broker = broker
        self._sockets = sockets
        self._limits = limits
        self._resolve = resolve
        self._least_throttle_ms = 0
        self._ignored: frozenset[str] = frozenset()
        """Reasons why configs in the metadata are ignored, so that each is logged once."""
        self._apply_configs()
        self._apply_quotas()

    def concerns(self, delta: Delta) -> bool:
        """Return whether a change of the metadata is one of this broker's configs."""
        return bool(delta.configured & {(BROKER, ""), (BROKER, str(self._broker.node_id))})

    def apply(self, delta: Delta) -> Answer[None]:
        """Apply a change of the metadata."""
        broker = self._broker
        if self.concerns(delta):
            self._apply_configs()
            return broker.replicas.reconfigure(delta.image)
        if delta.settings:
            self._apply_quotas()
            if delta.before.features != delta.image.features:
                return broker.replicas.reconfigure(delta.image)
        return None

    def throttle_all(self, throttle_ms: int) -> None:
        """Throttle every connection by at least `throttle_ms` after each request, whatever the quotas; 0 ends it."""
        self._least_throttle_ms = throttle_ms
        self._apply_quotas()

    def _apply_configs(self) -> None:
        """Apply the configs that the metadata has for this broker, over the start-up values; unusable ones are ignored."""
        broker, image = self._broker, self._broker.image
        broker.config, ignored = usable_configs(
            broker.config,
            for_all=image.configs_of(BROKER, ""),
            for_this=image.configs_of(BROKER, str(broker.node_id)),
        )
        for reason in ignored:
            if reason not in self._ignored:
                _logger.error("ignoring a config in the metadata: %s", reason)
        self._ignored = frozenset(ignored)
        self._limits.change(LimitConfigs.of(broker.config))
        cordoned = {Path(path) for path in broker.config.cordoned_log_dirs}
        for directory in broker.replicas.directories:
            directory.is_cordoned = directory.path in cordoned
        throttles = broker.replication_throttles
        throttles.leader.limit = broker.config.integer("leader.replication.throttled.rate")
        throttles.follower.limit = broker.config.integer("follower.replication.throttled.rate")
        self._sockets.update_accepting()
        for security in self._sockets.secured:
            if security.certificates is not None:
                security.certificates.apply()

    def _apply_quotas(self) -> None:
        """Apply the quotas in the metadata; a broker without quotas checks none."""
        broker, quotas = self._broker, self._broker.image.quotas
        if quotas or self._least_throttle_ms:
            broker.throttling = broker.throttling or Throttling(broker.config, broker.clock)
            broker.throttling.take(quotas)
            broker.throttling.least_ms = self._least_throttle_ms
        else:
            broker.throttling = None
        self._sockets.connection_quota = connection_quota(
            broker.config, quotas, self._sockets.connection_quota, self._resolve
        )
