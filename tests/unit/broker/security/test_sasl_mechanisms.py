"""SASL mechanisms by the configs of a listener: what is refused at the start, and Python classes in place of Java's."""

from collections.abc import Mapping

import pytest

from ottla.broker.config import BrokerConfig
from ottla.broker.security.sasl_mechanisms import CredentialSource, enabled_mechanisms, mechanisms
from ottla.environment import Environment
from ottla.environment.process import process_environment
from ottla.metadata.configs import InvalidConfig
from ottla.security.sasl.mechanism import AuthenticationFailed
from ottla.security.sasl.oauthbearer import ValidatedToken

MODULES = "org.apache.kafka.common.security"
PLAIN = f"{MODULES}.plain.PlainLoginModule required"
BEARER = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;"
SOURCE = CredentialSource(lambda user, mechanism: None, None, lambda: bytes(32), lambda: b"secret")
HANDLER = "sasl.server.callback.handler.class"


class Passwords:
    """Checks passwords: that of a user is its name backwards."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._realm = options["realm"]

    def authenticate(self, name: str, password: str) -> bool:
        return name.endswith(self._realm) and password == name[::-1]


class Tokens:
    """Accepts one token."""

    def __init__(self, options: Mapping[str, str]) -> None:
        del options

    def validate(self, token: str, now_ms: int) -> ValidatedToken:
        assert token == "the-token"
        return ValidatedToken("olga", now_ms + 1000)


@pytest.fixture
def environment() -> Environment:
    import asyncio

    loop = asyncio.new_event_loop()
    loop.close()
    return process_environment(loop)


def refused(environment: Environment, **configs: str) -> str:
    values = BrokerConfig({f"listener.name.a.{name}": value for name, value in configs.items()})
    with pytest.raises(InvalidConfig) as error:
        mechanisms(values, "A", SOURCE, environment)
    return str(error.value)


def test_kerberos_is_refused_with_the_config_to_set(environment: Environment) -> None:
    with pytest.raises(InvalidConfig) as error:
        mechanisms(BrokerConfig({}), "A", SOURCE, environment)
    assert str(error.value) == (
        "listener A: Ottla has no Kerberos (the default of sasl.enabled.mechanisms): set listener.name.a."
        "sasl.enabled.mechanisms to a list of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"
    )
    assert "Kerberos: set" in refused(environment, **{"sasl.enabled.mechanisms": "PLAIN,GSSAPI"})


def test_an_unknown_mechanism_is_refused(environment: Environment) -> None:
    assert "unknown SASL mechanism plain" in refused(environment, **{"sasl.enabled.mechanisms": "plain"})


def test_plain_without_a_jaas_text_is_refused(environment: Environment) -> None:
    enabled = {"sasl.enabled.mechanisms": "PLAIN"}
    wide = {"sasl.jaas.config": f'{PLAIN} user_a="b";'}  # without the mechanism it is ignored, as in Kafka
    for configs in (enabled, enabled | wide):
        text = refused(environment, **configs)
        assert text == (
            "Could not find a 'KafkaServer' or 'a.KafkaServer' entry in the JAAS configuration. Set "
            "listener.name.a.plain.sasl.jaas.config"
        )
    text = refused(environment, **enabled, **{"plain.sasl.jaas.config": f"{PLAIN} user_a=123;"})
    assert text.endswith("plain.sasl.jaas.config: Value not specified for key 'user_a' in JAAS config")
    assert "123" not in text


def test_scram_needs_no_jaas_text(environment: Environment) -> None:
    values = BrokerConfig({"listener.name.a.sasl.enabled.mechanisms": "SCRAM-SHA-256"})
    assert list(mechanisms(values, "A", SOURCE, environment)) == ["SCRAM-SHA-256"]


def test_tokens_that_anybody_can_make_are_refused_unless_they_are_wanted(environment: Environment) -> None:
    enabled = {"sasl.enabled.mechanisms": "OAUTHBEARER", "oauthbearer.sasl.jaas.config": BEARER}
    assert "would accept tokens that anybody can make" in refused(environment, **enabled)
    signed = {f"oauthbearer.{HANDLER}": f"{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"}
    assert 'requires "sasl.oauthbearer.expected.audience" to be configured' in refused(environment, **enabled, **signed)
    unsecured = f"{MODULES}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    names = {f"listener.name.a.{name}": value for name, value in enabled.items()}
    values = BrokerConfig({**names, f"listener.name.a.oauthbearer.{HANDLER}": unsecured})
    assert list(mechanisms(values, "A", SOURCE, environment)) == ["OAUTHBEARER"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("org.example.Handler", "a Java class cannot run here; name a Python class as package.module:Name"),
        ("no.such.module:Name", "No module named 'no'"),
        (f"{__name__}:Missing", "has no class Missing"),
        (f"{__name__}:Tokens", "the class has no method authenticate"),
    ],
)
def test_handlers_that_cannot_be_used(environment: Environment, name: str, text: str) -> None:
    configs = {
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": f"{PLAIN};",
        f"plain.{HANDLER}": name,
    }
    assert text in refused(environment, **configs)


def test_a_python_class_checks_passwords(environment: Environment) -> None:
    values = BrokerConfig(
        {
            "listener.name.a.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.a.plain.sasl.jaas.config": f'{PLAIN} realm="x";',
            f"listener.name.a.plain.{HANDLER}": f"{__name__}:Passwords",
        }
    )
    exchange = mechanisms(values, "A", SOURCE, environment)["PLAIN"].exchange(False)
    assert exchange.step(b"\0eva-x\0x-ave", 0) == b""
    assert exchange.principal == "eva-x"
    with pytest.raises(AuthenticationFailed):
        mechanisms(values, "A", SOURCE, environment)["PLAIN"].exchange(False).step(b"\0eva\0ave", 0)


def test_a_python_class_validates_tokens(environment: Environment) -> None:
    values = BrokerConfig(
        {
            "listener.name.a.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.a.oauthbearer.sasl.jaas.config": BEARER,
            f"listener.name.a.oauthbearer.{HANDLER}": f"{__name__}:Tokens",
        }
    )
    exchange = mechanisms(values, "A", SOURCE, environment)["OAUTHBEARER"].exchange(False)
    assert exchange.step(b"n,,\x01auth=Bearer the-token\x01\x01", 5) == b""
    assert (exchange.principal, exchange.expires_ms) == ("olga", 1005)


def test_the_lifetime_of_sessions_may_differ_between_mechanisms(environment: Environment) -> None:
    values = BrokerConfig(
        {
            "connections.max.reauth.ms": "1",
            "listener.name.a.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.a.connections.max.reauth.ms": "2",
            "listener.name.a.scram-sha-512.connections.max.reauth.ms": "3",
            "listener.name.b.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        }
    )
    by_name = mechanisms(values, "A", SOURCE, environment)
    assert {name: mechanism.max_reauth_ms for name, mechanism in by_name.items()} == {
        "SCRAM-SHA-256": 2,
        "SCRAM-SHA-512": 3,
    }
    assert mechanisms(values, "B", SOURCE, environment)["SCRAM-SHA-256"].max_reauth_ms == 1
    assert enabled_mechanisms(BrokerConfig({"sasl.enabled.mechanisms": "PLAIN"}), "A") == ["PLAIN"]
