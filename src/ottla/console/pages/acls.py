"""ACLs: list with filters, add, remove."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, TypeVar

from starlette.responses import Response

from ottla.client.admin.acls import (
    AccessControlEntry,
    AclBinding,
    AclPermissionType,
    PatternType,
    ResourcePattern,
)
from ottla.client.errors import KafkaError
from ottla.client.permissions import AclOperation, AclResourceType
from ottla.console.clusters import TIMEOUT_S
from ottla.console.problem import Problem
from ottla.console.visit import Visit, change, page
from ottla.protocol.errors import SECURITY_DISABLED
from ottla.security.operations import CLUSTER_NAME

E = TypeVar("E", bound=IntEnum)
_MOST: Final = 500
_OPTIONS: Final = {
    AclResourceType.TOPIC: "--topic",
    AclResourceType.GROUP: "--group",
    AclResourceType.TRANSACTIONAL_ID: "--transactional-id",
    AclResourceType.DELEGATION_TOKEN: "--delegation-token",
    AclResourceType.USER: "--user-principal",
}
_FIELDS: Final = ("resource_type", "name", "pattern_type", "principal", "host", "operation", "permission")


async def acls(visit: Visit) -> Response:
    """List ACLs: those with the search text in principal or resource."""
    query = visit.text("q")
    try:
        bindings = await visit.admin.describe_acls(timeout=TIMEOUT_S)
    except KafkaError as error:
        if error.code != SECURITY_DISABLED:
            raise
        return visit.render("acls_disabled.html", title="ACLs")
    matching = sorted(
        binding
        for binding in bindings
        if query.lower() in binding.entry.principal.lower() or query.lower() in binding.pattern.name.lower()
    )
    return visit.render(
        "acls.html",
        title="ACLs",
        rows=[(binding, visit.link("/acls/delete", **_arguments(binding))) for binding in matching[:_MOST]],
        count=len(matching),
        query=query,
        resource_types=[kind.name for kind in AclResourceType if kind != AclResourceType.ANY],
        pattern_types=[PatternType.LITERAL.name, PatternType.PREFIXED.name],
        operations=[operation.name for operation in AclOperation if operation != AclOperation.ANY],
        permissions=[AclPermissionType.ALLOW.name, AclPermissionType.DENY.name],
    )


def _arguments(binding: AclBinding) -> dict[str, str]:
    pattern, entry = binding
    values = (
        pattern.resource_type.name,
        pattern.name,
        pattern.pattern_type.name,
        entry.principal,
        entry.host,
        entry.operation.name,
        entry.permission_type.name,
    )
    return dict(zip(_FIELDS, values, strict=True))


def _binding(fields: Mapping[str, str]) -> AclBinding:
    """Return the ACL of a form. Raises Problem."""
    kind = _member(AclResourceType, fields.get("resource_type", ""))
    name = CLUSTER_NAME if kind == AclResourceType.CLUSTER else fields.get("name", "").strip()
    principal = fields.get("principal", "").strip()
    if not name:
        raise Problem("An ACL needs the name of a resource; * is every one.")
    if ":" not in principal:
        raise Problem("A principal is TYPE:NAME, like User:alice; User:* is every user.")
    return AclBinding(
        ResourcePattern(kind, name, _member(PatternType, fields.get("pattern_type", "LITERAL"))),
        AccessControlEntry(
            principal,
            _member(AclOperation, fields.get("operation", "")),
            _member(AclPermissionType, fields.get("permission", "ALLOW")),
            fields.get("host", "").strip() or "*",
        ),
    )


def _member(kind: type[E], name: str) -> E:
    try:
        member = kind[name]
    except KeyError:
        raise Problem(f"{name[:40]!r} is not one of {', '.join(entry.name for entry in kind)}.") from None
    return member


async def add(visit: Visit) -> Response:
    """Add an ACL."""
    visit.change = "add an ACL"
    binding = _binding(await visit.form())
    visit.change = f"add ACL {binding}"
    (await visit.admin.create_acls([binding], timeout=TIMEOUT_S)).check()
    return visit.redirect_with_notice(visit.link("/acls"), "The ACL was added.")


def _command(visit: Visit, binding: AclBinding) -> str:
    pattern, entry = binding
    operation = entry.operation.name.title().replace("_", "")
    side = "allow" if entry.permission_type == AclPermissionType.ALLOW else "deny"
    resource = (
        ["--cluster"]
        if pattern.resource_type == AclResourceType.CLUSTER
        else [_OPTIONS[pattern.resource_type], pattern.name]
    )
    words = [
        "--remove",
        *resource,
        "--resource-pattern-type",
        pattern.pattern_type.name.lower(),
        f"--{side}-principal",
        entry.principal,
        f"--{side}-host",
        entry.host,
        "--operation",
        operation,
    ]
    return visit.command("acls", *words)


async def show_delete(visit: Visit) -> Response:
    """Ask whether to remove an ACL."""
    binding = _binding({name: visit.text(name) for name in _FIELDS})
    pattern, entry = binding
    return visit.confirm(
        "Remove this ACL?",
        text=f"{entry.permission_type.name} {entry.principal} from {entry.host} to {entry.operation.name} on "
        f"{pattern.resource_type.name} {pattern.name} ({pattern.pattern_type.name}) is removed. Requests that it allows "
        "or denies are decided without it at once.",
        action=visit.link("/acls/delete", **_arguments(binding)),
        button="Remove the ACL",
        command=_command(visit, binding),
        cancel=visit.link("/acls"),
    )


async def delete(visit: Visit) -> Response:
    """Remove an ACL."""
    binding = _binding({name: visit.text(name) for name in _FIELDS})
    visit.change = f"remove ACL {binding}"
    deleted = (await visit.admin.delete_acls([binding.to_filter()], timeout=TIMEOUT_S)).check()
    count = sum(len(its) for its in deleted.successes.values())
    if not count:
        raise Problem("There is no such ACL any more.", 404)
    return visit.redirect_with_notice(visit.link("/acls"), "The ACL was removed.")


ROUTES = [page("/acls", acls), change("/acls", add), page("/acls/delete", show_delete), change("/acls/delete", delete)]
