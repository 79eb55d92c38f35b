"""InitProducerId without a transactional id: IDEMPOTENT_WRITE on the cluster, or WRITE on any topic.

Whether there may be a topic that an ALLOW reaches and no DENY is decided from patterns alone, without topics.
"""

import pytest

from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.conformance.conftest import Wire

from .bindings import Binding
from .codes import (
    ALL,
    ALLOW,
    CLUSTER,
    CLUSTER_NAME,
    DENY,
    DESCRIBE,
    GROUP,
    IDEMPOTENT_WRITE,
    LITERAL,
    NO_CLUSTER,
    NO_TRANSACTIONAL_ID,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    TWO_PHASE_COMMIT,
    WRITE,
)
from .conftest import Acls, Resources
from .messages import plain, request

Patterns = tuple[tuple[int, int, str], ...]


def allowed(wire: Wire) -> bool:
    answer = wire.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 5)
    assert answer.error_code in (0, NO_CLUSTER)
    assert (answer.producer_id == -1) == (answer.error_code != 0)
    return bool(answer.error_code == 0)


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ((), False),
        (((ALLOW, LITERAL, "a"),), True),
        (((ALLOW, PREFIXED, "a"),), True),
        (((ALLOW, LITERAL, "*"),), True),
        (((ALLOW, PREFIXED, "*"),), True),
        # A DENY on all names.
        (((ALLOW, LITERAL, "a"), (DENY, LITERAL, "*")), False),
        (((ALLOW, LITERAL, "*"), (DENY, LITERAL, "*")), False),
        (((ALLOW, PREFIXED, "a"), (DENY, LITERAL, "*")), False),
        # An ALLOW on all names wins over every other DENY.
        (((ALLOW, LITERAL, "*"), (DENY, LITERAL, "a"), (DENY, PREFIXED, "b")), True),
        (((ALLOW, LITERAL, "*"), (DENY, PREFIXED, "*")), True),
        # A literal ALLOW falls to the same name, and to its prefixes.
        (((ALLOW, LITERAL, "abc"), (DENY, LITERAL, "abc")), False),
        (((ALLOW, LITERAL, "abc"), (DENY, LITERAL, "abcd")), True),
        (((ALLOW, LITERAL, "abc"), (DENY, LITERAL, "ab")), True),
        (((ALLOW, LITERAL, "abc"), (DENY, PREFIXED, "ab")), False),
        (((ALLOW, LITERAL, "abc"), (DENY, PREFIXED, "abc")), False),
        (((ALLOW, LITERAL, "abc"), (DENY, PREFIXED, "abcd")), True),
        # A prefixed ALLOW falls only to prefixes of it.
        (((ALLOW, PREFIXED, "abc"), (DENY, LITERAL, "abc")), True),
        (((ALLOW, PREFIXED, "abc"), (DENY, PREFIXED, "abc")), False),
        (((ALLOW, PREFIXED, "abc"), (DENY, PREFIXED, "a")), False),
        (((ALLOW, PREFIXED, "abc"), (DENY, PREFIXED, "abcd")), True),
        # One ALLOW that is left is enough.
        (((ALLOW, LITERAL, "abc"), (ALLOW, LITERAL, "x"), (DENY, LITERAL, "abc")), True),
        (((ALLOW, PREFIXED, "abc"), (ALLOW, PREFIXED, "abd"), (DENY, PREFIXED, "abc")), True),
        (((ALLOW, PREFIXED, "abc"), (ALLOW, PREFIXED, "abd"), (DENY, PREFIXED, "ab")), False),
        (((ALLOW, LITERAL, "abc"), (DENY, LITERAL, "abc"), (ALLOW, PREFIXED, "abc")), True),
        # First the right on a topic named hardcode is asked for.
        (((ALLOW, LITERAL, "hardcode"), (DENY, LITERAL, "hardcode")), False),
        (((ALLOW, LITERAL, "abc"), (DENY, LITERAL, "hardcode")), True),
        (((ALLOW, PREFIXED, "h"), (DENY, PREFIXED, "ha")), True),
    ],
)
def test_patterns(acls: Acls, alice: Wire, patterns: Patterns, expected: bool) -> None:
    acls.create(*(Binding(WRITE, TOPIC, name, "User:alice", kind, pattern) for kind, pattern, name in patterns))
    assert allowed(alice) is expected


