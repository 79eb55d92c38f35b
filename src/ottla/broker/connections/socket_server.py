"""The listeners of a broker and the connections they accept: limits, quotas and idle connections. Uses no socket itself.

A connection above max.connections.per.ip is closed; at max.connections a listener, or all of them, stop accepting until
another connection closes. The listener that brokers use among themselves goes on beside others: its connections take the
place of the connection that was idle for the longest time. Above max.connection.creation.rate a listener waits for up to a
second before it serves a connection and accepts the next one.

A connection without requests for connections.max.idle.ms is closed: a tick counts eighths of that time, a connection stores the
tick of its last request, and no clock is read.

Connections whose client is not authenticated yet, by a TLS handshake or SASL, are limited in number: above it the oldest one of
the address that has most is closed, so that clients which never complete a login do not keep others out. Large frames and
unread responses are bounded for all connections together, see `memory.py`.
"""

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.connections.connection import ServedConnection
from ottla.broker.connections.limits import ConnectionLimits
from ottla.broker.connections.memory import FrameTurns, Shares, Unread
from ottla.broker.connections.read_turns import ReadTurns
from ottla.broker.requests.pipeline import Pipeline
from ottla.broker.security.refused_logins import RefusedLogins
from ottla.broker.security.session import Session
from ottla.environment import Address, Environment, IncomingConnection, ListeningSocket
from ottla.log.disk_errors import is_shortage
from ottla.observability import logs
from ottla.protocol.context import Authorizer, Peer
from ottla.protocol.frames import FrameReader, Rooms
from ottla.protocol.wire import PeerError
from ottla.tasks.periodic import Periodic

if TYPE_CHECKING:
    from ottla.broker.connections.listener_security import ListenerSecurity
    from ottla.environment.tls_serving import TlsConnection
    from ottla.security.quotas import ConnectionQuota
    from ottla.security.sasl.mechanism import ServerExchange

_logger = logging.getLogger("ottla.broker")
_SHARED_BYTES: Final = 1 << 18
_IDLE_TICKS: Final = 8
_ACCEPT_RETRY_MS: Final = 200
_QUIET_MS: Final = 60_000
_MOST_UNAUTHENTICATED: Final = 1000
_LARGE_FRAME: Final = 1 << 20
LARGE_FRAMES: Final = 128 << 20
"""Maximum size of all large frames together, unless socket.request.max.bytes is more."""
_LARGE_TOKEN: Final = 1 << 14
LARGE_TOKENS: Final = 8 << 20
"""Maximum size of all frames of more than _LARGE_TOKEN bytes from clients that are not authenticated."""
UNREAD_RESPONSES: Final = 128 << 20
"""Maximum size of all responses that clients have not read."""


class _Acceptor:
    """Listening socket of a listener, which accepts or pauses."""

    __slots__ = ("_accepts", "listening", "name")

    def __init__(self, name: str, listening: ListeningSocket) -> None:
        self.name = name
        self.listening = listening
        self._accepts = True

    def accept(self, accepts: bool) -> None:
        """Accept connections, or leave new ones in the listen backlog."""
        if accepts != self._accepts:
            self._accepts = accepts
            if accepts:
                self.listening.resume()
            else:
                self.listening.pause()


