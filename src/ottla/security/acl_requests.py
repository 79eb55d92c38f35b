"""Validation of new ACLs, and filters of ACLs (KIP-140, KIP-290): pure functions with Kafka's error texts."""

from typing import Final, NamedTuple

from ottla.security.acls import ALL, ALLOW, DENY, LITERAL, PREFIXED, WILDCARD, Acl, InvalidHost, check_host
from ottla.security.operations import CLUSTER_NAME, AclOperation, AclResourceType

UNKNOWN: Final = 0
ANY: Final = 1
MATCH: Final = 2
"""Pattern type of a filter for all patterns that cover a name."""
_RESOURCE_TYPES: Final = frozenset(AclResourceType)
_OPERATIONS: Final = frozenset((ALL, *AclOperation))


class InvalidAcl(ValueError):
    """An ACL or a filter that Kafka answers with INVALID_REQUEST and this text."""


class UnusableAcl(ValueError):
    """An ACL with a code that only filters have: Kafka answers UNKNOWN_SERVER_ERROR without a text."""


def check_acl(acl: Acl) -> None:
    """Check a new ACL. Raises InvalidAcl and UnusableAcl.

    As in Kafka it is not checked whether the operation makes sense for the resource.
    """
    if acl.resource_type == ANY or acl.operation == ANY or acl.permission == ANY or acl.pattern_type in (ANY, MATCH):
        raise UnusableAcl
    if acl.resource_type == AclResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise InvalidAcl(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.name:
        raise InvalidAcl("Invalid empty resource name")
    for what, code, known in (
        ("resourceType", acl.resource_type, _RESOURCE_TYPES),
        ("patternType", acl.pattern_type, (LITERAL, PREFIXED)),
        ("operation", acl.operation, _OPERATIONS),
        ("permissionType", acl.permission, (DENY, ALLOW)),
    ):
        if code not in known:
            raise InvalidAcl(f"Invalid {what} UNKNOWN")
    if ":" not in acl.principal:
        raise InvalidAcl(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type from the "
            "principal name)"
        )
    try:
        check_host(acl.host)
    except InvalidHost as cause:
        raise InvalidAcl(str(cause)) from None


class AclFilter(NamedTuple):
    """Filter of ACLs. None, and the code ANY, are for all values.

    pattern_type  ANY, LITERAL, PREFIXED, or MATCH: the patterns that cover `name`
    """

    resource_type: int
    pattern_type: int
    name: str | None
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def check(self) -> None:
        """Check the codes. Raises InvalidAcl."""
        if self.resource_type not in (ANY, *_RESOURCE_TYPES) or self.pattern_type not in (
            ANY,
            MATCH,
            LITERAL,
            PREFIXED,
        ):
            raise InvalidAcl("Unknown patternFilter.")
        if self.operation not in (ANY, *_OPERATIONS) or self.permission not in (ANY, DENY, ALLOW):
            raise InvalidAcl("Unknown entryFilter.")

    @property
    def codes(self) -> tuple[int, ...]:
        """All codes."""
        return self.resource_type, self.pattern_type, self.operation, self.permission

    def selects(self, acl: Acl) -> bool:
        """Return whether the filter selects an ACL. Principal, host and operation are compared, not interpreted."""
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self._selects_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
        )

    def _selects_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in (ANY, MATCH, acl.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type != MATCH:
            return acl.name == self.name
        if acl.pattern_type == LITERAL:
            return acl.name in (self.name, WILDCARD)
        return self.name.startswith(acl.name)
