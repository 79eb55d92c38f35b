"""Validation of new ACLs, and filters; Kafka's own answers are compared in tests/conformance/authorization."""

import pytest

from ottla.security.acl_requests import ANY, MATCH, AclFilter, InvalidAcl, UnusableAcl, check_acl
from ottla.security.acls import ALLOW, LITERAL, PREFIXED, Acl

VALID = Acl(2, LITERAL, "t", "User:a", "*", 3, ALLOW)
FOO = VALID._replace(name="foo")
FO = VALID._replace(name="fo", pattern_type=PREFIXED)
FOOBAR = VALID._replace(name="foobar", pattern_type=PREFIXED)
STAR = VALID._replace(name="*")
PREFIXED_STAR = STAR._replace(pattern_type=PREFIXED)
ALL_OF = AclFilter(ANY, ANY, None, None, None, ANY, ANY)


@pytest.mark.parametrize(
    ("acl", "text"),
    [
        (VALID._replace(name=""), "Invalid empty resource name"),
        (VALID._replace(resource_type=4), "The only valid name for the CLUSTER resource is kafka-cluster"),
        (VALID._replace(resource_type=99), "Invalid resourceType UNKNOWN"),
        (VALID._replace(pattern_type=99), "Invalid patternType UNKNOWN"),
        (VALID._replace(operation=99), "Invalid operation UNKNOWN"),
        (VALID._replace(permission=99), "Invalid permissionType UNKNOWN"),
        (VALID._replace(principal="bob"), "Could not parse principal from `bob`"),
        (VALID._replace(host=""), "Host pattern cannot be null or empty"),
        (VALID._replace(host="10.0.0.0/33"), r"Value \[33\] not in range \[0,32\]"),
    ],
)
def test_invalid_acls(acl: Acl, text: str) -> None:
    with pytest.raises(InvalidAcl, match=text):
        check_acl(acl)


@pytest.mark.parametrize(
    "acl",
    [
        VALID._replace(resource_type=ANY),
        VALID._replace(operation=ANY),
        VALID._replace(permission=ANY),
        VALID._replace(pattern_type=ANY),
        VALID._replace(pattern_type=MATCH),
    ],
)
def test_codes_of_filters(acl: Acl) -> None:
    with pytest.raises(UnusableAcl):
        check_acl(acl)


def test_valid_acls() -> None:
    check_acl(VALID)
    check_acl(VALID._replace(resource_type=4, name="kafka-cluster", operation=2))
    check_acl(VALID._replace(principal="Group:x", host="no address"))


@pytest.mark.parametrize(
    ("pattern_type", "name", "selected"),
    [
        (ANY, None, [FOO, FO, FOOBAR, STAR]),
        (ANY, "foo", [FOO]),
        (LITERAL, None, [FOO, STAR]),
        (LITERAL, "*", [STAR]),
        (PREFIXED, None, [FO, FOOBAR]),
        (PREFIXED, "foo", []),
        (MATCH, "foo", [FOO, FO, STAR]),
        (MATCH, "foobars", [FO, FOOBAR, STAR]),
        (MATCH, "*", [STAR]),
        (MATCH, None, [FOO, FO, FOOBAR, STAR]),
    ],
)
def test_filters_of_patterns(pattern_type: int, name: str | None, selected: list[Acl]) -> None:
    acl_filter = ALL_OF._replace(pattern_type=pattern_type, name=name)
    assert [acl for acl in (FOO, FO, FOOBAR, STAR) if acl_filter.selects(acl)] == selected


def test_a_star_is_a_prefix_of_a_star() -> None:
    assert ALL_OF._replace(pattern_type=MATCH, name="*").selects(PREFIXED_STAR)
    assert not ALL_OF._replace(pattern_type=MATCH, name="foo").selects(PREFIXED_STAR)


def test_filters_compare_texts() -> None:
    network = VALID._replace(host="10.0.0.0/8", operation=2)
    assert ALL_OF._replace(host="10.0.0.0/8").selects(network)
    assert not ALL_OF._replace(host="10.1.1.1").selects(network)
    assert not ALL_OF._replace(host="*").selects(network)
    assert not ALL_OF._replace(operation=3).selects(network)
    assert ALL_OF._replace(operation=2).selects(network)
    assert not ALL_OF._replace(principal="User:b").selects(network)
    assert not ALL_OF._replace(permission=2).selects(network)
    assert not ALL_OF._replace(resource_type=3).selects(network)


@pytest.mark.parametrize(
    ("acl_filter", "text"),
    [
        (ALL_OF._replace(resource_type=99), "Unknown patternFilter."),
        (ALL_OF._replace(pattern_type=99), "Unknown patternFilter."),
        (ALL_OF._replace(operation=99), "Unknown entryFilter."),
        (ALL_OF._replace(permission=99), "Unknown entryFilter."),
    ],
)
def test_invalid_filters(acl_filter: AclFilter, text: str) -> None:
    with pytest.raises(InvalidAcl, match=text):
        acl_filter.check()
