"""Login of a client at a broker by SASL, on a connection whose versions are negotiated (KIP-43, KIP-152, KIP-368).

The mechanism is chosen by SaslHandshake. Its tokens travel in SaslAuthenticate requests, or as bare frames to brokers before
Kafka 1.0, which have version 0 of the handshake only.
"""

from typing import Final, Protocol

from ottla.environment import Address
from ottla.net.errors import NotAuthenticated, error_for
from ottla.protocol.errors import NONE, SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.schema import Request
from ottla.security.sasl.mechanism import AuthenticationFailed, ClientExchange
from ottla.tasks.deferred import Deferred

_FIRST_WITH_REQUESTS: Final = 1
"""First version of SaslHandshake after which tokens travel in requests."""


class Credentials(Protocol):
    """SASL mechanism of a client, with what it needs to log in.

    mechanism  name of the mechanism
    """

    @property
    def mechanism(self) -> str: ...

    def prepare(self) -> Deferred[object]:
        """Wait until an exchange can begin: an OAuth server has to provide a token first.

        Fails with NotAuthenticated, and with ConnectionLost if a later attempt may succeed.
        """

    def exchange(self) -> Deferred[ClientExchange]:
        """Begin an exchange. Fails as `prepare` does."""

    def answer(self, exchange: ClientExchange, token: bytes) -> Deferred[bytes | None]:
        """Return a promise of `exchange.step(token)`, which is computed on a worker if it takes long.

        Raises AuthenticationFailed, or fails with it.
        """

    def close(self) -> None:
        """End what runs in the background."""


class SaslLink(Protocol):
    """The part of a `Link` that a login uses."""

    address: Address

    def serves(self, request: type[Request]) -> bool:
        """See `Link.serves`."""

    def version(self, request: type[Request]) -> int:
        """See `Link.version`."""

    def handshake(self, request: SaslHandshakeRequest, version: int) -> Deferred[SaslHandshakeResponse]:
        """Send a request before all others."""

    def authenticate(self, request: SaslAuthenticateRequest, version: int) -> Deferred[SaslAuthenticateResponse]:
        """Send a request before all others."""

    def send_token(self, token: bytes) -> Deferred[bytes]:
        """Send a bare token; returns a promise of the broker's token."""


async def log_in(link: SaslLink, credentials: Credentials, exchange: ClientExchange) -> int:
    """Authenticate the client; returns the lifetime of the session in ms, 0 if it is not limited.

    exchange  exchange of the credentials for this login

    Raises NotAuthenticated if broker or client do not accept the other's token, and the error of a lost connection.
    """
    if not link.serves(SaslHandshakeRequest):
        raise NotAuthenticated(f"{link} has no SASL", UNSUPPORTED_SASL_MECHANISM)
    version = link.version(SaslHandshakeRequest)
    chosen = await link.handshake(SaslHandshakeRequest(mechanism=credentials.mechanism), version)
    if chosen.error_code == UNSUPPORTED_SASL_MECHANISM:
        raise NotAuthenticated(
            f"{link} does not enable the SASL mechanism {credentials.mechanism}, only "
            f"{', '.join(sorted(chosen.mechanisms)) or 'none'}: set sasl.mechanism",
            chosen.error_code,
        )
    if chosen.error_code != NONE:
        raise NotAuthenticated(
            str(error_for(chosen.error_code, f"SaslHandshake at {link} (is its listener one with SASL?)")),
            chosen.error_code,
        )
    try:
        if version < _FIRST_WITH_REQUESTS:
            return await _exchange_bare(link, credentials, exchange)
        return await _exchange_in_requests(link, credentials, exchange)
    except AuthenticationFailed as refused:
        raise NotAuthenticated(f"{link}: {refused}", SASL_AUTHENTICATION_FAILED) from None


async def _exchange_in_requests(link: SaslLink, credentials: Credentials, exchange: ClientExchange) -> int:
    version = link.version(SaslAuthenticateRequest)
    token: bytes | None = exchange.initial()
    lifetime_ms = 0
    while token is not None:
        answer = await link.authenticate(SaslAuthenticateRequest(auth_bytes=token), version)
        if answer.error_code != NONE:
            text = answer.error_message or str(error_for(answer.error_code, "SaslAuthenticate"))
            raise NotAuthenticated(f"{link}: {text}", answer.error_code)
        lifetime_ms = answer.session_lifetime_ms
        token = None if exchange.complete else await credentials.answer(exchange, bytes(answer.auth_bytes))
    return lifetime_ms


async def _exchange_bare(link: SaslLink, credentials: Credentials, exchange: ClientExchange) -> int:
    token: bytes | None = exchange.initial()
    while token is not None:
        answer = await link.send_token(token)
        token = None if exchange.complete else await credentials.answer(exchange, answer)
    return 0
