"""TLS on the connections that clients open: a layer between the socket and the connection that serves its requests.

    handshake    encrypted bytes go into the TLS session until the handshake is complete; nothing is passed on
    established  received bytes are decrypted and passed on; written bytes and file regions are encrypted in pieces
    closed       nothing happens any more

A handshake with a large RSA key takes longer than the event loop may be held: it runs on a worker, and no bytes are received
meanwhile. Files cannot be sent by sendfile: their regions are read and encrypted piece by piece, the next one when the socket
has room, so that a response of many megabytes takes neither memory nor the loop for long.
"""

import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from ottla.environment import (
    Address,
    Cancellable,
    IncomingConnection,
    ServedReceiver,
    ServedStream,
    Timers,
    Worker,
)
from ottla.environment.files import Region
from ottla.environment.tls_session import TlsFailure, TlsSession

_PIECE: Final = 1 << 17
"""Number of bytes that are received, or encrypted, at a time."""
_HANDSHAKE_MS: Final = 10_000
"""Time from the first bytes of a handshake to its end."""
_HANDSHAKE: Final = 0x16
"""Type of the TLS record with which every client begins."""
_INTERNAL_ERROR: Final = bytes((0x15, 3, 3, 0, 2, 2, 80))
"""Kafka's answer to bytes that are not TLS: a fatal alert."""


def _accept(_: bytes | None) -> bool:
    return True


def _ignore(_: str) -> None:
    pass


class TlsListener:
    """TLS for the connections of one listener.

    context  returns the current TLS context, for the next connection
    worker   returns the worker for handshakes that take long, None if those of the current key do not
    """

    def __init__(
        self,
        context: Callable[[], ssl.SSLContext],
        worker: Callable[[], Worker | None],
        timers: Timers,
    ) -> None:
        self.context = context
        self.worker = worker
        self.timers = timers
        self.shared = bytearray(_PIECE)
        """Memory for all connections, into which encrypted bytes are received."""

    def secure(self, incoming: IncomingConnection) -> "TlsConnection":
        """Return `incoming` with TLS."""
        return TlsConnection(self, incoming)


