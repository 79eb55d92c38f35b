"""Admin requests that create, describe and delete ACLs (KIP-140; prefixed patterns KIP-290; since Kafka 0.11).

An ACL allows or denies a principal on a host one operation on the resources that a pattern matches. Names of classes and the
texts of `str()` are those of Kafka's Admin.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from ottla.arguments import checked_tuple
from ottla.client.admin.requests import Requests, refusal
from ottla.client.admin.results import Results
from ottla.client.errors import KafkaError, Permission
from ottla.client.permissions import AclOperation, AclResourceType
from ottla.protocol.errors import NONE, SECURITY_DISABLED
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
)
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResource
from ottla.protocol.schema import Request, Response

_ALTER: Final = Permission("Alter", "cluster")
_DESCRIBE: Final = Permission("Describe", "cluster")
_REMEDY: Final = (
    "Set authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer and super.users in the configuration of "
    "the brokers"
)
R = TypeVar("R", bound=Response)


class PatternType(IntEnum):
    """Relation of a pattern's name to the names of resources.

    ANY       filters: patterns with exactly this name, of any type
    MATCH     filters: patterns that apply to a resource of this name
    LITERAL   exactly this name; "*" is every name
    PREFIXED  names that begin with this name
    """

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermissionType(IntEnum):
    """Effect of an ACL; ANY is for filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


@checked_tuple
class ResourcePattern(NamedTuple):
    """Resources that an ACL applies to."""

    resource_type: AclResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return _pattern_text(self.resource_type, self.name, self.pattern_type)

    def to_filter(self) -> "ResourcePatternFilter":
        """Return the filter that matches exactly this pattern."""
        return ResourcePatternFilter(*self)


@checked_tuple
class ResourcePatternFilter(NamedTuple):
    """Filter on patterns; by default it matches all. A name of None is any name."""

    resource_type: AclResourceType = AclResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY

    def __str__(self) -> str:
        return _pattern_text(self.resource_type, self.name, self.pattern_type)


@checked_tuple
class AccessControlEntry(NamedTuple):
    """Permission that an ACL grants or denies.

    principal  like "User:alice"; "User:*" is every user
    host       IP address, network like 10.0.0.0/8 (since Kafka 4.4), or "*" for every host
    """

    principal: str
    operation: AclOperation
    permission_type: AclPermissionType = AclPermissionType.ALLOW
    host: str = "*"

    def __str__(self) -> str:
        return _entry_text(self.principal, self.host, self.operation, self.permission_type)

    def to_filter(self) -> "AccessControlEntryFilter":
        """Return the filter that matches exactly this entry."""
        return AccessControlEntryFilter(*self)


@checked_tuple
class AccessControlEntryFilter(NamedTuple):
    """Filter on entries; by default it matches all. None is any principal or host; texts are compared as they are."""

    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY
    host: str | None = None

    def __str__(self) -> str:
        return _entry_text(self.principal, self.host, self.operation, self.permission_type)


@checked_tuple
class AclBinding(NamedTuple):
    """ACL: an entry on the resources of a pattern."""

    pattern: ResourcePattern
    entry: AccessControlEntry

    def __str__(self) -> str:
        return f"(pattern={self.pattern}, entry={self.entry})"

    def to_filter(self) -> "AclBindingFilter":
        """Return the filter that matches exactly this ACL."""
        return AclBindingFilter(self.pattern.to_filter(), self.entry.to_filter())


@checked_tuple
class AclBindingFilter(NamedTuple):
    """Filter on ACLs; by default it matches all."""

    pattern: ResourcePatternFilter = ResourcePatternFilter()
    entry: AccessControlEntryFilter = AccessControlEntryFilter()

    def __str__(self) -> str:
        return f"(patternFilter={self.pattern}, entryFilter={self.entry})"


EVERY_ACL: Final = AclBindingFilter()


def _pattern_text(resource_type: AclResourceType, name: str | None, pattern_type: PatternType) -> str:
    named = "<any>" if name is None else name
    return f"ResourcePattern(resourceType={resource_type.name}, name={named}, patternType={pattern_type.name})"


def _entry_text(
    principal: str | None, host: str | None, operation: AclOperation, permission_type: AclPermissionType
) -> str:
    return (
        f"(principal={'<any>' if principal is None else principal}, host={'<any>' if host is None else host}, "
        f"operation={operation.name}, permissionType={permission_type.name})"
    )


def _refusal(code: int, about: str, message: str | None, needed: Permission) -> KafkaError | None:
    if code == SECURITY_DISABLED:
        message = f"{(message or 'No Authorizer is configured').rstrip('.')}. {_REMEDY}"
    return refusal(code, about, message or None, needed)


