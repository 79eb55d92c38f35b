"""Login by OAUTHBEARER with unsecured tokens (RFC 7628, KIP-255)."""

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla.protocol.errors import NONE, SASL_AUTHENTICATION_FAILED
from ottla.protocol.messages.metadata import MetadataRequest
from tests.conformance.conftest import Closed
from tests.conformance.security.conftest import SecuredWire

Connect = Callable[..., SecuredWire]
REFUSED = "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"


def token(**claims: Any) -> str:
    now = time.time()
    claims = {"sub": "olga", "iat": now - 1, "exp": now + 3600} | claims
    parts = [{"alg": "none"}, {name: value for name, value in claims.items() if value is not None}]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


def message(bearer: str, gs2: str = "n,,", extensions: str = "") -> bytes:
    return f"{gs2}\x01auth=Bearer {bearer}\x01{extensions}\x01".encode()


def log_in(connect: Connect, first: bytes) -> tuple[SecuredWire, Any]:
    wire = connect()
    assert wire.handshake("OAUTHBEARER").error_code == NONE
    return wire, wire.authenticate(first)


@pytest.mark.parametrize(("gs2", "extensions"), [("n,,", ""), ("n,a=olga,", ""), ("n,,", "k=v\x01")])
def test_a_login(connect: Connect, gs2: str, extensions: str) -> None:
    wire, answer = log_in(connect, message(token(), gs2, extensions))
    assert (answer.error_code, answer.auth_bytes) == (NONE, b"")
    # The expiry is rounded to the nearest millisecond, the time of a login within the same one is rounded down.
    assert 3_500_000 < answer.session_lifetime_ms <= 3_600_001
    assert wire.send(MetadataRequest(topics=[]), 12).brokers


@pytest.mark.parametrize(
    "bearer",
    [
        token(exp=time.time() - 100),
        token(exp=None),
        token(sub=None),
        token(iat=time.time() + 1000),
        "not.a.token",
        token()[:-1] + ".c2ln",
    ],
    ids=["expired", "without expiry", "without subject", "issued in the future", "no token", "signed"],
)
def test_an_invalid_token_fails_in_the_second_step(connect: Connect, bearer: str) -> None:
    wire, answer = log_in(connect, message(bearer))
    assert answer.error_code == NONE
    assert json.loads(answer.auth_bytes) == {"status": "invalid_token"}
    answer = wire.authenticate(b"\x01")
    assert (answer.error_code, answer.error_message) == (SASL_AUTHENTICATION_FAILED, '{"status":"invalid_token"}')
    with pytest.raises(Closed):
        wire.receive_raw(1)


@pytest.mark.parametrize(
    "first",
    [b"", b"garbage", b"n,,\x01\x01", message(token(), "y,,"), message(token(), "n,,", "auth=x\x01")],
    ids=["empty", "garbage", "no token", "channel binding", "another field"],
)
def test_malformed_messages(connect: Connect, first: bytes) -> None:
    _, answer = log_in(connect, first)
    assert (answer.error_code, answer.error_message) == (SASL_AUTHENTICATION_FAILED, REFUSED)


def test_another_authorization_id(connect: Connect) -> None:
    _, answer = log_in(connect, message(token(), "n,a=zed,"))
    text = (
        "Authentication failed: Client requested an authorization id (zed) that is different from the token's principal "
        "name (olga)"
    )
    assert (answer.error_code, answer.error_message) == (SASL_AUTHENTICATION_FAILED, text)


def test_a_name_that_cannot_be_encoded_is_refused(connect: Connect, ottla_only: None) -> None:
    """Apache Kafka accepts it, and shows it as "?x" in logs and ACLs."""
    wire = connect()
    assert wire.handshake("OAUTHBEARER").error_code == NONE
    with pytest.raises(Closed):
        wire.authenticate(message(token(sub="\ud800x")))
