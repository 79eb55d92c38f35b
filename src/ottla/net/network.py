"""Connections of one client or broker to the brokers of a cluster.

Strategy. The `Network` keeps one `Link` for each address and purpose (a waiting fetch must not delay a heartbeat), waits after
a failure before it connects to the address again (reconnect.backoff.ms, doubling), and closes connections that were not used
for connections.max.idle.ms.

An unreachable address is logged as a WARNING at the first failure, then every few seconds while attempts continue.
"""

import logging
from collections.abc import Callable
from typing import Final

from ottla.environment import Address, Cancellable, Random, Transport
from ottla.net.connection import ConnectionSettings, Link
from ottla.net.errors import ConnectionLost, KafkaError, NotAuthenticated
from ottla.protocol.frames import Rooms
from ottla.tasks.deferred import Deferred, completed
from ottla.tasks.scheduler import Scheduler
from ottla.tasks.signal import Signal

_RECEIVE: Final = 1 << 20
_WARN_EVERY_MS: Final = 5000
_LEAST_REAUTHENTICATION_MS: Final = 1100

logger = logging.getLogger("ottla.client")


class _Outage:
    """Failed connection attempts to an address since the last successful one."""

    __slots__ = ("attempts", "begun_ms", "warned_ms")

    def __init__(self, now_ms: int) -> None:
        self.attempts = 0
        self.begun_ms = now_ms
        self.warned_ms: int | None = None


