"""Sources of access tokens for OAUTHBEARER, chosen by the configs of a client.

    sasl.login.callback.handler.class       source
    ...OAuthBearerLoginCallbackHandler      sasl.oauthbearer.token.endpoint.url: an OAuth server, or a file: URL
    package.module:Name, or a callable      a Python function, or a class with a method `token`
    none                                    the token endpoint if there is one; otherwise unsecured tokens, made of the
                                            options unsecuredLogin... of sasl.jaas.config

A Python function gets the options of sasl.jaas.config as keyword arguments, a class as one dictionary. It returns the token,
or (token, expiry): a time since the epoch in ms or s.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from ottla.client.config import ClientConfig
from ottla.client.errors import InvalidClientConfig
from ottla.client.named_objects import object_named
from ottla.client.security_configs import SECURITY
from ottla.client.token_endpoint import (
    Assertion,
    EndpointTokens,
    FileTokens,
    Grant,
    assertion_of_file,
    client_assertion_grant,
    jwt_bearer_grant,
    secret_grant,
    signed_assertion,
)
from ottla.environment import Random
from ottla.environment.web import fetch
from ottla.net.token_credentials import AccessToken, TokenError, TokenSource
from ottla.security.sasl.jwt import AssertionSettings
from ottla.security.sasl.oauthbearer import (
    InvalidExtension,
    check_extensions,
    extensions_of,
    is_sendable,
    unverified_times,
)
from ottla.security.sasl.unsecured import TokenOptionError, unsecured_token

HANDLER: Final = "sasl.login.callback.handler.class"
_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_CLIENT: Final = "sasl.oauthbearer.client.credentials.client"
_ASSERTION: Final = "sasl.oauthbearer.assertion."
_RETRIEVER: Final = "sasl.oauthbearer.jwt.retriever.class"
_JWT_BEARER: Final = "JwtBearerJwtRetriever"
_LOGIN: Final = "OAuthBearerLoginCallbackHandler"
_UNSECURED: Final = "OAuthBearerUnsecuredLoginCallbackHandler"
_EXTENSION: Final = "extension_"
_TIMEOUT_MS: Final = 10_000
_LEAST_IN_MS: Final = 10**11
"""A larger expiry is in milliseconds, a smaller one in seconds."""


def token_source(config: ClientConfig, options: Mapping[str, str], random: Random) -> TokenSource:
    """Return the source of tokens of a client. Raises InvalidClientConfig.

    options  options of the JAAS login module
    """
    handler = config[HANDLER]

    def is_java(name: str) -> bool:
        return isinstance(handler, str) and handler.endswith(f".{name}")

    try:
        if (handler is None and config[_URL] is None) or is_java(_UNSECURED):
            return UnsecuredTokens(options)
        extensions = _extensions(options)
        if handler is None or is_java(_LOGIN):
            return _endpoint(config, options, extensions, random)
    except InvalidExtension as cause:
        raise InvalidClientConfig(f"sasl.jaas.config: {cause}") from None
    return PythonTokens(handler, options, extensions)


def _extensions(options: Mapping[str, str]) -> dict[str, str]:
    extensions = {
        name.removeprefix(_EXTENSION): value for name, value in options.items() if name.startswith(_EXTENSION)
    }
    check_extensions(extensions)
    return extensions


class UnsecuredTokens:
    """Tokens without a signature, made of the options of the login module. Raises InvalidClientConfig, InvalidExtension."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._extensions = extensions_of(options)
        try:
            unsecured_token(options, 0)
        except TokenOptionError as cause:
            remedy = f"set {HANDLER} and {_URL}, or for tests unsecuredLoginStringClaim_sub in sasl.jaas.config"
            raise InvalidClientConfig(f"OAUTHBEARER has no access token: {cause}; {remedy}") from None

    def fetch(self, now_ms: int) -> AccessToken:
        """See `TokenSource.fetch`."""
        text = unsecured_token(self._options, now_ms)
        expires_ms, issued_ms = unverified_times(text) or (None, None)
        return AccessToken(text, expires_ms, issued_ms, self._extensions)


# Token endpoints.


def _endpoint(
    config: ClientConfig, options: Mapping[str, str], extensions: Mapping[str, str], random: Random
) -> TokenSource:
    url = config[_URL]
    if url is None:
        raise InvalidClientConfig(f"{_URL} is missing: {HANDLER}={config[HANDLER]} requires it")
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http", "file"):
        raise InvalidClientConfig(f"{_URL} must begin with https:, http: or file:")
    if parts.username is not None or parts.password is not None:
        raise InvalidClientConfig(f"{_URL} must not contain a user: set {_CLIENT}.id and {_CLIENT}.secret")
    retriever = (config[_RETRIEVER] or "DefaultJwtRetriever").rpartition(".")[2]
    if retriever not in ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever", _JWT_BEARER):
        raise InvalidClientConfig(
            f"{_RETRIEVER}={config[_RETRIEVER]}: a Java class cannot run here; name a Python function in {HANDLER}"
        )
    if (parts.scheme == "file") != (retriever == "FileJwtRetriever") and retriever != "DefaultJwtRetriever":
        raise InvalidClientConfig(f"{_RETRIEVER}={config[_RETRIEVER]} does not fit {_URL}={url}")
    if parts.scheme == "file":
        return FileTokens(url2pathname(parts.path), extensions)
    timeouts = config["sasl.login.connect.timeout.ms"], config["sasl.login.read.timeout.ms"]
    timeout_ms = max((timeout for timeout in timeouts if timeout), default=_TIMEOUT_MS)
    context = _tls(options) if parts.scheme == "https" else None

    def post(body: bytes, headers: Mapping[str, str]) -> bytes:
        return fetch(url, body=body, headers=headers, timeout_ms=timeout_ms, context=context)

    grant, remedy = _grant(config, options, random, by_jwt_bearer=retriever == _JWT_BEARER)
    return EndpointTokens(post, grant, remedy, extensions)


