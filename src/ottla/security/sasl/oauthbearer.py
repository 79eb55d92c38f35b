"""OAUTHBEARER (RFC 7628, KIP-255): the client presents an access token.

    client first   n,[a=authzid],^Aauth=Bearer token^A[extension=value^A]...^A       ^A is the byte 1
    success        an empty token
    failure        {"status":"invalid_token"}, to which the client answers ^A, and only then the server fails

What a token must contain is decided by a validator, see `jwt.py`.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ottla.security.sasl.mechanism import (
    AUTHENTICATION,
    OAUTHBEARER,
    AuthenticationFailed,
    MalformedToken,
    invalid_credentials,
)

_SEPARATOR: Final = "\x01"
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_KEY: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:{_KEY.pattern}={_VALUE.pattern}\x01)*)\x01"
)
_AUTH: Final = re.compile(r"(?P<scheme>[a-zA-Z_0-9]+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")
_AUTH_KEY: Final = "auth"
_EXTENSION_OPTION: Final = "unsecuredLoginExtension_"


class ValidatedToken(NamedTuple):
    """A valid access token: name of its principal, expiry, and scope."""

    principal: str
    expires_ms: int
    scope: frozenset[str] = frozenset()


class InvalidToken(Exception):
    """An access token that is not accepted. The message is for the log, not for the client.

    status  status in the answer to the client
    scope   scope that the token lacks, in the answer to the client
    """

    def __init__(self, message: str, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.scope = scope

    def answer(self) -> str:
        """Return the answer to the client, in JSON."""
        scope = "" if self.scope is None else f', "scope":"{self.scope}"'
        return f'{{"status":"{self.status}"{scope}}}'


class InvalidExtension(ValueError):
    """An extension whose name or value cannot be sent."""


Validate = Callable[[str, int], ValidatedToken]
"""Validator of (token, now in ms). Raises InvalidToken."""


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Raise InvalidExtension if an extension cannot be sent."""
    for name, value in extensions.items():
        if name == _AUTH_KEY or _KEY.fullmatch(name) is None:
            raise InvalidExtension(f"Extension name {name} is invalid")
        if _VALUE.fullmatch(value) is None:
            raise InvalidExtension(f"Extension value ({value}) for extension {name} is invalid")


def extensions_of(options: Mapping[str, str]) -> dict[str, str]:
    """Return the extensions in the options of a client's login module. Raises InvalidExtension."""
    extensions = {
        key.removeprefix(_EXTENSION_OPTION): value
        for key, value in options.items()
        if key.startswith(_EXTENSION_OPTION)
    }
    check_extensions(extensions)
    return extensions


def is_sendable(access_token: str) -> bool:
    """Return whether a text has the form of an access token (RFC 6750)."""
    return _AUTH.fullmatch(f"Bearer {access_token}") is not None


def unverified_times(access_token: str) -> tuple[int, int | None] | None:
    """Return expiry and time of issue in ms of a JWT, without a check of its signature; None for other texts."""
    parts = access_token.split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        expires_ms = int(claims["exp"] * 1000)
        issued = claims.get("iat")
        return expires_ms, int(issued * 1000) if isinstance(issued, int | float) else None
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError):
        return None


class OAuthBearerServer:
    """Server side of OAUTHBEARER.

    extensions  extensions of the client, after completion
    """

    __slots__ = (
        "_failure",
        "_occasion",
        "_validate",
        "complete",
        "expires_ms",
        "extensions",
        "principal",
        "token_id",
    )

    def __init__(self, validate: Validate, occasion: str = AUTHENTICATION) -> None:
        self._validate = validate
        self._occasion = occasion
        self._failure: str | None = None
        self.complete = False
        self.principal = ""
        self.expires_ms: int | None = None
        self.token_id: str | None = None
        self.extensions: dict[str, str] = {}

    def step(self, token: bytes, now_ms: int) -> bytes:
        """Return an empty token if the client's access token is valid, otherwise the failure as JSON."""
        if self.complete:
            raise MalformedToken("Authentication exchange has completed")
        if token == b"\x01" and self._failure is not None:
            raise AuthenticationFailed(self._failure)
        self._failure = None
        authorization_id, access_token, extensions = self._parse(token.decode("utf-8", "replace"))
        try:
            validated = self._validate(access_token, now_ms)
        except InvalidToken as error:
            self._failure = error.answer()
            return self._failure.encode()
        if authorization_id not in ("", validated.principal):
            raise AuthenticationFailed(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({validated.principal})"
            )
        self.principal = validated.principal
        self.expires_ms = validated.expires_ms
        self.extensions = extensions
        self.complete = True
        return b""

    def _parse(self, message: str) -> tuple[str, str, dict[str, str]]:
        """Return authorization id, access token and extensions of the first message."""
        fields = _FIRST.fullmatch(message)
        if fields is None:
            raise invalid_credentials(OAUTHBEARER, self._occasion)
        pairs: dict[str, str] = {}
        for pair in fields["pairs"].split(_SEPARATOR)[:-1]:
            key, _, value = pair.partition("=")
            pairs[key] = value
        auth = _AUTH.fullmatch(pairs.pop(_AUTH_KEY, ""))
        if auth is None or auth["scheme"].lower() != "bearer":
            raise invalid_credentials(OAUTHBEARER, self._occasion)
        return fields["authzid"] or "", auth["token"], pairs


class OAuthBearerClient:
    """Client side of OAUTHBEARER. Raises InvalidExtension."""

    __slots__ = ("_failure", "_first", "complete")

    def __init__(
        self, access_token: str, extensions: Mapping[str, str] | None = None, authorization_id: str = ""
    ) -> None:
        check_extensions(extensions or {})
        authzid = f"a={authorization_id}" if authorization_id else ""
        pairs = [f"auth=Bearer {access_token}", *(f"{key}={value}" for key, value in (extensions or {}).items())]
        self._first = f"n,{authzid},\x01{_SEPARATOR.join(pairs)}\x01\x01".encode()
        self._failure: str | None = None
        self.complete = False

    def initial(self) -> bytes:
        """Return the first message."""
        return self._first

    def step(self, token: bytes) -> bytes | None:
        """Return ^A after a failure, to which the server answers with an error."""
        if self._failure is not None:
            raise AuthenticationFailed(self._failure)
        if token:
            self._failure = token.decode("utf-8", "replace")
            return b"\x01"
        self.complete = True
        return None
