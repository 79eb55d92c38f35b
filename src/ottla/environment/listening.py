"""Listening sockets and the connections they accept, on an asyncio loop.

Sockets are non-blocking and owned here (`add_reader`, `add_writer`), without asyncio transports, streams or tasks. Bytes are
sent by `send`, file regions by `os.sendfile`, at once; the rest of a partial send waits until the socket is writable. Short
regions are read and joined with their neighbours instead, and sent by one system call: a follower gets one record at a time
that way, and a second packet would wake it twice.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from ottla.environment import Address, IncomingConnection, ServedReceiver
from ottla.environment.busy_polling import BusyPolling
from ottla.environment.deferred_sends import DeferredSends
from ottla.environment.files import Region

_MSG_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)
_SHORT_REGION: Final = 16_384
"""Length up to which reading a region and sending it with its neighbours costs less than `sendfile`."""
_MOST_READ: Final = 262_144
_SLICE: Final = 262_144
"""Bytes of regions that a socket sends before another one has its turn, while several are sending.

The client takes what has been sent off one socket while the broker writes to the next: it finds the bytes in its cache, and the
two do not compete for the same socket. A client that is alone gets all that fits into its socket at once. A slice ends at the
end of a page: the kernel takes whole pages, and would send the few bytes of the last one by themselves.
"""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_UNLIMITED: Final = 1 << 62
_ACCEPTS_A_TURN: Final = 64
_BACKLOG: Final = 1024


class Turns:
    """State of the turns in which sockets send file regions: `last_fd` is the descriptor of the socket that did so last."""

    __slots__ = ("last_fd",)

    def __init__(self) -> None:
        self.last_fd = -1


class Shared(NamedTuple):
    """Objects that the sockets of an event loop share; `polling` is None without busy polling."""

    turns: Turns
    sends: DeferredSends
    polling: BusyPolling | None = None


class ServedSocket:
    """Socket of a client connection: an `IncomingConnection` at first, a `ServedStream` after `accept`."""

    __slots__ = (
        "_closed",
        "_fd",
        "_held",
        "_left",
        "_loop",
        "_paused",
        "_polling",
        "_receiver",
        "_sends",
        "_socket",
        "_turns",
        "local",
        "peer",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        peer: Address,
        shared: Shared,
    ) -> None:
        self._loop = loop
        self._turns, self._sends, self._polling = shared
        self._socket = sock
        self._fd = sock.fileno()
        self._receiver: ServedReceiver | None = None
        self._left: deque[Any] | None = None  # pieces to send; None without any, as an empty deque takes 760 bytes
        self._held: bytes | None = None  # a response that leaves with those of other sockets; `_left` is None meanwhile
        self._paused = True
        self._closed = False
        self.peer = peer
        self.local: Address = ("", 0)

    def accept(self) -> "ServedSocket":
        """See `IncomingConnection.accept`."""
        sock = self._socket
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self.local = sock.getsockname()[:2]
        except OSError:
            self.close()
            raise
        return self

    def serve(self, receiver: ServedReceiver) -> None:
        """See `IncomingConnection.serve`."""
        self._receiver = receiver
        self.resume_reading()

    def _receive(self, buffers: Sequence[Any]) -> int:
        size = self._socket.recv_into(buffers[0]) if len(buffers) == 1 else self._socket.recvmsg_into(buffers)[0]
        if self._polling is not None:
            self._polling.on_received(size)
        return size

    def write(self, pieces: Sequence[Any]) -> bool:
        """See `ServedStream.write`."""
        if self._held is not None:
            self.send_held()
        if self._closed:
            return False
        if self._left is not None:
            self._left.extend(pieces)
            return False
        if len(pieces) == 1 and type(pieces[0]) is bytes:
            sends = self._sends
            if sends.should_hold():
                self._held = pieces[0]
                sends.hold(self)
                return True
            # Fast path of most responses: one buffer, which the kernel accepts completely.
            try:
                sent = self._socket.send(pieces[0])
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                self._lose()
                return False
            # What is not for the client comes after the send: a few microseconds decide whether it is still awake.
            sends.on_sent()
            if self._polling is not None:
                self._polling.on_sent(sent)
            if sent == len(pieces[0]):
                return True
            self._left = deque((memoryview(pieces[0])[sent:],))
        else:
            try:
                self._left = deque(_join(pieces))
            except OSError:
                self._lose()
                return False
        return self._send_all(self._left)

    def send_held(self) -> None:
        """See `Sender.send_held`. What does not fit into the socket is sent when it is writable, as after `write`."""
        if self._held is not None:
            self._left = deque((self._held,))
            self._held = None
            self._send_all(self._left)

    def _send_all(self, left: deque[Any]) -> bool:
        """Send everything that is left, now (True) or also when the socket is writable again."""
        size = sum(map(len, left)) if self._polling is not None else 0
        is_complete = self._send()
        if self._polling is not None:
            self._polling.on_sent(size)
        if not is_complete and not self._closed:
            self._loop.add_writer(self._fd, self._writable)
        return is_complete

    def _send(self) -> bool:
        """Send until everything is sent (True), or the socket is full or its slice used up (False)."""
        left = self._left
        sock = self._socket
        allowed = 0  # bytes of regions; determined with the first one
        try:
            while left:
                piece = left[0]
                if type(piece) is Region:
                    allowed = allowed or self._take_turn(piece.position)
                    sent = os.sendfile(self._fd, piece.file.fileno(), piece.position, min(piece.length, allowed))
                    if sent == 0:
                        raise ConnectionError(f"{piece.file} is shorter than it was")
                    allowed -= sent
                    if sent < piece.length:
                        left[0] = Region(piece.file, piece.position + sent, piece.length - sent)
                        return False
                    if not allowed and len(left) > 1:
                        left.popleft()
                        return False
                else:
                    sent = sock.send(piece, _MSG_MORE if len(left) > 1 else 0)
                    if sent < len(piece):
                        left[0] = memoryview(piece)[sent:]
                        continue
                left.popleft()
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            self._lose()
            return False
        self._left = None
        return True

    def _take_turn(self, position: int) -> int:
        """Return the bytes of regions that the socket may send in this turn, and note that it was its turn.

        position  where the first of them begins in its file
        """
        turns = self._turns
        if turns.last_fd == self._fd:
            return _UNLIMITED
        turns.last_fd = self._fd
        return _SLICE - position % _PAGE

    def _writable(self) -> None:
        if self._send():
            self._loop.remove_writer(self._fd)
            if self._receiver is not None:
                self._receiver.written()

    def _lose(self) -> None:
        receiver = self._receiver
        self.close()
        if receiver is not None:
            receiver.lost()

    def pause_reading(self) -> None:
        """See `ServedStream.pause_reading`."""
        if not self._paused and not self._closed:
            self._paused = True
            self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        """See `ServedStream.resume_reading`."""
        if self._paused and not self._closed and self._receiver is not None:
            self._paused = False
            self._loop.add_reader(self._fd, self._receiver.readable, self._receive)

    def close(self) -> None:
        """See `ServedStream.close`."""
        if self._closed:
            return
        self._closed = True
        if self._held is not None:
            with suppress(OSError):
                self._socket.send(self._held)
            self._held = None
        if self._receiver is not None:
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
            self._receiver = (
                None  # the receiver refers to this object: a cycle would keep both until the next collection
            )
        self._socket.close()
        self._left = None


def _join(pieces: Sequence[Any]) -> Sequence[Any]:
    """Read short regions, and join them with the bytes beside them. Raises OSError if a file is too short or not readable.

    At most _MOST_READ bytes are read: a response of thousands of short regions takes no memory and no time before its turn.
    """
    result: list[Any] = []
    run: list[Any] = []
    left = _MOST_READ
    for piece in pieces:
        if type(piece) is Region:
            if piece.length > min(_SHORT_REGION, left):
                if run:
                    result.append(run[0] if len(run) == 1 else b"".join(run))
                    run = []
                result.append(piece)
                continue
            left -= piece.length
            read = piece.read()
            if len(read) != piece.length:
                raise OSError(f"{piece.file} is shorter than it was")
            run.append(read)
        elif len(piece) > _SHORT_REGION:
            result += [*run, piece]
            run = []
        else:
            run.append(piece)
    if run:
        result.append(run[0] if len(run) == 1 else b"".join(run))
    return result


class _Listening:
    """Implementation of `ListeningSocket`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        connected: Callable[[IncomingConnection], None],
        failed: Callable[[OSError], None],
        shared: Shared,
    ) -> None:
        self._loop = loop
        self._shared = shared
        self._socket = sock
        self._connected = connected
        self._failed = failed
        self._accepts = False
        self._closed = False
        self.address: Address = sock.getsockname()[:2]
        self.resume()

    def _readable(self) -> None:
        for _ in range(_ACCEPTS_A_TURN):
            if not self._accepts:
                return
            try:
                sock, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue  # the client closed it before the accept
            except OSError as error:
                self._failed(error)
                return
            self._connected(ServedSocket(self._loop, sock, peer[:2], self._shared))

    def pause(self) -> None:
        if self._accepts:
            self._accepts = False
            self._loop.remove_reader(self._socket.fileno())

    def resume(self) -> None:
        if not self._accepts and not self._closed:
            self._accepts = True
            self._loop.add_reader(self._socket.fileno(), self._readable)

    def close(self) -> None:
        self.pause()
        self._closed = True
        self._socket.close()


class SocketListen:
    """Implementation of `Listen` on an asyncio event loop.

    polling  busy polling of the loop, None without it
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, polling: BusyPolling | None = None) -> None:
        self._loop = loop
        self._shared = Shared(Turns(), DeferredSends(loop.call_soon), polling)

    def __call__(
        self,
        host: str,
        port: int,
        connected: Callable[[IncomingConnection], None],
        failed: Callable[[OSError], None],
        *,
        send_buffer: int = -1,
    ) -> _Listening:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM | getattr(socket, "SOCK_CLOEXEC", 0))
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if send_buffer != -1:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)  # accepted sockets inherit it
            sock.bind((host, port))
            sock.listen(_BACKLOG)
            sock.setblocking(False)
        except OSError:
            sock.close()
            raise
        return _Listening(self._loop, sock, connected, failed, self._shared)
