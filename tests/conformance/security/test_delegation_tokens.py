"""Delegation tokens (KIP-48, KIP-373): create, renew, expire, describe, and login with them."""

import base64
import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla.protocol.errors import (
    DELEGATION_TOKEN_EXPIRED,
    DELEGATION_TOKEN_NOT_FOUND,
    DELEGATION_TOKEN_OWNER_MISMATCH,
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    INVALID_PRINCIPAL_TYPE,
    NONE,
    POLICY_VIOLATION,
    SASL_AUTHENTICATION_FAILED,
)
from ottla.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.conformance.conftest import Closed
from tests.conformance.security.conftest import SCRAM, ScramClient, Secured, SecuredWire

Connect = Callable[..., SecuredWire]
DAY_MS = 86_400_000
EXPIRY_MS, MAX_LIFETIME_MS = DAY_MS, 7 * DAY_MS


@pytest.fixture
def alice(connect: Connect) -> SecuredWire:
    wire = connect()
    assert wire.log_in("alice").error_code == NONE
    return wire


@pytest.fixture
def bob(connect: Connect) -> SecuredWire:
    wire = connect()
    assert wire.log_in("bob").error_code == NONE
    return wire


def create(wire: SecuredWire, lifetime_ms: int = -1, *renewers: str, version: int = 3) -> Any:
    parts = [CreatableRenewers(principal_type="User", principal_name=name) for name in renewers]
    answer = wire.send(CreateDelegationTokenRequest(renewers=parts, max_lifetime_ms=lifetime_ms), version)
    if answer.error_code == NONE and wire.is_kafka:
        time.sleep(0.4)  # Apache Kafka applies it after its answer
    return answer


def renew(wire: SecuredWire, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
    answer = wire.send(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), 2)
    if wire.is_kafka:
        time.sleep(0.4)
    return answer.error_code, answer.expiry_timestamp_ms


def expire(wire: SecuredWire, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
    answer = wire.send(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms), 2)
    if wire.is_kafka:
        time.sleep(0.4)
    return answer.error_code, answer.expiry_timestamp_ms


def described(wire: SecuredWire, *owners: str) -> dict[str, Any]:
    parts = [DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners]
    answer = wire.send(DescribeDelegationTokenRequest(owners=parts or None), 3)
    assert answer.error_code == NONE
    return {token.token_id: token for token in answer.tokens}


def log_in(
    wire: SecuredWire, token_id: str, hmac: bytes, mechanism: str = "SCRAM-SHA-256", extension: bool = True
) -> Any:
    password = base64.b64encode(hmac).decode()
    client = ScramClient(mechanism, token_id, password, extensions=",tokenauth=true" if extension else "")
    assert wire.handshake(mechanism).error_code == NONE
    answer = wire.authenticate(client.first)
    if answer.error_code != NONE:
        return answer
    return wire.authenticate(client.final(answer.auth_bytes))


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_new_token(alice: SecuredWire, version: int) -> None:
    if alice.is_kafka and version == 0:
        pytest.skip("Kafka 4 has removed version 0 (KIP-896)")
    begun_ms = time.time() * 1000
    made = create(alice, -1, "bob", version=version)
    assert (made.error_code, made.principal_type, made.principal_name) == (NONE, "User", "alice")
    if version >= 3:
        assert (made.token_requester_principal_type, made.token_requester_principal_name) == ("User", "alice")
    assert len(made.token_id) == 22
    assert len(made.hmac) == 64
    assert abs(made.issue_timestamp_ms - begun_ms) < 5000
    assert made.expiry_timestamp_ms == made.issue_timestamp_ms + EXPIRY_MS
    assert made.max_timestamp_ms == made.issue_timestamp_ms + MAX_LIFETIME_MS


@pytest.mark.parametrize("lifetime_ms", [0, -1, 10**15])
def test_the_longest_lifetime(alice: SecuredWire, lifetime_ms: int) -> None:
    made = create(alice, lifetime_ms)
    assert made.max_timestamp_ms == made.issue_timestamp_ms + MAX_LIFETIME_MS


