"""Test brokers with security: `client_config` has all that a client needs, and a client without it is refused."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

import ottla
from ottla.client.errors import KafkaError
from ottla.testing import Kafka, KafkaCluster, Security

SECURITIES = [
    ("SSL", {}),
    ("SSL", {"client_auth": True}),
    ("SASL_PLAINTEXT", {"mechanism": "PLAIN"}),
    ("SASL_SSL", {"mechanism": "SCRAM-SHA-256"}),
    ("SASL_SSL", {"mechanism": "SCRAM-SHA-512", "user": "carl", "password": "p"}),
    ("SASL_PLAINTEXT", {"mechanism": "OAUTHBEARER"}),
]


def works(config: dict[str, str]) -> None:
    with ottla.Producer(config) as producer:
        producer.send("t", "v").result(20)
    with ottla.Consumer(config, auto_offset_reset="earliest") as consumer:
        consumer.assign([ottla.TopicPartition("t", 0)])
        assert [record.value for record in consumer.consume(1, timeout=20)] == [b"v"]


@pytest.mark.parametrize(("protocol", "options"), SECURITIES)
def test_each_security(protocol: str, options: dict[str, Any], kafka_factory: Callable[..., Kafka]) -> None:
    kafka = kafka_factory({"security": Security(protocol, **options)})
    works(kafka.client_config)
    short = {"bootstrap.servers": kafka.bootstrap_servers, "default.api.timeout.ms": "1000"}
    with ottla.Admin(short) as admin, pytest.raises(KafkaError):
        admin.list_topics()
    assert len(kafka.records("t")) == 1


@pytest.mark.kafka(security="SASL_SSL")
def test_the_marker(kafka: Kafka) -> None:
    assert kafka.client_config["security.protocol"] == "SASL_SSL"
    works(kafka.client_config)


def test_a_broker_without_security(kafka: Kafka) -> None:
    assert kafka.client_config == {"bootstrap.servers": kafka.bootstrap_servers}


def test_clear_keeps_the_user() -> None:
    with Kafka({"security": Security("SASL_PLAINTEXT", "SCRAM-SHA-256")}) as kafka:
        works(kafka.client_config)
        config = kafka.client_config
        kafka.clear()
        works(config)
        kafka.advance(1000)  # the next `clear` replaces the broker
        kafka.clear()
        assert kafka.client_config == config
        works(config)


def test_a_cluster() -> None:
    with KafkaCluster(2, {"security": Security("SASL_SSL", "SCRAM-SHA-512")}) as cluster:
        works(cluster.client_config)


def test_another_client() -> None:
    with Kafka({"security": Security("SASL_SSL")}) as kafka:
        client = AdminClient(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": "alice-secret",
                "ssl.ca.location": kafka.client_config["ssl.truststore.location"],
            }
        )
        assert client.list_topics(timeout=20).brokers


def test_invalid_security_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="security TLS: must be one of SSL, SASL_PLAINTEXT, SASL_SSL"):
        Kafka({"security": "TLS"})
    with pytest.raises(ValueError, match="mechanism GSSAPI: must be one of PLAIN"):
        Security("SASL_SSL", "GSSAPI")
    monkeypatch.setitem(sys.modules, "trustme", None)
    with pytest.raises(RuntimeError, match="test brokers with TLS need trustme: pip install trustme"):
        Security("SSL")