def _grant(
    config: ClientConfig, options: Mapping[str, str], random: Random, *, by_jwt_bearer: bool
) -> tuple[Callable[[int], Grant], str]:
    """Return the request for tokens, and the configs to check if it is refused."""
    client_id = config[f"{_CLIENT}.id"] or options.get("clientId")
    secret = config[f"{_CLIENT}.secret"] or options.get("clientSecret")
    scope = config["sasl.oauthbearer.scope"] or options.get("scope")
    if by_jwt_bearer or config[f"{_ASSERTION}file"] or config[f"{_ASSERTION}claim.iss"]:
        assertion = _assertion(config, random)
        remedy = f"the configs {_ASSERTION}* and sasl.oauthbearer.scope"
        if by_jwt_bearer:
            return lambda now_ms: jwt_bearer_grant(assertion(now_ms), scope), remedy
        return lambda now_ms: client_assertion_grant(assertion(now_ms), client_id, scope), remedy
    missing = [name for name, value in (("id", client_id), ("secret", secret)) if not value]
    if client_id is None or secret is None or missing:
        raise InvalidClientConfig(f"{_URL} requires {' and '.join(f'{_CLIENT}.{name}' for name in missing)}")
    request = secret_grant(client_id, secret, scope, urlencodes=config["sasl.oauthbearer.header.urlencode"])
    return lambda _: request, f"{_CLIENT}.id, {_CLIENT}.secret and sasl.oauthbearer.scope"


def _assertion(config: ClientConfig, random: Random) -> Assertion:
    if config[f"{_ASSERTION}file"] is not None:
        return assertion_of_file(config[f"{_ASSERTION}file"])
    key_path = config[f"{_ASSERTION}private.key.file"]
    if key_path is None:
        raise InvalidClientConfig(f"{_ASSERTION}private.key.file or {_ASSERTION}file is missing")
    settings = AssertionSettings(
        config[f"{_ASSERTION}algorithm"],
        config[f"{_ASSERTION}claim.aud"],
        config[f"{_ASSERTION}claim.iss"],
        config[f"{_ASSERTION}claim.sub"],
        config[f"{_ASSERTION}claim.exp.seconds"],
        config[f"{_ASSERTION}claim.nbf.seconds"],
    )
    return signed_assertion(
        settings,
        key_path,
        config[f"{_ASSERTION}private.key.passphrase"],
        config[f"{_ASSERTION}template.file"],
        random if config[f"{_ASSERTION}claim.jti.include"] else None,
    )


def _tls(options: Mapping[str, str]) -> Any:
    """Return the TLS context for a token endpoint: by the options ssl... of the login module, as in Kafka."""
    from ottla.client.tls import tls_context

    values = {name: default for name, (default, _) in SECURITY.items()}
    for name in options.keys() & SECURITY.keys():
        if name.startswith("ssl."):
            values[name] = SECURITY[name][1](options[name])
    return tls_context(values)


# Python functions and classes.


class PythonTokens:
    """Tokens of a Python function, or of the method `token` of a class. Raises InvalidClientConfig.

    handler  function, class or object with a method `token`, or a name as package.module:Name
    """

    def __init__(self, handler: Any, options: Mapping[str, str], extensions: Mapping[str, str]) -> None:
        self._name = handler if isinstance(handler, str) else getattr(handler, "__qualname__", type(handler).__name__)
        self._extensions = extensions
        function = object_named(handler, HANDLER) if isinstance(handler, str) else handler
        arguments = {name: value for name, value in options.items() if not name.startswith(_EXTENSION)}
        if isinstance(function, type):
            function = function(arguments)
        if hasattr(function, "token"):
            self._call: Callable[[], Any] = function.token
        elif callable(function):
            self._call = partial(function, **arguments)
        else:
            raise InvalidClientConfig(f"{HANDLER}={self._name} is no function, and has no method token")

    def fetch(self, now_ms: int) -> AccessToken:
        """See `TokenSource.fetch`."""
        del now_ms
        try:
            outcome = self._call()
        except Exception as error:  # noqa: BLE001  (any function of the user)
            raise TokenError(
                f"{HANDLER}={self._name} raised {type(error).__name__}: {' '.join(str(error).split())}", may_pass=True
            ) from None
        text, expiry = outcome[:2] if isinstance(outcome, tuple) and len(outcome) >= 2 else (outcome, None)
        if isinstance(text, bytes):
            text = text.decode("ascii", "replace")
        if not isinstance(text, str) or not is_sendable(text) or not isinstance(expiry, int | float | None):
            raise TokenError(f"{HANDLER}={self._name} must return an access token, or (token, expiry in ms)")
        expires_ms, issued_ms = unverified_times(text) or (None, None)
        if expiry is not None:
            expires_ms = int(expiry if expiry > _LEAST_IN_MS else expiry * 1000)
        return AccessToken(text, expires_ms, issued_ms, self._extensions)
