"""Signed access tokens (JWT, RFC 7519): their validation on a server, and assertions that clients sign (RFC 7523).

A token is valid if a key of the JWKS has signed it, its times fit, and issuer and audience are the expected ones. The
algorithm must be one for the type of the key: `none` is refused, and a public key is never used as a shared secret.

Signatures need joserfc and cryptography, of the extra `ottla[security]`.
"""

from __future__ import annotations

import base64
import binascii
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.security.extra import MissingPackage
from ottla.security.sasl.mechanism import trim
from ottla.security.sasl.oauthbearer import InvalidToken, ValidatedToken

if TYPE_CHECKING:
    from joserfc.jwk import Key

_MALFORMED: Final = "Malformed JWT provided; expected three sections (header, payload, and signature)"
_ALGORITHMS: Final = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
    "oct": ("HS256", "HS384", "HS512"),
}
"""Algorithms by type of the key."""
_LEAST_BYTES: Final = {("RSA", "n"): 256, ("oct", "k"): 32}
"""Least size of keys; shorter ones are never used."""
_ASSERTION_ALGORITHMS: Final = ("RS256", "ES256")


class UnknownKey(InvalidToken):
    """A token whose key is not in the JWKS; it may be in a newer one."""


class InvalidKeys(ValueError):
    """A text that is no JWKS."""


class InvalidJwtSettings(ValueError):
    """Settings of tokens that are missing or contradict each other."""


class JwtSettings(NamedTuple):
    """Settings of the validation: sasl.oauthbearer.<name> in Kafka.

    audiences  expected.audience; one of them must be in the claim `aud`. Empty: not checked
    issuer     expected.issuer, None: not checked
    """

    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    clock_skew_seconds: int = 30
    scope_claim: str = "scope"
    subject_claim: str = "sub"


def check_settings(settings: JwtSettings, *, allow_any_audience: bool, allow_any_issuer: bool) -> None:
    """Raise InvalidJwtSettings if audience or issuer are not checked although they must be.

    allow_any_audience, allow_any_issuer  sasl.oauthbearer.allow.unverified.audience and .issuer
    """
    prefix = "sasl.oauthbearer."
    requires = "The OAuth validator for the broker requires"
    if not settings.audiences and not allow_any_audience:
        expected, allow = f"{prefix}expected.audience", f"{prefix}allow.unverified.audience"
        raise InvalidJwtSettings(
            f'{requires} "{expected}" to be configured so that the token\'s audience ("aud") claim can be verified, but it '
            f'was not set. Set "{expected}" to the audience(s) that identify this cluster, or set "{allow}" to true to '
            "accept tokens regardless of their audience."
        )
    if settings.issuer is None and not allow_any_issuer:
        expected, allow = f"{prefix}expected.issuer", f"{prefix}allow.unverified.issuer"
        raise InvalidJwtSettings(
            f'{requires} "{expected}" to be configured so that the token\'s issuer ("iss") claim can be verified, but it '
            f'was not set. Set "{expected}" to the issuer URL of the OAuth/OIDC provider that signs the tokens, or set '
            f'"{allow}" to true to accept tokens regardless of their issuer.'
        )


class _VerificationKey(NamedTuple):
    key_id: str | None
    algorithms: tuple[str, ...]
    key: Key