def test_a_short_lifetime(alice: SecuredWire) -> None:
    made = create(alice, 5000)
    assert made.expiry_timestamp_ms == made.max_timestamp_ms == made.issue_timestamp_ms + 5000


def test_for_another_owner(alice: SecuredWire) -> None:
    request = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob", max_lifetime_ms=-1)
    made = alice.send(request, 3)
    assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (NONE, "bob", "alice")


def test_a_renewer_that_is_no_user(alice: SecuredWire) -> None:
    parts = [CreatableRenewers(principal_type="Group", principal_name="g")]
    made = alice.send(CreateDelegationTokenRequest(renewers=parts, max_lifetime_ms=-1), 3)
    assert (made.error_code, made.principal_name, made.issue_timestamp_ms) == (INVALID_PRINCIPAL_TYPE, "alice", -1)
    assert (made.expiry_timestamp_ms, made.max_timestamp_ms, made.token_id, made.hmac) == (-1, -1, "", b"")


@pytest.mark.usefixtures("ottla_only")
@pytest.mark.parametrize("kind", ["Group", "user", ""])
def test_an_owner_that_is_no_user(alice: SecuredWire, kind: str) -> None:
    """Apache Kafka creates the token, and it logs in as the user of that name."""
    request = CreateDelegationTokenRequest(owner_principal_type=kind, owner_principal_name="bob", max_lifetime_ms=-1)
    made = alice.send(request, 3)
    assert (made.error_code, made.token_id, made.hmac) == (INVALID_PRINCIPAL_TYPE, "", b"")


@pytest.mark.usefixtures("ottla_only")
def test_the_tokens_of_an_owner_are_limited(connect: Connect) -> None:
    """Apache Kafka has no limit. Other owners are not affected."""
    wire = connect()
    assert wire.log_in("alice").error_code == NONE
    owners = [CreatableRenewers(principal_type="User", principal_name="x")] * 101
    refused = wire.send(CreateDelegationTokenRequest(renewers=owners, max_lifetime_ms=-1), 3)
    assert refused.error_code == POLICY_VIOLATION
    request = CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name="many", max_lifetime_ms=600_000
    )
    codes = [wire.send(request, 3).error_code for _ in range(1001)]
    assert codes == [NONE] * 1000 + [POLICY_VIOLATION]
    assert create(wire).error_code == NONE


def test_connections_that_are_not_authenticated(connect: Connect, secured: Secured) -> None:
    for wire in (connect("PLAINTEXT"), connect("TLS", secured.tls_context())):
        assert create(wire).error_code == DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert renew(wire, bytes(64)) == (DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1)
        assert expire(wire, bytes(64)) == (DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1)
        answer = wire.send(DescribeDelegationTokenRequest(owners=None), 3)
        assert (answer.error_code, answer.tokens) == (DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, [])


def test_a_client_certificate_is_enough(connect: Connect, secured: Secured) -> None:
    made = create(connect("MTLS", secured.tls_context("alice")))
    assert made.error_code == NONE
    assert "CN=alice" in made.principal_name


@pytest.mark.parametrize("mechanism", list(SCRAM))
def test_login(connect: Connect, alice: SecuredWire, mechanism: str) -> None:
    made = create(alice)
    wire = connect()
    answer = log_in(wire, made.token_id, made.hmac, mechanism)
    assert answer.error_code == NONE
    assert EXPIRY_MS - 20_000 < answer.session_lifetime_ms <= EXPIRY_MS
    assert wire.send(MetadataRequest(topics=[]), 12).brokers
    # A session opened with a token may not ask for others.
    assert create(wire).error_code == DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert expire(wire, made.hmac)[0] == DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_login_without_the_extension_or_with_another_secret(connect: Connect, alice: SecuredWire) -> None:
    made = create(alice)
    refused = log_in(connect(), made.token_id, made.hmac, extension=False)
    assert refused.error_code == SASL_AUTHENTICATION_FAILED
    assert log_in(connect(), made.token_id, bytes(64)).error_code == SASL_AUTHENTICATION_FAILED
    assert log_in(connect(), "unknown", made.hmac).error_code == SASL_AUTHENTICATION_FAILED


