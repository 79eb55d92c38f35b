"""Connections to brokers, without sockets: what goes out, what came in, and when to give up.

Strategy. A `Link` is one connection: opened through a `Transport`, which belongs to whoever drives the core. It negotiates
versions once (ApiVersions; KIP-35, KIP-511), may have many requests open, and promises each its answer. Whatever goes wrong on
a link ends it: every open request fails with ConnectionLost or RequestTimedOut, which name the address, and whoever asked
decides whether the request is repeated. The `Network` keeps one link for each address and purpose (a fetch that waits must
not hold up a heartbeat), leaves an address alone for a while after a failure (reconnect.backoff.ms, doubling), and closes
links that were not used for connections.max.idle.ms.

    Network.link(node) -> Link: connecting -> negotiating -> ready ... -> lost
                                    |              |            |
              Transport.open <------+      ApiVersions      request() -> Promise of the response

A broker that throttles (KIP-219) says for how long; the link sends nothing more until then.

An address that cannot be reached is logged as a WARNING: at once, then every few seconds as long as it is tried.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from ottla.client.config import ClientConfig
from ottla.client.errors import ConnectionLost, RebootstrapRequired, RequestTimedOut, UnsupportedVersion, error_for
from ottla.client.scheduler import Promise, Scheduler, Signal
from ottla.environment import Address, Cancellable, Random, Stream, Transport
from ottla.protocol.api import API_VERSIONS, APIS
from ottla.protocol.codec import UnsupportedField
from ottla.protocol.connection import ClientConnection
from ottla.protocol.errors import NONE, REBOOTSTRAP_REQUIRED, UNSUPPORTED_VERSION
from ottla.protocol.frames import FrameReader, Rooms
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.schema import Request
from ottla.protocol.wire import PeerError
from ottla.version import VERSION

_RECEIVE: Final = 1 << 20
_LARGEST: Final = 0x7FFFFFFF
_NEWEST: Final = 32767
_WARN_EVERY_MS: Final = 5000

logger = logging.getLogger("ottla.client")


class _Open:
    """A request that waits for its answer."""

    __slots__ = ("about", "deadline", "promise")

    def __init__(self, about: str, deadline: int, promise: Promise[Any]) -> None:
        self.about = about
        self.deadline = deadline
        self.promise = promise


class Link:
    """One connection to one broker.

    ready     kept when it can be used, fails with what came in between
    versions  API key -> (oldest, newest) that the broker serves
    features  finalized features of the cluster, by name
    """

    def __init__(self, network: "Network", address: Address, node: int, shared: bytearray) -> None:
        self.address = address
        self.node = node
        self.ready = Promise[Link]()
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        self.lost_because: BaseException | None = None
        self.used_ms = network.scheduler.clock.now_ms()
        self.muted_until = 0
        self._network = network
        self._scheduler = network.scheduler
        self._config = network.config
        self._wire = ClientConnection(network.config["client.id"])
        self._frames = FrameReader(_LARGEST, network.rooms)
        self._shared = shared
        self._stream: Stream | None = None
        self._open: deque[_Open] = deque()
        self._held: list[Sequence[Any]] = []
        """Requests that wait for the end of a throttle time."""
        self._alarm: Cancellable | None = None
        self._release: Cancellable | None = None
        timeout = network.setup_timeout_ms(address)
        self._setup = self._scheduler.call_later(timeout, self._late)
        self._give_up: Callable[[], None] | None = network.transport.open(address, self)

    def __str__(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def usable(self) -> bool:
        """True while the connection is being opened or is open."""
        return self.lost_because is None

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answers."""
        return len(self._open)

    # -- what the transport says --

    def connected(self, stream: Stream) -> None:
        """Ask which versions the broker serves, and who it is if we think we know (KIP-1242)."""
        self._stream = stream
        self._give_up = None
        self._ask_versions(ApiVersionsRequest.VERSIONS.last)

    def _ask_versions(self, version: int) -> None:
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version=VERSION)
        if version >= 5 and self.node >= 0 and self._network.cluster_id is not None:
            request.cluster_id, request.node_id = self._network.cluster_id, self.node
        self._send(request, version, self._config["request.timeout.ms"]).listen(self._negotiated)

    def _negotiated(self, promise: Promise[Any]) -> None:
        if promise.error is not None:
            self.lost(str(promise.error))
            return
        answer: ApiVersionsResponse = promise.result()
        ranges = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
        if answer.error_code == UNSUPPORTED_VERSION and not self.versions:
            self.versions = {API_VERSIONS: ranges.get(API_VERSIONS, (0, 0))}
            self._ask_versions(min(self.versions[API_VERSIONS][1], ApiVersionsRequest.VERSIONS.last - 1))
            return
        if answer.error_code == REBOOTSTRAP_REQUIRED:
            self._end(RebootstrapRequired(f"{self} is another broker than it was", REBOOTSTRAP_REQUIRED))
            return
        if answer.error_code != NONE:
            self._end(error_for(answer.error_code, f"ApiVersions at {self}"))
            return
        self.versions = ranges
        self.features = {each.name: each.max_version_level for each in answer.finalized_features}
        self._setup.cancel()
        self._network.opened(self)
        self.ready.keep(self)

    def readable(self, receive_into: Callable[[Any], int]) -> None:
        """An unfinished frame receives straight into its own memory, all else into the buffer that links share."""
        room = self._frames.room()
        try:
            count = receive_into(self._shared if room is None else room)
        except BlockingIOError:
            return
        except OSError as error:
            self.lost(error.strerror or str(error))
            return
        if count == 0:
            self.lost("the broker closed the connection")
            return
        try:
            if room is None:
                frames = self._frames.feed(self._shared, count)
            else:
                room.release()
                frames = self._frames.feed_rest(self._shared, count)
            for frame in frames:
                self._answered(frame)
        except PeerError as error:
            self.lost(f"it sent nonsense: {error}")

    def _answered(self, frame: bytes) -> None:
        if self.lost_because is not None:
            return  # an answer before this one made an end
        response = self._wire.response(frame)
        asked = self._open.popleft()
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms:
            self.muted_until = max(self.muted_until, self._scheduler.clock.now_ms() + throttle_ms)
        asked.promise.keep(response)

    def lost(self, reason: str) -> None:
        """It broke, or was never there."""
        self._end(ConnectionLost(f"{self}: {reason}"))

    # -- time --

    def _late(self) -> None:
        self._end(ConnectionLost(f"{self}: no connection in time"))

    def _watch(self) -> None:
        """Look at the oldest open request when its time is over."""
        if self._alarm is None and self._open:
            left = self._open[0].deadline - self._scheduler.clock.now_ms()
            self._alarm = self._scheduler.call_later(left, self._overdue)

    def _overdue(self) -> None:
        self._alarm = None
        if self._open and self._open[0].deadline <= self._scheduler.clock.now_ms():
            self._end(RequestTimedOut(f"{self} did not answer {self._open[0].about} in time"))
        else:
            self._watch()

    # -- requests --

    def serves(self, request: type[Request]) -> bool:
        """Return True if there is a version of the request that both sides support."""
        low, high = self.versions.get(request.API, (0, -1))
        return min(high, request.VERSIONS.last) >= max(low, request.VERSIONS.first)

    def version(self, request: type[Request], newest: int = _NEWEST, *, oldest: int = 0) -> int:
        """The newest version that both sides know, from `oldest` to `newest`. Raises UnsupportedVersion."""
        low, high = self.versions.get(request.API, (0, -1))
        best = min(high, newest, request.VERSIONS.last)
        if best < max(low, oldest, request.VERSIONS.first):
            name = APIS[request.API].name
            raise UnsupportedVersion(f"{self} has no version of {name} that this client knows", UNSUPPORTED_VERSION)
        return best

    def request(
        self, request: Request, version: int, *, timeout_ms: int | None = None, expect_answer: bool = True
    ) -> Promise[Any]:
        """Send; the promise is the response. Not before the link is ready."""
        limit = self._config["request.timeout.ms"] if timeout_ms is None else timeout_ms
        self.used_ms = self._scheduler.clock.now_ms()
        return self._send(request, version, limit, expect_answer=expect_answer)

    def _send(self, request: Request, version: int, timeout_ms: int, *, expect_answer: bool = True) -> Promise[Any]:
        promise: Promise[Any] = Promise()  # not Promise[Any](), which costs as much as half of the rest
        if self.lost_because is not None:
            promise.fail(self.lost_because)
            return promise
        try:
            pieces = self._wire.request(request, version, expect_answer=expect_answer)
        except UnsupportedField as error:
            promise.fail(UnsupportedVersion(f"{self} is too old for this: {error}", UNSUPPORTED_VERSION))
            return promise
        if expect_answer:
            deadline = self._scheduler.clock.now_ms() + timeout_ms
            self._open.append(_Open(APIS[request.API].name, deadline, promise))
            self._watch()
        else:
            promise.keep(None)
        left = self.muted_until - self._scheduler.clock.now_ms()
        if left > 0:
            self._held.append(pieces)
            if self._release is None:
                self._release = self._scheduler.call_later(left, self._unmute)
        elif self._stream is not None:
            self._stream.write(pieces)
        return promise

    def _unmute(self) -> None:
        self._release = None
        held, self._held = self._held, []
        if self._stream is not None:
            for pieces in held:
                self._stream.write(pieces)

    # -- the end --

    def close(self) -> None:
        """Give it up, and the answers that are still to come."""
        self._end(ConnectionLost(f"{self}: the connection was closed"), failed=False)

    def _end(self, error: BaseException, *, failed: bool = True) -> None:
        if self.lost_because is not None:
            return
        self.lost_because = error
        self._setup.cancel()
        for timer in (self._alarm, self._release):
            if timer is not None:
                timer.cancel()
        if self._give_up is not None:
            self._give_up()
        if self._stream is not None:
            self._stream.close()
        self._network.ended(self, failed=failed)
        waiting, self._open = self._open, deque()
        self._held.clear()
        for each in waiting:
            each.promise.fail(error)
        if not self.ready.done:
            self.ready.fail(error)


