"""StandardAuthorizer against a second, naive decision procedure, written from the description of the rules alone."""

import random
import socket
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.security.acls import ALL, ALLOW, DENY, LITERAL, PREFIXED, Acl, AclTable, StandardAuthorizer
from ottla.security.operations import AclOperation, AclResourceType

NAMES: Final = ("a", "ab", "abc", "b", "*", "hardcode", "hard")
PRINCIPALS: Final = ("User:alice", "User:bob", "User:root")
HOSTS: Final = ("10.1.1.1", "10.1.2.3", "192.168.0.1", "fe80::1", "::1")
HOST_PATTERNS: Final = (
    *HOSTS,
    "*",
    "10.1.1.0/24",
    "10.0.0.0/8",
    "10.1.2.3/32",
    "192.168.0.0/31",
    "0.0.0.0/0",
    "fe80::/10",
    "::/0",
    "0:0:0:0:0:0:0:1",
    "localhost",
    "10.1.1.*",
)
OPERATIONS: Final = tuple(AclOperation)

FRESH: Final = "~"
"""No name of an ACL begins or goes on with it."""


class Question(NamedTuple):
    """A decision to be made."""

    principal: str
    host: str
    operation: int
    resource_type: int
    name: str


class Case(NamedTuple):
    """A question, and the ACLs by which it is decided."""

    acls: list[Acl]
    question: Question


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a question, and ACLs of which most are about it: few random ones would be."""
    operation = draw(st.sampled_from([AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, *OPERATIONS]))
    question = Question(
        draw(st.sampled_from(PRINCIPALS)),
        draw(st.sampled_from(HOSTS)),
        operation,
        AclResourceType.TOPIC,
        draw(st.sampled_from(NAMES)),
    )
    covering = [pattern for pattern in HOST_PATTERNS if covers(pattern, question.host)]
    near = [held for held in OPERATIONS if implies(held, operation)]

    def mostly(usual: Sequence[Any], *others: Any) -> st.SearchStrategy[Any]:
        few = st.sampled_from(others)
        return st.integers(0, 9).flatmap(lambda number: few if number == 0 else st.sampled_from(usual))

    acl = st.builds(
        Acl,
        mostly([AclResourceType.TOPIC], AclResourceType.GROUP),
        st.sampled_from([LITERAL, PREFIXED]),
        mostly(["a", "ab", "abc", "*", question.name], *NAMES),
        mostly([question.principal, "User:*"], *PRINCIPALS, "*:*", "User:a*", "Group:alice"),
        mostly(["*", *covering], *HOST_PATTERNS),
        mostly([operation, operation, ALL, *near], *OPERATIONS),
        st.sampled_from([ALLOW, DENY]),
    )
    return Case(draw(st.lists(acl, max_size=6)), question)


def _bits(address: str) -> str | None:
    """Return an address as a text of zeros and ones, None for a text that is no address."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            packed = socket.inet_pton(family, address)
        except OSError:
            continue
        return "".join(f"{byte:08b}" for byte in packed)
    return None


def covers(pattern: str, host: str) -> bool:
    """Return whether the host of an ACL covers an address."""
    if pattern == "*":
        return True
    address, _, length = pattern.partition("/")
    network, bits = _bits(address), _bits(host)
    if network is None or bits is None or len(network) != len(bits):
        return False
    return bits.startswith(network[: int(length or len(network))])


def implies(held: int, operation: int) -> bool:
    """Return whether an ALLOW of one operation gives another."""
    if operation == AclOperation.DESCRIBE:
        return held in (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)
    return (held, operation) == (AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS)