def test_renew(alice: SecuredWire, bob: SecuredWire, connect: Connect) -> None:
    made = create(alice, -1, "bob")
    for wire in (alice, bob):
        now_ms = time.time() * 1000
        code, expiry_ms = renew(wire, made.hmac, 60_000)
        assert code == NONE
        assert abs(expiry_ms - now_ms - 60_000) < 5000
    code, expiry_ms = renew(alice, made.hmac, -1)
    assert abs(expiry_ms - time.time() * 1000 - EXPIRY_MS) < 5000
    stranger = connect()
    assert stranger.log_in("broker").error_code == NONE
    assert renew(stranger, made.hmac) == (DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert renew(alice, bytes(64)) == (DELEGATION_TOKEN_NOT_FOUND, 0)


def test_renew_stays_below_the_maximum(alice: SecuredWire) -> None:
    made = create(alice, 100_000)
    assert renew(alice, made.hmac, 10**12) == (NONE, made.max_timestamp_ms)


def test_expire(alice: SecuredWire, bob: SecuredWire, connect: Connect) -> None:
    made = create(alice)
    assert expire(bob, made.hmac) == (DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert expire(alice, bytes(64)) == (DELEGATION_TOKEN_NOT_FOUND, 0)
    code, expiry_ms = expire(alice, made.hmac, 60_000)
    assert code == NONE
    assert abs(expiry_ms - time.time() * 1000 - 60_000) < 5000
    assert expire(alice, made.hmac)[0] == NONE
    assert expire(alice, made.hmac) == (DELEGATION_TOKEN_NOT_FOUND, 0)
    assert log_in(connect(), made.token_id, made.hmac).error_code == SASL_AUTHENTICATION_FAILED


def test_an_expired_token(alice: SecuredWire, connect: Connect) -> None:
    made = create(alice)
    assert expire(alice, made.hmac, 0)[0] == NONE
    time.sleep(0.05)
    assert renew(alice, made.hmac) == (DELEGATION_TOKEN_EXPIRED, 0)
    assert expire(alice, made.hmac, 60_000) == (DELEGATION_TOKEN_EXPIRED, 0)
    wire = connect()
    answer = log_in(wire, made.token_id, made.hmac)
    assert (answer.error_code, answer.session_lifetime_ms) == (NONE, 0)
    wire.send_only(MetadataRequest(topics=[]), 12)
    with pytest.raises(Closed):
        wire.receive()
    assert expire(alice, made.hmac)[0] == NONE


def test_describe(alice: SecuredWire) -> None:
    made = create(alice, -1, "bob", "carol")
    token = described(alice)[made.token_id]
    assert (token.principal_name, token.token_requester_principal_name) == ("alice", "alice")
    assert (token.issue_timestamp, token.expiry_timestamp) == (made.issue_timestamp_ms, made.expiry_timestamp_ms)
    assert (token.max_timestamp, token.hmac) == (made.max_timestamp_ms, made.hmac)
    assert sorted(renewer.principal_name for renewer in token.renewers) == ["bob", "carol"]
    for name in ("alice", "bob", "carol"):
        assert made.token_id in described(alice, name)
    assert made.token_id not in described(alice, "mallory")
    for version in (1, 2):
        answer = alice.send(DescribeDelegationTokenRequest(owners=None), version)
        assert made.token_id in {token.token_id for token in answer.tokens}
    answer = alice.send(DescribeDelegationTokenRequest(owners=[]), 3)
    assert (answer.error_code, answer.tokens) == (NONE, [])
