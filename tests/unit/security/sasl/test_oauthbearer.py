"""OAUTHBEARER: answers and error texts are those of Kafka 4.4."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.sasl.mechanism import REAUTHENTICATION, AuthenticationFailed, MalformedToken
from ottla.security.sasl.oauthbearer import (
    InvalidExtension,
    InvalidToken,
    OAuthBearerClient,
    OAuthBearerServer,
    ValidatedToken,
    extensions_of,
)
from tests.unit.security.sasl.exchanges import NOW, run

FAILURE = "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"
VALID = "eyJ.~+/-_.x="


def validate(token: str, now_ms: int) -> ValidatedToken:
    assert now_ms == NOW
    if token == "narrow":
        raise InvalidToken("too narrow", "insufficient_scope", "[a, b]")
    if token != VALID:
        raise InvalidToken("not the valid one")
    return ValidatedToken("ou", NOW + 5000)


def refused(server: OAuthBearerServer, token: bytes) -> str:
    with pytest.raises(AuthenticationFailed) as raised:
        server.step(token, NOW)
    return str(raised.value)


@pytest.mark.parametrize("authorization_id", ["", "ou"])
def test_login(authorization_id: str) -> None:
    server = OAuthBearerServer(validate)
    client = OAuthBearerClient(VALID, {"traceId": "1 2", "x": "y=z"}, authorization_id)
    authzid = b"a=ou" if authorization_id else b""
    first = b"n," + authzid + b",\x01auth=Bearer eyJ.~+/-_.x=\x01traceId=1 2\x01x=y=z\x01\x01"
    assert run(client, server) == [first, b""]
    assert (server.principal, server.expires_ms, server.token_id) == ("ou", NOW + 5000, None)
    assert server.extensions == {"traceId": "1 2", "x": "y=z"}


def test_an_invalid_token_fails_in_the_second_step() -> None:
    server, client = OAuthBearerServer(validate), OAuthBearerClient("other")
    answer = server.step(client.initial(), NOW)
    assert answer == b'{"status":"invalid_token"}'
    second = client.step(answer)
    assert second == b"\x01"
    assert refused(server, second) == '{"status":"invalid_token"}'
    assert not server.complete
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        client.step(b"")
    assert not client.complete


def test_a_narrow_scope() -> None:
    answer = OAuthBearerServer(validate).step(OAuthBearerClient("narrow").initial(), NOW)
    assert answer == b'{"status":"insufficient_scope", "scope":"[a, b]"}'


def test_a_second_token_after_an_invalid_one() -> None:
    server = OAuthBearerServer(validate)
    server.step(OAuthBearerClient("other").initial(), NOW)
    assert server.step(OAuthBearerClient(VALID).initial(), NOW) == b""
    assert server.complete
    with pytest.raises(MalformedToken):
        server.step(b"\x01", NOW)


def test_another_authorization_id() -> None:
    assert refused(OAuthBearerServer(validate), OAuthBearerClient(VALID, None, "zed").initial()) == (
        "Authentication failed: Client requested an authorization id (zed) that is different from the token's "
        "principal name (ou)"
    )


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"n,a=,\x01auth=Bearer x\x01\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer x y\x01\x01",
        b"n,,\x01auth=Bearer x\x01auth=y\x01\x01",
        b"n,,\x01auth=Bearer x\x01a1=y\x01\x01",
        b"n,,\x01auth=Bearer x\x01a=\x01\x01",
        b"n,,\x01auth=Bearer x\x01a=\xc3\xbc\x01\x01",
        b"n,,\x01other=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer x\x01\x01\n",
    ],
)
def test_malformed_messages(message: bytes) -> None:
    assert refused(OAuthBearerServer(validate), message) == FAILURE
    again = FAILURE.replace("during authentication", "during re-authentication")
    assert refused(OAuthBearerServer(validate, REAUTHENTICATION), message) == again


def test_another_scheme_is_an_authentication_failure() -> None:
    """Kafka closes the connection: it throws another exception while it formats the message."""
    assert refused(OAuthBearerServer(validate), f"n,,\x01auth=Basic {VALID}\x01\x01".encode()) == FAILURE


def test_the_scheme_in_any_case() -> None:
    assert OAuthBearerServer(validate).step(f"n,,\x01auth=bEARER   {VALID}\x01\x01".encode(), NOW) == b""


@pytest.mark.parametrize(
    ("extensions", "error"),
    [
        ({"auth": "x"}, "Extension name auth is invalid"),
        ({"a1": "x"}, "Extension name a1 is invalid"),
        ({"a": ""}, "Extension value () for extension a is invalid"),
        ({"a": "\x01"}, "Extension value (\x01) for extension a is invalid"),
    ],
)
def test_extensions_that_cannot_be_sent(extensions: dict[str, str], error: str) -> None:
    with pytest.raises(InvalidExtension) as raised:
        OAuthBearerClient(VALID, extensions)
    assert str(raised.value) == error


def test_extensions_are_options_of_the_login_module() -> None:
    options = {"unsecuredLoginExtension_traceId": "1", "unsecuredLoginStringClaim_sub": "a"}
    assert extensions_of(options) == {"traceId": "1"}


@given(st.dictionaries(st.from_regex(r"[A-Za-z]+", fullmatch=True).filter(lambda name: name != "auth"), st.text()))
def test_any_extensions_arrive_or_are_refused(extensions: dict[str, str]) -> None:
    server = OAuthBearerServer(validate)
    try:
        client = OAuthBearerClient(VALID, extensions)
    except InvalidExtension:
        return
    run(client, server)
    assert server.extensions == extensions
