"""Lifetime of sessions, and re-authentication (KIP-368), on a listener with connections.max.reauth.ms."""

import time
from collections.abc import Callable

import pytest

from ottla.protocol.errors import ILLEGAL_SASL_STATE, NONE, SASL_AUTHENTICATION_FAILED
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest
from tests.conformance.conftest import Closed
from tests.conformance.security.conftest import ScramClient, SecuredWire, plain
from tests.conformance.security.secured import SESSION_MS

Connect = Callable[..., SecuredWire]


def assert_served(wire: SecuredWire) -> None:
    assert wire.send(MetadataRequest(topics=[]), 12).brokers


def assert_closed(wire: SecuredWire) -> None:
    with pytest.raises(Closed):
        wire.receive_raw(1)


def test_the_answer_has_the_lifetime(connect: Connect) -> None:
    for version, lifetime_ms in ((0, 0), (1, SESSION_MS), (2, SESSION_MS)):
        wire = connect("SHORT")
        assert wire.handshake().error_code == NONE
        assert wire.authenticate(plain(), version).session_lifetime_ms == lifetime_ms


@pytest.mark.parametrize("version", [0, 1])
def test_a_request_after_the_end_closes_the_connection(connect: Connect, version: int) -> None:
    wire = connect("SHORT")
    assert wire.handshake("PLAIN", version).error_code == NONE
    if version:
        assert wire.authenticate(plain()).error_code == NONE
    else:
        wire.send_token(plain())
        assert wire.receive_token() == b""
    assert_served(wire)
    time.sleep(SESSION_MS / 1000 + 0.3)
    wire.send_only(MetadataRequest(topics=[]), 12)
    assert_closed(wire)


def test_authenticated_again_before_and_after_the_end(connect: Connect) -> None:
    wire = connect("SHORT")
    assert wire.log_in().error_code == NONE
    for pause_s in (1.2, SESSION_MS / 1000 + 0.3):
        time.sleep(pause_s)
        answer = wire.log_in()
        assert (answer.error_code, answer.session_lifetime_ms) == (NONE, SESSION_MS)
        assert_served(wire)


def test_again_within_a_second_is_not_accepted(connect: Connect) -> None:
    wire = connect("SHORT")
    assert wire.log_in().error_code == NONE
    assert wire.log_in().error_code == NONE
    assert wire.handshake().error_code == ILLEGAL_SASL_STATE
    assert_served(wire)


def test_again_in_bare_frames(connect: Connect) -> None:
    wire = connect("SHORT")
    assert wire.log_in().error_code == NONE
    assert wire.handshake("PLAIN", 0).error_code == NONE
    wire.send_token(plain())
    assert wire.receive_token() == b""
    assert_served(wire)


def test_as_another_user(connect: Connect) -> None:
    wire = connect("SHORT")
    assert wire.log_in("alice").error_code == NONE
    answer = wire.log_in("bob")
    assert answer.error_code == SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert_closed(wire)


def test_with_a_wrong_password(connect: Connect) -> None:
    wire = connect("SHORT")
    assert wire.log_in("alice").error_code == NONE
    answer = wire.log_in("alice", "wrong")
    assert (answer.error_code, answer.error_message) == (
        SASL_AUTHENTICATION_FAILED,
        "Authentication failed: Invalid username or password",
    )
    assert_closed(wire)


def test_with_a_wrong_password_by_scram(connect: Connect) -> None:
    mechanism = "SCRAM-SHA-256"
    wire = connect("SHORT")
    for password in ("scram-secret", "wrong"):
        client = ScramClient(mechanism, "scram", password)
        assert wire.handshake(mechanism).error_code == NONE
        answer = wire.authenticate(client.final(wire.authenticate(client.first).auth_bytes))
    assert answer.error_code == SASL_AUTHENTICATION_FAILED
    assert answer.error_message == (
        f"Authentication failed during re-authentication due to invalid credentials with SASL mechanism {mechanism}"
    )
    assert_closed(wire)


def test_with_another_mechanism(connect: Connect) -> None:
    wire = connect("SHORT")
    assert wire.log_in().error_code == NONE
    assert wire.handshake("SCRAM-SHA-256").error_code == NONE
    with pytest.raises(Closed):
        wire.authenticate(ScramClient("SCRAM-SHA-256", "scram", "scram-secret").first)


def test_with_an_unknown_mechanism(connect: Connect) -> None:
    """The first login answers 33 and the list of mechanisms."""
    wire = connect("SHORT")
    assert wire.log_in().error_code == NONE
    with pytest.raises(Closed):
        wire.handshake("GSSAPI")


def test_another_request_in_between(connect: Connect) -> None:
    wire = connect("SHORT")
    assert wire.log_in().error_code == NONE
    assert wire.handshake().error_code == NONE
    assert wire.send(ListGroupsRequest(), 4).error_code == ILLEGAL_SASL_STATE
    assert_closed(wire)


def test_api_versions_are_an_ordinary_request(connect: Connect) -> None:
    wire = connect("SHORT")
    assert wire.log_in().error_code == NONE
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    assert [wire.send(request, 3).error_code for _ in range(2)] == [NONE, NONE]
