"""Sockets, DNS and timers on an asyncio event loop.

Sockets are non-blocking and owned here (`add_reader`, `add_writer`), not by asyncio's streams; bytes that the kernel does not
accept at once are kept and sent when the socket is writable.
"""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

from ottla.environment import Address, Cancellable, Receiver
from ottla.environment.busy_polling import BusyPolling
from ottla.environment.connecting import connect

_MOST_PIECES: Final = 64
"""Maximum number of buffers in one sendmsg."""


class ThreadsafeTimers:
    """Implementation of `Timers` whose calls may be scheduled from any thread; ignored after the loop is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Cancellable:
        call = _ThreadsafeCall(callback)
        with contextlib.suppress(RuntimeError):  # the loop is closed: its broker has ended
            if delay_ms <= 0:
                self._loop.call_soon_threadsafe(call.run)
            else:
                self._loop.call_soon_threadsafe(self._loop.call_later, delay_ms / 1000, call.run)
        return call


class _ThreadsafeCall:
    """Scheduled call that can be cancelled from any thread."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self._callback = None

    def run(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class _Socket:
    """Open socket as a `Stream`.

    Writes made while responses are read are sent after all of them are read: the next requests of a producer, one for each
    response, are sent by one system call.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        receiver: Receiver,
        polling: BusyPolling | None,
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._receiver = receiver
        self._polling = polling
        self._receive: Callable[[Any], int] = sock.recv_into if polling is None else self._receive_and_report
        self._left: deque[bytes | memoryview] = deque()
        self._open = True
        self._reading = False
        loop.add_reader(sock.fileno(), self._readable)

    def _readable(self) -> None:
        waits = bool(self._left)  # waits for room in the socket, until `_writable` is called
        self._reading = True
        try:
            self._receiver.readable(self._receive)
        finally:
            self._reading = False
            if self._left and not waits:
                self._send()

    def _receive_and_report(self, buffer: Any) -> int:
        assert self._polling is not None
        size = self._socket.recv_into(buffer)
        self._polling.on_received(size)
        return size

    def write(self, pieces: Sequence[Any]) -> None:
        if not self._open:
            return
        if self._polling is not None:
            self._polling.on_sent(sum(map(len, pieces)))
        idle = not self._left
        for piece in pieces:
            if len(piece):
                self._left.append(piece if type(piece) is bytes else memoryview(piece).cast("B"))
        if idle and not self._reading:
            self._send()

    def _send(self) -> None:
        left = self._left
        try:
            while left:
                sock = self._socket
                sent = sock.send(left[0]) if len(left) == 1 else sock.sendmsg(list(islice(left, _MOST_PIECES)))
                while left and sent >= len(left[0]):
                    sent -= len(left.popleft())
                if sent:
                    left[0] = memoryview(left[0])[sent:]
        except BlockingIOError:
            self._loop.add_writer(self._socket.fileno(), self._writable)
        except OSError as error:
            left.clear()
            # The receiver is called in a later turn of the loop, as the caller of `write` may not expect a callback now.
            self._loop.call_soon(self._receiver.lost, error.strerror or str(error))

    def _writable(self) -> None:
        if self._open:
            self._loop.remove_writer(self._socket.fileno())
            self._send()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._left.clear()
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()


class AsyncioTimers:
    """`Timers` of an asyncio event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Cancellable:
        if delay_ms <= 0:
            return self._loop.call_soon(callback)
        return self._loop.call_later(delay_ms / 1000, callback)


class AsyncioTransport:
    """A `Transport` on an asyncio event loop; `polling` is its busy polling for responses, None without it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, polling: BusyPolling | None = None) -> None:
        self._loop = loop
        self._polling = polling

    def open(
        self, address: Address, receiver: Receiver, *, send_buffer: int = -1, receive_buffer: int = -1
    ) -> Callable[[], None]:
        """See `Transport.open`."""
        buffers = {socket.SO_SNDBUF: send_buffer, socket.SO_RCVBUF: receive_buffer}

        def on_connected(sock: socket.socket) -> None:
            receiver.connected(_Socket(self._loop, sock, receiver, self._polling))

        task = self._loop.create_task(
            connect(self._loop, address, buffers, receiver.resolved, on_connected, receiver.lost)
        )

        def give_up() -> None:
            task.cancel()

        return give_up
