"""TLS on the connections that a client or broker opens: a layer between the socket and the connection that sends requests."""

import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from ottla.environment import Address, Receiver, Stream, Transport
from ottla.environment.tls_session import TlsFailure, TlsSession

_PIECE: Final = 1 << 17
"""Number of bytes that are received at a time."""


class TlsTransport:
    """A `Transport` whose connections use TLS.

    context  returns the current TLS context, for the next connection
    """

    def __init__(self, transport: Transport, context: Callable[[], ssl.SSLContext]) -> None:
        self._transport = transport
        self._context = context
        self._shared = bytearray(_PIECE)

    def open(
        self, address: Address, receiver: Receiver, *, send_buffer: int = -1, receive_buffer: int = -1
    ) -> Callable[[], None]:
        """See `Transport.open`. The receiver is connected after the handshake."""
        secured = _TlsReceiver(receiver, self._context, address[0], self._shared)
        give_up = self._transport.open(address, secured, send_buffer=send_buffer, receive_buffer=receive_buffer)

        def cancel() -> None:
            secured.close()
            give_up()

        return cancel


class _TlsReceiver:
    """A connection with TLS: a `Receiver` to the socket, a `Stream` to its own receiver."""

    def __init__(self, receiver: Receiver, context: Callable[[], ssl.SSLContext], host: str, shared: bytearray) -> None:
        self._receiver = receiver
        self._context = context
        self._host = host
        self._shared = shared
        self._session: TlsSession | None = None
        self._stream: Stream | None = None
        self._drained = False
        self._closed = False

    # -- from the socket --

    def connected(self, stream: Stream) -> None:
        """Begin the handshake."""
        if self._closed:
            stream.close()
            return
        self._stream = stream
        try:
            self._session = session = TlsSession(self._context(), server_side=False, host=self._host)
        except (ssl.SSLError, ValueError) as error:
            self._reject(str(error))
            return
        self._shake_hands(session)

    def readable(self, receive_into: Callable[[Any], int]) -> None:
        """Receive encrypted bytes, and pass on what they contain."""
        session = self._session
        if session is None:
            return
        try:
            count = receive_into(self._shared)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(error.strerror or str(error))
            return
        received = memoryview(self._shared)[:count]
        if count == 0:
            session.feed_end()
            if session.is_established:
                self._pass_on(session)
            else:
                self._lose(
                    "the broker closed the connection during the TLS handshake; is the listener one with TLS "
                    "(security.protocol)?"
                )
        elif session.is_established:
            session.feed_parts(received, partial(self._pass_on, session))
        else:
            session.feed(received)
            self._shake_hands(session)

    def _shake_hands(self, session: TlsSession) -> None:
        reason = ""
        is_complete = False
        try:
            is_complete = session.handshake()
        except TlsFailure as failure:
            reason = str(failure)
        self._flush(session)
        if reason:
            self._reject(reason)
        elif is_complete and not self._closed:
            self._receiver.connected(self)
            self._pass_on(session)

    def _pass_on(self, session: TlsSession) -> None:
        """Let the receiver take decrypted bytes until none are left."""
        self._drained = False
        while not (self._drained or self._closed):
            self._receiver.readable(self._receive_into)
        if not self._closed:
            self._flush(session)

    def _receive_into(self, buffer: Any) -> int:
        session = self._session
        if session is None:
            raise ConnectionError("the connection is closed")
        try:
            count = session.read_into((buffer,))
        except TlsFailure as failure:
            self._drained = True
            self._reject(str(failure))
            raise BlockingIOError from None
        if count < len(buffer):
            self._drained = not session.has_ended or count == 0
        if count == 0 and not session.has_ended:
            raise BlockingIOError
        return count

    def _flush(self, session: TlsSession) -> None:
        encrypted = session.outgoing()
        if encrypted and self._stream is not None:
            self._stream.write((encrypted,))

    def resolved(self) -> None:
        """Pass on that the host name has an address."""
        self._receiver.resolved()

    def lost(self, reason: str) -> None:
        """Pass on that the connection could not be opened, or broke."""
        self._lose(reason)

    def rejected(self, reason: str) -> None:
        """See `Receiver.rejected`; sockets do not reject."""
        self._reject(reason)

    def _lose(self, reason: str) -> None:
        if not self._closed:
            self.close()
            self._receiver.lost(reason)

    def _reject(self, reason: str) -> None:
        if not self._closed:
            self.close()
            self._receiver.rejected(f"TLS handshake failed: {reason}")

    # -- from the receiver --

    def write(self, pieces: Sequence[Any]) -> None:
        """See `Stream.write`."""
        session = self._session
        if session is None or self._closed:
            return
        try:
            encrypted = session.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        except TlsFailure as failure:
            self._lose(str(failure))
            return
        if self._stream is not None:
            self._stream.write((encrypted,))

    def close(self) -> None:
        """See `Stream.close`."""
        if self._closed:
            return
        self._closed = True
        stream, session = self._stream, self._session
        if stream is not None:
            if session is not None:
                session.end()
                self._flush(session)
            stream.close()
