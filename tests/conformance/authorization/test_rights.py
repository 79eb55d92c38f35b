"""Every request of the table: without rights, with exactly the rights needed, with others, and with DENY on top."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.conformance.conftest import _FIRST_IN_KAFKA_4, Wire

from .bindings import Binding
from .codes import (
    ALL,
    CLUSTER,
    DENIED,
    DENY,
    GRANTED_BY,
    OPERATIONS,
    PREFIXED,
)
from .conftest import Acls, Authorized, Resources, ask
from .denials import denied_in_a_row, matches, normalized, partly, recorded, rights, rows, signs
from .messages import api_named, error_codes, values_at
from .probes import EMPTY, HIDDEN, Check, Names, Probe, all_probes

PROBES: Final = all_probes()
CHECKED: Final = [row for row in PROBES if row.checks]
Change = Callable[[Binding], Binding]


def newest(authorized: Authorized, row: Probe) -> int:
    """Return the newest version of a row that the broker has."""
    last = authorized.offers[api_named(row.api).key][1]
    if last < row.versions[0]:
        pytest.skip("this broker has no version of the row")
    return min(row.versions[-1], last) if not authorized.is_kafka or last >= row.versions[0] else last


def offered(authorized: Authorized, row: Probe) -> int:
    """Return the newest version of a row, and skip the test if the broker lacks it."""
    version = newest(authorized, row)
    authorized.skip_unless_offered(row.api, version)
    return version


def versions(authorized: Authorized, row: Probe) -> list[int]:
    """Return the versions of a row that the broker has, and skip the test if it has none."""
    first, last = authorized.versions(row.api)
    shared = [version for version in row.versions if first <= version <= last]
    if not shared:
        pytest.skip(f"this broker has versions {first} to {last} of {row.api}")
    return shared


def assert_denied(answer: Any, check: Check, names: Names) -> None:
    """The answer says that the right of a check is missing."""
    values = values_at(answer, check.path)
    if check.code == EMPTY:
        assert values == []
    elif check.code == HIDDEN:
        hidden = names.of_type(check.resource_type)
        assert not set(values) & {*hidden, *(names.ids.get(name, b"") for name in hidden)}
    else:
        assert set(values) == {check.code}, answer


def assert_permitted(answer: Any, row: Probe, names: Names) -> None:
    """The answer has no sign of a missing right."""
    assert not DENIED & set(error_codes(answer)), answer
    for check in row.checks:
        values = values_at(answer, check.path)
        if check.code == EMPTY:
            assert values
        elif check.code == HIDDEN:
            shown = names.of_type(check.resource_type)
            by_id = check.path.endswith("topic_id")
            assert set(values) >= {names.ids[name] if by_id else name for name in shown}


@pytest.mark.parametrize("row", PROBES, ids=str)
def test_without_rights(authorized: Authorized, resources: Resources, acls: Acls, alice: Wire, row: Probe) -> None:
    """The first right that is missing answers; the whole answer is that of Apache Kafka."""
    for version in versions(authorized, row):
        for number, check in enumerate(row.checks):
            with acls.for_case(version, check):
                names = resources.names(existing=row.existing)
                acls.create(*rights("alice", row, names, number))
                answer = ask(alice, row, version, names)
                assert_denied(answer, check, names)
                key = (str(row), version, number)
                if version < _FIRST_IN_KAFKA_4.get(api_named(row.api).key, 0) and key not in recorded():
                    continue
                if recorded()[key] is not None:
                    actual = normalized(answer, signs(names))
                    assert matches(actual, recorded()[key]), f"{actual}\n{recorded()[key]}"


@pytest.mark.parametrize("row", PROBES, ids=str)
def test_with_exactly_the_rights_needed(
    authorized: Authorized, resources: Resources, acls: Acls, alice: Wire, row: Probe
) -> None:
    for version in versions(authorized, row):
        with acls.for_case(version):
            names = resources.names(existing=row.existing)
            acls.create(*rights("alice", row, names))
            assert_permitted(ask(alice, row, version, names), row, names)


@pytest.mark.parametrize("row", PROBES, ids=str)
def test_some_of_several_resources_are_denied(
    authorized: Authorized, resources: Resources, acls: Acls, alice: Wire, row: Probe
) -> None:
    """The first and the third are denied, the second is not: the rows, and their order where Apache Kafka has one."""
    check = denied_in_a_row(row)
    recordings = {version: recorded().get((str(row), version, "rows")) for version in versions(authorized, row)}
    if check is None or not any(recordings.values()):
        pytest.skip("no rows of their own")
    for version, expected in recordings.items():
        if expected is None:
            continue
        with acls.for_case(version):
            names = resources.names(3, existing=row.existing)
            acls.create(*rights("alice", row, partly(row, names, slice(1, 2))))
            actual = [list(entry) for entry in rows(ask(alice, row, version, names), check.path, signs(names))]
            if expected["ordered"]:
                assert actual == expected["rows"]
            else:
                assert sorted(actual) == sorted(expected["rows"])


@pytest.mark.parametrize("row", [row for row in PROBES if any(check.code == HIDDEN for check in row.checks)], ids=str)
def test_lists_leave_out_what_is_hidden(
    authorized: Authorized, resources: Resources, acls: Acls, alice: Wire, row: Probe
) -> None:
    version = offered(authorized, row)
    names = resources.names(3, existing=row.existing)
    shown = partly(row, names, slice(1, 2))
    acls.create(*rights("alice", row, shown))
    (check,) = (check for check in row.checks if check.code == HIDDEN)
    answer = ask(alice, row, version, names)
    values = values_at(answer, check.path)
    by_id = check.path.endswith("topic_id")
    assert values == [names.ids[name] if by_id else name for name in shown.of_type(check.resource_type)]
    assert not DENIED & set(error_codes(answer))


def prefixed(acl: Binding) -> Binding:
    return acl._replace(pattern=PREFIXED, name=acl.name if acl.resource_type == CLUSTER else acl.name[:-2])


def wildcard(acl: Binding) -> Binding:
    return acl if acl.resource_type == CLUSTER else acl._replace(name="*")


def all_operations(acl: Binding) -> Binding:
    return acl._replace(operation=ALL)


def every_user(acl: Binding) -> Binding:
    return acl._replace(principal="User:*")


def address(acl: Binding) -> Binding:
    return acl._replace(host="127.0.0.1")


def network(acl: Binding) -> Binding:
    return acl._replace(host="127.0.0.0/8")


CHANGES: Final = (prefixed, wildcard, all_operations, every_user, address, network)


@pytest.mark.parametrize("row", PROBES, ids=str)
def test_other_forms_of_the_rights(
    authorized: Authorized, resources: Resources, acls: Acls, alice: Wire, row: Probe
) -> None:
    version = offered(authorized, row)
    for change in CHANGES:
        with acls.for_case(change.__name__):
            names = resources.names(existing=row.existing)
            acls.create(*map(change, rights("alice", row, names)))
            assert_permitted(ask(alice, row, version, names), row, names)


@pytest.mark.parametrize("row", CHECKED, ids=str)
def test_operations_that_imply_the_right(
    authorized: Authorized, resources: Resources, acls: Acls, alice: Wire, row: Probe
) -> None:
    version = offered(authorized, row)
    for number, check in enumerate(row.checks):
        for operation in GRANTED_BY[check.operation]:
            if operation in (ALL, check.operation):
                continue
            with acls.for_case(check, operation):
                names = resources.names(existing=row.existing)
                checks = list(row.checks)
                checks[number] = check._replace(operation=operation)
                acls.create(*rights("alice", row._replace(checks=tuple(checks)), names))
                assert_permitted(ask(alice, row, version, names), row, names)


@pytest.mark.parametrize("row", CHECKED, ids=str)
def test_all_other_operations_are_not_enough(
    authorized: Authorized, resources: Resources, acls: Acls, alice: Wire, row: Probe
) -> None:
    version = offered(authorized, row)
    for number, check in enumerate(row.checks):
        with acls.for_case(check):
            names = resources.names(existing=row.existing)
            enough = {*GRANTED_BY[check.operation], *(op for op, kind in check.instead if kind == check.resource_type)}
            others = [
                Binding(operation, check.resource_type, name, "User:alice")
                for operation in OPERATIONS
                if operation not in enough
                for name in names.of_type(check.resource_type)
            ]
            strangers = [
                other
                for acl in rights("alice", row._replace(checks=(check,)), names)
                for other in rights_of_others(acl)
            ]
            acls.create(*dict.fromkeys([*rights("alice", row, names, number), *others, *strangers]))
            assert_denied(ask(alice, row, version, names), check, names)


def rights_of_others(acl: Binding) -> list[Binding]:
    """Return rights of other users and hosts, and on names that only look alike: they do not count either."""
    bindings = [
        *(acl._replace(principal=principal) for principal in ("User:bob", "User:Alice", "Group:alice", "User:a*")),
        *(acl._replace(host=host) for host in ("127.0.0.2", "10.0.0.0/8", "localhost")),
    ]
    if acl.resource_type != CLUSTER:
        bindings += [
            acl._replace(name=acl.name[:-1]),
            acl._replace(name=acl.name + "x", pattern=PREFIXED),
            acl._replace(name="*", pattern=PREFIXED),
            acl._replace(name=acl.name[:-1] + "*"),
        ]
    return bindings


def literal_deny(acl: Binding) -> Binding:
    return acl


DENIES: Final = (literal_deny, prefixed, wildcard, all_operations, every_user, network)


@pytest.mark.parametrize("row", CHECKED, ids=str)
def test_a_deny_on_top(authorized: Authorized, resources: Resources, acls: Acls, alice: Wire, row: Probe) -> None:
    """Every ALLOW is there, also more specific ones; other users and the super user are not concerned."""
    version = offered(authorized, row)
    for number, check in enumerate(row.checks):
        earlier = [previous for previous in row.checks[:number] if previous.resource_type == check.resource_type]
        for change in DENIES:
            with acls.for_case(check, change.__name__):
                names = resources.names(existing=row.existing)
                allowed = rights("alice", row, names)
                denied = [
                    change(Binding(check.operation, check.resource_type, name, "User:alice", DENY))
                    for name in names.of_type(check.resource_type)
                ]
                acls.create(*dict.fromkeys([*allowed, *map(wildcard, allowed), *denied]))
                first = earlier[0] if change is all_operations and earlier else check
                assert_denied(ask(alice, row, version, names), first, names)


@pytest.mark.parametrize("row", [row for row in CHECKED if any(check.instead for check in row.checks)], ids=str)
def test_rights_that_are_enough_instead(
    authorized: Authorized, resources: Resources, acls: Acls, alice: Wire, row: Probe
) -> None:
    version = offered(authorized, row)
    for number, check in enumerate(row.checks):
        for instead in check.instead:
            with acls.for_case(check, instead):
                names = resources.names(existing=row.existing)
                operation, resource_type = instead
                others = [
                    other for place, other in enumerate(row.checks) if place != number and instead not in other.instead
                ]
                acls.create(*rights("alice", row._replace(checks=tuple(others)), names))
                for name in names.of_type(resource_type):
                    acls.allow("alice", operation, resource_type, name)
                assert_permitted(ask(alice, row, version, names), row, names)


@pytest.mark.parametrize("row", PROBES, ids=str)
@pytest.mark.parametrize("user", ["ANONYMOUS", "root"])
def test_super_users(
    authorized: Authorized, resources: Resources, acls: Acls, root: Wire, row: Probe, user: str
) -> None:
    """DENY does not concern super users."""
    if user == "ANONYMOUS" and row.api == "CreateDelegationToken":
        pytest.skip("needs a login")
    version = offered(authorized, row)
    names = resources.names(existing=row.existing)
    acls.create(
        *dict.fromkeys(
            Binding(ALL, check.resource_type, name, "User:*", DENY)
            for check in row.checks
            for name in names.of_type(check.resource_type)
        )
    )
    wire = root if user == "ANONYMOUS" else authorized.user_wire(user)
    assert_permitted(ask(wire, row, version, names), row, names)
    if wire is not root:
        wire.close()


@pytest.mark.parametrize(
    "row",
    [
        row
        for row in PROBES
        if any(check.code == 29 and check.resource_type == 2 for check in row.checks)
        and "id" not in row.about
        and not row.existing
    ],
    ids=str,
)
def test_missing_topics_look_as_forbidden_ones(
    authorized: Authorized, resources: Resources, acls: Acls, alice: Wire, row: Probe
) -> None:
    if row.api == "AlterShareGroupOffsets":
        pytest.skip("shows the id of a forbidden topic")
    by_name = [version for version in row.versions if not _has_ids(row, version)]
    if not by_name:
        pytest.skip("all versions have topic ids")
    version = min(by_name[-1], authorized.offers[api_named(row.api).key][1])
    authorized.skip_unless_offered(row.api, version)
    number = next(place for place, check in enumerate(row.checks) if check.code == 29 and check.resource_type == 2)
    answers = []
    for exists in (False, True):
        names = resources.names(topics=exists)
        acls.create(*rights("alice", row, names, number))
        answer = ask(alice, row, version, names)
        assert_denied(answer, row.checks[number], names)
        answers.append(normalized(answer, signs(names)))
    assert answers[0] == answers[1]


def _has_ids(row: Probe, version: int) -> bool:
    topic_ids = Names(("t",), {"t": bytes(15) + b"\1"}, ("g",), ("x",))
    return "topic_id" in str(row.fields(topic_ids, version))
