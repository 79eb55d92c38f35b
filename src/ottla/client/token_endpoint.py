"""Access tokens of the token endpoint of an OAuth server (RFC 6749, RFC 7523; KIP-768, KIP-1139): a client's side.

    client credentials        client id and secret, in the Authorization header (RFC 6749, 4.4)
    client assertion          a signed JWT in place of the secret (RFC 7523, 2.2)
    JWT bearer                a signed JWT as the grant (RFC 7523, 2.1)

Requests and the choice among the three are those of Kafka's client. A redirection is not followed.
"""

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus, urlencode

from ottla.environment import Random
from ottla.environment.web import CannotFetch
from ottla.net.token_credentials import AccessToken, TokenError
from ottla.security.extra import MissingPackage
from ottla.security.sasl.jwt import AssertionSettings, InvalidJwtSettings, client_assertion
from ottla.security.sasl.oauthbearer import is_sendable, unverified_times

_MAY_PASS: Final = (408, 425, 429, 500, 502, 503, 504)
"""HTTP statuses after which another attempt may succeed."""
_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_CLIENT: Final = "sasl.oauthbearer.client.credentials.client"
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_CLIENT_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

Post = Callable[[bytes, Mapping[str, str]], bytes]
"""Sends a body with these headers to the endpoint; returns the answer. Raises CannotFetch."""
Assertion = Callable[[int], str]
"""Returns a signed assertion at a time in ms. Raises TokenError."""


class Grant(NamedTuple):
    """Request for a token: form fields, Authorization header, and the secrets that no error may show."""

    fields: Mapping[str, str]
    authorization: str | None = None
    secrets: tuple[str, ...] = ()


def secret_grant(client_id: str, client_secret: str, scope: str | None, *, urlencodes: bool) -> Grant:
    """Return the request by client id and secret.

    urlencodes  sasl.oauthbearer.header.urlencode: both are encoded before base64, as RFC 6749 demands
    """
    pair = (quote_plus(client_id), quote_plus(client_secret)) if urlencodes else (client_id, client_secret)
    basic = base64.b64encode(":".join(pair).encode()).decode()
    fields = {"grant_type": "client_credentials"} | _scope(scope)
    return Grant(fields, f"Basic {basic}", (client_secret, pair[1], basic))


def client_assertion_grant(assertion: str, client_id: str | None, scope: str | None) -> Grant:
    """Return the request by an assertion in place of the secret."""
    fields = {
        "client_assertion_type": _CLIENT_ASSERTION,
        "client_assertion": assertion,
        "grant_type": "client_credentials",
        **({"client_id": client_id} if client_id else {}),
        **_scope(scope),
    }
    return Grant(fields, None, (assertion,))


def jwt_bearer_grant(assertion: str, scope: str | None) -> Grant:
    """Return the request with an assertion as the grant."""
    return Grant({"grant_type": _JWT_BEARER, "assertion": assertion} | _scope(scope), None, (assertion,))


def _scope(scope: str | None) -> dict[str, str]:
    return {"scope": scope} if scope else {}


class EndpointTokens:
    """Tokens of a token endpoint.

    grant   returns the request at a time in ms. Raises TokenError
    remedy  configs to check after a refused request
    """

    def __init__(self, post: Post, grant: Callable[[int], Grant], remedy: str, extensions: Mapping[str, str]) -> None:
        self._post = post
        self._grant = grant
        self._remedy = remedy
        self._extensions = extensions

    def fetch(self, now_ms: int) -> AccessToken:
        """See `TokenSource.fetch`."""
        grant = self._grant(now_ms)
        headers = {
            "Accept": "application/json",
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
            **({"Authorization": grant.authorization} if grant.authorization else {}),
        }
        try:
            answer = self._post(urlencode(grant.fields).encode(), headers)
        except CannotFetch as cause:
            raise self._to_token_error(cause, grant.secrets) from None
        return self._token(answer, now_ms)

    def _to_token_error(self, cause: CannotFetch, secrets: tuple[str, ...]) -> TokenError:
        message = " ".join(str(cause).split())
        for secret in secrets:
            message = message.replace(secret, "[hidden]") if secret else message
        remedy = self._remedy if 400 <= cause.status < 500 else _URL
        may_pass = cause.status in _MAY_PASS or (cause.status == 0 and not cause.is_lasting)
        return TokenError(f"{message}; check {remedy}", may_pass=may_pass)

    def _token(self, answer: bytes, now_ms: int) -> AccessToken:
        try:
            document = json.loads(answer)
        except (ValueError, RecursionError):
            document = None
        fields = document if isinstance(document, dict) else {}
        text = next((fields[name] for name in ("access_token", "id_token") if isinstance(fields.get(name), str)), "")
        if not is_sendable(text):
            raise TokenError(f"the answer of the token endpoint has no access_token; check {_URL}")
        times = unverified_times(text)
        if times is not None:
            return AccessToken(text, *times, self._extensions)
        lifetime = fields.get("expires_in")
        expires_ms = None
        if isinstance(lifetime, int | float) and 0 <= lifetime < 2**40:
            expires_ms = now_ms + int(lifetime * 1000)
        return AccessToken(text, expires_ms, now_ms, self._extensions)


class FileTokens:
    """Token of a file, which another process replaces before the token expires."""

    def __init__(self, path: str, extensions: Mapping[str, str]) -> None:
        self._path = path
        self._extensions = extensions

    def fetch(self, now_ms: int) -> AccessToken:
        """See `TokenSource.fetch`."""
        del now_ms
        text = read_text(self._path, _URL).strip()
        if not is_sendable(text):
            raise TokenError(f"{self._path} has no access token; check {_URL}", may_pass=True)
        expires_ms, issued_ms = unverified_times(text) or (None, None)
        return AccessToken(text, expires_ms, issued_ms, self._extensions)


def read_text(path: str, config: str) -> str:
    """Return the text of a file that a config names. Raises TokenError."""
    try:
        return Path(path).read_text("utf-8")
    except OSError as cause:
        raise TokenError(f"{path}: {cause.strerror}; check {config}") from None
    except UnicodeDecodeError:
        raise TokenError(f"{path} is not UTF-8 text; check {config}") from None


def assertion_of_file(path: str) -> Assertion:
    """Return the source of the assertion in a file."""

    def assertion(now_ms: int) -> str:
        del now_ms
        return read_text(path, "sasl.oauthbearer.assertion.file").strip()

    return assertion


def signed_assertion(
    settings: AssertionSettings, key_path: str, password: str | None, template_path: str | None, random: Random | None
) -> Assertion:
    """Return the source of assertions that are signed here; key and template are read each time.

    random  source of the claim `jti`; None leaves it out
    """

    def assertion(now_ms: int) -> str:
        key = read_text(key_path, "sasl.oauthbearer.assertion.private.key.file").encode()
        parts = {} if template_path is None else _template(template_path)
        jwt_id = None if random is None else random.bytes16().hex()
        try:
            return client_assertion(settings._replace(**parts), key, password, now_ms, jwt_id)
        except (InvalidJwtSettings, MissingPackage) as cause:
            raise TokenError(str(cause)) from None

    return assertion


def _template(path: str) -> dict[str, Any]:
    config = "sasl.oauthbearer.assertion.template.file"
    try:
        template = json.loads(read_text(path, config))
    except (ValueError, RecursionError):
        template = None
    if not isinstance(template, dict) or not all(isinstance(part, dict) for part in template.values()):
        raise TokenError(f"{path} is not a JSON object with the objects header and payload; check {config}")
    return {name: template[name] for name in ("header", "payload") if name in template}
