"""Brokers that log in to each other: by PLAIN, by SCRAM, and with a wrong password."""

from pathlib import Path

import pytest
import trustme

import ottla
from ottla.broker.lifecycle import CannotStart
from ottla.client.admin.scram import ScramMechanism, UserScramCredentialUpsertion
from ottla.testing import KafkaCluster

MODULES = "org.apache.kafka.common.security"
PLAIN = (
    f'{MODULES}.plain.PlainLoginModule required username="broker" password="{{}}" user_broker="secret" user_alice="a";'
)


def configs(mechanism: str, jaas: str) -> dict[str, object]:
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "default.replication.factor": 3,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        "listener.name.internal.sasl.enabled.mechanisms": mechanism,
        f"listener.name.internal.{mechanism.lower()}.sasl.jaas.config": jaas,
    }


def undelivered(cluster: KafkaCluster, timeout_ms: int = 20_000) -> list[str]:
    """Errors of three records that all three replicas must have."""
    if "t" not in cluster.image.topics:
        cluster.create_topic("t", 3, min_insync_replicas=3)
    errors: list[str] = []
    with ottla.Producer(
        bootstrap_servers=cluster.bootstrap_servers, delivery_timeout_ms=timeout_ms, request_timeout_ms=1000
    ) as producer:
        for number in range(3):
            producer.produce(
                "t",
                str(number),
                partition=number,
                on_delivery=lambda error, _: errors.append(str(error)) if error else None,
            )
        producer.flush()
    return errors


def test_plain() -> None:
    with KafkaCluster(3, configs("PLAIN", PLAIN.format("secret"))) as cluster:
        assert undelivered(cluster) == []


def test_scram_with_a_user_in_the_metadata() -> None:
    jaas = f'{MODULES}.scram.ScramLoginModule required username="broker" password="secret";'
    with KafkaCluster(3, configs("SCRAM-SHA-512", jaas)) as cluster:
        assert undelivered(cluster, 4000) != []
        with ottla.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            upsertion = UserScramCredentialUpsertion("broker", ScramMechanism.SCRAM_SHA_512, "secret")
            admin.alter_user_scram_credentials([upsertion]).check()
        assert undelivered(cluster) == []


def test_a_wrong_password_keeps_brokers_apart() -> None:
    with KafkaCluster(3, configs("PLAIN", PLAIN.format("wrong"))) as cluster:
        assert undelivered(cluster, 4000) != []


def test_client_certificates(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    for made, name in ((authority, "broker"), (stranger, "other")):
        made.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / f"{name}.pem")
    values: dict[str, object] = {
        "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SSL",
        "inter.broker.listener.name": "INTERNAL",
        "default.replication.factor": 3,
        "listener.name.internal.ssl.client.auth": "required",
        "listener.name.internal.ssl.keystore.type": "PEM",
        "listener.name.internal.ssl.keystore.location": tmp_path / "broker.pem",
        "listener.name.internal.ssl.truststore.type": "PEM",
        "listener.name.internal.ssl.truststore.location": tmp_path / "ca.pem",
    }
    with KafkaCluster(3, values) as cluster:
        assert undelivered(cluster) == []
    values["listener.name.internal.ssl.keystore.location"] = tmp_path / "other.pem"
    with pytest.raises(CannotStart, match="listener INTERNAL: A client SSLEngine created with the provided settings"):
        KafkaCluster(3, values)
