"""DescribeUserScramCredentials and AlterUserScramCredentials."""

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.protocol.errors import (
    DUPLICATE_RESOURCE,
    NONE,
    RESOURCE_NOT_FOUND,
    UNACCEPTABLE_CREDENTIAL,
    UNKNOWN_SERVER_ERROR,
    UNSUPPORTED_SASL_MECHANISM,
)
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName

from .conftest import Wire

SHA_256, SHA_512 = 1, 2


def upsertion(name: str, mechanism: int = SHA_256, iterations: int = 4096) -> ScramCredentialUpsertion:
    size = 64 if mechanism == SHA_512 else 32
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=bytes(size)
    )


def deletion(name: str, mechanism: int = SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(
    broker: Wire, *changes: ScramCredentialUpsertion | ScramCredentialDeletion
) -> dict[str, tuple[int, str | None]]:
    request = AlterUserScramCredentialsRequest(
        upsertions=[change for change in changes if isinstance(change, ScramCredentialUpsertion)],
        deletions=[change for change in changes if isinstance(change, ScramCredentialDeletion)],
    )
    results = broker.send(request, 0).results
    assert len({result.user for result in results}) == len(results)
    return {result.user: (result.error_code, result.error_message) for result in results}


def describe(broker: Wire, *users: str) -> dict[str, Any]:
    answer = broker.send(DescribeUserScramCredentialsRequest(users=[UserName(name=user) for user in users]), 0)
    assert (answer.error_code, answer.error_message) == (NONE, "")
    return {
        row.user: (
            row.error_code,
            row.error_message,
            sorted((info.mechanism, info.iterations) for info in row.credential_infos),
        )
        for row in answer.results
    }


def wait_until(broker: Wire, user: str, expected: list[tuple[int, int]]) -> None:
    """Apache Kafka answers before all its parts know."""
    deadline = time.monotonic() + 10
    while describe(broker, user)[user][2] != expected:
        assert time.monotonic() < deadline


@pytest.fixture
def user(broker: Wire) -> Iterator[str]:
    name = f"u-{uuid.uuid4().hex[:12]}"
    yield name
    for mechanism in (SHA_256, SHA_512):
        alter(broker, deletion(name, mechanism))


def absent(user: str) -> tuple[int, str, list[Any]]:
    return RESOURCE_NOT_FOUND, f"Attempt to describe a user credential that does not exist: {user}", []


def test_set_described_and_deleted(broker: Wire, user: str) -> None:
    assert describe(broker, user) == {user: absent(user)}
    assert alter(broker, upsertion(user)) == {user: (NONE, None)}
    assert alter(broker, upsertion(user, SHA_512, 16384)) == {user: (NONE, None)}
    both = [(SHA_256, 4096), (SHA_512, 16384)]
    wait_until(broker, user, both)
    assert describe(broker, user, "nobody") == {user: (NONE, "", both), "nobody": absent("nobody")}
    everybody = broker.send(DescribeUserScramCredentialsRequest(users=None), 0)
    assert user in {row.user for row in everybody.results}
    assert user in describe(broker)
    assert alter(broker, deletion(user)) == {user: (NONE, None)}
    wait_until(broker, user, [(SHA_512, 16384)])
    assert alter(broker, upsertion(user, SHA_512, 8192)) == {user: (NONE, None)}
    wait_until(broker, user, [(SHA_512, 8192)])


def test_a_user_described_twice_is_answered_once(broker: Wire, user: str) -> None:
    why = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
    assert describe(broker, user, user) == {user: (DUPLICATE_RESOURCE, why, [])}
    alter(broker, upsertion(user))
    wait_until(broker, user, [(SHA_256, 4096)])
    assert describe(broker, user, user, "nobody") == {
        user: (DUPLICATE_RESOURCE, why, []),
        "nobody": absent("nobody"),
    }


def test_a_user_altered_twice_is_not_altered(broker: Wire, user: str) -> None:
    why = DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
    assert alter(broker, upsertion(user), upsertion(user, SHA_512)) == {user: why}
    assert alter(broker, upsertion(user), upsertion(user)) == {user: why}
    assert describe(broker, user) == {user: absent(user)}
    missing = RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
    assert alter(broker, deletion(user), deletion(user, SHA_512)) == {user: missing}
    alter(broker, upsertion(user))
    wait_until(broker, user, [(SHA_256, 4096)])
    assert alter(broker, upsertion(user), deletion(user)) == {user: why}
    assert alter(broker, deletion(user), deletion(user)) == {user: why}


@pytest.mark.parametrize(
    ("mechanism", "iterations", "code", "why"),
    [
        (SHA_256, 4095, UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (SHA_256, 16385, UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (0, 4096, UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (3, 4096, UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
    ],
)
def test_credentials_that_are_not_taken(
    broker: Wire, user: str, mechanism: int, iterations: int, code: int, why: str
) -> None:
    other = f"{user}-2"
    answer = alter(broker, upsertion(other, mechanism, iterations), upsertion(user))
    assert answer == {other: (code, why), user: (NONE, None)}


def test_an_empty_salted_password_is_not_taken(broker: Wire, user: str) -> None:
    """UNKNOWN_SERVER_ERROR by Apache Kafka, whose key classes refuse it."""
    other = upsertion(f"{user}-2")
    other.salted_password = b""
    code, why = UNACCEPTABLE_CREDENTIAL, "Salted password must not be empty"
    if broker.is_kafka:
        code, why = UNKNOWN_SERVER_ERROR, ""
    outcomes = alter(broker, other, upsertion(user))
    assert (outcomes[other.name][0], outcomes[user]) == (code, (NONE, None))
    assert broker.is_kafka or outcomes[other.name][1] == why


def test_empty_user_names_are_refused(broker: Wire) -> None:
    why = UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    assert alter(broker, upsertion("")) == {"": why}
    assert alter(broker, deletion("")) == {"": why}


def test_deleting_what_is_not_there(broker: Wire) -> None:
    assert alter(broker, deletion("nobody")) == {
        "nobody": (RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    }
    assert alter(broker, deletion("nobody", 7)) == {"nobody": (UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")}
    assert alter(broker) == {}
