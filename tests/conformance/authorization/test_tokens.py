"""Delegation tokens and ACLs."""

import time
from typing import Any

import pytest

from tests.conformance.conftest import Wire

from .codes import ALL, CREATE_TOKENS, DELEGATION_TOKEN, DESCRIBE, DESCRIBE_TOKENS, NO_TOKEN, READ, USER
from .conftest import Acls, Connect
from .messages import plain, request


def send(wire: Wire, api: str, version: int, **fields: Any) -> Any:
    answer = plain(wire.send(request(api, fields), version), version)
    if wire.is_kafka and api != "DescribeDelegationToken":
        time.sleep(0.4)  # Apache Kafka applies it after its answer
    return answer


def create(wire: Wire, owner: str | None = None, *renewers: str) -> Any:
    fields: dict[str, Any] = {"max_lifetime_ms": -1}
    fields |= {"renewers": [{"principal_type": "User", "principal_name": name} for name in renewers]}
    if owner is not None:
        fields |= {"owner_principal_type": "User", "owner_principal_name": owner}
    return send(wire, "CreateDelegationToken", 3, **fields)


def visible(wire: Wire, token_id: str, *owners: str) -> bool:
    parts = [{"principal_type": "User", "principal_name": name} for name in owners] or None
    answer = send(wire, "DescribeDelegationToken", 3, owners=parts)
    assert answer["error_code"] == 0
    return token_id in {token["token_id"] for token in answer["tokens"]}


def test_tokens_of_others(acls: Acls, connect: Connect) -> None:
    """A user sees tokens that he owns, requested or may renew, and those that ACLs show."""
    alice, bob, carol, dave = (connect(name) for name in ("alice", "bob", "carol", "dave"))
    token = create(alice, None, "bob")
    assert token["error_code"] == 0
    token_id = token["token_id"]
    assert visible(alice, token_id)
    assert visible(bob, token_id)
    assert not visible(carol, token_id)
    assert visible(connect("root"), token_id)
    acls.allow("carol", DESCRIBE, DELEGATION_TOKEN, token_id)
    assert visible(carol, token_id)
    assert visible(carol, token_id, "alice")
    assert not visible(carol, token_id, "carol")
    acls.allow("dave", READ, USER, "User:alice")
    assert not visible(dave, token_id)
    acls.allow("dave", DESCRIBE_TOKENS, USER, "User:alice")
    assert visible(dave, token_id)
    acls.deny("dave", DESCRIBE_TOKENS, USER, "User:alice")
    assert not visible(dave, token_id)
    acls.deny("alice", ALL, DELEGATION_TOKEN, "*")
    assert visible(alice, token_id)


@pytest.mark.parametrize("operation", [ALL, CREATE_TOKENS])
def test_tokens_for_another_owner(acls: Acls, connect: Connect, operation: int) -> None:
    alice = connect("alice")
    refused = create(alice, "bob")
    assert (refused["error_code"], refused["principal_name"]) == (NO_TOKEN, "bob")
    assert (refused["token_id"], refused["hmac"], refused["expiry_timestamp_ms"]) == ("", b"", -1)
    acls.allow("alice", operation, USER, "User:bob")
    made = create(alice, "bob")
    assert (made["error_code"], made["principal_name"], made["token_requester_principal_name"]) == (0, "bob", "alice")
    assert visible(connect("bob"), made["token_id"])


def test_own_tokens_need_no_acl(acls: Acls, connect: Connect) -> None:
    acls.deny("User:*", ALL, USER, "*")
    acls.deny("User:*", ALL, DELEGATION_TOKEN, "*")
    alice = connect("alice")
    assert create(alice)["error_code"] == 0
    assert create(alice, "alice")["error_code"] == 0


def test_only_owner_and_renewers_may_renew_and_expire(acls: Acls, connect: Connect) -> None:
    """ACLs do not count, and super users are not excepted."""
    alice, carol, root = (connect(name) for name in ("alice", "carol", "root"))
    token = create(alice, None, "bob")
    acls.allow("carol", ALL, DELEGATION_TOKEN, "*")
    acls.allow("carol", ALL, USER, "*")
    for wire in (carol, root):
        assert send(wire, "RenewDelegationToken", 2, hmac=token["hmac"], renew_period_ms=-1)["error_code"] == 63
        answer = send(wire, "ExpireDelegationToken", 2, hmac=token["hmac"], expiry_time_period_ms=-1)
        assert answer["error_code"] == 63
    answer = send(connect("bob"), "ExpireDelegationToken", 2, hmac=token["hmac"], expiry_time_period_ms=-1)
    assert answer["error_code"] == 0


def test_a_token_has_the_rights_of_its_owner(acls: Acls, connect: Connect, alice: Wire) -> None:
    """The principal of a session opened with a token is the owner, for whom the ACLs are."""
    import base64

    from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
    from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
    from tests.conformance.security.conftest import ScramClient

    token = create(alice)
    wire = Wire(alice.address, is_kafka=alice.is_kafka)
    password = base64.b64encode(token["hmac"]).decode()
    client = ScramClient("SCRAM-SHA-256", token["token_id"], password, extensions=",tokenauth=true")
    assert wire.send(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code == 0
    answer = wire.send(SaslAuthenticateRequest(auth_bytes=client.first), 2)
    assert answer.error_code == 0, answer.error_message
    answer = wire.send(SaslAuthenticateRequest(auth_bytes=client.final(answer.auth_bytes)), 2)
    assert answer.error_code == 0, answer.error_message
    fields = {"key_type": 0, "coordinator_keys": ["g"]}
    assert send(wire, "FindCoordinator", 4, **fields)["coordinators"][0]["error_code"] == 30
    acls.allow("alice", DESCRIBE, 3, "g")
    assert send(wire, "FindCoordinator", 4, **fields)["coordinators"][0]["error_code"] == 0
    wire.close()
