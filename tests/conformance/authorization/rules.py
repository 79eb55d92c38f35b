"""The rules of ACLs, once more: a slow decision procedure that goes over all ACLs, as a second opinion on brokers.

Written from the description of the rules alone; it shares no code with the broker.
"""

import ipaddress
from collections.abc import Collection, Iterable
from typing import Any

from .bindings import Binding
from .codes import (
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_NAME,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
)
from .denials import rows, signs
from .messages import values_at
from .probes import EMPTY, HIDDEN, Check, Names, Probe

_FRESH = "~no such prefix~"
"""A name, and the end of a name, to which no ACL of the tests refers."""


class Rules:
    """Decisions for one user on one address, by the ACLs of all users."""

    def __init__(self, acls: Collection[Binding], user: str, address: str = "127.0.0.1") -> None:
        self._acls = [
            acl for acl in acls if acl.principal in (f"User:{user}", "User:*") and _host_matches(acl.host, address)
        ]

    def allow(self, operation: int, resource_type: int, name: str) -> bool:
        """Return whether the user may do an operation on a resource."""
        near = [acl for acl in self._acls if acl.resource_type == resource_type and _name_matches(acl, name)]
        if any(acl.permission == DENY and acl.operation in (operation, ALL) for acl in near):
            return False
        return any(acl.permission == ALLOW and _gives(acl.operation, operation) for acl in near)

    def allow_any(self, operation: int, resource_type: int) -> bool:
        """Return whether there may be a resource of a type on which the user may do an operation."""
        names = {"hardcode", _FRESH}
        for acl in self._acls:
            if acl.permission == ALLOW and acl.resource_type == resource_type and acl.operation in (operation, ALL):
                names.add(acl.name if acl.pattern == LITERAL else acl.name + _FRESH)
        return any(self.allow(operation, resource_type, name) for name in names)

    def bits(self, operations: Iterable[int], resource_type: int, name: str) -> int:
        """Return the bit field of the operations that are allowed."""
        return sum(1 << operation for operation in operations if self.allow(operation, resource_type, name))

    def holds(self, row: Probe, check: Check, name: str) -> bool:
        """Return whether the user has the right of a check on a resource, or one that is enough instead."""
        if self.allow(check.operation, check.resource_type, name):
            return True
        for operation, resource_type in check.instead:
            if resource_type == CLUSTER and self.allow(operation, CLUSTER, CLUSTER_NAME):
                return True
            if resource_type == TOPIC and row.api == "InitProducerId" and self.allow_any(operation, TOPIC):
                return True
        return False


def _gives(held: int, operation: int) -> bool:
    if held in (ALL, operation):
        return True
    if operation == DESCRIBE:
        return held in (READ, WRITE, DELETE, ALTER)
    return operation == DESCRIBE_CONFIGS and held == ALTER_CONFIGS


def _name_matches(acl: Binding, name: str) -> bool:
    if acl.pattern == PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, "*")


def _host_matches(host: str, address: str) -> bool:
    if host in ("*", address):
        return True
    if "/" not in host:
        return False
    return ipaddress.ip_address(address) in ipaddress.ip_network(host, strict=False)


def contradiction(row: Probe, names: Names, answer: Any, rules: Rules, denied_codes: Collection[int]) -> str | None:
    """Return what is wrong with an answer by the rules, None if nothing is."""
    left = set(names.of_type(row.many)) if row.many is not None else set()
    marks = signs(names)
    for check in row.checks:
        if check.resource_type == row.many:
            refused = {name for name in left if not rules.holds(row, check, name)}
            wrong = _wrong_rows(check, names, answer, refused, left, marks)
            if wrong:
                return wrong
            left -= refused
            if not left:
                return None
            continue
        if not all(rules.holds(row, check, name) for name in names.of_type(check.resource_type)):
            values = values_at(answer, check.path)
            expected = set() if check.code == EMPTY else {check.code}
            return None if set(values) == expected else f"expected {check}, found {values}"
        if check.code == EMPTY and not values_at(answer, check.path):
            return f"expected values at {check.path}"
        codes = [] if check.code == EMPTY else values_at(answer, check.path)
        later = {other.code for other in row.checks[row.checks.index(check) + 1 :] if other.path == check.path}
        if (set(codes) & set(denied_codes)) - later:
            return f"{check} is held, found {codes}"
    return None


def _wrong_rows(
    check: Check, names: Names, answer: Any, refused: set[str], left: set[str], marks: dict[str | bytes, str]
) -> str | None:
    """Return what is wrong with the rows of several resources."""
    if check.code == HIDDEN:
        values = set(values_at(answer, check.path))
        by_name = {name: {name, names.ids.get(name, b"")} for name in left}
        shown = {name for name in left if by_name[name] & values}
        if shown & refused:
            return f"shown although hidden: {sorted(shown & refused)}"
        return None
    for sign, code in rows(answer, check.path, marks):
        for name in left:
            if sign not in (marks[name], marks.get(names.ids.get(name, b""))):
                continue
            if (name in refused) != (code == check.code):
                return f"{name}: {code}, refused: {sorted(refused)} by {check}"
    return None
