"""Decisions by ACLs: the rules of Kafka's StandardAuthorizer, and a second, naive decision procedure beside them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.acls import (
    ALL,
    ALLOW,
    DEFAULT_ALLOW,
    DEFAULT_DENY,
    DENY,
    LITERAL,
    PREFIXED,
    SUPER_USER,
    Acl,
    AclTable,
    Decision,
    InvalidHost,
    StandardAuthorizer,
    check_host,
    matches_host,
    parse_super_users,
)
from ottla.security.operations import AclOperation, AclResourceType

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
READ, WRITE, DESCRIBE, ALTER = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALTER
ALICE, BOB = "User:alice", "User:bob"
HOST = "10.1.1.1"


def acl(
    name: str = "t",
    operation: int = READ,
    permission: int = ALLOW,
    principal: str = ALICE,
    pattern: int = LITERAL,
    host: str = "*",
    resource_type: int = TOPIC,
) -> Acl:
    return Acl(resource_type, pattern, name, principal, host, operation, permission)


def decide(
    *acls: Acl, operation: int = READ, name: str = "t", principal: str = ALICE, everyone: bool = False
) -> Decision:
    return StandardAuthorizer(AclTable(acls), allows_everyone=everyone).decide(principal, HOST, operation, TOPIC, name)


def test_without_acls_the_default_decides() -> None:
    assert decide() == DEFAULT_DENY
    assert decide(everyone=True) == DEFAULT_ALLOW


def test_super_users_pass_in_spite_of_a_denial() -> None:
    authorizer = StandardAuthorizer(AclTable([acl(permission=DENY)]), [ALICE])
    assert authorizer.decide(ALICE, HOST, READ, TOPIC, "t") == SUPER_USER


@pytest.mark.parametrize(
    ("rule", "operation", "is_allowed"),
    [
        (acl(), READ, True),
        (acl(), WRITE, False),
        (acl(operation=ALL), WRITE, True),
        (acl(name="*"), READ, True),
        (acl(name="t", pattern=PREFIXED), READ, True),
        (acl(name="", pattern=PREFIXED), READ, True),
        (acl(name="tt", pattern=PREFIXED), READ, False),
        (acl(name="*", pattern=PREFIXED), READ, False),
        (acl(principal="User:*"), READ, True),
        (acl(principal=BOB), READ, False),
        (acl(principal="*:*"), READ, False),
        (acl(principal="User:a*"), READ, False),
        (acl(host=HOST), READ, True),
        (acl(host="10.0.0.0/8"), READ, True),
        (acl(host="10.2.0.0/16"), READ, False),
        (acl(host="10.1.1.*"), READ, False),
        (acl(resource_type=GROUP), READ, False),
        *((acl(operation=one), DESCRIBE, True) for one in (READ, WRITE, AclOperation.DELETE, ALTER)),
        (acl(operation=AclOperation.CREATE), DESCRIBE, False),
        (acl(operation=AclOperation.ALTER_CONFIGS), AclOperation.DESCRIBE_CONFIGS, True),
        (acl(operation=AclOperation.DESCRIBE_CONFIGS), DESCRIBE, False),
        (acl(operation=DESCRIBE), READ, False),
    ],
)
def test_one_allowing_acl(rule: Acl, operation: int, is_allowed: bool) -> None:
    decision = decide(rule, operation=operation)
    assert decision == (Decision(True, rule) if is_allowed else DEFAULT_DENY)


def test_a_denial_takes_precedence_over_more_specific_acls() -> None:
    wide = acl(name="*", permission=DENY)
    assert decide(acl(), wide) == Decision(False, wide)
    prefixed = acl(name="", pattern=PREFIXED, permission=DENY, operation=ALL)
    assert decide(acl(), prefixed) == Decision(False, prefixed)


def test_a_denial_implies_nothing() -> None:
    assert decide(acl(operation=WRITE), acl(permission=DENY), operation=DESCRIBE).is_allowed
    assert not decide(acl(), acl(operation=DESCRIBE, permission=DENY), operation=DESCRIBE).is_allowed


def test_an_acl_of_another_principal_denies_all_others() -> None:
    assert decide(acl(principal=BOB), everyone=True) == DEFAULT_DENY
    assert decide(acl(name="other", principal=BOB), everyone=True) == DEFAULT_ALLOW
    assert decide(acl(name="*", principal=BOB), everyone=True) == DEFAULT_DENY


@pytest.mark.parametrize(
    ("acls", "is_allowed"),
    [
        ([acl("a", WRITE)], True),
        ([acl("a", WRITE), acl("*", WRITE, DENY)], False),
        ([acl("*", WRITE), acl("a", WRITE, DENY), acl("b", WRITE, DENY, pattern=PREFIXED)], True),
        ([acl("a", WRITE), acl("a", WRITE, DENY)], False),
        ([acl("ab", WRITE), acl("a", WRITE, DENY, pattern=PREFIXED)], False),
        ([acl("a", WRITE, pattern=PREFIXED), acl("ab", WRITE, DENY, pattern=PREFIXED)], True),
        ([acl("ab", WRITE, pattern=PREFIXED), acl("a", WRITE, DENY, pattern=PREFIXED)], False),
        ([acl("a", WRITE, pattern=PREFIXED), acl("a", WRITE, DENY)], True),
        ([acl("a", READ)], False),
        ([acl("a", WRITE, principal=BOB)], False),
    ],
)
def test_a_right_on_any_resource(acls: list[Acl], is_allowed: bool) -> None:
    authorizer = StandardAuthorizer(AclTable(acls))
    assert authorizer.decide_for_any(ALICE, HOST, WRITE, TOPIC).is_allowed == is_allowed


def test_super_users_and_the_default_have_rights_on_any_resource() -> None:
    denied = AclTable([acl("*", WRITE, DENY)])
    assert StandardAuthorizer(denied, [ALICE]).decide_for_any(ALICE, HOST, WRITE, TOPIC) == SUPER_USER
    assert StandardAuthorizer(AclTable(), allows_everyone=True).decide_for_any(ALICE, HOST, WRITE, TOPIC).is_allowed


@pytest.mark.parametrize(
    ("pattern", "host", "matches"),
    [
        ("*", "::1", True),
        ("0.0.0.0/0", HOST, True),
        ("0.0.0.0/0", "::1", False),
        ("fe80::/10", "fe80::1", True),
        ("10.1.1.1/32", HOST, True),
        ("10.1.1.0/24", HOST, True),
        ("localhost", "127.0.0.1", False),
    ],
)
def test_hosts(pattern: str, host: str, matches: bool) -> None:
    check_host(pattern)
    assert matches_host(pattern, host) == matches


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("", "Host pattern cannot be null or empty"),
        ("10.0.0.0/33", "Invalid CIDR notation '10.0.0.0/33': Value [33] not in range [0,32]"),
        ("fe80::/129", "Invalid CIDR notation 'fe80::/129': Value [129] not in range [0,128]"),
    ],
)
def test_hosts_that_are_refused(host: str, text: str) -> None:
    with pytest.raises(InvalidHost) as error:
        check_host(host)
    assert str(error.value) == text


def test_super_users() -> None:
    assert parse_super_users("User:a; User:CN=x,OU=y ;") == {"User:a", "User:CN=x,OU=y"}
    assert parse_super_users("") == frozenset()
    with pytest.raises(ValueError, match="expected a string in format principalType:principalName but got admin"):
        parse_super_users("admin")


NAMES = st.sampled_from(["", "a", "ab", "abc", "b", "*"])
ACLS = st.builds(
    Acl,
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from([LITERAL, PREFIXED]),
    NAMES,
    st.sampled_from([ALICE, BOB, "User:*"]),
    st.sampled_from(["*", HOST, "10.0.0.0/8", "192.168.0.1"]),
    st.sampled_from([ALL, READ, WRITE, DESCRIBE, ALTER]),
    st.sampled_from([ALLOW, DENY]),
)


def naive(acls: list[Acl], operation: int, name: str, everyone: bool) -> bool:
    """The decision, written once more from the description of the rules."""

    def applies(one: Acl) -> bool:
        if one.resource_type != TOPIC:
            return False
        return name.startswith(one.name) if one.pattern_type == PREFIXED else one.name == name or one.name == "*"

    on_resource = [one for one in acls if applies(one)]
    mine = [one for one in on_resource if one.principal in (ALICE, "User:*") and one.host != "192.168.0.1"]
    if any(one.permission == DENY and one.operation in (ALL, operation) for one in mine):
        return False
    allowing_operations = {ALL, operation} | ({READ, WRITE, ALTER} if operation == DESCRIBE else set())
    if any(one.permission == ALLOW and one.operation in allowing_operations for one in mine):
        return True
    return everyone and not on_resource


@given(st.lists(ACLS, max_size=8), st.sampled_from([READ, WRITE, DESCRIBE, ALTER]), NAMES, st.booleans())
def test_equal_to_a_naive_procedure(acls: list[Acl], operation: int, name: str, everyone: bool) -> None:
    authorizer = StandardAuthorizer(AclTable(acls), allows_everyone=everyone)
    assert authorizer.decide(ALICE, HOST, operation, TOPIC, name).is_allowed == naive(acls, operation, name, everyone)


@given(ACLS)
def test_stored_form(rule: Acl) -> None:
    assert Acl.decoded(rule.encoded()) == rule