@pytest.mark.parametrize("operation", [ALL, WRITE, READ, DESCRIBE, IDEMPOTENT_WRITE])
def test_operations_on_topics(acls: Acls, alice: Wire, operation: int) -> None:
    acls.allow("alice", operation, TOPIC, "abc")
    assert allowed(alice) is (operation in (ALL, WRITE))


@pytest.mark.parametrize("operation", [ALL, WRITE, READ])
def test_denied_operations(acls: Acls, alice: Wire, operation: int) -> None:
    acls.allow("alice", WRITE, TOPIC, "abc")
    acls.deny("alice", operation, TOPIC, "abc")
    assert allowed(alice) is (operation == READ)


def test_principals_and_hosts(acls: Acls, alice: Wire) -> None:
    acls.allow("bob", WRITE, TOPIC, "abc")
    acls.allow("alice", WRITE, TOPIC, "abc", host="10.0.0.1")
    acls.allow("alice", WRITE, GROUP, "abc")
    assert not allowed(alice)
    acls.allow("User:*", WRITE, TOPIC, "abc", host="127.0.0.1")
    assert allowed(alice)
    acls.deny("bob", WRITE, TOPIC, "abc")
    acls.deny("alice", WRITE, TOPIC, "abc", host="10.0.0.1")
    assert allowed(alice)
    acls.deny("User:*", WRITE, TOPIC, "*")
    assert not allowed(alice)


@pytest.mark.parametrize("host", ["127.0.0.0/8", "127.0.0.1", "0.0.0.0/0", "10.0.0.0/8", "localhost"])
def test_networks(acls: Acls, alice: Wire, host: str) -> None:
    acls.allow("alice", WRITE, TOPIC, "abc", host=host)
    assert allowed(alice) is (host not in ("10.0.0.0/8", "localhost"))


def test_the_right_on_the_cluster(acls: Acls, alice: Wire, root: Wire) -> None:
    acls.deny("User:*", WRITE, TOPIC, "*")
    assert allowed(root)
    assert not allowed(alice)
    acls.allow("alice", IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)
    assert allowed(alice)
    acls.deny("alice", IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)
    assert not allowed(alice)


def test_a_denied_cluster_right_leaves_the_topics(acls: Acls, alice: Wire) -> None:
    acls.deny("alice", ALL, CLUSTER, CLUSTER_NAME)
    acls.allow("alice", WRITE, TOPIC, "abc")
    assert allowed(alice)


def test_two_phase_commit_needs_a_right_of_its_own(acls: Acls, resources: Resources, alice: Wire) -> None:
    """TWO_PHASE_COMMIT beside WRITE, for enable2_pc of version 6, which is unstable in Kafka 4.4."""
    transactional_id = resources.names(topics=False).transactional_id

    def code(*, two_phase: bool) -> int:
        fields = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000, "enable2_pc": two_phase}
        return int(plain(alice.send(request("InitProducerId", fields), 6), 6)["error_code"])

    assert (code(two_phase=False), code(two_phase=True)) == (NO_TRANSACTIONAL_ID, NO_TRANSACTIONAL_ID)
    acls.allow("alice", TWO_PHASE_COMMIT, TRANSACTIONAL_ID, transactional_id)
    assert (code(two_phase=False), code(two_phase=True)) == (NO_TRANSACTIONAL_ID, NO_TRANSACTIONAL_ID)
    acls.delete(Binding(TWO_PHASE_COMMIT, TRANSACTIONAL_ID, transactional_id, "User:alice"))
    acls.allow("alice", WRITE, TRANSACTIONAL_ID, transactional_id)
    assert (code(two_phase=False), code(two_phase=True)) == (0, NO_TRANSACTIONAL_ID)
    acls.allow("alice", TWO_PHASE_COMMIT, TRANSACTIONAL_ID, transactional_id)
    assert code(two_phase=False) == 0
    assert code(two_phase=True) == 0
