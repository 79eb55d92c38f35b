"""Fixtures of the conformance tests of security: a broker with the listeners of `secured.py`, Ottla or Apache Kafka.

`--secured-kafka PORT:DIR` names an Apache Kafka that was started with the configs of
`python -m tests.conformance.security.secured DIR PORT`.
"""

import base64
import hashlib
import hmac
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from ottla.protocol.errors import NONE
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import Wire
from tests.conformance.security.secured import LISTENERS, USERS, configs, listener_ports, make_certificates

SCRAM: Final = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}


class Secured(NamedTuple):
    """A broker with listeners of all kinds.

    ports         by name of the listener
    certificates  directory with the PEM files of `make_certificates`
    """

    ports: dict[str, int]
    certificates: Path
    is_kafka: bool

    def address(self, listener: str) -> tuple[str, int]:
        """Host and port of a listener."""
        return "127.0.0.1", self.ports[listener]

    def tls_context(self, certificate: str | None = None, *, trusts: str = "ca.pem") -> ssl.SSLContext:
        """TLS of a client, with the certificate of one of the files."""
        context = ssl.create_default_context(cafile=self.certificates / trusts)
        if certificate is not None:
            context.load_cert_chain(self.certificates / f"{certificate}.pem")
        return context


class SecuredWire(Wire):
    """One connection to a listener; `tls` for a listener with TLS."""

    def __init__(self, broker: Secured, listener: str, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(broker.address(listener), is_kafka=broker.is_kafka)
        self._tls = tls

    def socket(self) -> socket.socket:
        if self._socket is None:
            plain = super().socket()
            if self._tls is not None:
                self._socket = self._tls.wrap_socket(plain, server_hostname="127.0.0.1")
                self._connections[-1] = self._socket
        assert self._socket is not None
        return self._socket

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        """The answer to SaslHandshake."""
        return self.send(SaslHandshakeRequest(mechanism=mechanism), version)

    def authenticate(self, token: bytes, version: int = 2) -> Any:
        """The answer to SaslAuthenticate."""
        return self.send(SaslAuthenticateRequest(auth_bytes=token), version)

    def send_token(self, token: bytes) -> None:
        """Send a bare frame."""
        self.send_raw(len(token).to_bytes(4, "big") + token)

    def receive_token(self) -> bytes:
        """The next bare frame. Raises Closed."""
        return self.receive_raw(int.from_bytes(self.receive_raw(4), "big"))

    def log_in(self, user: str = "alice", password: str | None = None) -> Any:
        """Log in by PLAIN; returns the last answer."""
        assert self.handshake().error_code == NONE
        return self.authenticate(plain(user, password))


def plain(user: str = "alice", password: str | None = None, authzid: str = "") -> bytes:
    """The token of PLAIN."""
    return "\0".join((authzid, user, USERS[user] if password is None else password)).encode()


class ScramClient:
    """Client of SCRAM, written from RFC 5802 alone, as a second opinion on Ottla's own."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str = "abcdef", extensions: str = "") -> None:
        self._hash = SCRAM[mechanism][1]
        self._password = password.encode()
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}{extensions}"
        self.first = f"n,,{self._bare}".encode()
        self.signature = b""

    def final(self, server_first: bytes, *, binding: bytes = b"biws", nonce: str | None = None) -> bytes:
        """The last message of the client."""
        fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, base64.b64decode(fields["s"]), int(fields["i"]))
        key = hmac.digest(salted, b"Client Key", self._hash)
        stored = hashlib.new(self._hash, key).digest()
        without_proof = f"c={binding.decode()},r={nonce or fields['r']}"
        message = f"{self._bare},{server_first.decode()},{without_proof}".encode()
        proof = bytes(a ^ b for a, b in zip(key, hmac.digest(stored, message, self._hash), strict=True))
        self.signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), message, self._hash)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def set_scram_password(broker: Secured, user: str, password: str) -> None:
    """Create SCRAM credentials of both mechanisms."""
    wire = SecuredWire(broker, "PLAINTEXT")
    for number, name in SCRAM.values():
        salted = hashlib.pbkdf2_hmac(name, password.encode(), b"salt" * 4, 4096)
        upsertion = ScramCredentialUpsertion(
            name=user, mechanism=number, iterations=4096, salt=b"salt" * 4, salted_password=salted
        )
        results = wire.send(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0).results
        assert [result.error_code for result in results] == [NONE]
    wire.close()


@pytest.fixture(scope="session")
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    option = request.config.getoption("--secured-kafka")
    if request.config.getoption("--broker") and not option:
        pytest.skip("--secured-kafka names an Apache Kafka with these listeners")
    if option:
        port, _, directory = option.partition(":")
        broker = Secured(listener_ports(int(port)), Path(directory), is_kafka=True)
        set_scram_password(broker, "scram", "scram-secret")
        time.sleep(0.5)  # Apache Kafka applies credentials after its answer
        yield broker
        return
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory)
    values = configs(directory, dict.fromkeys(LISTENERS, 0))
    values |= {
        "connection.failed.authentication.delay.ms": "0",
        "delegation.token.secret.key": "secret",
        "group.initial.rebalance.delay.ms": "0",
    }
    with EmbeddedBroker(values) as embedded:
        ports = {listener.name: address[1] for listener, address in embedded.broker.listeners.bound}
        broker = Secured(ports, directory, is_kafka=False)
        set_scram_password(broker, "scram", "scram-secret")
        yield broker


@pytest.fixture
def connect(secured: Secured) -> Iterator[Any]:
    """Opens connections to listeners, which are closed after the test."""
    wires: list[SecuredWire] = []

    def connect(listener: str = "SASL", tls: ssl.SSLContext | None = None) -> SecuredWire:
        wires.append(SecuredWire(secured, listener, tls))
        return wires[-1]

    yield connect
    for wire in wires:
        wire.close()
