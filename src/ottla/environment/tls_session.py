"""One end of a TLS connection over memory buffers: encrypted bytes in and out, plain bytes out and in. Uses no socket.

Python's ssl module encrypts into a memory buffer as fast as into a socket, and the buffers fit between a `Stream` and its
receiver, so that the connections of broker and client are the same with and without TLS.
"""

import contextlib
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final

TlsContext = ssl.SSLContext
_RECORD: Final = 16_384
_PART: Final = 2 * _RECORD
"""Bytes that are decrypted at a time."""
"""Maximum number of plain bytes in one TLS record."""
_ALERTS: Final = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the other side requires a certificate, and none was sent",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side did not accept the certificate, or requires one",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other side does not trust the certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not trust the authority that signed the certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the other side says that the certificate has expired",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the other side does not accept this version of TLS",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the two sides have no cipher suite in common, or the other side requires a certificate",
    "NO_SHARED_CIPHER": "the two sides have no cipher suite in common",
    "UNSUPPORTED_PROTOCOL": "the two sides have no version of TLS in common",
    "WRONG_VERSION_NUMBER": "the other side does not speak TLS",
    "HTTP_REQUEST": "the other side sent an HTTP request",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the other side sent no certificate, and one is required",
}


class TlsFailure(Exception):
    """Failed handshake, or bytes that are not valid TLS: the reason in one line."""


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    known = _ALERTS.get(error.reason or "")
    return f"{known} ({error.reason})" if known else str(error.reason or error)


class TlsSession:
    """State of a TLS connection.

    certificate  the certificate of the other side in DER after the handshake, None without one
    """

    __slots__ = ("_incoming", "_object", "_outgoing", "certificate", "has_ended", "is_established")

    def __init__(self, context: ssl.SSLContext, *, server_side: bool, host: str | None = None) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side, server_hostname=host)
        self.is_established = False
        self.has_ended = False
        self.certificate: bytes | None = None

    def feed(self, encrypted: Any) -> None:
        """Take bytes of the other side."""
        self._incoming.write(encrypted)

    def feed_parts(self, encrypted: memoryview, take: Callable[[], None]) -> None:
        """Take bytes of the other side, and call `take` after each part, so that few of them are held at a time."""
        for start in range(0, len(encrypted), _PART):
            self._incoming.write(encrypted[start : start + _PART])
            take()

    def feed_end(self) -> None:
        """Record the end of the other side's bytes."""
        self._incoming.write_eof()

    def handshake(self) -> bool:
        """Continue the handshake with the bytes received so far; True when it is complete. Raises TlsFailure.

        `outgoing` may have bytes to send after each call, also after a failure.
        """
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise TlsFailure(_reason(error)) from None
        self.certificate = self._object.getpeercert(binary_form=True)
        self.is_established = True
        return True

    def outgoing(self) -> bytes:
        """Return and remove the encrypted bytes to send."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def read_into(self, buffers: Sequence[Any]) -> int:
        """Fill buffers with received plain bytes; returns their number, 0 without any or after the end of the other side
        (`has_ended`). Raises TlsFailure.
        """
        received = 0
        read = self._object.read
        try:
            for buffer in buffers:
                view = memoryview(buffer)
                filled, size = 0, len(view)
                while filled < size:
                    count: Any = read(size - filled, view[filled:])
                    if count == 0:
                        self.has_ended = True
                        return received
                    filled += count
                    received += count
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError, ssl.SSLSyscallError):
            self.has_ended = True
        except ssl.SSLError as error:
            if received == 0:
                raise TlsFailure(_reason(error)) from None
            self.has_ended = True
        return received

    def write(self, plain: Any) -> bytes:
        """Return a buffer encrypted, behind what `outgoing` would have returned. Raises TlsFailure.

        Each record is taken out before the next one is encrypted: the memory of a MemoryBIO grows and never shrinks, so that a
        connection would hold as much as it ever had to send at once.
        """
        write, read = self._object.write, self._outgoing.read
        view = memoryview(plain).cast("B")
        records: list[bytes] = []
        try:
            for start in range(0, len(view), _RECORD):
                write(view[start : start + _RECORD])
                records.append(read())
        except ssl.SSLError as error:
            raise TlsFailure(_reason(error)) from None
        return records[0] if len(records) == 1 else b"".join(records)

    def end(self) -> None:
        """Add the notice of the end of this side (close_notify) to the outgoing bytes."""
        if self.is_established:
            with contextlib.suppress(ssl.SSLError):  # the other side's notice is not awaited
                self._object.unwrap()
