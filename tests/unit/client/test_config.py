"""Client configs: Kafka's names, checked."""

from pathlib import Path
from typing import Any

import pytest

from ottla.client.config import _LIBRDKAFKA, CONFIGS, ClientConfig, addresses, config_of
from ottla.client.errors import InvalidClientConfig
from ottla.client.security_configs import KAFKA_PYTHON

SERVERS = {"bootstrap.servers": "h:1"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1, b:2,", (("a", 1), ("b", 2))),
        ("localhost", (("localhost", 9092),)),
        ("[::1]:9093", (("::1", 9093),)),
        ("[::1]", (("::1", 9092),)),
        ("::1", (("::1", 9092),)),
        ("PLAINTEXT://a:1,SASL_SSL://b:2", (("a", 1), ("b", 2))),
        ("plaintext://[fe80::1%eth0]:1, my-listener.x://c", (("fe80::1%eth0", 1), ("c", 9092))),
        ("://d:4", (("d", 4),)),
    ],
)
def test_addresses(text: str, expected: tuple[tuple[str, int], ...]) -> None:
    assert addresses(text) == expected


@pytest.mark.parametrize(
    "text", ["a b:1", "ä:1", "a/b:1", "a@b:1", "SSL://a://b:1", "'a':1", "a\n:1", "[a:1", "a]:1", "[[::1]]:1", "a\0:1"]
)
def test_hosts_with_characters_that_no_host_has_are_refused(text: str) -> None:
    """They were looked up until the timeout."""
    with pytest.raises(ValueError, match=r"has characters that no host has|is not host:port"):
        addresses(text)


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({}, "kafka.bootstrap.servers is missing"),
        ({"bootstrap.servers": "h:x"}, "'h:x' is not host:port"),
        ({**SERVERS, "isolation.levle": "x"}, "did you mean kafka.isolation.level?"),
        ({**SERVERS, "queue.buffering.max.ms": "5"}, "is a name of librdkafka; Kafka's is kafka.linger.ms"),
        ({**SERVERS, "metadata.broker.list": "h:1"}, "Kafka's is kafka.bootstrap.servers"),
        ({**SERVERS, "isolation.level": "x"}, "must be one of read_uncommitted, read_committed"),
        ({**SERVERS, "fetch.max.wait.ms": "-1"}, "must be from 0"),
        ({**SERVERS, "security.protocol": "KERBEROS"}, "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({**SERVERS, "sasl.username": "a"}, "Kafka's is kafka.sasl.jaas.config, sasl_username or sasl_password"),
        ({**SERVERS, "ssl_cafile": "a"}, "is a name of kafka-python; Kafka's is kafka.ssl.truststore.location"),
        ({**SERVERS, "acks": "1", "enable.idempotence": "true"}, "needs kafka.acks=all"),
        ({**SERVERS, "enable.idempotence": "true", "max.in.flight.requests.per.connection": "6"}, "at most 5"),
    ],
)
def test_what_is_refused(configs: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidClientConfig, match=message.replace("?", r"\?")):
        ClientConfig(configs, prefix="kafka.")


def test_a_client_takes_configs_by_name_and_by_keyword() -> None:
    assert (
        config_of(None, {"bootstrap_servers": "h:1"}) == config_of(SERVERS, {"group_id": None}) == ClientConfig(SERVERS)
    )
    assert config_of(ClientConfig(SERVERS), {}) == ClientConfig(SERVERS)
    with pytest.raises(
        TypeError, match=r'takes its configs by name, bootstrap_servers="localhost:9092" .* not \'h:1\''
    ):
        config_of("h:1", {})  # type: ignore[arg-type]


def test_suggestions_for_names_of_other_clients_are_names_of_this_client() -> None:
    for name, suggested in {**_LIBRDKAFKA, **KAFKA_PYTHON}.items():
        assert name not in CONFIGS
        assert all(part.split()[0] in CONFIGS for part in suggested.replace(" or ", ", ").split(", "))


def test_conflicting_configs_switch_idempotence_off_unless_asked_for() -> None:
    assert ClientConfig(SERVERS)["enable.idempotence"]
    assert not ClientConfig({**SERVERS, "acks": "1"})["enable.idempotence"]


def test_names_of_kafkas_clients_without_meaning_here_are_accepted() -> None:
    assert ClientConfig({**SERVERS, "key.serializer": "5"}) == ClientConfig(SERVERS)


def test_equal_configs_share_connections() -> None:
    assert (
        len({ClientConfig(SERVERS), ClientConfig({**SERVERS, "acks": "all"}), ClientConfig({**SERVERS, "acks": "0"})})
        == 2
    )


# Config providers.

PROVIDERS = {
    "config.providers": "file,env,dir",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    "config.providers.dir.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
}


def test_values_that_refer_to_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secrets.properties").write_text("password=p1\nid=c1\n")
    (tmp_path / "token").write_text("p3")
    monkeypatch.setenv("OTTLA_TEST_PASSWORD", "p2")
    config = ClientConfig(
        {
            **SERVERS,
            **PROVIDERS,
            "client.id": f"${{file:{tmp_path}/secrets.properties:id}}-1",
            "sasl.jaas.config": 'M required username="a" password="${env:OTTLA_TEST_PASSWORD}";',
            "ssl.key.password": f"${{dir:{tmp_path}:token}}",
            "group.id": "${other:x}",
            "linger.ms": 7,
            "sasl.login.callback.handler.class": print,
        }
    )
    assert config["client.id"] == "c1-1"
    assert config["sasl.jaas.config"] == 'M required username="a" password="p2";'
    assert config["ssl.key.password"] == "p3"
    assert config["group.id"] == "${other:x}"
    assert config["linger.ms"] == 7
    assert config["sasl.login.callback.handler.class"] is print


def test_without_providers_a_reference_is_a_text() -> None:
    assert ClientConfig({**SERVERS, "group.id": "${env:HOME}"})["group.id"] == "${env:HOME}"


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"config.providers": "x", "config.providers.x.class": "com.example.Vault"}, "must be one of org.apache.kafka"),
        ({**PROVIDERS, "client.id": "${file:/missing/file:id}"}, "from file /missing/file: No such file or directory"),
        ({**PROVIDERS, "linger.ms": "${env:OTTLA_TEST_PASSWORD}"},
         "kafka.linger.ms=${env:OTTLA_TEST_PASSWORD}: the value that it refers to is invalid"),
    ],
)  # fmt: skip
def test_invalid_references_are_refused(configs: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_TEST_PASSWORD", "hidden-1")
    with pytest.raises(InvalidClientConfig) as caught:
        ClientConfig({**SERVERS, **configs}, prefix="kafka.")
    assert message in str(caught.value)
    assert "hidden-1" not in str(caught.value)
