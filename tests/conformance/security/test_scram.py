"""Login by SCRAM-SHA-256 and SCRAM-SHA-512, message by message."""

import base64
from collections.abc import Callable
from typing import Any

import pytest

from ottla.protocol.errors import NONE, SASL_AUTHENTICATION_FAILED
from ottla.protocol.messages.metadata import MetadataRequest
from tests.conformance.conftest import Closed
from tests.conformance.security.conftest import SCRAM, ScramClient, Secured, SecuredWire

Connect = Callable[..., SecuredWire]
REFUSED = "Authentication failed during authentication due to invalid credentials with SASL mechanism {}"

pytestmark = pytest.mark.parametrize("mechanism", list(SCRAM))


def first(connect: Connect, mechanism: str, message: bytes) -> tuple[SecuredWire, Any]:
    wire = connect()
    assert wire.handshake(mechanism).error_code == NONE
    return wire, wire.authenticate(message)


def assert_refused(wire: SecuredWire, answer: Any, text: str) -> None:
    assert (answer.error_code, answer.error_message) == (SASL_AUTHENTICATION_FAILED, text)
    with pytest.raises(Closed):
        wire.receive_raw(1)


def test_a_login(connect: Connect, mechanism: str) -> None:
    client = ScramClient(mechanism, "scram", "scram-secret")
    wire, answer = first(connect, mechanism, client.first)
    fields = dict(part.split("=", 1) for part in answer.auth_bytes.decode().split(","))
    assert list(fields) == ["r", "s", "i"]
    assert fields["r"].startswith("abcdef")
    assert len(fields["r"]) > len("abcdef") + 16
    assert base64.b64decode(fields["s"]) == b"salt" * 4
    assert fields["i"] == "4096"
    answer = wire.authenticate(client.final(answer.auth_bytes))
    assert answer.error_code == NONE
    assert answer.auth_bytes == b"v=" + base64.b64encode(client.signature)
    assert wire.send(MetadataRequest(topics=[]), 12).brokers


def test_a_login_in_bare_frames(connect: Connect, mechanism: str) -> None:
    client = ScramClient(mechanism, "scram", "scram-secret")
    wire = connect()
    assert wire.handshake(mechanism, 0).error_code == NONE
    wire.send_token(client.first)
    wire.send_token(client.final(wire.receive_token()))
    assert wire.receive_token() == b"v=" + base64.b64encode(client.signature)
    assert wire.send(MetadataRequest(topics=[]), 12).brokers


def test_a_wrong_password(connect: Connect, mechanism: str) -> None:
    client = ScramClient(mechanism, "scram", "wrong")
    wire, answer = first(connect, mechanism, client.first)
    assert answer.error_code == NONE
    assert_refused(wire, wire.authenticate(client.final(answer.auth_bytes)), REFUSED.format(mechanism))


def test_an_unknown_user(connect: Connect, secured: Secured, mechanism: str) -> None:
    """Apache Kafka refuses the first message, by which names can be probed; Ottla refuses the proof (docs/differences.md)."""
    client = ScramClient(mechanism, "mallory", "secret")
    wire, answer = first(connect, mechanism, client.first)
    if not secured.is_kafka:
        assert answer.error_code == NONE
        _, again = first(connect, mechanism, client.first)
        salts = [response.auth_bytes.decode().split(",")[1:] for response in (answer, again)]
        assert salts[0] == salts[1]
        answer = wire.authenticate(client.final(answer.auth_bytes))
    assert_refused(wire, answer, REFUSED.format(mechanism))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"garbage",
        b"y,,n=scram,r=abc",
        b"p=tls-unique,,n=scram,r=abc",
        b"n,,n=scram",
        b"n,,n=,r=abc",
        b"n,,r=abc,n=scram",
        b"n,,n=sc=ram,r=abc",
        b"n,,n=scram,r=",
        b"\xff\xfe\xfd",
    ],
)
def test_first_messages_with_bad_syntax(connect: Connect, mechanism: str, message: bytes) -> None:
    wire, answer = first(connect, mechanism, message)
    assert_refused(wire, answer, REFUSED.format(mechanism))


def test_extensions_are_ignored(connect: Connect, mechanism: str) -> None:
    client = ScramClient(mechanism, "scram", "scram-secret", extensions=",foo=bar")
    wire, answer = first(connect, mechanism, client.first)
    assert wire.authenticate(client.final(answer.auth_bytes)).error_code == NONE


def test_a_mandatory_extension_is_ignored_too(connect: Connect, mechanism: str) -> None:
    _, answer = first(connect, mechanism, b"n,,m=ext,n=scram,r=abc")
    assert answer.error_code == NONE


def test_the_authorization_id_must_be_the_user(connect: Connect, mechanism: str) -> None:
    client = ScramClient(mechanism, "scram", "scram-secret")
    wire, answer = first(connect, mechanism, client.first.replace(b"n,,", b"n,a=bob,", 1))
    text = "Authentication failed: Client requested an authorization id that is different from username"
    assert_refused(wire, answer, text)


def test_channel_binding_is_part_of_the_proof_only(connect: Connect, mechanism: str) -> None:
    client = ScramClient(mechanism, "scram", "scram-secret")
    wire, answer = first(connect, mechanism, client.first)
    assert wire.authenticate(client.final(answer.auth_bytes, binding=b"AAAA")).error_code == NONE


def test_a_wrong_nonce(connect: Connect, mechanism: str) -> None:
    client = ScramClient(mechanism, "scram", "scram-secret")
    wire, answer = first(connect, mechanism, client.first)
    final = client.final(answer.auth_bytes, nonce="abcdefg")
    assert_refused(wire, wire.authenticate(final), REFUSED.format(mechanism))


@pytest.mark.parametrize("message", [b"", b"garbage", b"c=biws", b"c=biws,r=x", b"c=biws,r=x,p=!"])
def test_last_messages_with_bad_syntax(connect: Connect, mechanism: str, message: bytes) -> None:
    client = ScramClient(mechanism, "scram", "scram-secret")
    wire, _ = first(connect, mechanism, client.first)
    assert_refused(wire, wire.authenticate(message), REFUSED.format(mechanism))


def test_a_proof_of_another_length_closes_the_connection(connect: Connect, mechanism: str) -> None:
    client = ScramClient(mechanism, "scram", "scram-secret")
    wire, answer = first(connect, mechanism, client.first)
    start = client.final(answer.auth_bytes).decode().rpartition(",p=")[0]
    with pytest.raises(Closed):
        wire.authenticate(f"{start},p={base64.b64encode(bytes(5)).decode()}".encode())