class Acls(Requests):
    """Requests about ACLs."""

    async def create_acls(
        self, acls: Iterable[AclBinding], *, timeout: float | None = None
    ) -> Results[AclBinding, None]:
        """Create ACLs. Results are by ACL; one that exists already is a success."""

        async def ask(bindings: list[AclBinding]) -> dict[AclBinding, KafkaError | None]:
            request = CreateAclsRequest(creations=[_creation(binding) for binding in bindings])
            are_literal = all(binding.pattern.pattern_type == PatternType.LITERAL for binding in bindings)
            link = await self.controller_link()  # before Kafka 2.0 all patterns are literal
            answer = await link.request(request, link.version(CreateAclsRequest, oldest=0 if are_literal else 1))
            return {
                binding: _refusal(row.error_code, f"create ACL {binding}", row.error_message, _ALTER)
                for binding, row in zip(bindings, answer.results, strict=True)
            }

        return await self.repeating("create ACLs", acls, ask, timeout)

    async def describe_acls(
        self, acl_filter: AclBindingFilter = EVERY_ACL, *, timeout: float | None = None
    ) -> list[AclBinding]:
        """Return the ACLs that match a filter, by default all. Raises KafkaError."""

        async def attempt() -> list[AclBinding]:
            pattern, entry = acl_filter
            request = DescribeAclsRequest(
                resource_type_filter=pattern.resource_type,
                resource_name_filter=pattern.name,
                pattern_type_filter=pattern.pattern_type,
                principal_filter=entry.principal,
                host_filter=entry.host,
                operation=entry.operation,
                permission_type=entry.permission_type,
            )
            answer = await self._ask(request, [request])
            error = _refusal(answer.error_code, "describe ACLs", answer.error_message, _DESCRIBE)
            if error is not None:
                raise error
            return [binding for resource in answer.resources for binding in _bindings_from(resource)]

        return await self.metadata.retrying("describe ACLs", attempt, self.limit_ms(timeout))

    async def delete_acls(
        self, filters: Iterable[AclBindingFilter], *, timeout: float | None = None
    ) -> Results[AclBindingFilter, tuple[AclBinding, ...]]:
        """Delete the ACLs that match any of these filters. Results are the deleted ACLs by filter, or its first error."""

        async def ask(asked: list[AclBindingFilter]) -> dict[AclBindingFilter, tuple[AclBinding, ...] | KafkaError]:
            request = DeleteAclsRequest(filters=[_deletion(acl_filter) for acl_filter in asked])
            answer = await self._ask(request, request.filters)
            return {
                acl_filter: _deletion_outcome(acl_filter, row)
                for acl_filter, row in zip(asked, answer.filter_results, strict=True)
            }

        return await self.repeating("delete ACLs", filters, ask, timeout)

    async def _ask(self, request: Request[R], filters: Sequence[DescribeAclsRequest | DeleteAclsFilter]) -> R:
        """Send a request that has filters to the controller; return the response. Before Kafka 2.0 all patterns are literal,
        so that a filter for any type asks for these, as Kafka's Admin does. Raises UnsupportedVersion for other types."""
        link = await self.controller_link()
        types = {row.pattern_type_filter for row in filters}
        version = link.version(type(request), oldest=0 if types <= {PatternType.LITERAL, PatternType.ANY} else 1)
        if version == 0:
            for row in filters:
                row.pattern_type_filter = PatternType.LITERAL
        return await link.request(request, version)


def _creation(binding: AclBinding) -> AclCreation:
    pattern, entry = binding
    return AclCreation(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        resource_pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )


def _deletion(acl_filter: AclBindingFilter) -> DeleteAclsFilter:
    pattern, entry = acl_filter
    return DeleteAclsFilter(
        resource_type_filter=pattern.resource_type,
        resource_name_filter=pattern.name,
        pattern_type_filter=pattern.pattern_type,
        principal_filter=entry.principal,
        host_filter=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )


def _bindings_from(resource: DescribeAclsResource) -> list[AclBinding]:
    pattern = ResourcePattern(
        AclResourceType(resource.resource_type), resource.resource_name, PatternType(resource.pattern_type)
    )
    return [
        AclBinding(
            pattern,
            AccessControlEntry(
                acl.principal, AclOperation(acl.operation), AclPermissionType(acl.permission_type), acl.host
            ),
        )
        for acl in resource.acls
    ]


def _deletion_outcome(acl_filter: AclBindingFilter, row: DeleteAclsFilterResult) -> tuple[AclBinding, ...] | KafkaError:
    error = _refusal(row.error_code, f"delete ACLs of {acl_filter.pattern}", row.error_message, _ALTER)
    if error is not None:
        return error
    for acl in row.matching_acls:
        if acl.error_code != NONE:
            failure = _refusal(acl.error_code, f"delete ACL {_matching(acl)}", acl.error_message, _ALTER)
            assert failure is not None
            return failure
    return tuple(_matching(acl) for acl in row.matching_acls)


def _matching(acl: DeleteAclsMatchingAcl) -> AclBinding:
    return AclBinding(
        ResourcePattern(AclResourceType(acl.resource_type), acl.resource_name, PatternType(acl.pattern_type)),
        AccessControlEntry(
            acl.principal, AclOperation(acl.operation), AclPermissionType(acl.permission_type), acl.host
        ),
    )
