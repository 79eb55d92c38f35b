"""ACLs as the tests write them: created, listed and deleted by the super user."""

import time
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from ottla.protocol.errors import NONE
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from tests.conformance.conftest import Wire

from .codes import ALLOW, ANY, LITERAL

_CONTROLLER_DELAY_S: Final = 0.02
"""Apache Kafka's controller has an authorizer of its own, which gets ACLs a moment after or before the broker's."""

EVERY: Final[dict[str, Any]] = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}
"""Filter that finds all ACLs."""


class Binding(NamedTuple):
    """One ACL."""

    operation: int
    resource_type: int
    name: str
    principal: str
    permission: int = ALLOW
    pattern: int = LITERAL
    host: str = "*"


def create_request(bindings: Iterable[Binding]) -> CreateAclsRequest:
    """Return CreateAcls of version 1 or newer."""
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=binding.resource_type,
                resource_name=binding.name,
                resource_pattern_type=binding.pattern,
                principal=binding.principal,
                host=binding.host,
                operation=binding.operation,
                permission_type=binding.permission,
            )
            for binding in bindings
        ]
    )


def create(wire: Wire, *bindings: Binding) -> None:
    """Create ACLs, and wait until they are in force."""
    if not bindings:
        return
    results = wire.send(create_request(bindings), 3).results
    assert [(result.error_code, result.error_message) for result in results] == [(NONE, "")] * len(bindings)
    _wait(wire, lambda acls: acls.issuperset(bindings))


def described(wire: Wire, **filters: Any) -> list[Binding]:
    """Return the ACLs that DescribeAcls finds, all without filters, in its order."""
    answer = wire.send(DescribeAclsRequest(**(EVERY | filters)), 3)
    assert answer.error_code == NONE, answer.error_message
    return [
        Binding(
            acl.operation,
            resource.resource_type,
            resource.resource_name,
            acl.principal,
            acl.permission_type,
            resource.pattern_type,
            acl.host,
        )
        for resource in answer.resources
        for acl in resource.acls
    ]


def delete_filter(binding: Binding) -> DeleteAclsFilter:
    """Return the filter of exactly one ACL."""
    return DeleteAclsFilter(
        resource_type_filter=binding.resource_type,
        resource_name_filter=binding.name,
        pattern_type_filter=binding.pattern,
        principal_filter=binding.principal,
        host_filter=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )


def delete(wire: Wire, *bindings: Binding) -> None:
    """Delete ACLs, and wait until they are out of force."""
    results = wire.send(DeleteAclsRequest(filters=[delete_filter(binding) for binding in bindings]), 3).filter_results
    assert [result.error_code for result in results] == [NONE] * len(bindings)
    _wait(wire, lambda acls: acls.isdisjoint(bindings))


def delete_all(wire: Wire) -> None:
    """Delete every ACL, and wait until none is in force."""
    (result,) = wire.send(DeleteAclsRequest(filters=[DeleteAclsFilter(**EVERY)]), 3).filter_results
    assert result.error_code == NONE, result.error_message
    if result.matching_acls:
        _wait(wire, lambda acls: not acls)


def _wait(wire: Wire, is_done: Any) -> None:
    deadline = time.monotonic() + 10
    while not is_done(set(described(wire))):
        assert wire.is_kafka, "ACLs of Ottla are in force when it answers"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    if wire.is_kafka:
        time.sleep(_CONTROLLER_DELAY_S)
