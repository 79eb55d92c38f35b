"""Lines of text over a socket pair, between the processes of one machine."""

import asyncio
import socket
from collections.abc import Callable
from typing import Final

_READ_SIZE: Final = 1 << 16


class Channel:
    """One end of a socket pair, on an asyncio event loop.

    received  called with each line of the other end; equal lines that arrive together are passed once
    closed    called when the other end is closed, also by the end of its process
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        received: Callable[[str], None],
        closed: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._received = received
        self._closed = closed
        self._unread = b""
        self._unsent = b""
        sock.setblocking(False)
        loop.add_reader(sock, self._read)

    def send(self, line: str) -> None:
        """Send a line. It is dropped if the other end does not read, or is closed."""
        if self._socket.fileno() >= 0 and not self._unsent:
            self._unsent = line.encode() + b"\n"
            self._write()

    def close(self) -> None:
        """Close this end; no callback follows."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()

    def _write(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._loop.remove_writer(self._socket)  # the end of the stream is read as well
            return
        self._unsent = self._unsent[sent:]
        if self._unsent:
            self._loop.add_writer(self._socket, self._write)
        else:
            self._loop.remove_writer(self._socket)

    def _read(self) -> None:
        try:
            received = self._socket.recv(_READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            received = b""
        if not received:
            self.close()
            self._closed()
            return
        *lines, self._unread = (self._unread + received).split(b"\n")
        for line in dict.fromkeys(lines):
            self._received(line.decode())
