"""Interfaces of SASL mechanisms: both sides of an exchange of tokens, and its errors.

    client                                  server
    initial()        -> token  ------>      step(token, now) -> token
    step(token)      -> token  <------
         ...                   ------>      step(token, now) -> token      until both are complete

A server answers AuthenticationFailed with error 58 (SASL_AUTHENTICATION_FAILED) and its text, and MalformedToken by closing
the connection. Texts are those of Apache Kafka 4.4.
"""

from typing import Final, Protocol

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"

AUTHENTICATION: Final = "authentication"
REAUTHENTICATION: Final = "re-authentication"
"""Occasions of an exchange, as error texts name them."""


class SaslError(Exception):
    """An exchange that failed.

    SaslError
    ├── AuthenticationFailed   the other side is not authenticated; the message may be sent to it
    └── MalformedToken         the connection is closed without an answer
    """


_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))


def trim(text: str) -> str:
    """Return a text without the blanks that Java's String.trim() removes at both ends: U+0000 to U+0020.

    Names must not lose more. Python's strip() also removes blanks such as U+2003, and would make one user of two.
    """
    return text.strip(_JAVA_BLANKS)


class AuthenticationFailed(SaslError):
    """The other side is not authenticated; on a server, the message is the text of error 58."""


class MalformedToken(SaslError):
    """A token that a server answers by closing the connection."""


def invalid_credentials(mechanism: str, occasion: str = AUTHENTICATION) -> AuthenticationFailed:
    """Return the error of a failure whose cause is not revealed to the client."""
    return AuthenticationFailed(
        f"Authentication failed during {occasion} due to invalid credentials with SASL mechanism {mechanism}"
    )


class ServerExchange(Protocol):
    """Server side of one authentication.

    complete    the client is authenticated; the last token is still to be sent
    principal   name of the authenticated user; of the owner where a delegation token was used
    expires_ms  expiry of the credential; None if it has none
    token_id    id of the delegation token; None without one
    """

    complete: bool
    principal: str
    expires_ms: int | None
    token_id: str | None

    def step(self, token: bytes, now_ms: int) -> bytes:
        """Return the answer to a token of the client. Raises AuthenticationFailed and MalformedToken."""
        ...


class ClientExchange(Protocol):
    """Client side of one authentication; `complete` once the server has proven what its mechanism demands."""

    complete: bool

    def initial(self) -> bytes:
        """Return the first token."""
        ...

    def step(self, token: bytes) -> bytes | None:
        """Return the answer to a token of the server, None if there is nothing more to send.

        Raises AuthenticationFailed.
        """
        ...
