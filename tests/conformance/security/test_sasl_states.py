"""Order of the requests of a login by SASL: what is answered, with which code, and what closes the connection."""

import struct
from collections.abc import Callable

import pytest

from ottla.broker.requests.handlers import SERVED
from ottla.protocol import api
from ottla.protocol.api import APIS
from ottla.protocol.errors import (
    ILLEGAL_SASL_STATE,
    INVALID_REQUEST,
    NONE,
    SASL_AUTHENTICATION_FAILED,
    UNSUPPORTED_SASL_MECHANISM,
    UNSUPPORTED_VERSION,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest
from tests.conformance.conftest import Closed
from tests.conformance.security.conftest import SecuredWire, plain
from tests.testing.samples import codes_in, sample

Connect = Callable[..., SecuredWire]
MECHANISMS = ["OAUTHBEARER", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def assert_closed(wire: SecuredWire) -> None:
    with pytest.raises(Closed):
        wire.receive_raw(1)


@pytest.mark.parametrize("version", [0, 1])
def test_the_handshake_lists_all_mechanisms(connect: Connect, version: int) -> None:
    answer = connect().handshake("PLAIN", version)
    assert (answer.error_code, sorted(answer.mechanisms)) == (NONE, MECHANISMS)


@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", "", "x" * 300])
def test_an_unknown_mechanism_is_refused_with_the_list_and_closed(connect: Connect, mechanism: str) -> None:
    wire = connect()
    answer = wire.handshake(mechanism)
    assert (answer.error_code, sorted(answer.mechanisms)) == (UNSUPPORTED_SASL_MECHANISM, MECHANISMS)
    assert_closed(wire)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_login_in_requests(connect: Connect, version: int) -> None:
    wire = connect()
    assert wire.send(VERSIONS, 3).error_code == NONE
    assert wire.handshake().error_code == NONE
    answer = wire.authenticate(plain(), version)
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (NONE, "", b"")
    assert answer.session_lifetime_ms == 0
    assert wire.send(MetadataRequest(topics=[]), 12).brokers


def test_a_login_in_bare_frames(connect: Connect) -> None:
    wire = connect()
    assert wire.handshake("PLAIN", 0).error_code == NONE
    wire.send_token(plain())
    assert wire.receive_token() == b""
    assert wire.send(MetadataRequest(topics=[]), 12).brokers


def test_a_failed_login_in_bare_frames_is_closed_without_an_answer(connect: Connect) -> None:
    wire = connect()
    assert wire.handshake("PLAIN", 0).error_code == NONE
    wire.send_token(plain("alice", "wrong"))
    assert_closed(wire)


def test_all_of_a_login_may_be_sent_at_once(connect: Connect) -> None:
    wire = connect()
    from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
    from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest

    wire.send_only(VERSIONS, 3)
    wire.send_only(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    wire.send_only(SaslAuthenticateRequest(auth_bytes=plain()), 2)
    wire.send_only(MetadataRequest(topics=[]), 12)
    answers = [wire.receive() for _ in range(4)]
    assert [getattr(answer, "error_code", NONE) for answer in answers] == [NONE] * 4
    assert answers[3].brokers


def test_api_versions_are_answered_once_before_the_login(connect: Connect) -> None:
    wire = connect()
    assert wire.send(VERSIONS, 3).error_code == NONE
    wire.send_only(VERSIONS, 3)
    assert_closed(wire)


def test_api_versions_may_be_repeated_after_a_refusal(connect: Connect) -> None:
    wire = connect()
    wire.send_raw(bytes.fromhex("0000000b 0012 0063 00000007 ffff 00".replace(" ", "")))
    size, correlation, code = struct.unpack(">iih", wire.receive_raw(10))
    assert (correlation, code) == (7, UNSUPPORTED_VERSION)
    wire.receive_raw(size - 6)
    bad = ApiVersionsRequest(client_software_name="x y", client_software_version="1")
    assert wire.send(bad, 3).error_code == INVALID_REQUEST
    assert wire.send(VERSIONS, 3).error_code == NONE
    assert wire.log_in().error_code == NONE


def test_api_versions_name_the_requests_of_sasl(connect: Connect) -> None:
    for listener in ("SASL", "PLAINTEXT"):
        keys = {key.api_key: (key.min_version, key.max_version) for key in connect(listener).send(VERSIONS, 3).api_keys}
        assert (keys[17], keys[36]) == ((0, 1), (0, 2))


def test_other_requests_before_the_handshake_close_the_connection(connect: Connect) -> None:
    wire = connect()
    wire.send_only(MetadataRequest(topics=[]), 12)
    assert_closed(wire)
    wire = connect()
    from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest

    wire.send_only(SaslAuthenticateRequest(auth_bytes=plain()), 2)
    assert_closed(wire)


@pytest.mark.parametrize(
    "frame",
    [
        b"\x60\x82\x02\x00" + bytes(40),  # a token of Kerberos, as in Kafka 0.9
        b"alice\0alice-secret",
        b"",
        b"\x00\x11\x00\x02" + bytes(10),  # SaslHandshake version 2
    ],
)
def test_a_first_frame_that_is_no_request_closes_the_connection(connect: Connect, frame: bytes) -> None:
    wire = connect()
    wire.send_token(frame)
    assert_closed(wire)


@pytest.mark.parametrize("size", [524_289, 0x7FFFFFFF, -1])
def test_large_frames_before_the_login_close_the_connection(connect: Connect, size: int) -> None:
    wire = connect()
    wire.send_raw(struct.pack(">i", size))
    assert_closed(wire)


def test_frames_after_the_login_may_be_larger(connect: Connect) -> None:
    wire = connect()
    assert wire.log_in().error_code == NONE
    from ottla.protocol.messages.metadata import MetadataRequestTopic

    topics = [MetadataRequestTopic(name="t" * 249 + str(number)) for number in range(3000)]
    answer = wire.send(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12)
    assert len(answer.topics) == 3000


def test_another_request_in_place_of_a_token_is_answered_with_34(connect: Connect) -> None:
    wire = connect()
    assert wire.handshake().error_code == NONE
    assert wire.send(FindCoordinatorRequest(key="g"), 2).error_code == ILLEGAL_SASL_STATE
    assert_closed(wire)
    wire = connect()
    assert wire.handshake().error_code == NONE
    assert wire.send(ListGroupsRequest(), 4).error_code == ILLEGAL_SASL_STATE
    assert_closed(wire)
    wire = connect()
    assert wire.handshake().error_code == NONE
    assert wire.handshake().error_code == ILLEGAL_SASL_STATE
    assert_closed(wire)
    wire = connect()
    assert wire.handshake().error_code == NONE
    answer = wire.send(MetadataRequest(topics=[]), 12)
    assert (answer.brokers, answer.topics) == ([], [])
    assert_closed(wire)


def test_sasl_authenticate_of_an_unknown_version_closes_the_connection(connect: Connect) -> None:
    wire = connect()
    assert wire.handshake().error_code == NONE
    wire.send_token(b"\x00\x24\x00\x09" + bytes(12))
    assert_closed(wire)


def test_the_requests_of_sasl_after_the_login_are_answered_with_34(connect: Connect) -> None:
    wire = connect()
    assert wire.log_in().error_code == NONE
    for _ in range(2):
        assert wire.handshake().error_code == ILLEGAL_SASL_STATE
        answer = wire.authenticate(plain())
        assert answer.error_code == ILLEGAL_SASL_STATE
        assert answer.error_message == "SaslAuthenticate request received after successful authentication"
    assert wire.send(MetadataRequest(topics=[]), 12).brokers


def test_the_requests_of_sasl_on_a_listener_without_it_are_answered_with_34(connect: Connect) -> None:
    wire = connect("PLAINTEXT")
    assert wire.handshake().error_code == ILLEGAL_SASL_STATE
    assert wire.authenticate(plain()).error_code == ILLEGAL_SASL_STATE
    assert wire.send(MetadataRequest(topics=[]), 12).brokers


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (plain("alice", "wrong"), "Authentication failed: Invalid username or password"),
        (b"\0mallory\0secret", "Authentication failed: Invalid username or password"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0a\0b\0c", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\xff\xfe\0secret", "Authentication failed: Invalid username or password"),
        (
            plain("alice", authzid="bob"),
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_texts_of_plain(connect: Connect, token: bytes, text: str) -> None:
    wire = connect()
    assert wire.handshake().error_code == NONE
    answer = wire.authenticate(token)
    assert (answer.error_code, answer.error_message) == (SASL_AUTHENTICATION_FAILED, text)
    assert_closed(wire)


def test_an_authorization_id_that_is_the_user(connect: Connect) -> None:
    wire = connect()
    assert wire.handshake().error_code == NONE
    assert wire.authenticate(plain("alice", authzid="alice")).error_code == NONE


@pytest.mark.parametrize("key", [key for key in SERVED if key != api.SASL_AUTHENTICATE], ids=lambda key: APIS[key].name)
def test_another_request_in_place_of_a_token_is_refused_in_its_version(connect: Connect, key: int) -> None:
    for version in range(SERVED[key].versions[0], SERVED[key].versions[1] + 1):
        wire = connect()
        assert wire.handshake().error_code == NONE
        try:
            codes = [code for _, code in codes_in(wire.send(sample(key, version), version))]
        except Closed:
            assert wire.is_kafka, version  # a version that Kafka 4 has removed
        else:
            assert ILLEGAL_SASL_STATE in codes, version
            assert set(codes) <= {ILLEGAL_SASL_STATE, NONE}, version
            assert_closed(wire)
        wire.close()