class _Outage:
    """Attempts in vain to reach an address, since the last one that was not."""

    __slots__ = ("attempts", "begun_ms", "warned_ms")

    def __init__(self, now_ms: int) -> None:
        self.attempts = 0
        self.begun_ms = now_ms
        self.warned_ms: int | None = None


class Network:
    """The links of one client.

    brokers     node -> address, as the metadata last said
    cluster_id  as the metadata last said, None before
    changed     happens when a link opens or ends
    rooms       for the unfinished frames of all links
    """

    def __init__(self, config: ClientConfig, scheduler: Scheduler, transport: Transport, random: Random) -> None:
        self.config = config
        self.scheduler = scheduler
        self.transport = transport
        self.brokers: dict[int, Address] = {}
        self.cluster_id: str | None = None
        self.changed = Signal()
        self.rooms = Rooms()
        self.opened_total = 0
        self.troubles: dict[Address, str] = {}
        """Last error of each address that cannot be reached."""
        self._random = random
        self._links: dict[tuple[Address, str], Link] = {}
        self._failures: dict[Address, int] = {}
        self._outages: dict[Address, _Outage] = {}
        self._not_before: dict[Address, int] = {}
        self._shared = bytearray(_RECEIVE)
        self._sweep: Cancellable | None = None
        self._closed = False

    # -- links --

    def link(self, address: Address, purpose: str = "", node: int = -1) -> Link:
        """Return the connection to an address and open it if needed. `purpose` separates requests that must not wait for each
        other."""
        known = self._links.get((address, purpose))
        if known is not None and known.usable:
            return known
        if self._closed:
            raise ConnectionLost("the client is closed")
        link = self._links[address, purpose] = Link(self, address, node, self._shared)
        if self._sweep is None and self.config["connections.max.idle.ms"] >= 0:
            self._sweep = self.scheduler.call_later(self.config["connections.max.idle.ms"], self._close_idle)
        return link

    async def ready(self, node: int, purpose: str = "") -> Link:
        """A link to a node that can be used now. Raises ConnectionLost."""
        address = self.brokers.get(node)
        if address is None:
            raise ConnectionLost(f"node {node} is in no metadata")
        return await self.ready_at(address, purpose, node)

    async def ready_at(self, address: Address, purpose: str = "", node: int = -1) -> Link:
        """A link to an address that can be used now; waits for the address to be worth another attempt."""
        known = self._links.get((address, purpose))
        if known is None or not known.usable:
            wait = self._not_before.get(address, 0) - self.scheduler.clock.now_ms()
            if wait > 0:
                await self.scheduler.sleep(wait)
        return await self.link(address, purpose, node).ready

    def link_if_ready(self, address: Address, purpose: str = "") -> Link | None:
        """The link to an address if it can be used now."""
        link = self._links.get((address, purpose))
        return link if link is not None and link.usable and link.ready.done else None

    def open_links(self, purpose: str = "") -> list[Link]:
        """Those that can be used now, the least busy first."""
        found = [
            link
            for (_, its), link in self._links.items()
            if its == purpose and link.usable and link.ready.done and link.ready.error is None
        ]
        return sorted(found, key=lambda link: link.in_flight)

    def reasons(self) -> str:
        """Reasons for unreachable brokers, as the end of an error message; empty without any."""
        return f": {'; '.join(self.troubles.values())}" if self.troubles else ""

    # -- what links say --

    def setup_timeout_ms(self, address: Address) -> int:
        """Return the time in ms that a connection attempt may take: longer after failures (KIP-601), within ±20 %."""
        config = self.config
        base = config["socket.connection.setup.timeout.ms"] << min(self._failures.get(address, 0), 10)
        ceiling = max(config["socket.connection.setup.timeout.max.ms"], config["socket.connection.setup.timeout.ms"])
        return self._jittered(min(base, ceiling)) if self._failures.get(address) else int(min(base, ceiling))

    def opened(self, link: Link) -> None:
        """A link has become ready."""
        self.opened_total += 1
        self._failures.pop(link.address, None)
        self.troubles.pop(link.address, None)
        self._not_before.pop(link.address, None)
        outage = self._outages.pop(link.address, None)
        if outage is not None and outage.warned_ms is not None:
            seconds = (self.scheduler.clock.now_ms() - outage.begun_ms) / 1000
            logger.info("broker %s answers again after %.1f s", link, seconds)
        self.changed.happen()

    def ended(self, link: Link, *, failed: bool) -> None:
        """A link is no more."""
        for key, known in list(self._links.items()):
            if known is link:
                del self._links[key]
        if failed:
            if not link.ready.done:
                self._warn(link)
            self.troubles[link.address] = str(link.lost_because)
            failures = self._failures[link.address] = self._failures.get(link.address, 0) + 1
            config = self.config
            base = config["reconnect.backoff.ms"] << min(failures - 1, 20)
            wait = min(base, max(config["reconnect.backoff.max.ms"], config["reconnect.backoff.ms"]))
            self._not_before[link.address] = self.scheduler.clock.now_ms() + self._jittered(wait)
        self.changed.happen()

    def _warn(self, link: Link) -> None:
        """An attempt to reach an address failed."""
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

    def _jittered(self, milliseconds: int) -> int:
        return milliseconds * (80 + self._random.below(41)) // 100

    def _close_idle(self) -> None:
        limit = self.config["connections.max.idle.ms"]
        now = self.scheduler.clock.now_ms()
        for link in list(self._links.values()):
            if not link.in_flight and link.ready.done and now - link.used_ms >= limit:
                link.close()
        self._sweep = None
        if self._links:
            self._sweep = self.scheduler.call_later(limit, self._close_idle)

    def give_up(self, address: Address, purpose: str = "") -> None:
        """Stop an attempt to connect that takes too long for whoever waits."""
        link = self._links.get((address, purpose))
        if link is not None and not link.ready.done:
            link.lost("no connection in time")

    def close(self) -> None:
        """End every link."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for link in list(self._links.values()):
            link.close()
