"""PLAIN: answers and error texts are those of Kafka 4.4."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.sasl.mechanism import AuthenticationFailed, MalformedToken
from ottla.security.sasl.plain import PlainClient, PlainServer, check_against, users_of
from tests.unit.security.sasl.exchanges import NOW, run

USERS = {"alice": "secret", "bob": "geheim\u00fc"}
WRONG = "Authentication failed: Invalid username or password"


@pytest.mark.parametrize("authorization_id", ["", "alice"])
def test_login(authorization_id: str) -> None:
    server = PlainServer(USERS)
    tokens = run(PlainClient("alice", "secret", authorization_id), server)
    assert tokens == [f"{authorization_id}\0alice\0secret".encode(), b""]
    assert (server.principal, server.expires_ms, server.token_id) == ("alice", None, None)


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"\0alice\0wrong", WRONG),
        (b"\0alice\0secret\xff", WRONG),
        (b"\0eve\0secret", WRONG),
        (b"\0Alice\0secret", WRONG),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0" * 9, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"bob\0alice\0wrong", WRONG),
    ],
)
def test_failures(token: bytes, text: str) -> None:
    server = PlainServer(USERS)
    with pytest.raises(AuthenticationFailed) as raised:
        server.step(token, NOW)
    assert str(raised.value) == text
    assert not server.complete


def test_an_unknown_user_without_password_is_refused() -> None:
    with pytest.raises(AuthenticationFailed, match=WRONG):
        PlainServer({"": "x", "a": ""}).step(b"\0b\0x", NOW)


def test_an_empty_password_fits_no_unknown_user() -> None:
    assert not check_against({"a": "x"})("b", "")


def test_a_check_by_function() -> None:
    server = PlainServer(lambda name, password: password == name[::-1])
    run(PlainClient("abc", "cba"), server)
    assert server.principal == "abc"


def test_a_token_after_the_end() -> None:
    server = PlainServer(USERS)
    run(PlainClient("bob", "geheim\u00fc"), server)
    with pytest.raises(MalformedToken):
        server.step(b"\0alice\0secret", NOW)


def test_a_client_expects_an_empty_answer() -> None:
    client = PlainClient("a", "b")
    with pytest.raises(AuthenticationFailed):
        client.step(b"more")
    assert not client.complete


def test_users_are_options_of_the_login_module() -> None:
    options = {"username": "admin", "password": "x", "user_admin": "x", "user_a_b": "y", "user_": "z"}
    assert users_of(options) == {"admin": "x", "a_b": "y", "": "z"}


@given(st.binary(max_size=40))
def test_any_token_is_answered_or_refused(token: bytes) -> None:
    try:
        assert PlainServer(USERS).step(token, NOW) == b""
    except AuthenticationFailed:
        return
    assert token.split(b"\0")[1:] == [b"alice", b"secret"]
