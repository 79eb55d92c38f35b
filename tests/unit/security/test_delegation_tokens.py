"""Delegation tokens: the rules of Kafka 4.4."""

import base64
import hashlib
import hmac
import random
import time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.security.tokens import TokenLogins
from ottla.protocol.errors import (
    DELEGATION_TOKEN_AUTH_DISABLED,
    DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    DELEGATION_TOKEN_EXPIRED,
    DELEGATION_TOKEN_NOT_FOUND,
    DELEGATION_TOKEN_OWNER_MISMATCH,
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    INVALID_PRINCIPAL_TYPE,
    NONE,
    POLICY_VIOLATION,
)
from ottla.security.delegation_tokens import (
    ANONYMOUS,
    MOST_RENEWERS,
    MOST_TOKENS,
    Decision,
    DelegationToken,
    TokenIndex,
    TokenLimits,
    create,
    describe,
    expire,
    new_token_id,
    renew,
    requests_allowed,
    token_credential,
    token_hmac,
)
from ottla.security.sasl.scram import ScramClient, ScramServer, TokenCredential
from ottla.security.scram import NAMES, ScramCredential

NOW = 1_700_000_000_000
DAY = 86_400_000
SECRET = b"secret key"
LIMITS = TokenLimits()
TOKEN = DelegationToken("id", "User:o", "User:q", ("User:r",), NOW, NOW + DAY, NOW + 7 * DAY)


@given(st.binary(min_size=16, max_size=16))
def test_ids(given_bytes: bytes) -> None:
    token_id = new_token_id(given_bytes)
    assert len(token_id) == 22
    assert token_id[0] != "-"
    assert base64.urlsafe_b64decode(token_id + "==")[6] >> 4 == 4


def test_an_id_that_would_begin_with_a_dash() -> None:
    assert base64.urlsafe_b64encode(b"\xfb" * 16)[:1] == b"-"
    assert new_token_id(b"\xfb" * 16)[0] == "e"
    with pytest.raises(ValueError, match="16 random bytes"):
        new_token_id(b"")


def test_the_hmac() -> None:
    assert token_hmac(SECRET, "id") == hmac.new(SECRET, b"id", hashlib.sha512).digest()


def test_tokens_are_found_by_their_hmac_as_the_metadata_changes(dice_seed: int) -> None:
    rng = random.Random(dice_seed)
    index = TokenIndex(SECRET)
    tokens: dict[str, DelegationToken] = {}
    for _ in range(300):
        tokens = dict(tokens)
        token_id = str(rng.randrange(40))
        if rng.random() < 0.4:
            tokens.pop(token_id, None)
        else:
            tokens[token_id] = TOKEN._replace(
                token_id=token_id, owner=f"User:{rng.randrange(3)}", max_ms=rng.randrange(9)
            )
        index.update(tokens)
        for token_id in map(str, range(40)):
            assert index.find(token_hmac(SECRET, token_id)) == tokens.get(token_id)
            assert index.find(token_hmac(b"other", token_id)) is None
        for owner in ("User:0", "User:1", "User:9"):
            assert index.count(owner) == sum(token.owner == owner for token in tokens.values())


def test_a_look_up_does_not_take_longer_with_more_tokens() -> None:
    """An HMAC was computed for each token of the cluster at each request."""
    index = TokenIndex(SECRET)
    index.update({str(number): TOKEN._replace(token_id=str(number)) for number in range(20_000)})
    begin = time.process_time()
    for _ in range(1000):
        index.find(bytes(64))
    assert time.process_time() - begin < 0.1


def test_only_tokens_of_users_log_in() -> None:
    """A token of Group:admin, which Kafka may have created, would log in as User:admin."""
    owners = {"a": "User:admin", "b": "Group:admin", "c": "admin", "d": ":admin", "e": "user:admin"}
    tokens = {token_id: TOKEN._replace(token_id=token_id, owner=owner) for token_id, owner in owners.items()}
    broker: Any = SimpleNamespace(image=SimpleNamespace(tokens=tokens))
    logins = TokenLogins(broker, SECRET)
    known = {token_id: logins.login(token_id, 1) for token_id in tokens}
    assert known["a"] is not None
    assert known["a"].owner == "admin"
    assert [token_id for token_id, login in known.items() if login is not None] == ["a"]


@pytest.mark.parametrize("mechanism", list(NAMES))
def test_a_login(mechanism: str) -> None:
    def look_up(token_id: str) -> TokenCredential:
        return TokenCredential(token_credential(SECRET, token_id, NAMES[mechanism]), TOKEN.owner, TOKEN.expires_ms)

    users: dict[str, ScramCredential] = {}
    server = ScramServer(mechanism, users.get, look_up, nonce=b"1", secret=b"")
    password = base64.b64encode(token_hmac(SECRET, "id")).decode()
    client = ScramClient(mechanism, "id", password, nonce=b"2", extensions={"tokenauth": "true"})
    final = client.step(server.step(client.initial(), NOW))
    assert final is not None
    client.step(server.step(final, NOW))
    assert client.complete
    assert (server.principal, server.expires_ms) == ("User:o", TOKEN.expires_ms)


