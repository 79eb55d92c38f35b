"""The broker's sockets: accept, receive into one shared buffer, answer at once, send files by sendfile.

Strategy. Sockets are non-blocking and owned here (`add_reader`, `add_writer`): no transport, no stream, no task. A whole
frame is copied once out of the shared buffer and served on the spot; its answer is sent in the same call, bytes by `send`,
file regions by `os.sendfile`, and only what the kernel does not take waits for the socket to be writable.

Order. Like Kafka, a connection serves one request at a time: while an answer is pending, or not yet sent, later frames wait
in `_backlog`, and when something arrives on top of that the socket is no longer read. So answers leave in the order of
requests, and a slow reader is held back by TCP instead of filling memory.

Limits. A connection above max.connections.per.ip is closed; at max.connections the broker stops accepting until another
connection closes. A connection without requests for connections.max.idle.ms is closed: a tick counts eighths of that time, a
connection stores the tick of its last request, and no clock is read.
"""

import asyncio
import logging
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from ottla.broker import dispatch
from ottla.broker.limits import ConnectionLimits
from ottla.broker.periodic import Periodic
from ottla.environment import Cancellable
from ottla.log.disk_errors import is_shortage
from ottla.log.store import Region
from ottla.protocol.answer import Pending
from ottla.protocol.api import API_VERSIONS
from ottla.protocol.codec import UnsupportedField
from ottla.protocol.connection import Envelope, open_envelope, response_pieces
from ottla.protocol.context import Peer, RequestContext
from ottla.protocol.frames import FrameReader, Rooms
from ottla.protocol.schema import Response
from ottla.protocol.wire import PeerError

if TYPE_CHECKING:
    from ottla.broker.lifecycle import Broker
    from ottla.broker.throttling import Throttling
    from ottla.security.quotas import ConnectionQuota

_logger = logging.getLogger("ottla.broker")
_SHARED_BYTES: Final = 1 << 18
_MSG_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)
_ACCEPTS_A_TURN: Final = 64
_ANSWERS_A_SEND: Final = 64
_IDLE_TICKS: Final = 8
_ACCEPT_RETRY_MS: Final = 200
_QUIET_MS: Final = 60_000


def _abandoned(envelope: Envelope) -> Response | PeerError:
    """Return the answer to a waiting request whose handler failed: the connection stays open if possible."""
    try:
        return dispatch.failure(envelope.api.key)
    except PeerError as error:
        return error


