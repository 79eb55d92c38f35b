"""Connection limits: of the whole broker and by address."""

from collections import Counter
from collections.abc import Mapping


class ConnectionLimits:
    """Connection counters with their limits.

    most       max.connections
    per_ip     max.connections.per.ip
    overrides  max.connections.per.ip.overrides: another limit for an address
    """

    __slots__ = ("_by_ip", "_most", "_overrides", "_per_ip", "_total")

    def __init__(self, most: int, per_ip: int, overrides: Mapping[str, int]) -> None:
        self.change(most, per_ip, overrides)
        self._by_ip: Counter[str] = Counter()
        self._total = 0

    def change(self, most: int, per_ip: int, overrides: Mapping[str, int]) -> None:
        """Replace the limits; they apply to new connections only."""
        self._most = most
        self._per_ip = per_ip
        self._overrides = overrides

    @property
    def full(self) -> bool:
        """True if no further connection is allowed until another one closes."""
        return self._total >= self._most

    def limit_of(self, ip: str) -> int:
        """Maximum number of connections from `ip`."""
        return self._overrides.get(ip, self._per_ip)

    def enter(self, ip: str) -> bool:
        """Count a connection from `ip`; False if its limit is reached."""
        if self._by_ip[ip] >= self.limit_of(ip):
            return False
        self._by_ip[ip] += 1
        self._total += 1
        return True

    def leave(self, ip: str) -> None:
        """Subtract a closed connection from `ip`."""
        self._total -= 1
        self._by_ip[ip] -= 1
        if not self._by_ip[ip]:
            del self._by_ip[ip]
