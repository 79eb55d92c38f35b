"""The listeners of a broker and the connections they accept: limits, quotas and idle connections. Uses no socket itself.

A connection above max.connections.per.ip is closed; at max.connections the broker stops accepting until another connection
closes. A connection without requests for connections.max.idle.ms is closed: a tick counts eighths of that time, a connection
stores the tick of its last request, and no clock is read.
"""

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.limits import ConnectionLimits
from ottla.broker.periodic import Periodic
from ottla.broker.pipeline import Pipeline
from ottla.broker.serving import ServedConnection
from ottla.broker.session import Session
from ottla.environment import Address, Environment, IncomingConnection, ListeningSocket
from ottla.log.disk_errors import is_shortage
from ottla.protocol.context import Peer
from ottla.protocol.frames import FrameReader, Rooms

if TYPE_CHECKING:
    from ottla.security.quotas import ConnectionQuota

_logger = logging.getLogger("ottla.broker")
_SHARED_BYTES: Final = 1 << 18
_IDLE_TICKS: Final = 8
_ACCEPT_RETRY_MS: Final = 200
_QUIET_MS: Final = 60_000


class SocketServer:
    """The listening sockets of a broker and the connections they accepted.

    idle_ms           connections.max.idle.ms; below zero no connection is closed for idling
    connection_quota  connection rates by address; None without such quotas
    connections       in the order in which they were accepted
    """

    def __init__(
        self,
        pipeline: Pipeline,
        environment: Environment,
        max_request_bytes: int,
        limits: ConnectionLimits,
        idle_ms: int,
    ) -> None:
        self._pipeline = pipeline
        self._listen = environment.listen
        self._clock = environment.clock
        self._timers = environment.timers
        self._max_request_bytes = max_request_bytes
        self._limits = limits
        self._shared = bytearray(_SHARED_BYTES)
        self._rooms = Rooms()
        self.connections: dict[ServedConnection, str] = {}
        self.connection_quota: ConnectionQuota | None = None
        self._dismissed: dict[IncomingConnection, None] = {}
        self._listening: list[ListeningSocket] = []
        self._accepting = True
        self._is_held = False
        self._quiet_until_ms = 0
        """Time of the next log line about a failed accept, in ms."""
        self._idle_ms = idle_ms
        self._tick = 0
        self._tick_ms = max(idle_ms, _IDLE_TICKS) // _IDLE_TICKS
        self._ticking = Periodic("closing idle connections", self._close_idle, self._tick_ms, environment.timers)

    def listen(self, name: str, host: str, port: int) -> Address:
        """Accept clients of listener `name` at `host` ("" for every address) and `port` (0 takes a free one); returns the
        address. Raises OSError.
        """
        listening = self._listen(host, port, partial(self._connected, name), self._accept_failed)
        self._listening.append(listening)
        if self._is_held:
            listening.pause()
        if not self._ticking.is_set and self._idle_ms >= 0:
            self._ticking.run_in(self._tick_ms)
        return listening.address

    def _connected(self, listener: str, incoming: IncomingConnection) -> None:
        address = incoming.peer[0]
        if not self._limits.enter(address):
            _logger.info(
                "Rejected connection from %s, address already has the configured maximum of %d connections.",
                address,
                self._limits.limit_of(address),
            )
            incoming.close()
            return
        self.update_accepting()
        if self.connection_quota is not None:
            delay_ms = self.connection_quota.record(address, self._clock.now_ms())
            if delay_ms > 0:
                self._dismissed[incoming] = None
                self._timers.call_later(delay_ms, partial(self._dismiss, incoming))
                return
        try:
            stream = incoming.accept()
        except OSError:
            self._limits.leave(address)
            self.update_accepting()
            return
        connection = ServedConnection(
            self._pipeline,
            Session(incoming.peer, incoming.local, listener),
            stream,
            FrameReader(self._max_request_bytes, self._rooms),
            self._shared,
            self._timers,
            self._current_tick,
            self._forget,
        )
        self.connections[connection] = address
        incoming.serve(connection)

    def _dismiss(self, incoming: IncomingConnection) -> None:
        """Close a connection over the rate quota of its address, after a delay: it must not be retried at once (KIP-612)."""
        if incoming in self._dismissed:
            del self._dismissed[incoming]
            incoming.close()
            self._limits.leave(incoming.peer[0])
            self.update_accepting()

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
        self._accepting = False
        for listening in self._listening:
            listening.pause()

    def update_accepting(self) -> None:
        """Accept connections if the limits allow one more: one was opened or closed, or the limits have changed."""
        if self._limits.full or self._is_held:
            self._pause_accepting()
        elif not self._accepting:
            self._accepting = True
            for listening in self._listening:
                listening.resume()

    def _current_tick(self) -> int:
        return self._tick

    def _forget(self, connection: ServedConnection) -> None:
        """Remove a closed connection."""
        address = self.connections.pop(connection, None)
        if address is not None:
            self._limits.leave(address)
            self.update_accepting()

    def _close_idle(self) -> None:
        self._tick += 1
        for connection in tuple(self.connections):
            if self._tick - connection.active_at > _IDLE_TICKS:
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
        for listening in self._listening:
            listening.close()
        self._listening.clear()

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
        for connection in tuple(self.connections):
            connection.close()
