"""Configs without effect, as a broker names them; `scripts/config-table --check` holds the list against the sources."""

from ottla.metadata.configs.effects import without_effect


def test_configs_of_threads_and_of_ssl_providers_have_no_effect() -> None:
    names = ["super.users", "listeners", "num.io.threads", "ssl.keystore.location", "log.retention.ms", "ssl.provider"]
    assert without_effect(names) == ["num.io.threads", "ssl.provider"]


def test_listener_configs_without_effect_are_named_with_their_prefix() -> None:
    idle = ["listener.name.a.plain.sasl.login.class", "listener.name.a.ssl.provider"]
    assert without_effect([*idle, "listener.name.a.plain.sasl.jaas.config", "listener.name.a.ssl.client.auth"]) == idle