class TlsConnection:
    """A connection with TLS: an `IncomingConnection` at first, then a `ServedStream`; to the socket a `ServedReceiver`.

    established  called after the handshake with the client's certificate in DER, None without one; False closes the connection
    failed       called with the reason when the handshake fails; the connection is closed afterwards
    """

    __slots__ = (
        "_closed",
        "_drained",
        "_incoming",
        "_is_owed",
        "_is_working",
        "_left",
        "_listener",
        "_paused",
        "_receiver",
        "_session",
        "_stream",
        "_timer",
        "_worker",
        "established",
        "failed",
    )

    def __init__(self, listener: TlsListener, incoming: IncomingConnection) -> None:
        self._listener = listener
        self._incoming = incoming
        self.established: Callable[[bytes | None], bool] = _accept
        self.failed: Callable[[str], None] = _ignore
        self._session: TlsSession | None = None
        self._stream: ServedStream | None = None
        self._receiver: ServedReceiver | None = None
        self._worker = listener.worker()
        self._timer: Cancellable | None = None
        self._left: deque[Any] | None = None
        """Pieces to send; None without any, as an empty deque takes 760 bytes."""
        self._is_owed = False
        """The receiver waits for `written`."""
        self._is_working = False
        self._paused = False
        self._drained = False
        self._closed = False

    @property
    def peer(self) -> Address:
        """See `IncomingConnection.peer`."""
        return self._incoming.peer

    @property
    def local(self) -> Address:
        """See `IncomingConnection.local`."""
        return self._incoming.local

    def accept(self) -> "TlsConnection":
        """See `IncomingConnection.accept`."""
        self._stream = self._incoming.accept()
        return self

    def serve(self, receiver: ServedReceiver) -> None:
        """See `IncomingConnection.serve`."""
        self._receiver = receiver
        self._incoming.serve(self)

    # -- from the socket --

    def readable(self, receive: Callable[[Sequence[Any]], int]) -> None:
        """Receive encrypted bytes, and pass on what they contain."""
        try:
            count = receive((self._listener.shared,))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        session = self._session
        if session is None:
            session = self._begin(count)
            if session is None:
                return
        received = memoryview(self._listener.shared)[:count]
        if count == 0:
            session.feed_end()
            if session.is_established:
                self._pass_on()
            else:
                self._lose()
        elif session.is_established:
            session.feed_parts(received, self._pass_on)
        else:
            session.feed(received)
            self._shake_hands(session)

    def _begin(self, count: int) -> TlsSession | None:
        """Create the session at the first bytes: a connection that sends none costs no memory for TLS."""
        if count == 0:
            self._lose()
            return None
        if self._listener.shared[0] != _HANDSHAKE:
            self._write((_INTERNAL_ERROR,))
            self.failed("the first bytes are not TLS: the client connects without TLS (security.protocol)")
            self._lose()
            return None
        self._session = session = TlsSession(self._listener.context(), server_side=True)
        self._timer = self._listener.timers.call_later(_HANDSHAKE_MS, self._late)
        return session

    def _late(self) -> None:
        self.failed(f"the handshake was not complete after {_HANDSHAKE_MS} ms")
        self._lose()

    def _shake_hands(self, session: TlsSession) -> None:
        def step() -> bool | str:
            try:
                return session.handshake()
            except TlsFailure as failure:
                return str(failure)

        if self._worker is None:
            self._shaken(step())
            return
        self._is_working = True
        if self._stream is not None:
            self._stream.pause_reading()
        self._worker.run(step, self._on_step_end, lambda: self._on_step_end("internal error"))

    def _on_step_end(self, outcome: bool | str) -> None:
        self._is_working = False
        if not self._closed:
            if self._stream is not None and not self._paused:
                self._stream.resume_reading()
            self._shaken(outcome)

    def _shaken(self, outcome: bool | str) -> None:
        """Send the bytes of a handshake step, and act on its outcome: complete, incomplete, or the reason of its failure."""
        session = self._session
        if session is None or self._closed:
            return
        encrypted = session.outgoing()
        if encrypted:
            self._write((encrypted,))
        if isinstance(outcome, str):
            self.failed(outcome)
            self._lose()
        elif outcome and not self._closed:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self.established(session.certificate):
                self._pass_on()
            else:
                self._lose()

    def _pass_on(self) -> None:
        """Let the receiver take decrypted bytes until none are left or it pauses."""
        receiver, session = self._receiver, self._session
        if receiver is None or session is None:
            return
        self._drained = False
        while not (self._drained or self._paused or self._closed):
            receiver.readable(self._receive)
        if not self._closed:
            encrypted = session.outgoing()  # an answer to a key update
            if encrypted and not self._left:
                self._write((encrypted,))

    def _receive(self, buffers: Sequence[Any]) -> int:
        session = self._session
        if session is None:
            raise ConnectionError("the connection is closed")
        try:
            count = session.read_into(buffers)
        except TlsFailure as failure:
            raise ConnectionError(str(failure)) from None
        if count < sum(map(len, buffers)):
            self._drained = not session.has_ended or count == 0
        if count == 0 and not session.has_ended:
            raise BlockingIOError
        return count

    def written(self) -> None:
        """Encrypt and send the next piece."""
        if self._closed or (self._left and not self._send()):
            return
        if self._is_owed and self._receiver is not None:
            self._is_owed = False
            self._receiver.written()

    def lost(self) -> None:
        """Pass on that the connection broke."""
        self._lose()

    # -- from the receiver --

    def write(self, pieces: Sequence[Any]) -> bool:
        """See `ServedStream.write`."""
        waits = bool(self._left) or self._is_owed
        if self._left is None:
            self._left = deque(pieces)
        else:
            self._left.extend(pieces)
        if waits or self._closed or not self._send():
            self._is_owed = True
            return False
        return True

    def _send(self) -> bool:
        """Encrypt and send until everything is sent (True) or the socket is full (False)."""
        session = self._session
        while (left := self._left) and session is not None:
            try:
                encrypted = session.write(self._next_piece(left))
            except (OSError, TlsFailure):
                self._lose()
                return False
            if not left:
                self._left = None
            if not self._write((encrypted,)):
                return False
        return True

    @staticmethod
    def _next_piece(left: deque[Any]) -> Any:
        """Remove and return up to `_PIECE` bytes of what is left to send. Raises OSError if a file is shorter than it was."""
        room = _PIECE
        run: list[Any] = []
        part: Any
        while left and room > 0:
            piece = left.popleft()
            size = piece.length if type(piece) is Region else len(piece)
            if type(piece) is Region:
                part = Region(piece.file, piece.position, min(size, room)).read()
                if len(part) != min(size, room):
                    raise ConnectionError(f"{piece.file} is shorter than it was")
                if size > room:
                    left.appendleft(Region(piece.file, piece.position + room, size - room))
            elif size > room:
                view = memoryview(piece)
                part = view[:room]
                left.appendleft(view[room:])
            else:
                part = piece
            run.append(part)
            room -= len(part)
        return run[0] if len(run) == 1 else b"".join(run)

    def _write(self, pieces: Sequence[Any]) -> bool:
        return self._stream is not None and self._stream.write(pieces)

    def pause_reading(self) -> None:
        """See `ServedStream.pause_reading`."""
        self._paused = True
        if self._stream is not None:
            self._stream.pause_reading()

    def resume_reading(self) -> None:
        """See `ServedStream.resume_reading`: bytes that are decrypted already are passed on in a later turn."""
        if self._paused and not self._closed:
            self._paused = False
            self._listener.timers.call_later(0, self._resume)

    def _resume(self) -> None:
        if self._closed or self._paused:
            return
        self._pass_on()
        if not self._closed and not self._paused and not self._is_working and self._stream is not None:
            self._stream.resume_reading()

    def _lose(self) -> None:
        """Close the connection because of the other side."""
        if not self._closed:
            receiver = self._receiver
            self.close()
            if receiver is not None:
                receiver.lost()

    def close(self) -> None:
        """See `ServedStream.close`."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # What refers to this object from here would be a cycle, and keep it until the next collection.
        self._receiver = None
        self.established, self.failed = _accept, _ignore
        session, stream = self._session, self._stream
        self._session = None
        if stream is not None:
            if session is not None and not self._left and not self._is_working:
                session.end()
                encrypted = session.outgoing()
                if encrypted:
                    stream.write((encrypted,))
            stream.close()
        else:
            self._incoming.close()
        self._left = None
