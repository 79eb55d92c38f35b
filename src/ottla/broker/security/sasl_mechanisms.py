"""SASL mechanisms of a listener, by its configs: which are enabled, and what they check credentials against."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ottla.broker.plugins import is_python_class, load_class
from ottla.broker.security.listener_configs import ListenerValues
from ottla.broker.security.login import Mechanism
from ottla.broker.security.oauth_tokens import token_validator
from ottla.environment import Environment
from ottla.metadata.configs import BrokerValues, InvalidConfig
from ottla.security.jaas import JaasError, LoginModule, parse_module
from ottla.security.sasl.mechanism import (
    AUTHENTICATION,
    OAUTHBEARER,
    PLAIN,
    REAUTHENTICATION,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ServerExchange,
)
from ottla.security.sasl.oauthbearer import OAuthBearerServer, Validate
from ottla.security.sasl.plain import PlainServer, users_of
from ottla.security.sasl.scram import ScramServer, TokenCredential, TokenLookup
from ottla.security.scram import NAMES, CredentialForm, ScramCredential

_KNOWN: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)


class CredentialSource(NamedTuple):
    """Stored credentials, and random bytes for the exchanges.

    scram    returns the credential of a user and mechanism
    token    returns the login of a delegation token by its id and the mechanism; None without tokens
    nonce    returns random bytes for a nonce
    secret   returns the secret on which made-up salts depend
    forms    returns the forms of all users' credentials for a mechanism, and how many have each
    """

    scram: Callable[[str, int], ScramCredential | None]
    token: Callable[[str, int], TokenCredential | None] | None
    nonce: Callable[[], bytes]
    secret: Callable[[], bytes]
    forms: Callable[[int], Mapping[CredentialForm, int]] = lambda _: {}


def enabled_mechanisms(values: BrokerValues, listener: str) -> list[str]:
    """Return the mechanisms of a listener. Raises InvalidConfig for one that Ottla does not have."""
    names = values.items_of("sasl.enabled.mechanisms")
    if "GSSAPI" in names:
        default = " (the default of sasl.enabled.mechanisms)" if names == ["GSSAPI"] else ""
        raise InvalidConfig(
            f"listener {listener}: Ottla has no Kerberos{default}: set listener.name.{listener.lower()}."
            f"sasl.enabled.mechanisms to a list of {', '.join(_KNOWN)}"
        )
    for name in names:
        if name not in _KNOWN:
            raise InvalidConfig(f"listener {listener}: unknown SASL mechanism {name}; Ottla has {', '.join(_KNOWN)}")
    return names


def mechanisms(
    values: BrokerValues, listener: str, source: CredentialSource, environment: Environment
) -> dict[str, Mechanism]:
    """Return the SASL mechanisms of a listener by name. Raises InvalidConfig."""
    by_name = {}
    for name in enabled_mechanisms(ListenerValues(values, listener), listener):
        own = ListenerValues(values, listener, name)
        max_reauth_ms = own.integer("connections.max.reauth.ms")
        if name == OAUTHBEARER:
            tokens = token_validator(own, _login_module(name, own, listener), listener, environment)
            by_name[name] = Mechanism(_oauthbearer(tokens.validate), max_reauth_ms, tokens.close)
        else:
            by_name[name] = Mechanism(_exchange(name, own, listener, source), max_reauth_ms)
    return by_name


def _oauthbearer(validate: Validate) -> Callable[[bool], ServerExchange]:
    return lambda is_again: OAuthBearerServer(validate, REAUTHENTICATION if is_again else AUTHENTICATION)


def _exchange(
    name: str, values: ListenerValues, listener: str, source: CredentialSource
) -> Callable[[bool], ServerExchange]:
    """Return the function that begins an exchange of PLAIN or SCRAM. Raises InvalidConfig."""
    if name in NAMES:
        return _scram(name, source)
    module = _login_module(name, values, listener)
    handler = values.text("sasl.server.callback.handler.class")
    if handler is not None:
        check = _plugin(handler, module).authenticate
        return lambda _: PlainServer(check)
    users = users_of(module.options)
    return lambda _: PlainServer(users)


def _scram(name: str, source: CredentialSource) -> Callable[[bool], ServerExchange]:
    number = NAMES[name]
    by_id = source.token
    tokens: TokenLookup | None = None if by_id is None else lambda token_id: by_id(token_id, number)

    def begin(is_again: bool) -> ServerExchange:
        return ScramServer(
            name,
            lambda user: source.scram(user, number),
            tokens,
            nonce=source.nonce(),
            secret=source.secret(),
            forms=lambda: source.forms(number),
            occasion=REAUTHENTICATION if is_again else AUTHENTICATION,
        )

    return begin


def _login_module(name: str, values: ListenerValues, listener: str) -> LoginModule:
    """Return the JAAS login module of a mechanism. Raises InvalidConfig."""
    config = "sasl.jaas.config"
    text = values.own_text(config)
    prefix = f"listener.name.{listener.lower()}.{name.lower()}."
    if text is None:
        raise InvalidConfig(
            f"Could not find a 'KafkaServer' or '{listener.lower()}.KafkaServer' entry in the JAAS configuration. "
            f"Set {prefix}{config}"
        )
    try:
        return parse_module(text)
    except JaasError as cause:
        raise InvalidConfig(f"Invalid value for configuration {prefix}{config}: {cause}") from None


def _plugin(text: str, module: LoginModule) -> Any:
    """Return an object of the Python class in sasl.server.callback.handler.class. Raises InvalidConfig."""
    config = "sasl.server.callback.handler.class"
    if not is_python_class(text):
        raise InvalidConfig(
            f"Invalid value {text} for configuration {config}: a Java class cannot run here; name a Python class as "
            "package.module:Name"
        )
    options: Mapping[str, str] = module.options
    return load_class(config, text, "authenticate")(options)