class LoopTimers:
    """Timers of an asyncio loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Cancellable:
        return self._loop.call_later(delay_ms / 1000, callback)


class ServerConnection:
    """One client's socket."""

    __slots__ = (
        "_backlog",
        "_begun",
        "_contexts",
        "_fd",
        "_frames",
        "_muted",
        "_out",
        "_server",
        "_sock",
        "_spent",
        "_waiting",
        "_writing",
        "active_at",
        "address",
        "client_host",
        "closed",
        "end",
        "peer",
    )

    def __init__(self, server: "Server", sock: socket.socket, peer: str, address: tuple[str, int]) -> None:
        self._server = server
        self._sock = sock
        self._fd = sock.fileno()
        self._frames = FrameReader(server.max_request_bytes, server.rooms)
        self._backlog: deque[bytes] = deque()
        self._out: deque[Any] = deque()
        self._waiting = False  # an answer is pending
        self._writing = False  # an answer is not yet sent
        self._muted = False
        self._begun = 0  # when the request came that is served, in ns, as long as there are quotas
        self._spent = 0  # on a request whose answer is pending, in ns
        self._contexts: dict[tuple[int, str | None], RequestContext] = {}
        self.active_at = server.tick
        self.closed = False
        self.peer = peer
        host, _, port = peer.rpartition(":")
        self.client_host = "/" + host
        self.end = Peer(int(port))
        self.address = address

    def readable(self) -> None:
        """Receive available bytes, split them into frames, serve them."""
        server = self._server
        shared = server.shared
        self.active_at = server.tick
        try:
            room = self._frames.room()
            if room is None:
                received = self._sock.recv_into(shared)
            else:
                with room:
                    received = self._sock.recvmsg_into([room, shared])[0]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        if received == 0:
            self.close()
            return
        try:
            frames = self._frames.feed(shared, received) if room is None else self._frames.feed_rest(shared, received)
            for number, frame in enumerate(frames):
                if self._waiting or self._writing:
                    self._wait_behind(frames[number:])
                    return
                if self.closed:
                    return
                self._serve(frame, more=number < len(frames) - 1)
        except PeerError as error:
            self.drop(error)
            return
        if self._out and not self._writing:
            self._flush()

    def _wait_behind(self, frames: list[bytes]) -> None:
        self._backlog.extend(frames)
        if self._backlog and not self._muted and not self.closed:
            self._muted = True
            self._server.loop.remove_reader(self._fd)

    def _serve(self, frame: bytes, *, more: bool = False) -> None:
        """Answer one request. With `more` to come the answer may leave together with the next one: a client that pipelines
        small requests is woken once for all of them.
        """
        envelope = open_envelope(frame)
        broker = self._server.broker
        if broker.throttling is not None:
            self._begun = perf_counter_ns()
        answer = self._server.answer(envelope, self._context(envelope), broker)
        if answer is None:
            if broker.throttling is not None:
                self._leave_alone(self._throttle_ms(envelope, broker.throttling))
            return
        if type(answer) is Pending:
            if answer.done:
                answer.listen(
                    lambda response: self._deliver(envelope, response),
                    lambda: self._deliver(envelope, _abandoned(envelope)),
                )
                return
            self._flush()
            self._waiting = True
            if self._begun:
                self._spent, self._begun = perf_counter_ns() - self._begun, 0
            answer.listen(
                lambda response: self._answered(envelope, response),
                lambda: self._answered(envelope, _abandoned(envelope)),
            )
        else:
            self._send(envelope, answer, more=more)  # type: ignore[arg-type]

    def _context(self, envelope: Envelope) -> RequestContext:
        key = envelope.version if envelope.api.key != API_VERSIONS else envelope.asked, envelope.client_id
        context = self._contexts.get(key)
        if context is None:
            if len(self._contexts) > 64:
                self._contexts.clear()
            context = self._contexts[key] = RequestContext(
                version=key[0],
                client_id=envelope.client_id,
                client_host=self.client_host,
                address=self.address,
                peer=self.end,
            )
        return context

    def _answered(self, envelope: Envelope, response: Response | PeerError | None) -> None:
        """Complete a pending answer."""
        if self.closed:
            return
        self._waiting = False
        self.active_at = self._server.tick
        self._deliver(envelope, response)
        self._go_on()

    def _deliver(self, envelope: Envelope, response: Response | PeerError | None) -> None:
        """Send the response to a request that had to wait; Produce with acks=0 has no response, and a PeerError closes."""
        if isinstance(response, PeerError):
            self.drop(response)
        elif response is not None:
            self._send(envelope, response)

    def _go_on(self) -> None:
        """Serve the frames that waited behind an answer."""
        try:
            while self._backlog and not self._waiting and not self._writing and not self.closed:
                self._serve(self._backlog.popleft())
        except PeerError as error:
            self.drop(error)
        if self._muted and not self._waiting and not self._writing and not self.closed:
            self._muted = False
            self._server.loop.add_reader(self._fd, self.readable)

    def _throttle_ms(self, envelope: Envelope, throttling: "Throttling", response: Response | None = None) -> int:
        """Throttle time of the client after its response, in ms; also set in the response."""
        spent = perf_counter_ns() - self._begun if self._begun else self._spent
        throttle_ms = throttling.answered(envelope.api.key, self._context(envelope), len(envelope.frame), spent)
        told: int | None = getattr(response, "throttle_time_ms", None)
        if told is None:
            return throttle_ms
        if throttle_ms > told:
            setattr(response, "throttle_time_ms", throttle_ms)  # noqa: B010  no class that all responses share declares it
        return max(told, throttle_ms)

    def _leave_alone(self, throttle_ms: int) -> None:
        """Serve nothing for this time (KIP-219); frames that arrive meanwhile wait, then the socket is no longer read."""
        if throttle_ms > 0 and not self.closed:
            self._waiting = True
            self._server.broker.timers.call_later(throttle_ms, self.serve_again)

    def serve_again(self) -> None:
        """Continue with the next frame, when the last request has no response or its throttle time is over."""
        if not self.closed:
            self._waiting = False
            self.active_at = self._server.tick
            self._go_on()

    def _send(self, envelope: Envelope, response: Response, *, more: bool = False) -> None:
        throttle_ms = 0
        throttling = self._server.broker.throttling
        if throttling is not None:
            throttle_ms = self._throttle_ms(envelope, throttling, response)
        try:
            pieces = response_pieces(envelope, response)
        except (UnsupportedField, TypeError, ValueError, struct.error):
            # A response that cannot be encoded is a bug of the broker; without it the client cannot go on.
            _logger.exception("cannot encode the answer to %r", envelope)
            self.close()
            return
        out = self._out
        if more and throttle_ms == 0 and len(pieces) == 1 and len(out) < _ANSWERS_A_SEND:
            out.append(pieces[0])
            return
        if out and not self._writing:
            pieces[0] = b"".join((*out, pieces[0]))
            out.clear()
        out.extend(pieces)
        self._flush()
        if throttle_ms > 0:
            self._leave_alone(throttle_ms)

    def _flush(self) -> None:
        """Send until all is gone or the socket is full."""
        out = self._out
        sock = self._sock
        try:
            while out:
                piece = out[0]
                if type(piece) is Region:
                    sent = os.sendfile(self._fd, piece.file.fileno(), piece.position, piece.length)
                    if sent == 0:
                        raise ConnectionError(f"{piece.file} is shorter than it was")
                    if sent < piece.length:
                        out[0] = Region(piece.file, piece.position + sent, piece.length - sent)
                        continue
                else:
                    sent = sock.send(piece, _MSG_MORE if len(out) > 1 else 0)
                    if sent < len(piece):
                        out[0] = memoryview(piece)[sent:]
                        continue
                out.popleft()
        except (BlockingIOError, InterruptedError):
            if not self._writing:
                self._writing = True
                self._server.loop.add_writer(self._fd, self._writable)
        except OSError:
            self.close()

    def _writable(self) -> None:
        self.active_at = self._server.tick
        self._flush()
        if not self._out and not self.closed:
            self._writing = False
            self._server.loop.remove_writer(self._fd)
            self._go_on()

    def drop(self, error: PeerError) -> None:
        """Close the connection because of `error`."""
        if not self.closed:
            _logger.warning("closing the connection of %s: %s", self.peer, error)
            self._flush()  # what was answered before belongs to the client
            self.close()

    def close(self) -> None:
        """Close the socket; a pending answer is discarded when it completes."""
        if self.closed:
            return
        self.closed = True
        loop = self._server.loop
        loop.remove_reader(self._fd)
        if self._writing:
            loop.remove_writer(self._fd)
        self._sock.close()
        self._out.clear()
        self._backlog.clear()
        self._server.forget(self)
        if self.end.gone is not None:
            self.end.gone(self.end)


