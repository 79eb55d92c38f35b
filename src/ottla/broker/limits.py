"""Connection limits: of the whole broker, by listener and by address."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple


class LimitConfigs(NamedTuple):
    """Maximum numbers of connections.

    most         max.connections
    per_ip       max.connections.per.ip
    overrides    max.connections.per.ip.overrides: another limit for an address
    by_listener  listener.name.<listener>.max.connections, by name of the listener
    protected    the listener that brokers use among themselves, if it is not the only one: max.connections does not keep
                 its connections out; another one is closed instead (KIP-402)
    """

    most: int
    per_ip: int
    overrides: Mapping[str, int]
    by_listener: Mapping[str, int]
    protected: str | None = None


class ConnectionLimits:
    """Connection counters with their limits."""

    __slots__ = ("_by_ip", "_by_listener", "_configs", "_total")

    def __init__(self, configs: LimitConfigs) -> None:
        self._configs = configs
        self._by_ip: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._total = 0

    def change(self, configs: LimitConfigs) -> None:
        """Replace the limits; they apply to new connections only."""
        self._configs = configs

    def is_full(self, listener: str) -> bool:
        """Return whether a listener accepts no further connection until another one closes."""
        configs = self._configs
        limit = configs.by_listener.get(listener)
        if limit is not None and self._by_listener[listener] >= limit:
            return True
        return self._total >= configs.most and listener != configs.protected

    @property
    def protected(self) -> str | None:
        """The listener whose connections are accepted above max.connections."""
        return self._configs.protected

    @property
    def is_exceeded(self) -> bool:
        """True if the broker has more connections than max.connections."""
        return self._total > self._configs.most

    def limit_of(self, ip: str) -> int:
        """Maximum number of connections from `ip`."""
        return self._configs.overrides.get(ip, self._configs.per_ip)

    def enter(self, ip: str, listener: str) -> bool:
        """Count a connection from `ip`; False if the limit of the address is reached."""
        if self._by_ip[ip] >= self.limit_of(ip):
            return False
        self._by_ip[ip] += 1
        self._by_listener[listener] += 1
        self._total += 1
        return True

    def leave(self, ip: str, listener: str) -> None:
        """Subtract a closed connection from `ip`."""
        self._total -= 1
        self._by_listener[listener] -= 1
        self._by_ip[ip] -= 1
        if not self._by_ip[ip]:
            del self._by_ip[ip]
