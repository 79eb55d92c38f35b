"""Requests about ACLs."""

import functools
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from enum import Enum
from typing import Any, ClassVar, Final

from ottla.client.admin import acls as client_acls
from ottla.client.permissions import AclOperation as ClientOperation
from ottla.client.permissions import AclResourceType
from ottla.compat.librdkafka.admin.requests import Requests, every, limit, require
from ottla.compat.librdkafka.enums import (
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    member,
)

_FIELDS: Final = ("restype", "name", "resource_pattern_type", "principal", "host", "operation", "permission_type")
_ENUMS: Final[dict[str, type[Enum]]] = {
    "restype": ResourceType,
    "resource_pattern_type": ResourcePatternType,
    "operation": AclOperation,
    "permission_type": AclPermissionType,
}
_UNKNOWN: Final = {
    "restype": "resource type",
    "resource_pattern_type": "resource pattern type",
    "operation": "operation",
    "permission_type": "permission type",
}


@functools.total_ordering
class AclBinding:
    """ACL: an operation that a principal on a host is allowed or denied on the resources of a pattern.

    Enumerations may be fields by name or number. Equality, order and hash are those of all fields.
    """

    _required: ClassVar[tuple[str, ...]] = _FIELDS
    _forbidden: ClassVar[tuple[str, ...]] = ("ANY", "MATCH")

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str | None,
        resource_pattern_type: ResourcePatternType | str | int,
        principal: str | None,
        host: str | None,
        operation: AclOperation | str | int,
        permission_type: AclPermissionType | str | int,
    ) -> None:
        values: Iterable[Any] = (restype, name, resource_pattern_type, principal, host, operation, permission_type)
        fields = dict(zip(_FIELDS, values, strict=True))
        for field in self._required:
            require(fields[field] is not None, ValueError, f"Expected {field} to be not None")
        for field in ("name", "principal", "host"):
            require(isinstance(fields[field], str | None), TypeError, f"Expected {field} to be a string")
        for field, kind in _ENUMS.items():
            fields[field] = member(fields[field], kind)
            setattr(self, f"{field}_int", fields[field].value)
        for field in _ENUMS:
            reason = f"Cannot use enum {field}, value {fields[field].name} in this class"
            require(fields[field].name not in self._forbidden, ValueError, reason)
        vars(self).update(fields)

    def values(self) -> tuple[Any, ...]:
        """Return the fields in their order."""
        return tuple(getattr(self, field) for field in _FIELDS)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({','.join(map(str, self.values()))})"

    def __hash__(self) -> int:
        return hash(self.values())

    def __eq__(self, other: object) -> bool:
        return self.values() == other.values() if isinstance(other, AclBinding) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self.values() < other.values() if isinstance(other, AclBinding) else NotImplemented


class AclBindingFilter(AclBinding):
    """Filter on ACLs: None and ANY match all, MATCH all patterns that apply to a name."""

    _required = tuple(_ENUMS)
    _forbidden = ("UNKNOWN",)


def _parts(acl: AclBinding) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the fields of the client's pattern and entry."""
    restype, name, pattern, principal, host, operation, permission = acl.values()
    entry = principal, ClientOperation(operation.value), client_acls.AclPermissionType(permission.value), host
    return (AclResourceType(restype.value), name, client_acls.PatternType(pattern.value)), entry


def _client_acl(acl: AclBinding) -> client_acls.AclBinding:
    pattern, entry = _parts(acl)
    return client_acls.AclBinding(client_acls.ResourcePattern(*pattern), client_acls.AccessControlEntry(*entry))


def _client_filter(acl: AclBinding) -> client_acls.AclBindingFilter:
    pattern, entry = _parts(acl)
    return client_acls.AclBindingFilter(
        client_acls.ResourcePatternFilter(*pattern), client_acls.AccessControlEntryFilter(*entry)
    )


def _number_or_unknown(value: int, kind: type[Enum]) -> int:
    """Return a number, or that of UNKNOWN if librdkafka has no name for it."""
    return value if value in {known.value for known in kind} else 0


def _bindings(acls: Iterable[client_acls.AclBinding]) -> list[AclBinding]:
    return [
        AclBinding(
            _number_or_unknown(pattern.resource_type, ResourceType),
            pattern.name,
            int(pattern.pattern_type),
            entry.principal,
            entry.host,
            _number_or_unknown(entry.operation, AclOperation),
            int(entry.permission_type),
        )
        for pattern, entry in acls
    ]


def _check_acls(acls: Any, kind: type[AclBinding], plural: str, name: Callable[[Any], Any]) -> list[Any]:
    """Return ACLs or filters as a list. Raises TypeError, ValueError."""
    listed = list(acls)
    require(len(set(listed)) == len(listed), ValueError, f"duplicate ACL {plural} not allowed")
    every(listed, kind, ValueError)
    require(listed, ValueError, f"Expected non-empty list of {kind.__name__} objects")
    for acl in listed:
        for field, words in _UNKNOWN.items():
            require(getattr(acl, field).name != "UNKNOWN", ValueError, f"Invalid {words}")
        name(acl)
    return listed


class Acls(Requests):
    """Requests about ACLs."""

    def create_acls(
        self, acls: list[AclBinding], *, request_timeout: float | None = None
    ) -> dict[AclBinding, "Future[None]"]:
        """Create ACLs; return a future for each. Raises TypeError, ValueError."""
        chosen, seconds = _check_acls(acls, AclBinding, "bindings", _client_acl), limit(request_timeout)

        def request() -> Any:
            return self._admin.create_acls(map(_client_acl, chosen), timeout=seconds)

        return self._futures(chosen, request, name=_client_acl)

    def describe_acls(
        self, acl_binding_filter: AclBindingFilter, *, request_timeout: float | None = None
    ) -> "Future[list[AclBinding]]":
        """Describe the ACLs that match a filter. Raises TypeError."""
        is_filter = isinstance(acl_binding_filter, AclBindingFilter)
        require(is_filter, TypeError, "Expected an AclBindingFilter object")
        seconds, chosen = limit(request_timeout), _client_filter(acl_binding_filter)
        return self._future(lambda: _bindings(self._admin.describe_acls(chosen, timeout=seconds)))

    def delete_acls(
        self, acl_binding_filters: list[AclBindingFilter], *, request_timeout: float | None = None
    ) -> dict[AclBindingFilter, "Future[list[AclBinding]]"]:
        """Delete the ACLs that match filters; return a future of the deleted ones for each. Raises TypeError, ValueError."""
        chosen = _check_acls(acl_binding_filters, AclBindingFilter, "binding filters", _client_filter)
        seconds = limit(request_timeout)

        def request() -> Any:
            return self._admin.delete_acls(map(_client_filter, chosen), timeout=seconds)

        return self._futures(chosen, request, _bindings, name=_client_filter)