@given(
    st.builds(
        DelegationToken,
        st.text(),
        st.text(),
        st.text(),
        st.lists(st.text()).map(tuple),
        *[st.integers(0, 2**63 - 1)] * 3,
    )
)
def test_encoding(token: DelegationToken) -> None:
    try:
        encoded = token.encoded()
    except UnicodeEncodeError:
        return  # lone surrogates are no names
    assert DelegationToken.decoded(encoded) == token
    # Fields of later formats are ignored.
    assert DelegationToken.decoded(encoded[:-1] + b',"later":1}') == token


@pytest.mark.parametrize(
    ("principal", "protocol", "by_token", "allowed"),
    [
        ("User:a", "PLAINTEXT", False, False),
        (ANONYMOUS, "SSL", False, False),
        ("User:CN=a", "SSL", False, True),
        ("User:a", "SASL_PLAINTEXT", False, True),
        (ANONYMOUS, "SASL_SSL", False, True),
        ("User:a", "SASL_SSL", True, False),
    ],
)
def test_connections_that_may_ask(principal: str, protocol: str, by_token: bool, allowed: bool) -> None:
    assert requests_allowed(principal, protocol, by_token=by_token) is allowed


def created(
    owner: str = "User:a",
    renewers: tuple[str, ...] = (),
    requested_ms: int = -1,
    *,
    allowed: bool = True,
    enabled: bool = True,
    existing: int = 0,
) -> Decision:
    return create(
        "User:a",
        owner,
        renewers,
        requested_ms,
        token_id="id",
        limits=LIMITS,
        now_ms=NOW,
        allowed=allowed,
        enabled=enabled,
        may_create_for=lambda principal: principal in ("User:b", "Group:b"),
        existing=existing,
    )


def test_longest_lifetime_ends_with_the_last_time_of_the_protocol() -> None:
    longest = TokenLimits(2**63 - 1, 2**63 - 1)
    made = create(
        "User:a", "User:a", [], -1, token_id="id", limits=longest, now_ms=NOW, allowed=True, enabled=True,
        may_create_for=lambda _: False,
    ).token  # fmt: skip
    assert made is not None
    assert (made.expires_ms, made.max_ms) == (2**63 - 1, 2**63 - 1)
    stored = made._replace(expires_ms=NOW + 2**63 - 1, max_ms=NOW + 2**63 - 1)
    assert DelegationToken.decoded(stored.encoded()) == made


@pytest.mark.parametrize(
    ("requested_ms", "lifetime_ms", "expiry_ms"),
    [(-1, 7 * DAY, DAY), (0, 7 * DAY, DAY), (2**62, 7 * DAY, DAY), (2 * DAY, 2 * DAY, DAY), (1000, 1000, 1000)],
)
def test_times_of_a_new_token(requested_ms: int, lifetime_ms: int, expiry_ms: int) -> None:
    token = DelegationToken("id", "User:a", "User:a", ("User:x",), NOW, NOW + expiry_ms, NOW + lifetime_ms)
    assert created(renewers=("User:x",), requested_ms=requested_ms) == Decision(NONE, token, expires_ms=NOW + expiry_ms)


