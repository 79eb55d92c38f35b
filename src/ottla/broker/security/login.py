"""Login of a connection by SASL: the frames before a client is authenticated, and those of re-authentication (KIP-368).

    initial        ApiVersions once, then SaslHandshake with a mechanism
    tokens         of the mechanism: in SaslAuthenticate requests after handshake 1, bare frames after handshake 0 (KIP-152)
    authenticated  all requests are served; where sessions have a lifetime, SaslHandshake begins re-authentication

Everything else closes the connection: at once where the client does not speak the protocol, and after a delay where its
credentials were refused, so that passwords cannot be tried quickly. Uses no clock: times are arguments.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ottla.broker.requests.dispatch import refusal
from ottla.protocol.api import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from ottla.protocol.codec import decode
from ottla.protocol.connection import Envelope, open_envelope, response_pieces
from ottla.protocol.errors import (
    ILLEGAL_SASL_STATE,
    NONE,
    SASL_AUTHENTICATION_FAILED,
    UNSUPPORTED_SASL_MECHANISM,
)
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.wire import PeerError
from ottla.security.sasl.mechanism import AuthenticationFailed, MalformedToken, ServerExchange

_SIZE: Final = struct.Struct(">i")
_LEAST_REAUTHENTICATION_MS: Final = 1000
"""A re-authentication that begins earlier after the last one is not accepted."""


def _nothing() -> None:
    pass


class Mechanism(NamedTuple):
    """SASL mechanism of a listener.

    exchange       begins the exchange of tokens with a client, for a login (False) or a re-authentication (True)
    max_reauth_ms  connections.max.reauth.ms: longest lifetime of a session in ms; 0: unlimited
    close          ends timers and workers of the mechanism
    """

    exchange: Callable[[bool], ServerExchange]
    max_reauth_ms: int = 0
    close: Callable[[], None] = _nothing


class LoginAnswer(NamedTuple):
    """Answer to a frame of the login.

    pieces   bytes to send
    refusal  reason of a failed login: the bytes are sent after a delay, and the connection is closed; None otherwise
    """

    pieces: list[Any]
    refusal: str | None = None


class Login:
    """SASL state of a connection.

    mechanisms     those of the listener by name
    serve          answers an ApiVersions request
    authenticated  called with the exchange when the client is authenticated, also after each re-authentication
    """

    __slots__ = (
        "_authenticated",
        "_begun_ms",
        "_exchange",
        "_expires_ms",
        "_has_versions",
        "_is_bare",
        "_mechanism",
        "_mechanisms",
        "_principal",
        "_serve",
        "_wrong_mechanism",
    )

    def __init__(
        self,
        mechanisms: Mapping[str, Mechanism],
        serve: Callable[[Envelope], Any],
        authenticated: Callable[[ServerExchange], None],
    ) -> None:
        self._mechanisms = mechanisms
        self._serve = serve
        self._authenticated = authenticated
        self._exchange: ServerExchange | None = None
        """The exchange in progress."""
        self._mechanism = ""
        self._wrong_mechanism = False
        self._is_bare = False
        self._has_versions = False
        self._principal: str | None = None
        """Name of the authenticated client; None before the first login is complete."""
        self._expires_ms: int | None = None
        self._begun_ms: int | None = None
        """Start of the last re-authentication."""

    def receive(self, frame: bytes, now_ms: int, wall_ms: int) -> LoginAnswer | None:
        """Return the answer to a frame; None if it is a request of an authenticated client. Raises PeerError: the connection
        is closed at once.

        now_ms   time of a monotonic clock
        wall_ms  time since the epoch
        """
        if self._exchange is not None or self._wrong_mechanism:
            return self._receive_token(frame, now_ms, wall_ms)
        if self._principal is None:
            return self._receive_first(open_envelope(frame))
        if self._expires_ms is None:
            return None
        is_handshake = len(frame) >= 2 and int.from_bytes(frame[:2], "big") == SASL_HANDSHAKE
        if is_handshake and (self._begun_ms is None or now_ms - self._begun_ms >= _LEAST_REAUTHENTICATION_MS):
            self._begun_ms = now_ms
            return self._shake_hands(open_envelope(frame))
        if now_ms >= self._expires_ms:
            raise PeerError("the session has expired, and the client has not authenticated again")
        return None

    def _receive_first(self, envelope: Envelope) -> LoginAnswer:
        """Answer a request before the exchange of tokens."""
        if envelope.api.key == SASL_HANDSHAKE:
            return self._shake_hands(envelope)
        if envelope.api.key != API_VERSIONS or self._has_versions:
            raise PeerError(f"{envelope.api.name} before the client is authenticated")
        response = self._serve(envelope)
        self._has_versions = response.error_code == NONE
        return LoginAnswer(response_pieces(envelope, response))

    def _shake_hands(self, envelope: Envelope) -> LoginAnswer:
        """Answer SaslHandshake: choose the mechanism."""
        if envelope.version not in SaslHandshakeRequest.VERSIONS:
            raise PeerError(f"{envelope.api.name} version {envelope.version} is not served")
        request, _ = decode(SaslHandshakeRequest, envelope.version, envelope.frame, envelope.body)
        names = list(self._mechanisms)
        mechanism = self._mechanisms.get(request.mechanism)
        if mechanism is None:
            if self._principal is not None:
                return LoginAnswer([], "the SASL mechanism of a re-authentication is not enabled")
            response = SaslHandshakeResponse(error_code=UNSUPPORTED_SASL_MECHANISM, mechanisms=names)
            return LoginAnswer(
                response_pieces(envelope, response), f"Unsupported SASL mechanism {request.mechanism[:64]!r}"
            )
        self._is_bare = envelope.version == 0
        if self._principal is not None and request.mechanism != self._mechanism:
            self._wrong_mechanism = True
        else:
            self._mechanism = request.mechanism
            self._exchange = mechanism.exchange(self._principal is not None)
        return LoginAnswer(response_pieces(envelope, SaslHandshakeResponse(error_code=NONE, mechanisms=names)))

    def _receive_token(self, frame: bytes, now_ms: int, wall_ms: int) -> LoginAnswer:
        """Answer a token of the mechanism, bare or in a request."""
        if self._wrong_mechanism:
            return LoginAnswer([], "the SASL mechanism of a re-authentication is another than before")
        if self._is_bare:
            if not frame:
                raise PeerError("an empty frame in place of a SASL token")
            token, failed = self._step(frame, now_ms, wall_ms)
            if failed is not None:
                return LoginAnswer([], failed)
            return LoginAnswer([_SIZE.pack(len(token)) + token])
        envelope = open_envelope(frame)
        if envelope.api.key != SASL_AUTHENTICATE:
            reason = f"{envelope.api.name} in place of a SASL token"
            return LoginAnswer(response_pieces(envelope, refusal(envelope, ILLEGAL_SASL_STATE)), reason)
        if envelope.version not in SaslAuthenticateRequest.VERSIONS:
            raise PeerError(f"{envelope.api.name} version {envelope.version} is not served")
        request, _ = decode(SaslAuthenticateRequest, envelope.version, envelope.frame, envelope.body)
        token, failed = self._step(bytes(request.auth_bytes), now_ms, wall_ms)
        if failed is not None:
            response = SaslAuthenticateResponse(error_code=SASL_AUTHENTICATION_FAILED, error_message=failed)
            return LoginAnswer(response_pieces(envelope, response), failed)
        lifetime_ms = 0
        if self._exchange is None and self._expires_ms is not None:
            lifetime_ms = self._expires_ms - now_ms
        response = SaslAuthenticateResponse(error_message="", auth_bytes=token, session_lifetime_ms=lifetime_ms)
        return LoginAnswer(response_pieces(envelope, response))

    def _step(self, token: bytes, now_ms: int, wall_ms: int) -> tuple[bytes, str | None]:
        """Pass a token to the mechanism; returns its token, or the text of a failure."""
        exchange = self._exchange
        assert exchange is not None
        try:
            answer = exchange.step(token, wall_ms)
            if exchange.complete:
                self._complete(exchange, now_ms, wall_ms)
        except AuthenticationFailed as refused:
            return b"", str(refused)
        except MalformedToken as malformed:
            raise PeerError(f"a SASL token is malformed: {malformed}") from None
        return answer, None

    def _complete(self, exchange: ServerExchange, now_ms: int, wall_ms: int) -> None:
        """Authenticate the client, or the same client again. Raises AuthenticationFailed if it is another one."""
        if self._principal is not None and exchange.principal != self._principal:
            raise AuthenticationFailed(
                f"Cannot change principals during re-authentication from User.{self._principal}: User.{exchange.principal}"
            )
        self._principal = exchange.principal
        self._exchange = None
        limits = [
            limit
            for limit in (
                self._mechanisms[self._mechanism].max_reauth_ms or None,
                None if exchange.expires_ms is None else max(0, exchange.expires_ms - wall_ms),
            )
            if limit is not None
        ]
        self._expires_ms = now_ms + min(limits) if limits else None
        self._authenticated(exchange)