def naive(acls: Sequence[Acl], question: Question, *, everyone: bool, super_users: Sequence[str] = ()) -> bool:
    """Decide on one name."""
    principal, host, operation, resource_type, name = question
    if principal in super_users:
        return True
    about = [
        acl
        for acl in acls
        if acl.resource_type == resource_type
        and (name[: len(acl.name)] == acl.name if acl.pattern_type == PREFIXED else acl.name in (name, "*"))
    ]
    mine = [acl for acl in about if acl.principal in (principal, "User:*") and covers(acl.host, host)]
    exact = [acl for acl in mine if acl.operation in (operation, ALL)]
    if any(acl.permission == DENY for acl in exact):
        return False
    if any(acl.permission == ALLOW for acl in exact):
        return True
    if any(acl.permission == ALLOW and implies(acl.operation, operation) for acl in mine):
        return True
    return everyone and not about


def naive_for_any(acls: Sequence[Acl], question: Question, *, everyone: bool, super_users: Sequence[str] = ()) -> bool:
    """Decide on all names for which it can make a difference: implied operations count for Kafka's trial name only."""
    if naive(acls, question._replace(name="hardcode"), everyone=everyone, super_users=super_users):
        return True
    names = {FRESH, *(acl.name for acl in acls), *(acl.name + FRESH for acl in acls)} - {"*"}
    exact = [acl for acl in acls if acl.operation in (question.operation, ALL)]
    return any(naive(exact, question._replace(name=name), everyone=False) for name in names)


SUPER_USERS = st.sampled_from([[], ["User:root"], ["User:root", "User:alice"]])


@settings(max_examples=400)
@given(cases(), st.booleans(), SUPER_USERS)
def test_decisions(case: Case, everyone: bool, super_users: list[str]) -> None:
    acls, question = case
    authorizer = StandardAuthorizer(AclTable(acls), super_users, allows_everyone=everyone)
    expected = naive(acls, question, everyone=everyone, super_users=super_users)
    assert authorizer.decide(*question).is_allowed == expected


@settings(max_examples=400)
@given(cases(), st.booleans(), SUPER_USERS)
def test_decisions_on_any_resource(case: Case, everyone: bool, super_users: list[str]) -> None:
    acls, question = case
    authorizer = StandardAuthorizer(AclTable(acls), super_users, allows_everyone=everyone)
    expected = naive_for_any(acls, question, everyone=everyone, super_users=super_users)
    assert authorizer.decide_for_any(*question[:4]).is_allowed == expected


@given(cases())
def test_the_rule_is_an_acl_that_decides(case: Case) -> None:
    acls, question = case
    decision = StandardAuthorizer(AclTable(acls)).decide(*question)
    if isinstance(decision.rule, Acl):
        assert decision.rule in acls
        assert (decision.rule.permission == ALLOW) == decision.is_allowed
        assert naive([decision.rule], question, everyone=False) == decision.is_allowed


@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_acls_does_not_count(case: Case, dice: random.Random) -> None:
    acls, question = case
    shuffled = list(acls)
    dice.shuffle(shuffled)
    one, other = StandardAuthorizer(AclTable(acls)), StandardAuthorizer(AclTable(shuffled))
    assert one.decide(*question).is_allowed == other.decide(*question).is_allowed


@pytest.mark.parametrize("permission", [ALLOW, DENY])
def test_every_pair_of_operations(permission: int) -> None:
    """One ACL, with an ALLOW of everything below a DENY."""
    for held in (ALL, *OPERATIONS):
        acls = [Acl(AclResourceType.TOPIC, LITERAL, "a", "User:alice", "*", held, permission)]
        if permission == DENY:
            acls.append(acls[0]._replace(operation=ALL, permission=ALLOW))
        for operation in OPERATIONS:
            question = Question("User:alice", "::1", operation, AclResourceType.TOPIC, "a")
            expected = naive(acls, question, everyone=False)
            assert StandardAuthorizer(AclTable(acls)).decide(*question).is_allowed == expected, (held, operation)


@pytest.mark.parametrize(
    ("pattern", "host", "expected"),
    [("10.1.1.0/24", "10.1.1.255", True), ("10.1.1.0/24", "10.1.2.0", False), ("::1", "0:0:0:0:0:0:0:1", True)],
)
def test_the_naive_procedure_knows_networks(pattern: str, host: str, expected: bool) -> None:
    assert covers(pattern, host) == expected
