"""Connection to a broker, without a socket: version negotiation, open requests and their deadlines.

Strategy. A `Link` is a connection opened through a `Transport`. It negotiates versions once (ApiVersions; KIP-35, KIP-511),
may have many requests open, and returns a promise of the response for each. Any failure closes the connection: all open
requests fail with ConnectionLost or RequestTimedOut, which name the address, and the caller decides about a retry.

    Transport.open -> connecting -> negotiating (ApiVersions) -> ready: request() -> Deferred of the response -> lost
                                         |                        ^  |
                                         +-> login (SASL) --------+<-+ again before the session expires (KIP-368)

After a response with a throttle time (KIP-219) no request is sent until that time has passed.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from ottla.addresses import address_text
from ottla.environment import Address, Cancellable, Stream, Transport
from ottla.net.authentication import Credentials, log_in
from ottla.net.errors import (
    ConnectionLost,
    KafkaError,
    NotAuthenticated,
    RebootstrapRequired,
    RequestTimedOut,
    UnsupportedVersion,
    error_for,
)
from ottla.protocol.api import API_VERSIONS, APIS
from ottla.protocol.codec import UnsupportedField
from ottla.protocol.connection import ClientConnection, PositionalResponse
from ottla.protocol.errors import NONE, REBOOTSTRAP_REQUIRED, UNSUPPORTED_VERSION
from ottla.protocol.frames import FrameReader, Rooms
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.releases import needs
from ottla.protocol.schema import Request, Response
from ottla.protocol.wire import PeerError
from ottla.tasks.alarm import Alarm
from ottla.tasks.deferred import Deferred
from ottla.tasks.scheduler import Scheduler
from ottla.version import VERSION

R = TypeVar("R", bound=Response)
_LARGEST_OF_LOGIN: Final = 1 << 20
"""Size in bytes of the largest response of a broker that has not been negotiated with: a few KB are needed."""
_OLDEST: Final = "Brokers before Kafka 0.10 are not supported."
_LIMIT: Final = "receive.message.max.bytes"
_NEWEST: Final = 32767


class ConnectionSettings(NamedTuple):
    """Configs of connections, in milliseconds. The defaults are those of Kafka's clients.

    max_idle_ms     idle time after which a connection is closed; -1: never
    send_buffer     SO_SNDBUF of the socket in bytes, -1: the system's default
    receive_buffer  SO_RCVBUF of the socket in bytes, -1: the system's default
    credentials     SASL mechanism and credentials; None without SASL
    largest         size in bytes of the largest response: a larger one ends the connection
    """

    client_id: str
    request_timeout_ms: int = 30_000
    setup_timeout_ms: int = 10_000
    setup_timeout_max_ms: int = 30_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1000
    max_idle_ms: int = 540_000
    send_buffer: int = -1
    receive_buffer: int = -1
    credentials: Credentials | None = None
    largest: int = 0x7FFFFFFF


class LinkOwner(Protocol):
    """Interface of the owner of connections: provides shared objects, and is notified when one opens or ends; see `Network`."""

    scheduler: Scheduler
    settings: ConnectionSettings
    transport: Transport
    rooms: Rooms
    cluster_id: str | None

    def setup_timeout_ms(self, address: Address) -> int:
        """Return the time that a connection attempt may take."""

    def reauthentication_ms(self, lifetime_ms: int) -> int:
        """Return the time after which a session is authenticated again."""

    def on_resolved(self) -> None:
        """Record that the host name of a connection has an address."""

    def on_opened(self, link: "Link") -> None:
        """Record that a connection is ready."""

    def on_ended(self, link: "Link", *, failed: bool) -> None:
        """Record that a connection has ended."""

    def login_error(self, link: "Link", error: KafkaError) -> KafkaError:
        """Return the error with which a connection ends whose login failed."""

    def on_throttled(self, link: "Link", throttle_ms: int) -> None:
        """Record the throttle time of a response, 0 if the client is not throttled."""


class _OpenRequest:
    """Request without a response yet."""

    __slots__ = ("about", "deadline", "promise")

    def __init__(self, about: str, deadline: int, promise: Deferred[Any]) -> None:
        self.about = about
        self.deadline = deadline
        self.promise = promise


class Link:
    """Connection to one broker.

    ready     promise that is kept when the connection can be used, and fails with the error if it cannot be opened
    versions  API key -> (oldest, newest) version that the broker supports
    features  finalized features of the cluster, by name
    """

    def __init__(self, owner: LinkOwner, address: Address, node: int, shared: bytearray) -> None:
        self.address = address
        self.node = node
        self.ready: Deferred[Link] = Deferred(owner.scheduler)
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        self.lost_because: BaseException | None = None
        self.used_ms = owner.scheduler.clock.now_ms()
        self.muted_until = 0
        self._owner = owner
        self._scheduler = owner.scheduler
        self._settings = owner.settings
        self._wire = ClientConnection(owner.settings.client_id)
        self._frames = FrameReader(_LARGEST_OF_LOGIN, owner.rooms, "before the login")
        self._shared = shared
        self._stream: Stream | None = None
        self._open: deque[_OpenRequest] = deque()
        self._held: list[Sequence[Any]] = []
        """Encoded requests that are held back until the end of a throttle time."""
        self._alarm = Alarm(self._overdue, self._scheduler.clock, self._scheduler)
        self._release: Cancellable | None = None
        self._login: Cancellable | None = None
        """The login in progress, or the timer of the next one."""
        self._is_authenticating = False
        self._postponed: list[Callable[[], None]] = []
        """Requests that wait for the end of a login."""
        self._token: Deferred[bytes] | None = None
        """Deferred of a bare SASL token."""
        self._negotiations = 0
        """Number of requests before those of the client."""
        timeout = owner.setup_timeout_ms(address)
        self._setup = self._scheduler.call_later(timeout, self._late)
        self._give_up: Callable[[], None] | None = owner.transport.open(
            address, self, send_buffer=owner.settings.send_buffer, receive_buffer=owner.settings.receive_buffer
        )

    def __str__(self) -> str:
        return address_text(*self.address)

    @property
    def usable(self) -> bool:
        """True while the connection is being opened or is open."""
        return self.lost_because is None

    @property
    def in_flight(self) -> int:
        """Return the number of requests without a response."""
        return len(self._open)

    # -- callbacks of the transport --

    def resolved(self) -> None:
        """Pass on that the host name has an address."""
        self._owner.on_resolved()

    def connected(self, stream: Stream) -> None:
        """Send ApiVersions, with the expected node and cluster id if they are known (KIP-1242)."""
        self._stream = stream
        self._give_up = None
        self._ask_versions(ApiVersionsRequest.VERSIONS.last)

    def _ask_versions(self, version: int) -> None:
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version=VERSION)
        if version >= 5 and self.node >= 0 and self._owner.cluster_id is not None:
            request.cluster_id, request.node_id = self._owner.cluster_id, self.node
        self._send(request, version, self._settings.request_timeout_ms).listen(self._on_api_versions)

    def _on_api_versions(self, promise: Deferred[ApiVersionsResponse]) -> None:
        if promise.error is not None:
            self.lost(str(promise.error))
            return
        answer = promise.result()
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
        self.features = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        if self._settings.credentials is None:
            self._begin_requests()
        else:
            self._begin_login()

    def _begin_requests(self) -> None:
        self._setup.cancel()
        self._frames.limit, self._frames.config = self._settings.largest, _LIMIT
        self._negotiations = self._wire.sent
        self._owner.on_opened(self)
        self.ready.complete(self)

    # -- login --

    def _begin_login(self) -> None:
        """Authenticate, for the first time or again."""
        self._login = self._scheduler.background(self._log_in(), f"login at {self}")

    async def _log_in(self) -> None:
        credentials = self._settings.credentials
        assert credentials is not None
        self._setup.cancel()  # the fetch of an access token has timeouts of its own
        try:
            exchange = await credentials.exchange()
            if not self.ready.done:
                self._setup = self._scheduler.call_later(self._owner.setup_timeout_ms(self.address), self._late)
            self._is_authenticating = True  # from here on requests of the client wait for the end of the login
            lifetime_ms = await log_in(self, credentials, exchange)
        except KafkaError as error:
            self._login = None
            self._end(self._owner.login_error(self, error))
            return
        self._login = None
        self._is_authenticating = False
        if lifetime_ms > 0:
            self._login = self._scheduler.call_later(self._owner.reauthentication_ms(lifetime_ms), self._begin_login)
        if not self.ready.done:
            self._begin_requests()
        postponed, self._postponed = self._postponed, []
        for send in postponed:
            send()

    def handshake(self, request: SaslHandshakeRequest, version: int) -> Deferred[SaslHandshakeResponse]:
        """See `SaslLink.handshake`."""
        return self._send(request, version, self._settings.request_timeout_ms, is_first=True)

    def authenticate(self, request: SaslAuthenticateRequest, version: int) -> Deferred[SaslAuthenticateResponse]:
        """See `SaslLink.authenticate`."""
        return self._send(request, version, self._settings.request_timeout_ms, is_first=True)

    def send_token(self, token: bytes) -> Deferred[bytes]:
        """See `SaslLink.send_token`."""
        self._token = Deferred(self._scheduler)
        if self.lost_because is not None:
            self._token.fail(self.lost_because)
        elif self._stream is not None:
            self._stream.write((len(token).to_bytes(4, "big") + token,))
        return self._token

    def rejected(self, reason: str) -> None:
        """Handle a connection that one side does not accept."""
        self._end(NotAuthenticated(f"{self}: {reason}"))

    def readable(self, receive_into: Callable[[Any], int]) -> None:
        """Receive bytes, and let the responses in them take effect."""
        is_begun = self._scheduler.begin_event()
        try:
            self._receive(receive_into)
        finally:
            if is_begun:
                self._scheduler.end_event()

    def _receive(self, receive_into: Callable[[Any], int]) -> None:
        """Receive bytes: into the memory of an unfinished frame, else into the buffer shared by all connections."""
        room = self._frames.room()
        try:
            count = receive_into(self._shared if room is None else room)
        except BlockingIOError:
            return
        except OSError as cause:
            self.lost(cause.strerror or str(cause))
            return
        if count == 0:
            self.lost(f"the broker closed the connection{self._hint()}")
            return
        try:
            if room is None:
                frames = self._frames.feed(self._shared, count)
            else:
                room.release()
                frames = self._frames.feed_rest(self._shared, count)
            for frame in frames:
                self._on_response(frame)
        except PeerError as error:
            self.lost(f"malformed response: {error}{'' if self.ready.done else self._hint()}")

    def _hint(self) -> str:
        """Return a probable cause of the end of the connection, as the end of a sentence."""
        if not self.ready.done:
            return f" before its first answer; does security.protocol fit its listener? {_OLDEST}"
        if self._settings.credentials is None and self._wire.sent - len(self._open) == self._negotiations:
            return " at the first request; does its listener require a login (security.protocol)?"
        return ""

    def _on_response(self, frame: bytes) -> None:
        if self.lost_because is not None:
            return  # a response before this one ended the connection
        if self._token is not None:
            token, self._token = self._token, None
            token.complete(frame)
            return
        response = self._wire.response(frame)
        asked = self._open.popleft()
        throttle_ms = getattr(response, "throttle_time_ms", None)
        if throttle_ms:
            self.muted_until = max(self.muted_until, self._scheduler.clock.now_ms() + throttle_ms)
        if throttle_ms is not None:
            self._owner.on_throttled(self, throttle_ms)
        asked.promise.complete(response)

    def lost(self, reason: str) -> None:
        """Handle a connection that broke or could not be opened."""
        self._end(ConnectionLost(f"{self}: {reason}"))

    # -- timeouts --

    def _late(self) -> None:
        self.lost(f"connection timed out{self.silence()}")

    def silence(self) -> str:
        """Return what is known of a broker that has not answered yet, as the end of a sentence."""
        is_silent = self._stream is not None and not self.versions
        return f": no answer to the first request. {_OLDEST}" if is_silent else ""

    def _watch(self) -> None:
        """Set the alarm to the deadline of the oldest open request."""
        if self._open:
            self._alarm.set(self._open[0].deadline)

    def _overdue(self) -> None:
        if self._open and self._open[0].deadline <= self._scheduler.clock.now_ms():
            self._end(RequestTimedOut(f"{self} did not answer {self._open[0].about} in time"))
        else:
            self._watch()

    # -- requests --

    def serves(self, request: type[Request]) -> bool:
        """Return True if both sides support a common version of the request."""
        low, high = self.versions.get(request.API, (0, -1))
        return min(high, request.VERSIONS.last) >= max(low, request.VERSIONS.first)

    def version(self, request: type[Request], newest: int = _NEWEST, *, oldest: int = 0) -> int:
        """Return the newest common version, from `oldest` to `newest`. Raises UnsupportedVersion."""
        low, high = self.versions.get(request.API, (0, -1))
        best = min(high, newest, request.VERSIONS.last)
        needed = max(oldest, request.VERSIONS.first)
        if best < max(low, needed):
            name = APIS[request.API].name
            if high >= needed:
                raise UnsupportedVersion(f"{self} has no version of {name} that this client knows", UNSUPPORTED_VERSION)
            exact = f"{name} {needed}" if needed > 0 and high >= 0 else name
            raise UnsupportedVersion(f"{self} does not serve {exact}{needs(request.API, needed)}", UNSUPPORTED_VERSION)
        return best

    def request(self, request: Request[R], version: int, *, timeout_ms: int | None = None) -> Deferred[R]:
        """Send a request; return a promise of the response. Only for a connection that is ready."""
        limit = self._settings.request_timeout_ms if timeout_ms is None else timeout_ms
        self.used_ms = self._scheduler.clock.now_ms()
        return self._send(request, version, limit)

    def request_positions(self, request: Request, version: int, *, timeout_ms: int) -> Deferred[PositionalResponse]:
        """Send a request; return a promise of the response, with records as positions in its frame."""
        self.used_ms = self._scheduler.clock.now_ms()
        promise: Deferred[PositionalResponse] = Deferred(self._scheduler)
        self._send_expecting(request, version, timeout_ms, promise, positions=True)
        return promise

    def send_only(self, request: Request, version: int) -> Deferred[None]:
        """Send a request that has no response: Produce with acks=0. The promise fails if it could not be sent."""
        promise: Deferred[None] = Deferred(self._scheduler)
        self.used_ms = self._scheduler.clock.now_ms()
        if self._is_authenticating:
            self._postponed.append(lambda: self._send_now(request, version, promise))
        else:
            self._send_now(request, version, promise)
        return promise

    def _send_now(self, request: Request, version: int, promise: Deferred[None]) -> None:
        pieces = self._encode(request, version, promise, expect_answer=False)
        if pieces is not None:
            promise.complete(None)
            self._write(pieces)

    def _send(self, request: Request[R], version: int, timeout_ms: int, *, is_first: bool = False) -> Deferred[R]:
        promise: Deferred[R] = Deferred(
            self._scheduler
        )  # Deferred[R](...) would take half as long as the rest of this function
        self._send_expecting(request, version, timeout_ms, promise, is_first=is_first)
        return promise

    def _send_expecting(
        self,
        request: Request,
        version: int,
        timeout_ms: int,
        promise: Deferred[Any],
        *,
        positions: bool = False,
        is_first: bool = False,
    ) -> None:
        if self._is_authenticating and not is_first:
            # Encoded after the login: responses come in the order in which requests are encoded.
            self._postponed.append(
                lambda: self._send_expecting(request, version, timeout_ms, promise, positions=positions)
            )
            return
        pieces = self._encode(request, version, promise, expect_answer=True, positions=positions)
        if pieces is not None:
            deadline = self._scheduler.clock.now_ms() + timeout_ms
            self._open.append(_OpenRequest(APIS[request.API].name, deadline, promise))
            self._watch()
            self._write(pieces)

    def _encode(
        self, request: Request, version: int, promise: Deferred[Any], *, expect_answer: bool, positions: bool = False
    ) -> list[Any] | None:
        """Encode a request as buffers. Return None if it cannot be sent, after failing the promise."""
        if self.lost_because is not None:
            promise.fail(self.lost_because)
            return None
        try:
            return self._wire.request(request, version, expect_answer=expect_answer, positions=positions)
        except UnsupportedField as error:
            why = needs(request.API, error.needed) if error.needed >= 0 else ""
            promise.fail(UnsupportedVersion(f"{self} is too old for this: {error}{why}", UNSUPPORTED_VERSION))
            return None

    def _write(self, pieces: list[Any]) -> None:
        """Write a request now, or at the end of the throttle time."""
        left = self.muted_until - self._scheduler.clock.now_ms()
        if left > 0:
            self._held.append(pieces)
            if self._release is None:
                self._release = self._scheduler.call_later(left, self._unmute)
        elif self._stream is not None:
            self._stream.write(pieces)

    def _unmute(self) -> None:
        self._release = None
        held, self._held = self._held, []
        if self._stream is not None:
            for pieces in held:
                self._stream.write(pieces)

    # -- close --

    def close(self) -> None:
        """Close the connection; its open requests fail."""
        self._end(ConnectionLost(f"{self}: the connection was closed"), failed=False)

    def _end(self, error: BaseException, *, failed: bool = True) -> None:
        if self.lost_because is not None:
            return
        self.lost_because = error
        self._setup.cancel()
        self._alarm.cancel()
        if self._release is not None:
            self._release.cancel()
        if self._login is not None:
            self._login.cancel()
        if self._token is not None:
            self._token.fail(error)
        if self._give_up is not None:
            self._give_up()
        if self._stream is not None:
            self._stream.close()
        self._owner.on_ended(self, failed=failed)
        self._is_authenticating = False
        postponed, self._postponed = self._postponed, []
        for send in postponed:
            send()  # fails the promise
        waiting, self._open = self._open, deque()
        self._held.clear()
        for open_request in waiting:
            open_request.promise.fail(error)
        if not self.ready.done:
            self.ready.fail(error)
