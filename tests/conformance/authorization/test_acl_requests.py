"""CreateAcls, DescribeAcls and DeleteAcls: validation, filters and versions."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from ottla.protocol.errors import INVALID_REQUEST, NONE, POLICY_VIOLATION
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from tests.conformance.conftest import Closed, Wire

from .bindings import EVERY, Binding, create, create_request, delete_all, described
from .codes import (
    ALL,
    ALLOW,
    ALTER,
    ANY,
    CLUSTER,
    CLUSTER_NAME,
    DELEGATION_TOKEN,
    DENY,
    DESCRIBE,
    GROUP,
    LITERAL,
    MATCH,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    UNKNOWN,
    USER,
    WRITE,
)
from .conftest import Acls, Authorized, Connect

VALID: Final[dict[str, Any]] = {
    "resource_type": TOPIC,
    "resource_name": "t",
    "resource_pattern_type": LITERAL,
    "principal": "User:bob",
    "host": "*",
    "operation": READ,
    "permission_type": ALLOW,
}
CODE_FIELDS: Final = ("resource_type", "resource_pattern_type", "operation", "permission_type")
FILTER_CODES: Final = ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")


def send_creation(wire: Wire, version: int = 3, **changes: Any) -> tuple[int, str | None]:
    """The answer to a creation that is right but for `changes`."""
    answer = wire.send(CreateAclsRequest(creations=[AclCreation(**(VALID | changes))]), version)
    (result,) = answer.results
    return result.error_code, result.error_message


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_create_describe_and_delete(
    authorized: Authorized, acls: Acls, root: Wire, connect: Connect, version: int
) -> None:
    """Version 0 has no pattern type: all is LITERAL."""
    authorized.skip_unless_offered("CreateAcls", version)
    fields = VALID if version else {key: value for key, value in VALID.items() if key != "resource_pattern_type"}
    answer = root.send(CreateAclsRequest(creations=[AclCreation(**fields)]), version)
    assert [(result.error_code, result.error_message) for result in answer.results] == [(NONE, "")]
    acl = Binding(READ, TOPIC, "t", "User:bob")
    create(root, acl)
    every = EVERY if version else {key: value for key, value in EVERY.items() if key != "pattern_type_filter"}
    description = root.send(DescribeAclsRequest(**every), version)
    assert (description.error_code, description.error_message) == (NONE, "")
    ((resource, (one,)),) = ((row, row.acls) for row in description.resources)
    assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (TOPIC, "t", LITERAL)
    assert (one.principal, one.host, one.operation, one.permission_type) == ("User:bob", "*", READ, ALLOW)
    (result,) = root.send(DeleteAclsRequest(filters=[DeleteAclsFilter(**every)]), version).filter_results
    assert (result.error_code, result.error_message) == (NONE, None)
    (match,) = result.matching_acls
    assert (match.error_code, match.error_message) == (NONE, None)
    assert (match.resource_type, match.resource_name, match.pattern_type) == (TOPIC, "t", LITERAL)
    assert (match.principal, match.host, match.operation, match.permission_type) == ("User:bob", "*", READ, ALLOW)


@pytest.mark.parametrize("resource_type", [TOPIC, GROUP, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER])
@pytest.mark.parametrize("pattern", [LITERAL, PREFIXED])
@pytest.mark.parametrize("name", ["x", "*", "User:bob", "a b", "ä/ü", "x" * 300, ".."])
def test_any_name_is_accepted(acls: Acls, root: Wire, resource_type: int, pattern: int, name: str) -> None:
    """Names and operations are not checked against the resource type."""
    result = send_creation(
        root, resource_type=resource_type, resource_pattern_type=pattern, resource_name=name, operation=ALTER
    )
    assert result == (NONE, "")


def test_the_same_acl_twice(acls: Acls, root: Wire) -> None:
    request = CreateAclsRequest(creations=[AclCreation(**VALID)] * 2)
    for _ in range(2):
        assert [result.error_code for result in root.send(request, 3).results] == [NONE, NONE]
    create(root, Binding(READ, TOPIC, "t", "User:bob"))
    assert described(root) == [Binding(READ, TOPIC, "t", "User:bob")]


def test_each_creation_has_a_result_of_its_own(acls: Acls, root: Wire) -> None:
    creations = [AclCreation(**VALID), AclCreation(**(VALID | {"resource_name": ""})), AclCreation(**VALID)]
    results = root.send(CreateAclsRequest(creations=creations), 3).results
    assert [result.error_code for result in results] == [NONE, INVALID_REQUEST, NONE]
    create(root, Binding(READ, TOPIC, "t", "User:bob"))
    assert len(described(root)) == 1


def test_nothing_to_create(root: Wire) -> None:
    assert root.send(CreateAclsRequest(creations=[]), 3).results == []
    assert root.send(DeleteAclsRequest(filters=[]), 3).filter_results == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"resource_type": ANY}, (-1, None)),
        ({"operation": ANY}, (-1, None)),
        ({"permission_type": ANY}, (-1, None)),
        ({"resource_pattern_type": ANY}, (-1, None)),
        ({"resource_pattern_type": MATCH}, (-1, None)),
        ({"resource_name": ""}, (INVALID_REQUEST, "Invalid empty resource name")),
        (
            {"resource_type": CLUSTER, "resource_name": "x"},
            (INVALID_REQUEST, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ),
        (
            {"resource_type": CLUSTER, "resource_name": "*"},
            (INVALID_REQUEST, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ),
        (
            {"principal": "bob"},
            (
                INVALID_REQUEST,
                "Could not parse principal from `bob` (no colon is present separating the principal type from the "
                "principal name)",
            ),
        ),
        (
            {"principal": ""},
            (
                INVALID_REQUEST,
                "Could not parse principal from `` (no colon is present separating the principal type from the "
                "principal name)",
            ),
        ),
        ({"host": ""}, (INVALID_REQUEST, "Host pattern cannot be null or empty")),
    ],
)
def test_creations_that_are_refused(
    acls: Acls, root: Wire, changes: dict[str, Any], expected: tuple[int, str | None]
) -> None:
    assert send_creation(root, **changes) == expected
    assert described(root) == []


@pytest.mark.parametrize("field", CODE_FIELDS)
def test_the_code_unknown_closes_the_connection(root: Wire, field: str) -> None:
    with pytest.raises(Closed):
        send_creation(root, **{field: UNKNOWN})


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("resource_type", "Invalid resourceType UNKNOWN"),
        ("operation", "Invalid operation UNKNOWN"),
        ("permission_type", "Invalid permissionType UNKNOWN"),
        ("resource_pattern_type", "Invalid patternType UNKNOWN"),
    ],
)
@pytest.mark.parametrize("code", [99, -1])
def test_codes_out_of_range(acls: Acls, root: Wire, field: str, text: str, code: int) -> None:
    assert send_creation(root, **{field: code}) == (INVALID_REQUEST, text)


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("10.0.0.0/33", "Invalid CIDR notation '10.0.0.0/33': Value [33] not in range [0,32]"),
    ],
)
def test_networks_that_are_refused(acls: Acls, root: Wire, host: str, text: str) -> None:
    assert send_creation(root, host=host) == (INVALID_REQUEST, text)


@pytest.mark.parametrize(
    "host", ["10.0.0.0/8", "0.0.0.0/0", "10.1.2.3/8", "2001:db8::/32", "::1", "localhost", "127.0.0.*", "10.0.0.256"]
)
def test_hosts_that_are_stored(acls: Acls, root: Wire, host: str) -> None:
    assert send_creation(root, host=host) == (NONE, "")
    create(root, Binding(READ, TOPIC, "t", "User:bob", host=host))
    assert [binding.host for binding in described(root)] == [host]


@pytest.mark.parametrize("principal", ["User:*", "Group:x", "*:*", "User:", "User:a:b", ":x", "User:CN=x,OU=y"])
def test_principals_that_are_stored(acls: Acls, root: Wire, principal: str) -> None:
    assert send_creation(root, principal=principal) == (NONE, "")
    create(root, Binding(READ, TOPIC, "t", principal))
    assert [binding.principal for binding in described(root)] == [principal]


FOO: Final = Binding(READ, TOPIC, "foo", "User:bob")
STORED: Final = (
    FOO,
    Binding(WRITE, TOPIC, "foo", "User:*", DENY),
    Binding(ALL, TOPIC, "fo", "User:bob", pattern=PREFIXED),
    Binding(READ, TOPIC, "foobar", "User:carol", pattern=PREFIXED),
    Binding(READ, TOPIC, "foo", "User:carol", pattern=PREFIXED, host="10.0.0.0/8"),
    Binding(DESCRIBE, TOPIC, "*", "User:bob", host="10.1.1.1"),
    Binding(DESCRIBE, TOPIC, "*", "User:bob", pattern=PREFIXED),
    Binding(READ, GROUP, "foo", "User:bob"),
    Binding(ALTER, CLUSTER, CLUSTER_NAME, "User:bob"),
)


@pytest.fixture(scope="module")
def stored(authorized: Authorized) -> Iterator[Wire]:
    """Connection to a broker with the ACLs of STORED."""
    wire = authorized.super_wire()
    create(wire, *STORED)
    yield wire
    delete_all(wire)
    wire.close()


def prefixes(name: str, *patterns: tuple[str, int]) -> set[Binding]:
    return {
        binding for binding in STORED if (binding.name, binding.pattern) in patterns and binding.resource_type == TOPIC
    }


FILTERS: Final = [
    ({}, set(STORED)),
    ({"resource_type_filter": GROUP}, {STORED[7]}),
    ({"resource_type_filter": CLUSTER}, {STORED[8]}),
    ({"resource_type_filter": TRANSACTIONAL_ID}, set()),
    ({"resource_name_filter": "foo"}, {STORED[0], STORED[1], STORED[4], STORED[7]}),
    ({"resource_name_filter": "foo", "pattern_type_filter": LITERAL}, {STORED[0], STORED[1], STORED[7]}),
    ({"resource_name_filter": "foo", "pattern_type_filter": PREFIXED}, {STORED[4]}),
    (
        {"resource_name_filter": "foo", "pattern_type_filter": MATCH},
        {STORED[0], STORED[1], STORED[2], STORED[4], STORED[5], STORED[7]},
    ),
    ({"resource_name_filter": "foobarbaz", "pattern_type_filter": MATCH}, {STORED[2], STORED[3], STORED[4], STORED[5]}),
    ({"resource_name_filter": "x", "pattern_type_filter": MATCH}, {STORED[5]}),
    ({"resource_name_filter": "*", "pattern_type_filter": MATCH}, {STORED[5], STORED[6]}),
    ({"resource_name_filter": "*"}, {STORED[5], STORED[6]}),
    ({"resource_name_filter": "*", "pattern_type_filter": LITERAL}, {STORED[5]}),
    ({"resource_name_filter": "*", "pattern_type_filter": PREFIXED}, {STORED[6]}),
    ({"pattern_type_filter": MATCH}, set(STORED)),
    ({"pattern_type_filter": LITERAL}, {binding for binding in STORED if binding.pattern == LITERAL}),
    ({"pattern_type_filter": PREFIXED}, {binding for binding in STORED if binding.pattern == PREFIXED}),
    ({"principal_filter": "User:carol"}, {STORED[3], STORED[4]}),
    ({"principal_filter": "User:*"}, {STORED[1]}),
    ({"principal_filter": "User:Bob"}, set()),
    ({"host_filter": "10.1.1.1"}, {STORED[5]}),
    ({"host_filter": "10.0.0.0/8"}, {STORED[4]}),
    ({"host_filter": "*"}, {binding for binding in STORED if binding.host == "*"}),
    ({"operation": READ}, {binding for binding in STORED if binding.operation == READ}),
    ({"operation": ALL}, {STORED[2]}),
    ({"permission_type": DENY}, {STORED[1]}),
    ({"permission_type": ALLOW, "operation": WRITE}, set()),
    ({"resource_name_filter": ""}, set()),
    ({"principal_filter": ""}, set()),
    ({"host_filter": ""}, set()),
]


@pytest.mark.parametrize(("asked", "expected"), FILTERS, ids=lambda value: str(value) if "filter" in str(value) else "")
def test_filters_of_describe(stored: Wire, asked: dict[str, Any], expected: set[Binding]) -> None:
    bindings = described(stored, **asked)
    assert set(bindings) == expected
    assert len(bindings) == len(expected)


def test_describe_has_one_entry_per_resource(stored: Wire) -> None:
    answer = stored.send(DescribeAclsRequest(**EVERY), 3)
    patterns = [
        (resource.resource_type, resource.resource_name, resource.pattern_type) for resource in answer.resources
    ]
    assert len(patterns) == len(set(patterns)) == 8


def test_version_0_of_describe_is_literal(authorized: Authorized, stored: Wire) -> None:
    authorized.skip_unless_offered("DescribeAcls", 0)
    asked = {key: value for key, value in EVERY.items() if key != "pattern_type_filter"}
    answer = stored.send(DescribeAclsRequest(**(asked | {"resource_name_filter": "foo"})), 0)
    assert {(resource.resource_type, resource.resource_name) for resource in answer.resources} == {
        (TOPIC, "foo"),
        (GROUP, "foo"),
    }


@pytest.mark.parametrize("field", FILTER_CODES)
def test_the_code_unknown_in_a_filter_closes_the_connection(root: Wire, field: str) -> None:
    with pytest.raises(Closed):
        root.send(DescribeAclsRequest(**(EVERY | {field: UNKNOWN})), 3)
    with pytest.raises(Closed):
        root.send(DeleteAclsRequest(filters=[DeleteAclsFilter(**(EVERY | {field: UNKNOWN}))]), 3)


@pytest.mark.parametrize("field", FILTER_CODES)
def test_codes_out_of_range_in_filters(stored: Wire, field: str) -> None:
    refused = DeleteAclsFilter(**(EVERY | {field: 99}))
    none = DeleteAclsFilter(**(EVERY | {"principal_filter": "User:nobody"}))
    results = stored.send(DeleteAclsRequest(filters=[refused, none]), 3).filter_results
    text = {"operation": "Unknown entryFilter.", "permission_type": "Unknown entryFilter."}.get(
        field, "Unknown patternFilter."
    )
    assert [(result.error_code, result.error_message) for result in results] == [(INVALID_REQUEST, text), (NONE, None)]
    assert set(described(stored)) == set(STORED)


@pytest.mark.parametrize(("asked", "expected"), FILTERS, ids=lambda value: str(value) if "filter" in str(value) else "")
def test_filters_of_delete(acls: Acls, root: Wire, asked: dict[str, Any], expected: set[Binding]) -> None:
    create(root, *STORED)
    (result,) = root.send(DeleteAclsRequest(filters=[DeleteAclsFilter(**(EVERY | asked))]), 3).filter_results
    assert (result.error_code, result.error_message) == (NONE, None)
    assert {_binding(match) for match in result.matching_acls} == expected
    assert len(result.matching_acls) == len(expected)
    remaining = set(STORED) - expected
    for _ in range(1000):
        if set(described(root)) == remaining or not root.is_kafka:
            break
    assert set(described(root)) == remaining


def test_overlapping_filters_report_an_acl_twice(acls: Acls, root: Wire) -> None:
    create(root, *STORED)
    by_name = DeleteAclsFilter(**(EVERY | {"resource_name_filter": "foo"}))
    by_user = DeleteAclsFilter(**(EVERY | {"principal_filter": "User:bob"}))
    first, second = root.send(DeleteAclsRequest(filters=[by_name, by_user]), 3).filter_results
    assert {_binding(match) for match in first.matching_acls} == {STORED[0], STORED[1], STORED[4], STORED[7]}
    assert {_binding(match) for match in second.matching_acls} == {
        binding for binding in STORED if binding.principal == "User:bob"
    }


def test_deleting_nothing(acls: Acls, root: Wire) -> None:
    (result,) = root.send(DeleteAclsRequest(filters=[DeleteAclsFilter(**EVERY)]), 3).filter_results
    assert (result.error_code, result.error_message, result.matching_acls) == (NONE, None, [])


def test_acls_of_one_request_are_many(acls: Acls, root: Wire) -> None:
    bindings = [Binding(READ, TOPIC, f"t{number}", f"User:u{number % 7}") for number in range(500)]
    assert {result.error_code for result in root.send(create_request(bindings), 3).results} == {NONE}
    create(root, *bindings)
    assert sorted(described(root)) == sorted(bindings)


def _binding(match: Any) -> Binding:
    return Binding(
        match.operation,
        match.resource_type,
        match.resource_name,
        match.principal,
        match.permission_type,
        match.pattern_type,
        match.host,
    )


def test_more_than_10_000_new_acls_are_refused_all_together(acls: Acls, root: Wire) -> None:
    creations = [AclCreation(**(VALID | {"resource_name": f"t{number}"})) for number in range(10_001)]
    invalid = [AclCreation(**(VALID | {"principal": "bob"}))] * 5
    results = root.send(CreateAclsRequest(creations=[*creations, *invalid]), 3).results
    text = "Unable to perform excessively large batch operation."
    assert [(row.error_code, row.error_message) for row in results] == [(POLICY_VIOLATION, text)] * 10_006
    assert described(root) == []
    results = root.send(CreateAclsRequest(creations=[*creations[:3], *invalid * 2_001]), 3).results
    assert [row.error_code for row in results] == [NONE] * 3 + [INVALID_REQUEST] * 10_005
