"""Connection limits: of the whole broker, by listener and by address; and rates of new connections."""

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.broker.config import BrokerConfig
from ottla.broker.security.listener_configs import inter_broker_listener, own_integers
from ottla.security.quotas import Rate, Window

NO_RATE: Final = 2**31 - 1
"""Default of max.connection.creation.rate."""


class LimitConfigs(NamedTuple):
    """Maximum numbers of connections.

    most         max.connections
    per_ip       max.connections.per.ip
    overrides    max.connections.per.ip.overrides: another limit for an address
    by_listener  listener.name.<listener>.max.connections, by name of the listener
    protected    the listener that brokers use among themselves, if it is not the only one: max.connections does not keep
                 its connections out; another one is closed instead (KIP-402)
    rate         max.connection.creation.rate: new connections per second, of all listeners but the protected one
    rates        listener.name.<listener>.max.connection.creation.rate, by name of the listener
    """

    most: int
    per_ip: int
    overrides: Mapping[str, int]
    by_listener: Mapping[str, int]
    protected: str | None = None
    rate: int = NO_RATE
    rates: Mapping[str, int] = {}

    @classmethod
    def of(cls, config: BrokerConfig) -> "LimitConfigs":
        """Return the limits in the configs of a broker."""
        listeners = config.listeners
        between = inter_broker_listener(config, listeners) if len(listeners) > 1 else None
        return cls(
            config.integer("max.connections"),
            config.integer("max.connections.per.ip"),
            config.connections_per_ip,
            own_integers(config, "max.connections"),
            between.name if between is not None else None,
            config.integer("max.connection.creation.rate"),
            own_integers(config, "max.connection.creation.rate"),
        )


class ConnectionLimits:
    """Connection counters with their limits."""

    __slots__ = ("_by_ip", "_by_listener", "_configs", "_rate", "_rates", "_total", "_window")

    def __init__(self, configs: LimitConfigs, window: Window) -> None:
        self._configs = configs
        self._window = window
        self._rate = Rate(window)
        self._rates: dict[str, Rate] = {}
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

    def wait_ms(self, listener: str, now_ms: int) -> int:
        """Record a new connection; returns the ms for which its listener waits before it accepts this one (KIP-612)."""
        configs = self._configs
        rate = self._rates.get(listener)
        if rate is None:
            rate = self._rates[listener] = Rate(self._window)
        waits = self._record(rate, configs.rates.get(listener, NO_RATE), now_ms)
        if listener == configs.protected:
            return waits
        return max(waits, self._record(self._rate, configs.rate, now_ms))

    def _record(self, rate: Rate, limit: int, now_ms: int) -> int:
        """Record a connection, and return the ms until the rate is at its limit, at most one window."""
        rate.record(1, now_ms)
        if limit == NO_RATE:
            return 0
        longest = self._window.size_ms
        return min(rate.throttle_ms(limit, now_ms), longest) if limit else longest

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
