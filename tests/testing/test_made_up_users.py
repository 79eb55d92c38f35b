"""Responses to a SCRAM login of users that do not exist: the same over listeners, brokers and restarts."""

import sqlite3
from contextlib import closing
from pathlib import Path

from ottla.metadata.store import keys
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.testing import Kafka, KafkaCluster, Security
from tests.conformance.conftest import Wire

MECHANISM = "SCRAM-SHA-256"


def salt_and_iterations(bootstrap_servers: str, user: str = "nobody") -> bytes:
    """Return the broker's response to the first message of a login, without the nonce."""
    host, port = bootstrap_servers.split(":")
    wire = Wire((host, int(port)), is_kafka=False)
    wire.send(SaslHandshakeRequest(mechanism=MECHANISM), 1)
    token = f"n,,n={user},r=abc".encode()
    answer = wire.send(SaslAuthenticateRequest(auth_bytes=token), 2)
    wire.close()
    return bytes(answer.auth_bytes).partition(b",")[2]


def test_an_unknown_user_looks_the_same_after_a_restart(tmp_path: Path) -> None:
    """Also in a store that an earlier release has written, from its second start on."""
    with Kafka({"security": Security("SASL_PLAINTEXT", MECHANISM)}, data_dir=tmp_path) as kafka:
        first = salt_and_iterations(kafka.bootstrap_servers)
        assert first != salt_and_iterations(kafka.bootstrap_servers, "nobody2")
        kafka.restart()
        assert salt_and_iterations(kafka.bootstrap_servers) == first
        secret = kafka.server.broker.image.secret
        kafka.kill()
        with closing(sqlite3.connect(tmp_path / "metadata.db")) as database, database:
            database.execute("DELETE FROM entries WHERE key = ?", (keys.SECRET,))
        kafka.restart()
        assert len(kafka.server.broker.image.secret) == 32
        assert kafka.server.broker.image.secret != secret
        changed = salt_and_iterations(kafka.bootstrap_servers)
        kafka.restart()
        assert salt_and_iterations(kafka.bootstrap_servers) == changed


def test_an_unknown_user_looks_the_same_on_all_brokers() -> None:
    with KafkaCluster(2, {"security": Security("SASL_PLAINTEXT", MECHANISM)}) as cluster:
        answers = {salt_and_iterations(broker.bootstrap_servers) for broker in cluster.running}
        assert len(answers) == 1
        cluster.restart(1)
        assert {salt_and_iterations(broker.bootstrap_servers) for broker in cluster.running} == answers
