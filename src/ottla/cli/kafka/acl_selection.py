"""ACLs and resources that the options of `ottla acls` select."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import click

from ottla.client.admin.acls import (
    AccessControlEntry,
    AclPermissionType,
    PatternType,
    ResourcePatternFilter,
)
from ottla.client.permissions import AclOperation, AclResourceType
from ottla.security.operations import CLUSTER_NAME, OPERATIONS

AclSelection: TypeAlias = dict[ResourcePatternFilter, tuple[AccessControlEntry, ...]]
"""Entries by resource."""

_BY_NAME: Final = {
    operation.name.replace("_", "").lower(): operation for operation in AclOperation if operation != AclOperation.ANY
}
_NAMES: Final = tuple(
    "".join(word.capitalize() for word in operation.name.split("_"))
    for operation in AclOperation
    if operation != AclOperation.ANY
)
_CLUSTER: Final = ResourcePatternFilter(AclResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)


def complete_operations(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete names of operations."""
    del ctx, param
    return [name for name in _NAMES if name.lower().startswith(incomplete.lower())]


def parse_principals(texts: Iterable[str]) -> list[str]:
    """Return principals without surrounding blanks. Raises UsageError."""
    principals = list(dict.fromkeys(text.strip() for text in texts))
    for principal in principals:
        if ":" not in principal:
            raise click.UsageError(f"expected a string in format principalType:principalName but got {principal}")
    return principals


def select_patterns(options: Mapping[str, Any]) -> list[ResourcePatternFilter]:
    """Return the resources of the options. As in Kafka's tool, --cluster counts for literal patterns only."""
    pattern_type = PatternType[options["resource_pattern_type"].upper()]
    named: tuple[tuple[AclResourceType, Iterable[str]], ...] = (
        (AclResourceType.TOPIC, options["topics"]),
        (AclResourceType.GROUP, options["groups"]),
        (AclResourceType.TRANSACTIONAL_ID, options["transactional_id"]),
        (AclResourceType.DELEGATION_TOKEN, options["delegation_token"]),
        (AclResourceType.USER, options["user_principal"]),
    )
    patterns = [
        ResourcePatternFilter(
            resource_type, name if resource_type == AclResourceType.TRANSACTIONAL_ID else name.strip(), pattern_type
        )
        for resource_type, names in named
        for name in names
    ]
    if pattern_type == PatternType.LITERAL and (options["cluster"] or options["idempotent"]):
        patterns.append(_CLUSTER)
    return list(dict.fromkeys(patterns))


def select_acls(options: Mapping[str, Any]) -> AclSelection:
    """Return the entries of the options by resource. Raises UsageError."""
    patterns = select_patterns(options)
    if not patterns:
        raise click.UsageError(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or --delegation-token "
            "<Delegation Token ID>"
        )
    selection: dict[ResourcePatternFilter, list[AccessControlEntry]] = {}

    def add(resource_type: AclResourceType, *operations: AclOperation) -> None:
        for pattern in patterns:
            if pattern.resource_type == resource_type:
                selection.setdefault(pattern, []).extend(_entries(options, operations))

    if options["producer"]:
        add(AclResourceType.TOPIC, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
        add(AclResourceType.TRANSACTIONAL_ID, AclOperation.WRITE, AclOperation.DESCRIBE)
        if options["idempotent"]:
            selection[_CLUSTER] = _entries(options, (AclOperation.IDEMPOTENT_WRITE,))
    if options["consumer"]:
        add(AclResourceType.TOPIC, AclOperation.READ, AclOperation.DESCRIBE)
        add(AclResourceType.GROUP, AclOperation.READ)
    if not options["producer"] and not options["consumer"]:
        named = options["operation"] or ("All",)
        if any(name.strip().lower() == "any" for name in named):
            raise click.UsageError("operation must not be ANY")
        operations = [_BY_NAME.get(name.strip().lower()) for name in named]
        for pattern in patterns:
            _check_operations(pattern.resource_type, operations)
        selection = {pattern: _entries(options, filter(None, operations)) for pattern in patterns}
    return {pattern: tuple(sorted(dict.fromkeys(entries))) for pattern, entries in selection.items()}


def _check_operations(resource_type: AclResourceType, operations: Iterable[AclOperation | None]) -> None:
    """Raise UsageError for operations that the type of resource has not; None is an unknown operation."""
    supported = (AclOperation.ALL, *OPERATIONS[resource_type])
    if not all(operation in supported for operation in operations):
        listed = ", ".join(operation.name for operation in supported)
        raise click.UsageError(f"ResourceType {resource_type.name} only supports operations [{listed}]")


def _entries(options: Mapping[str, Any], operations: Iterable[AclOperation]) -> list[AccessControlEntry]:
    listed = list(operations)
    grants = (
        (AclPermissionType.ALLOW, options["allow_principal"], options["allow_host"]),
        (AclPermissionType.DENY, options["deny_principal"], options["deny_host"]),
    )
    return [
        AccessControlEntry(principal, operation, permission_type, host)
        for permission_type, principals, hosts in grants
        for principal in parse_principals(principals)
        for operation in listed
        for host in [host.strip() for host in hosts] or ["*"]
    ]
