"""Validation of OAUTHBEARER tokens on a listener: signed tokens with the keys of an OAuth server, or unsecured ones.

The keys (JWKS) are fetched at the start, every sasl.oauthbearer.jwks.endpoint.refresh.ms, and when a token has an unknown key
id, at most once in _LEAST_REFRESH_MS. They are fetched on a worker; until the first answer no token is accepted.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.broker.plugins import is_python_class, load_class
from ottla.broker.security.listener_configs import ListenerValues
from ottla.environment import Environment
from ottla.environment.web import CannotFetch, fetch
from ottla.metadata.configs import InvalidConfig
from ottla.security.extra import MissingPackage
from ottla.security.jaas import LoginModule
from ottla.security.sasl.jwt import (
    InvalidJwtSettings,
    InvalidKeys,
    JwtSettings,
    JwtValidator,
    UnknownKey,
    check_settings,
)
from ottla.security.sasl.oauthbearer import InvalidToken, Validate, ValidatedToken
from ottla.security.sasl.unsecured import TokenOptionError, UnsecuredSettings, UnsecuredValidator
from ottla.tasks.periodic import PAUSED, Periodic

_logger = logging.getLogger("ottla.broker")
_HANDLER: Final = "sasl.server.callback.handler.class"
_SIGNED: Final = "OAuthBearerValidatorCallbackHandler"
_UNSECURED: Final = "OAuthBearerUnsecuredValidatorCallbackHandler"
_LEAST_REFRESH_MS: Final = 60_000


def _nothing() -> None:
    pass


class TokenValidator(NamedTuple):
    """Validator of tokens.

    close  ends its timers and workers
    """

    validate: Validate
    close: Callable[[], None] = _nothing


def token_validator(
    values: ListenerValues, module: LoginModule, listener: str, environment: Environment
) -> TokenValidator:
    """Return the validator of a listener, by sasl.server.callback.handler.class. Raises InvalidConfig."""
    handler = values.text(_HANDLER)
    if handler is None:
        raise InvalidConfig(
            f"listener {listener}: without {_HANDLER} OAUTHBEARER would accept tokens that anybody can make: set it to "
            f"org.apache.kafka.common.security.oauthbearer.{_SIGNED}, or for tests to "
            f"org.apache.kafka.common.security.oauthbearer.internals.unsecured.{_UNSECURED}"
        )
    if is_python_class(handler):
        return TokenValidator(load_class(_HANDLER, handler, "validate")(module.options).validate)
    try:
        if handler.endswith(f".{_UNSECURED}"):
            return TokenValidator(UnsecuredValidator(UnsecuredSettings.of_options(module.options)))
        if handler.endswith(f".{_SIGNED}"):
            return _validator_of_signed(values, environment)
    except (TokenOptionError, InvalidJwtSettings, MissingPackage) as cause:
        raise InvalidConfig(str(cause)) from None
    raise InvalidConfig(
        f"Invalid value {handler} for configuration {_HANDLER}: a Java class cannot run here; name a Python class as "
        "package.module:Name"
    )


def _validator_of_signed(values: ListenerValues, environment: Environment) -> TokenValidator:
    """Return the validator of signed tokens. Raises InvalidConfig, InvalidJwtSettings and MissingPackage."""
    settings = JwtSettings(
        tuple(values.items_of("sasl.oauthbearer.expected.audience")),
        values.text("sasl.oauthbearer.expected.issuer"),
        values.integer("sasl.oauthbearer.clock.skew.seconds"),
        values.text("sasl.oauthbearer.scope.claim.name") or "scope",
        values.text("sasl.oauthbearer.sub.claim.name") or "sub",
    )
    check_settings(
        settings,
        allow_any_audience=values.flag("sasl.oauthbearer.allow.unverified.audience"),
        allow_any_issuer=values.flag("sasl.oauthbearer.allow.unverified.issuer"),
    )
    url = values.text("sasl.oauthbearer.jwks.endpoint.url")
    if not url:
        raise InvalidConfig("The OAuth configuration option sasl.oauthbearer.jwks.endpoint.url value is required")
    keys = _Keys(url, settings, values.integer("sasl.oauthbearer.jwks.endpoint.refresh.ms"), environment)
    return TokenValidator(keys.validate, keys.close)


class _Keys:
    """Keys of an OAuth server, and the validator that uses the newest of them."""

    def __init__(self, url: str, settings: JwtSettings, refresh_ms: int, environment: Environment) -> None:
        self._url = url
        self._settings = settings
        self._clock = environment.clock
        self._worker = environment.workers.start("ottla-oauth")
        self._validator: JwtValidator | None = None
        self._fetched_ms = 0
        self._is_fetching = False
        self._refresh_ms = refresh_ms
        self._refreshing = Periodic("fetching of JWKS", self._begin, refresh_ms, environment.timers)
        JwtValidator('{"keys": []}', settings)  # raises MissingPackage at the start
        self._begin()

    def validate(self, token: str, now_ms: int) -> ValidatedToken:
        """See `Validate`."""
        if self._validator is None:
            raise InvalidToken(f"the keys of {self._url} have not been fetched yet")
        try:
            return self._validator(token, now_ms)
        except UnknownKey:
            if self._clock.now_ms() - self._fetched_ms >= _LEAST_REFRESH_MS:
                self._begin()
            raise

    def close(self) -> None:
        """End the timer and the worker."""
        self._refreshing.close()
        self._worker.close(cancel=True)

    def _begin(self) -> int:
        """Begin to fetch the keys; the timer is set again when they have arrived."""
        if not self._is_fetching:
            self._is_fetching = True
            self._worker.run(self._fetch, self._on_fetched, lambda: self._on_fetched("internal error"))
        return PAUSED

    def _fetch(self) -> "JwtValidator | str":
        try:
            return JwtValidator(fetch(self._url), self._settings)
        except (CannotFetch, InvalidKeys) as cause:
            return str(cause)

    def _on_fetched(self, outcome: "JwtValidator | str") -> None:
        self._is_fetching = False
        self._fetched_ms = self._clock.now_ms()
        if isinstance(outcome, str):
            _logger.warning("cannot fetch the keys for OAUTHBEARER: %s", outcome)
            self._refreshing.run_in(_LEAST_REFRESH_MS // 6)
        else:
            self._validator = outcome
            self._refreshing.run_in(self._refresh_ms)