class Server:
    """The listening sockets of a broker and the connections they accepted.

    idle_ms  connections.max.idle.ms; below zero no connection is closed for idling
    answer   serves a request: `dispatch.answer`, unless a test wraps it
    """

    def __init__(
        self,
        broker: "Broker",
        loop: asyncio.AbstractEventLoop,
        max_request_bytes: int,
        limits: ConnectionLimits,
        idle_ms: int,
    ) -> None:
        self.broker = broker
        self.loop = loop
        self.max_request_bytes = max_request_bytes
        self.answer = dispatch.answer
        self.shared = bytearray(_SHARED_BYTES)
        self.rooms = Rooms()
        self.connections: set[ServerConnection] = set()
        self.tick = 0
        self.connection_quota: ConnectionQuota | None = None
        self._limits = limits
        self._dismissed: set[socket.socket] = set()
        self._listening: list[socket.socket] = []
        self._accepting = True
        self._quiet_until_ms = 0
        """Time of the next log line about a failed accept, in ms."""
        self._idle_ms = idle_ms
        self._tick_ms = max(idle_ms, _IDLE_TICKS) // _IDLE_TICKS
        self._ticking = Periodic("closing idle connections", self._tick, self._tick_ms, broker.timers)

    def listen(self, host: str, port: int) -> tuple[str, int]:
        """Accept clients at `host` ("" for every address) and `port` (0 takes a free one). Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM | getattr(socket, "SOCK_CLOEXEC", 0))
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
            sock.listen(1024)
            sock.setblocking(False)
        except OSError:
            sock.close()
            raise
        self._listening.append(sock)
        self.loop.add_reader(sock.fileno(), self._accept, sock)
        if not self._ticking.is_set and self._idle_ms >= 0:
            self._ticking.run_in(self._tick_ms)
        bound = sock.getsockname()
        return bound[0], bound[1]

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_A_TURN):
            if self._limits.full:
                self._pause_accepting()
                return
            try:
                sock, peer = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue  # it was gone before it was accepted
            except OSError as error:
                if is_shortage(error):
                    self._rest_from_accepting(error)
                else:
                    _logger.warning("cannot accept a connection: %s", error)
                return
            if not self._limits.enter(peer[0]):
                _logger.info(
                    "Rejected connection from %s, address already has the configured maximum of %d connections.",
                    peer[0],
                    self._limits.limit_of(peer[0]),
                )
                sock.close()
                continue
            if self.connection_quota is not None:
                delay_ms = self.connection_quota.record(peer[0], self.broker.clock.now_ms())
                if delay_ms > 0:
                    self._dismissed.add(sock)
                    self.broker.timers.call_later(delay_ms, partial(self._dismiss, sock, peer[0]))
                    continue
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                dialled = sock.getsockname()
            except OSError:
                self._limits.leave(peer[0])
                sock.close()
                continue
            connection = ServerConnection(self, sock, f"{peer[0]}:{peer[1]}", (dialled[0], dialled[1]))
            self.connections.add(connection)
            self.loop.add_reader(sock.fileno(), connection.readable)

    def _dismiss(self, sock: socket.socket, address: str) -> None:
        """Close a connection over the rate quota of its address, after a delay: it must not be retried at once (KIP-612)."""
        if sock in self._dismissed:
            self._dismissed.remove(sock)
            sock.close()
            self._limits.leave(address)
            self.accept_again()

    def _rest_from_accepting(self, error: OSError) -> None:
        """Pause because the system gives no descriptor or memory: the listening socket stays readable, and trying at once again
        would keep the loop busy. A connection that closes ends the pause early.
        """
        now_ms = self.broker.clock.now_ms()
        if now_ms >= self._quiet_until_ms:
            self._quiet_until_ms = now_ms + _QUIET_MS
            _logger.warning(
                "cannot accept connections: %s; it is tried every %d ms. Raise the limit of open files (ulimit -n), or lower "
                "max.connections",
                error.strerror or error,
                _ACCEPT_RETRY_MS,
            )
        self._pause_accepting()
        self.broker.timers.call_later(_ACCEPT_RETRY_MS, self.accept_again)

    def _pause_accepting(self) -> None:
        """Stop accepting; new connections stay in the listen backlog."""
        self._accepting = False
        for sock in self._listening:
            self.loop.remove_reader(sock.fileno())

    def forget(self, connection: ServerConnection) -> None:
        """Remove a closed connection."""
        if connection not in self.connections:
            return
        self.connections.remove(connection)
        self._limits.leave(connection.peer.rpartition(":")[0])
        self.accept_again()

    def accept_again(self) -> None:
        """Accept connections again: one closed, or the limits have changed."""
        if not self._accepting:
            self._accepting = True
            for sock in self._listening:
                self.loop.add_reader(sock.fileno(), self._accept, sock)

    def _tick(self) -> None:
        self.tick += 1
        for connection in tuple(self.connections):
            if self.tick - connection.active_at > _IDLE_TICKS:
                _logger.debug("closing the connection of %s: idle for %d ms", connection.peer, self._idle_ms)
                connection.close()

    def connection_of(self, end: Peer) -> ServerConnection | None:
        """The connection with this peer, None once it is closed."""
        return next((connection for connection in self.connections if connection.end is end), None)

    def close_doors(self) -> None:
        """Stop listening; open connections stay."""
        for sock in self._listening:
            self.loop.remove_reader(sock.fileno())
            sock.close()
        self._listening.clear()

    def close(self) -> None:
        """Stop listening and drop every connection."""
        self._ticking.close()
        self.close_doors()
        for sock in self._dismissed:
            sock.close()
        self._dismissed.clear()
        for connection in tuple(self.connections):
            connection.close()
