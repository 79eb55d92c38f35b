"""Clients that begin a handshake or a login and go no further: the broker stays small, idle and open to others."""

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from ottla.protocol.errors import NONE
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.conformance.conftest import Wire

from .secured_process import ON_LINUX, SecuredProcess

COUNT = 1500
MOST_MB = 120
"""A TLS session takes about 80 KB until its handshake is complete, and at most 1,000 of them are open."""
MOST_CPU = 0.15
"""Share of a core that the broker may use while nothing happens."""
HANDSHAKE = b"".join((b"\x00\x00\x00\x11", b"\x00\x11\x00\x01\x00\x00\x00\x00\xff\xff\x00\x05PLAIN"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SecuredProcess]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "store.pem")
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
    configs = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "store.pem"),
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
    }
    with SecuredProcess(tmp_path, configs) as process:
        yield process


def half_of_a_hello() -> bytes:
    """The beginning of the first message of TLS."""
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()
    return hello[: len(hello) // 2]


def log_in(port: int) -> None:
    wire = Wire(("127.0.0.1", port), is_kafka=False)
    assert wire.send(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == NONE
    assert wire.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2).error_code == NONE
    wire.close()


def connect_with_tls(port: int, authority: Path) -> None:
    context = ssl.create_default_context(cafile=authority)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
        context.wrap_socket(plain, server_hostname="127.0.0.1").close()


@pytest.mark.skipif(not ON_LINUX, reason="reads the resources of a process from /proc")
@pytest.mark.parametrize(
    ("listener", "first"),
    [
        ("SSL", lambda: b""),
        ("SSL", half_of_a_hello),
        ("SASL_PLAINTEXT", lambda: b""),
        ("SASL_PLAINTEXT", lambda: HANDSHAKE),
        ("SASL_PLAINTEXT", lambda: HANDSHAKE + b"\x00\x07"),
    ],
    ids=["silent TLS", "half a hello", "silent SASL", "handshake", "handshake and half a frame"],
)
def test_half_open_connections(
    broker: SecuredProcess, tmp_path: Path, listener: str, first: Callable[[], bytes]
) -> None:
    before_mb = broker.resident_mb()
    data = first()
    with contextlib.ExitStack() as held:
        for _ in range(COUNT):
            sock = held.enter_context(socket.create_connection(("127.0.0.1", broker.ports[listener]), timeout=10))
            if data:
                with contextlib.suppress(ConnectionError):  # the oldest ones are closed
                    sock.sendall(data)
        log_in(broker.ports["SASL_PLAINTEXT"])
        connect_with_tls(broker.ports["SSL"], tmp_path / "ca.pem")
        begun, cpu = time.monotonic(), broker.cpu_seconds()
        time.sleep(1)
        assert broker.cpu_seconds() - cpu < MOST_CPU * (time.monotonic() - begun)
        assert broker.resident_mb() - before_mb < MOST_MB
    log_in(broker.ports["SASL_PLAINTEXT"])
    broker.stop()


def test_a_handshake_that_is_not_completed_in_time_is_closed(broker: SecuredProcess) -> None:
    with socket.create_connection(("127.0.0.1", broker.ports["SSL"]), timeout=30) as sock:
        sock.sendall(half_of_a_hello())
        with contextlib.suppress(ConnectionError):
            assert sock.recv(100) == b""
    broker.wait_for_log("the handshake was not complete after 10000 ms")