class Network:
    """Connections of one client.

    brokers       node -> address, by the last metadata
    cluster_id    cluster id in the last metadata, None before
    has_resolved  whether the host name of any connection had an address so far
    changed       signals that a connection opened or ended
    rooms         pool of buffers for the unfinished frames of all connections
    on_throttle   callbacks for the throttle times (ms) in responses, and for the first 0 after one
    on_failure    callbacks for connections that fail, with each new error of an address. With one a refused login is retried
                  like a lost connection, because the credentials may be replaced; without, it is the error of requests
    """

    def __init__(
        self, settings: ConnectionSettings, scheduler: Scheduler, transport: Transport, random: Random
    ) -> None:
        self.settings = settings
        self.scheduler = scheduler
        self.transport = transport
        self.brokers: dict[int, Address] = {}
        self.cluster_id: str | None = None
        self.has_resolved = False
        self.changed = Signal(scheduler)
        self.rooms = Rooms()
        self.on_throttle: list[Callable[[Link, int], None]] = []
        self.on_failure: list[Callable[[KafkaError], None]] = []
        self.opened_total = 0
        self.failures: dict[Address, str] = {}
        """Last error of each unreachable address."""
        self._random = random
        self._links: dict[tuple[Address, str], Link] = {}
        self._failed_attempts: dict[Address, int] = {}
        self._outages: dict[Address, _Outage] = {}
        self._not_before: dict[Address, int] = {}
        self._shared = bytearray(_RECEIVE)
        self._sweep: Cancellable | None = None
        self._is_throttled = False
        self._closed = False

    # -- connections --

    def prepare(self) -> Deferred[object]:
        """Wait until a connection can log in; see `Credentials.prepare`."""
        credentials = self.settings.credentials
        return completed(None, self.scheduler) if credentials is None else credentials.prepare()

    @property
    def open_count(self) -> int:
        """Number of open connections."""
        return sum(link.usable and link.ready.done and link.ready.error is None for link in self._links.values())

    def link(self, address: Address, purpose: str = "", node: int = -1) -> Link:
        """Return the connection to an address and open it if needed. `purpose` separates requests that must not wait for each
        other."""
        known = self._links.get((address, purpose))
        if known is not None and known.usable:
            return known
        if self._closed:
            raise ConnectionLost("the client is closed")
        link = self._links[address, purpose] = Link(self, address, node, self._shared)
        if self._sweep is None and self.settings.max_idle_ms >= 0:
            self._sweep = self.scheduler.call_later(self.settings.max_idle_ms, self._close_idle)
        return link

    async def ready(self, node: int, purpose: str = "") -> Link:
        """Wait for a ready connection to a node and return it. Raises ConnectionLost."""
        address = self.brokers.get(node)
        if address is None:
            raise ConnectionLost(f"node {node} is missing from the metadata")
        return await self.ready_at(address, purpose, node)

    async def ready_at(self, address: Address, purpose: str = "", node: int = -1) -> Link:
        """Wait for a ready connection to an address and return it; waits for the end of a reconnect backoff first."""
        known = self._links.get((address, purpose))
        if known is None or not known.usable:
            wait = self._not_before.get(address, 0) - self.scheduler.clock.now_ms()
            if wait > 0:
                await self.scheduler.sleep(wait)
        return await self.link(address, purpose, node).ready

    def link_if_ready(self, address: Address, purpose: str = "") -> Link | None:
        """Return the connection to an address if it is ready."""
        link = self._links.get((address, purpose))
        return link if link is not None and link.usable and link.ready.done else None

    def describe_pending(self) -> list[str]:
        """Return a text for each connection that is not ready yet."""
        pending = [link for link in self._links.values() if link.usable and not link.ready.done]
        return [f"{link}: connecting{link.silence()}" for link in pending]

    def open_links(self, purpose: str = "") -> list[Link]:
        """Return the ready connections, the one with the fewest requests in flight first."""
        links = [
            link
            for (_, link_purpose), link in self._links.items()
            if link_purpose == purpose and link.usable and link.ready.done and link.ready.error is None
        ]
        return sorted(links, key=lambda link: link.in_flight)

    def reasons(self) -> str:
        """Reasons for unreachable brokers, as the end of an error message; empty without any."""
        return f": {'; '.join(self.failures.values())}" if self.failures else ""

    # -- callbacks of connections --

    def setup_timeout_ms(self, address: Address) -> int:
        """Return the time in ms that a connection attempt may take: longer after failures (KIP-601), within ±20 %."""
        settings = self.settings
        base = settings.setup_timeout_ms << min(self._failed_attempts.get(address, 0), 10)
        ceiling = max(settings.setup_timeout_max_ms, settings.setup_timeout_ms)
        return self._add_jitter(min(base, ceiling)) if self._failed_attempts.get(address) else int(min(base, ceiling))

    def reauthentication_ms(self, lifetime_ms: int) -> int:
        """Return the time after which a session is authenticated again: 85 to 95 % of its lifetime, as in Kafka's clients.

        Brokers refuse two logins within a second.
        """
        return max(lifetime_ms * (85 + self._random.below(11)) // 100, _LEAST_REAUTHENTICATION_MS)

    def on_resolved(self) -> None:
        """Record that the host name of a connection has an address."""
        self.has_resolved = True

    def on_opened(self, link: Link) -> None:
        """Record that a connection is ready, and reset the backoff of its address."""
        self.opened_total += 1
        self._failed_attempts.pop(link.address, None)
        self.failures.pop(link.address, None)
        self._not_before.pop(link.address, None)
        outage = self._outages.pop(link.address, None)
        if outage is not None and outage.warned_ms is not None:
            seconds = (self.scheduler.clock.now_ms() - outage.begun_ms) / 1000
            logger.info("broker %s answers again after %.1f s", link, seconds)
        self.changed.happen()

    def on_ended(self, link: Link, *, failed: bool) -> None:
        """Remove a connection; after a failure set the backoff of its address."""
        for key, known in list(self._links.items()):
            if known is link:
                del self._links[key]
        if failed:
            if not link.ready.done:
                self._warn(link)
            self._note_failure(link, link.lost_because)
            failures = self._failed_attempts[link.address] = self._failed_attempts.get(link.address, 0) + 1
            settings = self.settings
            base = settings.reconnect_backoff_ms << min(failures - 1, 20)
            wait = min(base, max(settings.reconnect_backoff_max_ms, settings.reconnect_backoff_ms))
            self._not_before[link.address] = self.scheduler.clock.now_ms() + self._add_jitter(wait)
        self.changed.happen()

    def login_error(self, link: Link, error: KafkaError) -> KafkaError:
        """Return the error with which a connection ends whose login failed."""
        if not self.on_failure or not isinstance(error, NotAuthenticated):
            return error
        self._note_failure(link, error)
        return ConnectionLost(str(error))

    def _note_failure(self, link: Link, error: BaseException | None) -> None:
        """Remember the error of an address, and report it unless it has been reported."""
        reason = str(error)
        is_new = self.failures.get(link.address) != reason
        self.failures[link.address] = reason
        if is_new and isinstance(error, KafkaError):
            for report in self.on_failure:
                report(error)

    def on_throttled(self, link: Link, throttle_ms: int) -> None:
        """Pass on the throttle time of a response, and the first 0 after one."""
        if throttle_ms > 0 or self._is_throttled:
            self._is_throttled = throttle_ms > 0
            for report in self.on_throttle:
                report(link, throttle_ms)

    def _warn(self, link: Link) -> None:
        """Log a failed connection attempt, at most every few seconds."""
        now = self.scheduler.clock.now_ms()
        outage = self._outages.setdefault(link.address, _Outage(now))
        outage.attempts += 1
        if outage.warned_ms is not None and now - outage.warned_ms < _WARN_EVERY_MS:
            return
        outage.warned_ms = now
        since = (
            f" ({outage.attempts} attempts in {(now - outage.begun_ms) / 1000:.0f} s)" if outage.attempts > 1 else ""
        )
        logger.warning("broker %s%s", link.lost_because, since)

    def _add_jitter(self, milliseconds: int) -> int:
        return milliseconds * (80 + self._random.below(41)) // 100

    def _close_idle(self) -> None:
        limit = self.settings.max_idle_ms
        now = self.scheduler.clock.now_ms()
        for link in list(self._links.values()):
            if not link.in_flight and link.ready.done and now - link.used_ms >= limit:
                link.close()
        self._sweep = None
        if self._links:
            self._sweep = self.scheduler.call_later(limit, self._close_idle)

    def give_up(self, address: Address, purpose: str = "") -> None:
        """Cancel a connection attempt that takes longer than its caller's timeout."""
        link = self._links.get((address, purpose))
        if link is not None and not link.ready.done:
            link.lost(f"connection timed out{link.silence()}")

    def drop(self, address: Address) -> None:
        """Close the connections to an address whose process has ended; the next request opens another one, without a backoff.

        Their requests fail in a later turn, so that no caller's code runs within this call.
        """
        for key, link in list(self._links.items()):
            if key[0] == address:
                del self._links[key]
                self.scheduler.call_later(0, link.close)
        self._failed_attempts.pop(address, None)
        self._not_before.pop(address, None)

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._closed

    def close(self) -> None:
        """Close every connection."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for link in list(self._links.values()):
            link.close()