class JwtValidator:
    """Validator of signed tokens.

    jwks  JSON Web Key Set (RFC 7517), as text; keys that are unsuitable for signatures are left out

    Raises InvalidKeys, and MissingPackage without joserfc.
    """

    __slots__ = ("_keys", "_settings")

    def __init__(self, jwks: str | bytes, settings: JwtSettings) -> None:
        self._settings = settings
        self._keys = _keys_of(jwks)

    def __call__(self, token: str, now_ms: int) -> ValidatedToken:
        """Return the principal, expiry and scope of a token. Raises InvalidToken, UnknownKey for an unknown `kid`."""
        parts = token.split(".")
        if len(parts) != 3 or not all(trim(part) for part in parts):
            raise InvalidToken(_MALFORMED)
        header = _object(parts[0])
        claims = self._verify(token, header)
        _check_times(claims, now_ms // 1000, self._settings.clock_skew_seconds)
        _check_audience(claims.get("aud"), self._settings.audiences)
        if self._settings.issuer is not None and claims.get("iss") != self._settings.issuer:
            raise InvalidToken("Issuer (iss) claim value doesn't match expected value")
        subject = claims.get(self._settings.subject_claim)
        if not isinstance(subject, str) or not trim(subject):
            raise InvalidToken(f"{self._settings.subject_claim} value must be a non-empty text")
        return ValidatedToken(trim(subject), _number(claims, "exp") * 1000, self._scope(claims))

    def _verify(self, token: str, header: Mapping[str, Any]) -> dict[str, Any]:
        """Return the claims of a token if one of the keys has signed it."""
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm.lower() == "none":
            raise InvalidToken("Unsigned tokens are not accepted")
        keys = [entry for entry in self._keys if key_id is None or entry.key_id == key_id]
        if not keys:
            raise UnknownKey(f"No key of the JWKS has the id {key_id!r}")
        for entry in keys:
            payload = _payload(token, algorithm, entry.key) if algorithm in entry.algorithms else None
            if payload is not None:
                return _object_of(payload)
        raise InvalidToken(f"No key of the JWKS has signed the token with {algorithm}")

    def _scope(self, claims: Mapping[str, Any]) -> frozenset[str]:
        claim = claims.get(self._settings.scope_claim)
        items = [claim] if isinstance(claim, str) else claim if isinstance(claim, list) else []
        texts = [trim(item) if isinstance(item, str) else "" for item in items]
        if not all(texts) or len(set(texts)) < len(texts):
            raise InvalidToken(f"{self._settings.scope_claim} value must not contain empty texts or duplicates")
        return frozenset(texts)


def _keys_of(jwks: str | bytes) -> list[_VerificationKey]:
    try:
        from joserfc.jwk import import_key
    except ImportError as missing:
        raise MissingPackage("OAUTHBEARER with signed tokens", missing.name) from None
    try:
        entries = json.loads(jwks)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidKeys("The JWKS is not a JSON object with keys") from None
    return [
        _VerificationKey(entry.get("kid"), algorithms, import_key(_public_part(entry)))
        for entry, algorithms in _suitable(entries)
    ]


def _suitable(entries: object) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
    """Iterate over the entries of a JWKS that can verify signatures, with their algorithms."""
    if not isinstance(entries, list):
        raise InvalidKeys("The JWKS has no list of keys")
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        algorithms = _ALGORITHMS.get(str(entry.get("kty")), ())
        if "alg" in entry:
            algorithms = tuple(name for name in algorithms if name == entry["alg"])
        if algorithms and _is_importable(entry):
            yield entry, algorithms


def _is_importable(entry: Mapping[str, Any]) -> bool:
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    try:
        for (kind, member), size in _LEAST_BYTES.items():
            if entry["kty"] == kind and len(_decode_base64(entry[member])) < size:
                return False
        import_key(_public_part(entry))
    except (JoseError, ValueError, TypeError, KeyError, AttributeError):
        return False
    return True


def _public_part(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that define a key, without restrictions of its use."""
    return {name: entry[name] for name in ("kty", "n", "e", "crv", "x", "y", "k") if name in entry}


def _payload(token: str, algorithm: str, key: Key) -> bytes | None:
    """Return the payload of a token, None if the key has not signed it."""
    from joserfc.errors import JoseError, SecurityWarning
    from joserfc.jws import JWSRegistry, deserialize_compact

    registry = JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SecurityWarning)  # the name EdDSA is deprecated, but in use
            return deserialize_compact(token, key, algorithms=[algorithm], registry=registry).payload
    except (JoseError, ValueError, TypeError):
        return None


def _decode_base64(text: str) -> bytes:
    return base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _object(part: str) -> dict[str, Any]:
    try:
        return _object_of(_decode_base64(part))
    except (binascii.Error, UnicodeEncodeError):
        raise InvalidToken(_MALFORMED) from None


def _object_of(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidToken(_MALFORMED) from None
    if not isinstance(value, dict):
        raise InvalidToken(_MALFORMED)
    return value


def _number(claims: Mapping[str, Any], name: str) -> int:
    """Return a time in whole seconds."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidToken(f"The claim {name} is missing, or is not a number")
    try:
        seconds = int(value)
    except (ValueError, OverflowError):
        raise InvalidToken(f"The claim {name} is not a finite number") from None
    if not 0 <= seconds < 2**63 // 1000:
        raise InvalidToken(f"{name} value must be non-negative, and a time")
    return seconds


def _check_times(claims: Mapping[str, Any], now: int, skew: int) -> None:
    expiry, issued = _number(claims, "exp"), _number(claims, "iat")
    if now - skew >= expiry:
        raise InvalidToken("The JWT is no longer valid")
    if expiry < issued:
        raise InvalidToken("The Expiration Time (exp) cannot be before the Issued At (iat) time")
    if "nbf" in claims:
        not_before = _number(claims, "nbf")
        if expiry < not_before:
            raise InvalidToken("The Expiration Time (exp) cannot be before the Not Before (nbf) time")
        if now + skew < not_before:
            raise InvalidToken("The JWT is not yet valid")


def _check_audience(claim: object, expected: Sequence[str]) -> None:
    if not expected:
        return
    audiences = [claim] if isinstance(claim, str) else claim
    if not isinstance(audiences, list) or not all(isinstance(audience, str) for audience in audiences):
        raise InvalidToken("Audience (aud) claim must be a text or a list of texts")
    if not any(audience in expected for audience in audiences):
        raise InvalidToken("Audience (aud) claim doesn't contain an acceptable identifier")


class AssertionSettings(NamedTuple):
    """Settings of a client's assertion: sasl.oauthbearer.assertion.<name> in Kafka.

    header, payload  members of assertion.template.file; those of the other settings win
    """

    algorithm: str = "RS256"
    audience: str | None = None
    issuer: str | None = None
    subject: str | None = None
    lifetime_seconds: int = 300
    not_before_seconds: int = 60
    header: Mapping[str, Any] = {}
    payload: Mapping[str, Any] = {}


def client_assertion(
    settings: AssertionSettings, key_pem: bytes, password: str | None, now_ms: int, jwt_id: str | None = None
) -> str:
    """Return a signed assertion, with which a client fetches an access token.

    key_pem   private key in PEM, encrypted if there is a password
    jwt_id    claim `jti`, random; None leaves it out

    Raises InvalidJwtSettings, and MissingPackage without joserfc.
    """
    if settings.algorithm not in _ASSERTION_ALGORITHMS:
        raise InvalidJwtSettings(f"Unsupported signing algorithm: {settings.algorithm}")
    try:
        from joserfc.errors import JoseError
        from joserfc.jwk import ECKey, RSAKey
        from joserfc.jws import serialize_compact
    except ImportError as missing:
        raise MissingPackage("A client assertion", missing.name) from None
    now = now_ms // 1000
    named = {"aud": settings.audience, "iss": settings.issuer, "sub": settings.subject, "jti": jwt_id}
    claims = {
        **settings.payload,
        **{name: value for name, value in named.items() if value is not None},
        "iat": now,
        "exp": now + settings.lifetime_seconds,
        "nbf": now - settings.not_before_seconds,
    }
    header = {**settings.header, "alg": settings.algorithm, "typ": "JWT"}
    key_class = RSAKey if settings.algorithm == "RS256" else ECKey
    try:
        key = key_class.import_key(_clear_key(key_pem, password))
        return serialize_compact(header, json.dumps(claims).encode(), key, algorithms=[settings.algorithm])
    except (JoseError, ValueError, TypeError) as error:
        raise InvalidJwtSettings(f"The private key cannot sign with {settings.algorithm}: {error}") from None


def _clear_key(key_pem: bytes, password: str | None) -> bytes:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(key_pem, None if password is None else password.encode())
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
