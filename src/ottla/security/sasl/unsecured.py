"""Unsecured access tokens (RFC 7515 with `alg` none): Kafka's default for OAUTHBEARER, for development and tests only.

A server checks no signature: any client may log in as any user. The options of the login modules are Kafka's:
unsecuredValidator... on a server, unsecuredLogin... on a client.
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.security.sasl.mechanism import trim
from ottla.security.sasl.oauthbearer import InvalidToken, ValidatedToken

_VALIDATOR: Final = "unsecuredValidator"
_LOGIN: Final = "unsecuredLogin"
_SCOPE_ITEM: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_CALCULATED: Final = ("iat", "exp")
_DEFAULT_LIFETIME: Final = "3600"

Claim = str | int | float | list[str]


class TokenOptionError(ValueError):
    """An option for unsecured tokens with an invalid value."""


class UnsecuredSettings(NamedTuple):
    """Settings of the validator of unsecured tokens.

    required_scope  scopes that a token must have
    skew_ms         allowed difference of the clocks
    """

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    skew_ms: int = 0

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> "UnsecuredSettings":
        """Return the settings in the options of a server's login module. Raises TokenOptionError."""
        scope = tuple(options.get(f"{_VALIDATOR}RequiredScope", "").split())
        for item in scope:
            if _SCOPE_ITEM.fullmatch(item) is None:
                raise TokenOptionError(f"Invalid scope value: {item}")
        skew = trim(options.get(f"{_VALIDATOR}AllowableClockSkewMs", "")) or "0"
        skew_ms = _integer(skew)
        if skew_ms < 0:
            raise TokenOptionError(f"Allowable clock skew millis must not be negative: {skew}")
        return cls(
            trim(options.get(f"{_VALIDATOR}PrincipalClaimName", "")) or "sub",
            trim(options.get(f"{_VALIDATOR}ScopeClaimName", "")) or "scope",
            scope,
            skew_ms,
        )


def _integer(text: str) -> int:
    if re.fullmatch(r"[-+]?[0-9]+", text) is None:
        raise TokenOptionError(f'For input string: "{text}"')
    return int(text)


class UnsecuredValidator:
    """Validator of unsecured tokens; anyone can make them."""

    __slots__ = ("_settings",)

    def __init__(self, settings: UnsecuredSettings | None = None) -> None:
        self._settings = settings or UnsecuredSettings()

    def __call__(self, token: str, now_ms: int) -> ValidatedToken:
        """Return the principal and expiry of a token. Raises InvalidToken."""
        settings = self._settings
        claims = _claims(token)
        expiry = _time(claims, "exp")
        if expiry is None:
            raise InvalidToken("No expiration time in JWT")
        principal = claims.get(settings.principal_claim)
        if not isinstance(principal, str) or not trim(principal):
            raise InvalidToken(f"No principal name in JWT claim: {settings.principal_claim}")
        issued = _time(claims, "iat")
        if issued is not None and 1000 * issued > now_ms + settings.skew_ms:
            raise InvalidToken(f"The Issued At value ({issued} seconds) was after the indicated time ({now_ms} ms)")
        if now_ms - settings.skew_ms >= 1000 * expiry:
            raise InvalidToken(
                f"The indicated time ({now_ms} ms) was on or after the Expiration Time ({expiry} seconds)"
            )
        if issued is not None and expiry <= issued:
            raise InvalidToken("The Expiration Time was not after the Issued At time")
        scope = _scope(claims.get(settings.scope_claim))
        for item in settings.required_scope:
            if item not in scope:
                required = f"[{', '.join(settings.required_scope)}]"
                raise InvalidToken(f"The provided scope was missing {item}", "insufficient_scope", required)
        return ValidatedToken(principal, math.floor(expiry * 1000 + 0.5), scope)


def _claims(token: str) -> dict[str, Claim]:
    parts = token.split(".")
    if len(parts) != 3 or not parts[0] or not parts[1]:
        raise InvalidToken("Unsecured JWS compact serializations must have 3 dot-separated Base64URL-encoded values")
    header, claims = _decode_part(parts[0]), _decode_part(parts[1])
    if header.get("alg") != "none":
        raise InvalidToken("Unsecured JWS must have 'none' for an algorithm")
    if parts[2]:
        raise InvalidToken("Unsecured JWS must not contain a digital signature")
    return claims


def _decode_part(part: str) -> dict[str, Claim]:
    """Return the object in a part of a token, all values as texts, numbers or lists of texts."""
    try:
        text = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
        value = json.loads(text, parse_constant=_refuse_constant)
    except (binascii.Error, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise InvalidToken(f"malformed token: {error}") from None
    if not isinstance(value, dict):
        raise InvalidToken("malformed JSON")
    return {key: _to_claim(item) for key, item in value.items()}


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _to_claim(value: object) -> Claim:
    if isinstance(value, list):
        return [_text(item) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return _text(value)


def _text(value: object) -> str:
    if isinstance(value, dict | list):
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _time(claims: Mapping[str, Claim], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    try:
        seconds = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds * 1000):
        raise InvalidToken(f"The '{name}' claim was not a number of seconds")
    return seconds


def _scope(claim: Claim | None) -> frozenset[str]:
    if isinstance(claim, int | float):
        raise InvalidToken("The scope claim was neither a text nor a list")
    items = [claim] if isinstance(claim, str) else claim or []
    return frozenset(trim(item) for item in items if trim(item))


def unsecured_token(options: Mapping[str, str], now_ms: int) -> str:
    """Return an unsecured token from the options of a client's login module. Raises TokenOptionError."""
    claims: dict[str, Claim] = {
        "exp": now_ms / 1000 + _integer(options.get(f"{_LOGIN}LifetimeSeconds", _DEFAULT_LIFETIME)),
        "iat": now_ms / 1000,
    }
    for key, value in options.items():
        kind, _, name = key.removeprefix(_LOGIN).partition("Claim_")
        if not key.startswith(_LOGIN) or kind not in ("String", "Number", "List") or not name:
            continue
        if name in _CALCULATED:
            raise TokenOptionError(f"Cannot explicitly set the '{name}' claim")
        claims[name] = value if kind == "String" else _number(value) if kind == "Number" else _list(value)
    principal_claim = trim(options.get(f"{_LOGIN}PrincipalClaimName", "")) or "sub"
    principal = claims.get(principal_claim, "")
    if not isinstance(principal, str) or not trim(principal):
        raise TokenOptionError(f"No principal name in JWT claim: {principal_claim}")
    scope_claim = trim(options.get(f"{_LOGIN}ScopeClaimName", "")) or "scope"
    if isinstance(claims.get(scope_claim), int | float):
        raise TokenOptionError(f"The '{scope_claim}' claim was neither a text nor a list")
    return f"{_encode_part({'alg': 'none'})}.{_encode_part(claims)}."


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise TokenOptionError(f'For input string: "{text}"')
    return value


def _list(text: str) -> list[str]:
    """Return the elements of a text whose first character is their separator; an empty element comes last, once."""
    if len(text) < 2:
        return []
    elements = text[1:].split(text[0])
    present = elements[:]
    while present and not present[-1]:
        present.pop()
    return [*present, ""] if "" in elements else present


def _encode_part(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()
