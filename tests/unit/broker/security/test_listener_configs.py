"""Listeners by the configs of a broker: what is refused, with Kafka's texts, and configs that only one listener has."""

import pytest

from ottla.broker.config import BrokerConfig
from ottla.broker.security.listener_configs import ListenerValues, check_listeners, inter_broker_listener
from ottla.broker.security.principals import principal_builder
from ottla.metadata.configs import InvalidConfig

TWO = {
    "listeners": "A://127.0.0.1:1,B://127.0.0.1:2",
    "listener.security.protocol.map": "A:SASL_SSL,B:plaintext",
}


@pytest.mark.parametrize(
    ("configs", "text"),
    [
        ({"listeners": "FOO://127.0.0.1:1"}, "No security protocol defined for listener FOO"),
        (
            {"listeners": "A://127.0.0.1:1", "listener.security.protocol.map": "A:FOO"},
            "Invalid security protocol `FOO` defined in listener.security.protocol.map",
        ),
        (
            {**TWO, "listeners": "A://127.0.0.1:1,B://127.0.0.1:1"},
            "If you have two listeners on the same port then one needs to be IPv4",
        ),
        ({**TWO, "listeners": "A://127.0.0.1:1,a://127.0.0.1:2"}, "Each listener must have a different name"),
        (
            {**TWO, "advertised.listeners": "A://0.0.0.0:1"},
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
        ),
        (
            {**TWO, "listener.security.protocol.map": "A:SSL,B:SSL,C:SSL", "advertised.listeners": "C://h:1"},
            "advertised.listeners has the listener C, which is not in listeners: A,B",
        ),
        (
            {**TWO, "inter.broker.listener.name": "ZZ"},
            "Listener with name ZZ defined in inter.broker.listener.name not found in listener.security.protocol.map.",
        ),
        (
            {**TWO, "listener.security.protocol.map": "A:SSL,B:SSL,C:SSL", "inter.broker.listener.name": "C"},
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options based "
            "on currently configured listeners are A,B",
        ),
        (
            {**TWO, "inter.broker.listener.name": "A", "security.inter.broker.protocol": "SSL"},
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
        ),
        (
            {**TWO, "early.start.listeners": "ZZ"},
            "early.start.listeners contains listener ZZ, but this is not contained in listeners or "
            "controller.listener.names",
        ),
    ],
)
def test_invalid_listener_configs_are_refused(configs: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        check_listeners(BrokerConfig(configs))
    assert text in str(error.value)


@pytest.mark.parametrize(
    "configs",
    [
        TWO,
        {**TWO, "listeners": "A://127.0.0.1:1,B://[::1]:1"},
        {**TWO, "listeners": "A://127.0.0.1:0,B://127.0.0.1:0"},
        {**TWO, "early.start.listeners": "B,C", "controller.listener.names": "C"},
        {**TWO, "advertised.listeners": "B://h:1", "inter.broker.listener.name": "b"},
    ],
)
def test_valid_listener_configs_are_accepted(configs: dict[str, str]) -> None:
    check_listeners(BrokerConfig(configs))


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({}, "B"),
        ({"inter.broker.listener.name": "a"}, "A"),
        ({"security.inter.broker.protocol": "SASL_SSL"}, "A"),
        ({"listener.security.protocol.map": "A:SSL,B:SSL"}, None),
    ],
)
def test_the_listener_of_the_other_brokers(more: dict[str, str], name: str | None) -> None:
    config = BrokerConfig({**TWO, **more})
    listener = inter_broker_listener(config, config.listeners)
    assert (None if listener is None else listener.name) == name


def test_the_security_protocol_decides_on_tls_and_sasl() -> None:
    first, second = BrokerConfig(TWO).listeners
    assert (first.has_tls, first.has_sasl, second.has_tls, second.has_sasl) == (True, True, False, False)


def test_configs_of_one_listener_or_mechanism() -> None:
    texts = {
        "ssl.client.auth": "requested",
        "listener.name.a.ssl.client.auth": "required",
        "listener.name.a.plain.connections.max.reauth.ms": "5",
        "listener.name.a.connections.max.reauth.ms": "4",
    }
    config = BrokerConfig({**TWO, **texts}).with_dynamic(
        for_all={"max.connections": "7"},
        for_this={"listener.name.b.ssl.client.auth": "none", "listener.name.b.ssl.keystore.location": "b.pem"},
    )
    assert [ListenerValues(config, name).text("ssl.client.auth") for name in ("A", "B", "C")] == [
        "required",
        "requested",  # what clients have stored counts for stores and connection limits only
        "requested",
    ]
    assert [ListenerValues(config, name).text("ssl.keystore.location") for name in ("A", "B")] == [None, "b.pem"]
    assert ListenerValues(config, "B").with_start_values().text("ssl.keystore.location") is None
    assert [ListenerValues(config, name).integer("max.connections") for name in ("A", "B")] == [7, 7]
    assert ListenerValues(config, "A", "PLAIN").integer("connections.max.reauth.ms") == 5
    assert ListenerValues(config, "A", "SCRAM-SHA-256").integer("connections.max.reauth.ms") == 4
    assert ListenerValues(config, "B", "PLAIN").integer("connections.max.reauth.ms") == 0
    assert ListenerValues(config, "A", "PLAIN").own_text("connections.max.reauth.ms") == "5"
    assert ListenerValues(config, "A", "SCRAM-SHA-256").own_text("connections.max.reauth.ms") is None


def test_a_rule_that_re2_lacks_is_named_in_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    rules = "RULE:^CN=(?!admin)(.*)$/$1/,RULE:^CN=(.*)$/$1/"
    principal_builder(ListenerValues(BrokerConfig({"ssl.principal.mapping.rules": rules}), "A"))
    (warning,) = caplog.messages
    assert warning.startswith("RULE:^CN=(?!admin)(.*)$/$1 of ssl.principal.mapping.rules has a pattern that RE2 lacks")