class SocketServer:
    """The listening sockets of a broker and the connections they accepted.

    idle_ms           connections.max.idle.ms; below zero no connection is closed for idling
    send_buffer       socket.send.buffer.bytes, -1: the system's default
    connection_quota  connection rates by address; None without such quotas
    connections       in the order in which they were accepted
    opened, closed, authenticated, refused  numbers of connections, and of logins and handshakes, by listener
    expired           number of connections that were closed for idling
    secured           TLS and SASL of the listeners that have them
    turns, login_turns  turns of large frames, and of those before a login
    unread            unread responses
    """

    def __init__(
        self,
        pipeline: Pipeline,
        environment: Environment,
        max_request_bytes: int,
        limits: ConnectionLimits,
        idle_ms: int,
        send_buffer: int,
    ) -> None:
        self._pipeline = pipeline
        self._listen = partial(environment.listen, send_buffer=send_buffer)
        self._clock = environment.clock
        self._timers = environment.timers
        self._max_request_bytes = max_request_bytes
        self._limits = limits
        self._shared = bytearray(_SHARED_BYTES)
        self._rooms = Rooms()
        clock, timers = environment.clock, environment.timers
        self.turns = FrameTurns(_LARGE_FRAME, max(LARGE_FRAMES, max_request_bytes), clock, timers)
        self.login_turns = FrameTurns(_LARGE_TOKEN, LARGE_TOKENS, clock, timers)
        self.unread = Unread(UNREAD_RESPONSES)
        self._reads = ReadTurns(timers, pipeline.now_ns)
        self.connections: dict[ServedConnection, str] = {}
        self.opened: Counter[str] = Counter()
        self.closed: Counter[str] = Counter()
        self.authenticated: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.expired = 0
        self.connection_quota: ConnectionQuota | None = None
        self.authorize: Callable[[str, str], Authorizer] | None = None
        self._unauthenticated: Shares[ServedConnection] = Shares()
        self._dismissed: dict[IncomingConnection, str] = {}
        self._delayed: dict[str, IncomingConnection] = {}
        """Listeners that wait, with the connection that they serve then."""
        self._listening: list[_Acceptor] = []
        self.secured: list[ListenerSecurity] = []
        self._refused_logins = RefusedLogins(environment.clock)
        self._is_held = False
        self._quiet_until_ms = 0
        """Time of the next log line about a failed accept, in ms."""
        self._idle_ms = idle_ms
        self._tick = 0
        self._tick_ms = max(idle_ms, _IDLE_TICKS) // _IDLE_TICKS
        self._ticking = Periodic("closing idle connections", self._close_idle, self._tick_ms, environment.timers)

    @property
    def listener_names(self) -> list[str]:
        """Names of the listeners."""
        return [acceptor.name for acceptor in self._listening]

    @property
    def is_accepting(self) -> bool:
        """True if the listeners are open, and connections are not held back until the broker has joined its cluster."""
        return bool(self._listening) and not self._is_held

    def listen(self, name: str, host: str, port: int, security: "ListenerSecurity | None" = None) -> Address:
        """Accept clients of listener `name` at `host` ("" for every address) and `port` (0 takes a free one); returns the
        address. Raises OSError.

        security  TLS and SASL of the listener; None for PLAINTEXT
        """
        if security is not None:
            self.secured.append(security)
        listening = self._listen(host, port, partial(self._on_connection, name, security), self._accept_failed)
        acceptor = _Acceptor(name, listening)
        self._listening.append(acceptor)
        acceptor.accept(not self._is_held)
        if not self._ticking.is_set and self._idle_ms >= 0:
            self._ticking.run_in(self._tick_ms)
        return listening.address

    def _on_connection(self, listener: str, security: "ListenerSecurity | None", incoming: IncomingConnection) -> None:
        """Serve a connection, now or when the rate of new ones is at its limit."""
        wait_ms = self._limits.wait_ms(listener, self._clock.now_ms())
        if wait_ms > 0:
            self._delayed[listener] = incoming
            self.update_accepting()
            self._timers.call_later(wait_ms, partial(self._serve_delayed, listener, security, incoming))
        else:
            self._serve(listener, security, incoming)

    def _serve_delayed(self, listener: str, security: "ListenerSecurity | None", incoming: IncomingConnection) -> None:
        if self._delayed.get(listener) is not incoming:
            return  # closed
        if self._limits.is_full(listener):
            self._timers.call_later(_ACCEPT_RETRY_MS, partial(self._serve_delayed, listener, security, incoming))
            return
        del self._delayed[listener]
        self._serve(listener, security, incoming)
        self.update_accepting()

    def _serve(self, listener: str, security: "ListenerSecurity | None", incoming: IncomingConnection) -> None:
        address = incoming.peer[0]
        if not self._limits.enter(address, listener):
            _logger.info(
                "Rejected connection from %s, address already has the configured maximum of %d connections.",
                address,
                self._limits.limit_of(address),
                extra={**logs.REPEATS, "listener": listener, "client_host": f"/{address}"},
            )
            incoming.close()
            return
        self.update_accepting()
        if self._limits.is_exceeded:
            self._close_longest_idle(listener)
        if self.connection_quota is not None:
            delay_ms = self.connection_quota.record(address, self._clock.now_ms())
            if delay_ms > 0:
                self._dismissed[incoming] = listener
                self._timers.call_later(delay_ms, partial(self._dismiss, incoming))
                return
        secured = None
        if security is not None and security.tls is not None:
            incoming = secured = security.tls.secure(incoming)
        try:
            stream = incoming.accept()
        except OSError:
            self._limits.leave(address, listener)
            self.update_accepting()
            return
        connection = ServedConnection(
            self._pipeline,
            Session(
                incoming.peer,
                incoming.local,
                listener,
                security.protocol if security else "PLAINTEXT",
                self.authorize,
            ),
            stream,
            frames=FrameReader(self._max_request_bytes, self._rooms),
            shared=self._shared,
            turns=self.turns,
            unread=self.unread,
            reads=self._reads,
            timers=self._timers,
            tick=self._current_tick,
            closed=self._forget,
        )
        self.connections[connection] = address
        self.opened[listener] += 1
        if security is not None:
            self._require_authentication(connection, security, secured)
        incoming.serve(connection)

    def _require_authentication(
        self, connection: ServedConnection, security: "ListenerSecurity", secured: "TlsConnection | None"
    ) -> None:
        """Serve the requests of a connection only when its TLS handshake and login are complete."""
        if secured is None and not security.mechanisms:
            connection.session.authenticate(security.principal_of(connection.session))
            return
        self._unauthenticated.add(connection, connection.session.peer_address, 1)
        if len(self._unauthenticated) > _MOST_UNAUTHENTICATED:
            oldest = self._unauthenticated.first_of_most()
            _logger.info(
                "closing the connection of %s: %d others have not completed their login either, and its address has most",
                oldest.session.name,
                _MOST_UNAUTHENTICATED,
                extra={**logs.REPEATS, **oldest.session.log_fields},
            )
            oldest.close()
        if secured is not None:
            secured.established = partial(self._authenticate_by_certificate, connection, security)
            secured.failed = partial(self._handshake_failed, connection)
        if security.mechanisms:
            refused = partial(self._login_refused, connection)
            authenticated = partial(self._on_authenticated, connection, security)
            security.require_login(connection, self._pipeline, self.login_turns, authenticated, refused)

    def _authenticate_by_certificate(
        self, connection: ServedConnection, security: "ListenerSecurity", certificate: bytes | None
    ) -> bool:
        """Authenticate the client by its certificate; False if no principal is mapped to it. With SASL the login follows."""
        if security.mechanisms:
            return True
        session = connection.session
        try:
            session.authenticate(security.principal_of(session, certificate=certificate))
        except ValueError as cause:
            self._handshake_failed(connection, str(cause))
            return False
        self._unauthenticated.remove(connection)
        return True

    def _handshake_failed(self, connection: ServedConnection, reason: str) -> None:
        self._login_refused(connection, f"SSL handshake failed: {reason}")

    def _login_refused(self, connection: ServedConnection, reason: str) -> None:
        self.refused[connection.session.listener] += 1
        self._refused_logins.report(connection.session.client_host, reason)

    def _on_authenticated(
        self, connection: ServedConnection, security: "ListenerSecurity", exchange: "ServerExchange"
    ) -> None:
        """Serve requests of any size from now on, for the principal that SASL has authenticated."""
        session = connection.session
        try:
            principal = security.principal_of(session, user=exchange.principal)
        except ValueError as cause:
            raise PeerError(str(cause)) from None
        session.authenticate(principal, exchange.token_id)
        connection.admit(self._max_request_bytes, self.turns)
        self._unauthenticated.remove(connection)
        self.authenticated[session.listener] += 1

    def _dismiss(self, incoming: IncomingConnection) -> None:
        """Close a connection over the rate quota of its address, after a delay: it must not be retried at once (KIP-612)."""
        listener = self._dismissed.pop(incoming, None)
        if listener is not None:
            incoming.close()
            self._limits.leave(incoming.peer[0], listener)
            self.update_accepting()

    def _close_longest_idle(self, listener: str) -> None:
        """Close the connection of another listener whose last request is the oldest one, in favour of a new one."""
        others = (connection for connection in self.connections if connection.session.listener != listener)
        idle = min(others, key=lambda connection: connection.active_at, default=None)
        if idle is not None:
            _logger.info(
                "closing the connection of %s: max.connections is reached, and a broker connects", idle.session.name
            )
            idle.close()

    def _accept_failed(self, error: OSError) -> None:
        """Pause if the system gives no descriptor or memory: the listening socket stays readable, and trying again at once
        would keep the loop busy. A connection that closes ends the pause early.
        """
        if not is_shortage(error):
            _logger.warning("cannot accept a connection: %s", error)
            return
        now_ms = self._clock.now_ms()
        if now_ms >= self._quiet_until_ms:
            self._quiet_until_ms = now_ms + _QUIET_MS
            _logger.warning(
                "cannot accept connections: %s; it is tried every %d ms. Raise the limit of open files (ulimit -n), or lower "
                "max.connections",
                error.strerror or error,
                _ACCEPT_RETRY_MS,
            )
        self._pause_accepting()
        self._timers.call_later(_ACCEPT_RETRY_MS, self.update_accepting)

    def _pause_accepting(self) -> None:
        """Stop accepting; new connections stay in the listen backlog."""
        for acceptor in self._listening:
            acceptor.accept(False)

    def update_accepting(self) -> None:
        """Accept connections if the limits allow one more: one was opened or closed, or the limits have changed."""
        for acceptor in self._listening:
            waits = self._is_held or acceptor.name in self._delayed
            acceptor.accept(not waits and not self._limits.is_full(acceptor.name))

    def _current_tick(self) -> int:
        return self._tick

    def _forget(self, connection: ServedConnection) -> None:
        """Remove a closed connection."""
        self._unauthenticated.remove(connection)
        address = self.connections.pop(connection, None)
        if address is not None:
            self.closed[connection.session.listener] += 1
            self._limits.leave(address, connection.session.listener)
            self.update_accepting()

    def _close_idle(self) -> None:
        self._tick += 1
        for connection in tuple(self.connections):
            if self._tick - connection.active_at > _IDLE_TICKS:
                self.expired += 1
                _logger.debug("closing the connection of %s: idle for %d ms", connection.session.name, self._idle_ms)
                connection.close()

    def connection_of(self, peer: Peer) -> ServedConnection | None:
        """Return the connection with `peer`; None if it is closed."""
        return next((connection for connection in self.connections if connection.session.peer is peer), None)

    def hold(self) -> None:
        """Accept no connection until `release`, although the sockets listen."""
        self._is_held = True
        self._pause_accepting()

    def release(self) -> None:
        """Accept connections from now on."""
        self._is_held = False
        self.update_accepting()

    def stop_listening(self) -> None:
        """Stop listening; open connections stay."""
        for acceptor in self._listening:
            acceptor.listening.close()
        self._listening.clear()
        for incoming in self._delayed.values():
            incoming.close()
        self._delayed.clear()

    def abandon(self) -> None:
        """Close everything like a killed process: callbacks for the end of a connection are not called."""
        for connection in self.connections:
            connection.session.peer.closed.clear()
        self.close()

    def close(self) -> None:
        """Stop listening and drop every connection."""
        self._ticking.close()
        self.stop_listening()
        for incoming in self._dismissed:
            incoming.close()
        self._dismissed.clear()
        for security in self.secured:
            security.close()
        for connection in tuple(self.connections):
            connection.close()
