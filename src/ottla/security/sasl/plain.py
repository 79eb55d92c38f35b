"""PLAIN (RFC 4616): the client sends its password.

The one token is `[authorization id] NUL user NUL password` in UTF-8, and success is an empty answer. Users are options
`user_<name>` of the login module of a listener.
"""

import hmac
from collections.abc import Callable, Mapping
from typing import Final

from ottla.security.sasl.mechanism import AuthenticationFailed, MalformedToken

_USER_OPTION: Final = "user_"

Authenticate = Callable[[str, str], bool]
"""Check of (user name, password)."""


def users_of(options: Mapping[str, str]) -> dict[str, str]:
    """Return the passwords by user name in the options of a login module."""
    return {key.removeprefix(_USER_OPTION): value for key, value in options.items() if key.startswith(_USER_OPTION)}


def check_against(users: Mapping[str, str]) -> Authenticate:
    """Return a check against passwords by user name."""

    def authenticate(name: str, password: str) -> bool:
        expected = users.get(name)
        # The comparison also takes place for unknown users, so that its time does not reveal which names exist.
        same = hmac.compare_digest(_encode(password), _encode("" if expected is None else expected))
        return same and expected is not None

    return authenticate


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class PlainServer:
    """Server side of PLAIN."""

    __slots__ = ("_authenticate", "complete", "expires_ms", "principal", "token_id")

    def __init__(self, users: Mapping[str, str] | Authenticate) -> None:
        self._authenticate = users if callable(users) else check_against(users)
        self.complete = False
        self.principal = ""
        self.expires_ms: int | None = None
        self.token_id: str | None = None

    def step(self, token: bytes, now_ms: int) -> bytes:  # noqa: ARG002
        """Return an empty answer if the password is right."""
        if self.complete:
            raise MalformedToken("Authentication exchange has completed")
        parts = token.decode("utf-8", "replace").split("\0", 4)[:4]
        if len(parts) != 3:
            raise AuthenticationFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        if not self._authenticate(user, password):
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.principal = user
        self.complete = True
        return b""


class PlainClient:
    """Client side of PLAIN."""

    __slots__ = ("_token", "complete")

    def __init__(self, user: str, password: str, authorization_id: str = "") -> None:
        self._token = "\0".join((authorization_id, user, password)).encode()
        self.complete = False

    def initial(self) -> bytes:
        """Return the only token."""
        return self._token

    def step(self, token: bytes) -> None:
        """Accept the empty answer of the server."""
        if token:
            raise AuthenticationFailed("Unexpected answer to the token of SASL mechanism PLAIN")
        self.complete = True
