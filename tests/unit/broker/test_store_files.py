"""Files of keys that a request names: pipes, devices, large files and mounts that do not answer block no other request."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from tests.conformance.conftest import Wire

from ottla.broker.security import tls_context
from ottla.environment.small_files import read_small_file
from ottla.protocol.errors import INVALID_REQUEST, NONE
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.testing.embedded import EmbeddedBroker

BROKER = 4


def certify(path: Path, authority: trustme.CA) -> Path:
    issued = authority.issue_cert("127.0.0.1", common_name="broker")
    issued.private_key_and_cert_chain_pem.write_to_path(path)
    return path


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def broker(tmp_path: Path, authority: trustme.CA) -> Iterator[EmbeddedBroker]:
    configs = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certify(tmp_path / "first.pem", authority)),
        "ssl.allow.dn.changes": "true",
        "ssl.allow.san.changes": "true",
    }
    with EmbeddedBroker(configs) as running:
        yield running


def alter(broker: EmbeddedBroker, path: Path, *, validate_only: bool = False) -> tuple[int, str | None, float]:
    """Set the key store of the listener; return the error, and the seconds that it took."""
    config = AlterableConfig(name="listener.name.ssl.ssl.keystore.location", config_operation=0, value=str(path))
    resource = AlterConfigsResource(resource_type=BROKER, resource_name=str(broker.broker.node_id), configs=[config])
    wire = Wire(broker.address, is_kafka=False)
    begun = time.monotonic()
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (row,) = wire.send(request, 1).responses
    wire.close()
    return row.error_code, row.error_message, time.monotonic() - begun


def certificate(broker: EmbeddedBroker) -> bytes:
    """The certificate of a new connection."""
    import ssl

    (port,) = (port for listener, (_, port) in broker.broker.listeners.bound if listener.name == "SSL")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as tls:
        der = tls.getpeercert(binary_form=True)
    assert der is not None
    return der


def test_a_new_file_is_used_when_the_request_is_answered(
    broker: EmbeddedBroker, tmp_path: Path, authority: trustme.CA
) -> None:
    first = certificate(broker)
    second = certify(tmp_path / "second.pem", authority)
    assert alter(broker, second, validate_only=True)[:2] == (NONE, None)
    assert certificate(broker) == first
    assert alter(broker, second)[:2] == (NONE, None)
    assert certificate(broker) != first


def test_what_is_no_regular_file_of_1_mb_is_refused_at_once(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """The open of a pipe held the broker for ever."""
    pipe, large = tmp_path / "pipe", tmp_path / "large"
    os.mkfifo(pipe)
    large.write_bytes(bytes((1 << 20) + 1))
    first = certificate(broker)
    for path, reason in (
        (pipe, "not a regular file"),
        (Path("/dev/zero"), "not a regular file"),
        (tmp_path, "not a regular file"),
        (large, "larger than 1048576 bytes"),
        (tmp_path / "nothing", "No such file"),
    ):
        code, message, _ = alter(broker, path)
        assert code == INVALID_REQUEST, path
        assert reason in (message or ""), path
    assert certificate(broker) == first


def test_a_mount_that_does_not_answer_holds_its_request_for_two_seconds_and_no_others(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def read_slowly(path: str) -> bytes:
        answers.wait(30)
        return read_small_file(path)

    monkeypatch.setattr(tls_context, "read_small_file", read_slowly)
    outcome: list[tuple[int, str | None, float]] = []
    wire = Wire(broker.address, is_kafka=False)
    wire.send(ListGroupsRequest(), 4)  # imports what it needs
    altering = threading.Thread(target=lambda: outcome.append(alter(broker, tmp_path / "first.pem.bak")))
    altering.start()
    answered = 0
    while altering.is_alive():
        assert wire.send(ListGroupsRequest(), 4).error_code == NONE
        answered += 1
    answers.set()
    wire.close()
    ((code, message, seconds),) = outcome
    assert code == INVALID_REQUEST
    assert "cannot be read in 2 s" in (message or "")
    assert 1.5 < seconds < 10
    assert answered > 10
