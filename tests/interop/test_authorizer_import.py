"""A directory of Apache Kafka with an authorizer is imported, served and given back: ACLs, SCRAM users, delegation tokens."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from ottla.protocol.errors import NONE
from tests.conformance.authorization.authorized import LISTENERS, configs, listener_ports, password_of
from tests.conformance.authorization.bindings import Binding, create, delete, described
from tests.conformance.authorization.codes import (
    ALL,
    ALLOW,
    DENY,
    DESCRIBE,
    GROUP,
    LITERAL,
    NO_TOPIC,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
)
from tests.conformance.authorization.conftest import Authorized
from tests.conformance.authorization.messages import error_codes, plain, request
from tests.conformance.members import wait_for
from tests.conformance.security.conftest import ScramClient, Secured, SecuredWire, set_scram_password
from tests.conformance.security.test_delegation_tokens import create as create_token
from tests.conformance.security.test_delegation_tokens import described as described_tokens
from tests.conformance.security.test_delegation_tokens import log_in
from tests.free_ports import free_ports

from .apache_kafka import ApacheKafka

pytestmark = [
    pytest.mark.usefixtures("apache_kafka"),
    pytest.mark.timeout(300),
]
STORED: Final = {
    Binding(READ, TOPIC, "shown", "User:alice"),
    Binding(WRITE, TOPIC, "sho", "User:alice", ALLOW, PREFIXED),
    Binding(ALL, GROUP, "*", "User:alice", ALLOW, LITERAL, "127.0.0.0/8"),
    Binding(ALL, TOPIC, "*", "User:alice", DENY, LITERAL, "10.0.0.0/8"),
    Binding(DESCRIBE, TOPIC, "hidden", "User:scram"),
    Binding(READ, TOPIC, "shown", "Group:no such type"),
}
"""ACLs of all forms."""
ADDED: Final = Binding(DESCRIBE, TOPIC, "shown", "User:bob")
REMOVED: Final = Binding(DESCRIBE, TOPIC, "hidden", "User:scram")


class Directory:
    """A broker on the directory, Apache Kafka or Ottla, and the credentials that it was given."""

    def __init__(self, home: Path) -> None:
        port = free_ports(len(LISTENERS) + 1)[0]
        ports = listener_ports(port)
        values = configs(ports)
        values["advertised.listeners"] = values["listeners"]
        values["listeners"] += f",CONTROLLER://127.0.0.1:{port + 1}"
        values["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
        self._configs = [f"{name}={value}" for name, value in values.items()]
        self._port = port
        self._home = home
        self.broker = Authorized(ports, is_kafka=True, offers={})
        self._secured = Secured(ports, home, is_kafka=True)

    @contextmanager
    def kafka(self) -> Iterator[None]:
        """Run Apache Kafka."""
        node = ApacheKafka(self._home, "4.4.0", *self._configs, port=self._port)
        try:
            yield
        finally:
            node.stop()

    @contextmanager
    def ottla(self) -> Iterator[None]:
        """Run Ottla with the same server.properties."""
        serving = subprocess.Popen(
            [sys.executable, "-m", "ottla", "serve", "--config", self.properties],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert serving.stdout is not None
            assert f"SASL://{self.broker.bootstrap_servers}" in serving.stdout.readline()
            yield
        finally:
            serving.terminate()
            serving.communicate(timeout=30)

    @property
    def properties(self) -> str:
        """Path of server.properties."""
        return str(self._home / "server.properties")

    def set_up(self) -> None:
        """Create topics, ACLs, a SCRAM user and a token of alice that bob may renew."""
        root = self.broker.super_wire()
        for name in ("shown", "hidden"):
            fields = {"topics": [{"name": name, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 5000}
            answer = plain(root.send(request("CreateTopics", fields), 5), 5)
            assert [topic["error_code"] for topic in answer["topics"]] == [NONE]
        create(root, *STORED)
        root.close()
        set_scram_password(self._secured, "scram", "scram-secret")
        alice = self._log_in("alice")
        self._token = create_token(alice, -1, "bob")
        assert self._token.error_code == NONE
        alice.close()
        time.sleep(1)  # Apache Kafka applies credentials after its answer

    def acls(self) -> set[Binding]:
        """List all ACLs."""
        root = self.broker.super_wire()
        bindings = described(root)
        root.close()
        assert len(bindings) == len(set(bindings))
        return set(bindings)

    def check_logins(self, hidden_from_scram: int) -> None:
        """Log in by SCRAM and by the token; both have the rights of their users."""
        scram = self._wire()
        client = ScramClient("SCRAM-SHA-256", "scram", "scram-secret")
        assert scram.handshake("SCRAM-SHA-256").error_code == NONE
        assert scram.authenticate(client.final(scram.authenticate(client.first).auth_bytes)).error_code == NONE
        assert topic_codes(scram) == [NO_TOPIC, hidden_from_scram]
        by_token = self._wire()
        assert log_in(by_token, self._token.token_id, self._token.hmac).error_code == NONE
        assert topic_codes(by_token) == [NONE, NO_TOPIC]
        alice = self._log_in("alice")
        token = described_tokens(alice)[self._token.token_id]
        assert (token.hmac, token.expiry_timestamp) == (self._token.hmac, self._token.expiry_timestamp_ms)
        assert [renewer.principal_name for renewer in token.renewers] == ["bob"]
        assert topic_codes(alice) == [NONE, NO_TOPIC]
        for wire in (scram, by_token, alice):
            wire.close()

    def _wire(self) -> SecuredWire:
        return SecuredWire(self._secured, "SASL")

    def _log_in(self, user: str) -> SecuredWire:
        wire = self._wire()
        assert wire.log_in(user, password_of(user)).error_code == NONE
        return wire


def topic_codes(wire: Any) -> list[int]:
    """Error codes of the topics "shown" and "hidden"."""
    names = ["shown", "hidden"]
    fields = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
    answer = plain(wire.send(request("Metadata", fields), 12), 12)
    by_name = {topic["name"]: next(error_codes(topic)) for topic in answer["topics"]}
    return [by_name[name] for name in names]


def test_there_and_back(tmp_path: Path) -> None:
    """Apache Kafka gets its directory back with its own ACLs: those that were changed with Ottla are not in its metadata."""
    directory = Directory(tmp_path / "kafka")
    with directory.kafka():
        directory.set_up()
        directory.check_logins(hidden_from_scram=NONE)
    command = [sys.executable, "-m", "ottla", "storage", "import", "--config", directory.properties]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "SCRAM credentials of: scram" in done.stdout
    with directory.ottla():
        assert directory.acls() == STORED
        directory.check_logins(hidden_from_scram=NONE)
        root = directory.broker.super_wire()
        create(root, ADDED)
        delete(root, REMOVED)
        root.close()
        directory.check_logins(hidden_from_scram=NO_TOPIC)
    with directory.ottla():
        assert directory.acls() == STORED - {REMOVED} | {ADDED}
        directory.check_logins(hidden_from_scram=NO_TOPIC)
    with directory.kafka():
        wait_for(lambda: directory.acls() == STORED)
        directory.check_logins(hidden_from_scram=NONE)