def test_refused_creations() -> None:
    assert created(allowed=False) == Decision(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    assert created(enabled=False) == Decision(DELEGATION_TOKEN_AUTH_DISABLED)
    assert created("User:c") == Decision(DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    assert created(renewers=("User:x", "Group:y")) == Decision(INVALID_PRINCIPAL_TYPE)
    assert created("Group:b") == Decision(INVALID_PRINCIPAL_TYPE)
    assert created(existing=MOST_TOKENS) == Decision(POLICY_VIOLATION)
    assert created(existing=MOST_TOKENS - 1).error == NONE
    assert created(renewers=("User:x",) * (MOST_RENEWERS + 1)) == Decision(POLICY_VIOLATION)
    assert created(renewers=("User:x",) * MOST_RENEWERS).error == NONE
    # The order of the checks.
    assert created("User:c", ("Group:y",), allowed=False, enabled=False).error == DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert created("User:c", ("Group:y",), enabled=False).error == DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert created("User:b", ("Group:y",), enabled=False).error == INVALID_PRINCIPAL_TYPE


def test_a_token_of_another_owner() -> None:
    decision = created("User:b")
    assert decision.error == NONE
    assert decision.token is not None
    assert (decision.token.owner, decision.token.requester) == ("User:b", "User:a")


def renewed(
    token: DelegationToken | None, principal: str = "User:o", period_ms: int = -1, now_ms: int = NOW, **flags: bool
) -> Decision:
    given_flags = {"allowed": True, "enabled": True, **flags}
    return renew(token, principal, period_ms, limits=LIMITS, now_ms=now_ms, **given_flags)


@pytest.mark.parametrize(
    ("period_ms", "elapsed_ms", "expiry_ms"),
    [(-1, 1000, DAY + 1000), (0, 0, DAY), (500, 0, 500), (2**62, 0, DAY), (-1, DAY, 2 * DAY)],
)
def test_renewals(period_ms: int, elapsed_ms: int, expiry_ms: int) -> None:
    decision = renewed(TOKEN, period_ms=period_ms, now_ms=NOW + elapsed_ms)
    expected = TOKEN._replace(expires_ms=NOW + expiry_ms)
    assert decision == Decision(NONE, expected, expires_ms=NOW + expiry_ms)


def test_a_renewal_ends_at_the_maximum() -> None:
    old = TOKEN._replace(expires_ms=TOKEN.max_ms - 10)
    assert renewed(old, now_ms=old.expires_ms - 5).expires_ms == TOKEN.max_ms


def test_refused_renewals() -> None:
    assert renewed(TOKEN, "User:r").error == NONE
    assert renewed(TOKEN, "User:q") == Decision(DELEGATION_TOKEN_OWNER_MISMATCH)
    assert renewed(None) == Decision(DELEGATION_TOKEN_NOT_FOUND)
    assert renewed(TOKEN, now_ms=TOKEN.expires_ms).error == NONE
    assert renewed(TOKEN, now_ms=TOKEN.expires_ms + 1) == Decision(DELEGATION_TOKEN_EXPIRED)
    assert renewed(TOKEN, "User:x", now_ms=TOKEN.expires_ms + 1) == Decision(DELEGATION_TOKEN_EXPIRED)
    assert renewed(None, enabled=False) == Decision(DELEGATION_TOKEN_AUTH_DISABLED)
    assert renewed(None, allowed=False) == Decision(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expires_ms=-1)


def expired(
    token: DelegationToken | None, principal: str = "User:o", period_ms: int = -1, now_ms: int = NOW
) -> Decision:
    return expire(token, principal, period_ms, now_ms=now_ms, allowed=True, enabled=True)


def test_expiring() -> None:
    assert expired(TOKEN) == Decision(NONE, deleted=True, expires_ms=NOW)
    late = TOKEN.expires_ms + 1
    assert expired(TOKEN, now_ms=late) == Decision(NONE, deleted=True, expires_ms=late)
    assert expired(TOKEN, period_ms=0) == Decision(NONE, TOKEN._replace(expires_ms=NOW), expires_ms=NOW)
    assert expired(TOKEN, period_ms=2**62).expires_ms == TOKEN.max_ms
    assert expired(TOKEN, period_ms=0, now_ms=late) == Decision(DELEGATION_TOKEN_EXPIRED)
    assert expired(TOKEN, "User:q", now_ms=late) == Decision(DELEGATION_TOKEN_OWNER_MISMATCH)
    assert expired(None) == Decision(DELEGATION_TOKEN_NOT_FOUND)
    assert expire(TOKEN, "User:o", -1, now_ms=NOW, allowed=False, enabled=True) == Decision(
        DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expires_ms=-1
    )


def described(
    principal: str, owners: list[str] | None, *, allowed: bool = True, enabled: bool = True
) -> tuple[int, str]:
    tokens = [
        TOKEN,
        TOKEN._replace(token_id="other", owner="User:x", requester="User:x", renewers=()),
        TOKEN._replace(token_id="by id", owner="User:y", requester="User:y", renewers=()),
        TOKEN._replace(token_id="by user", owner="User:z", requester="User:z", renewers=()),
    ]
    error, visible = describe(
        tokens,
        principal,
        owners,
        allowed=allowed,
        enabled=enabled,
        may_describe_token=lambda token_id: token_id == "by id",
        may_describe_tokens_of=lambda owner: owner == "User:z",
    )
    return error, ", ".join(token.token_id for token in visible)


def test_visible_tokens() -> None:
    for principal in ("User:o", "User:q", "User:r"):
        assert described(principal, None) == (NONE, "id, by id, by user")
    assert described("User:x", None) == (NONE, "other, by id, by user")
    assert described("User:o", []) == (NONE, "")
    assert described("User:o", ["User:r"]) == (NONE, "id")
    assert described("User:o", ["User:x", "User:y"]) == (NONE, "by id")
    assert described("User:o", None, allowed=False) == (DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "")
    assert described("User:o", None, enabled=False) == (DELEGATION_TOKEN_AUTH_DISABLED, "")
