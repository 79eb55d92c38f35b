"""ACLs and the decisions of Kafka's StandardAuthorizer (KIP-11, KIP-290, KIP-801): pure functions of ACLs and a request.

Decision for a principal, host, operation and resource, in this order:

    a super user                                   allowed
    a DENY that matches                            denied, whatever else matches
    an ALLOW that matches, or implies the right    allowed
    some ACL applies to the resource               denied
    otherwise                                      allow.everyone.if.no.acl.found

An ACL applies to a resource by a literal pattern with its name, the literal pattern `*`, or a prefixed pattern. It matches if
also its principal is the sender's or `User:*`, its host is the sender's address, a network that contains it, or `*`, and its
operation is the wanted one or ALL.
"""

import ipaddress
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Final, NamedTuple

from ottla.security.operations import AclOperation, AclResourceType

LITERAL: Final = 3
PREFIXED: Final = 4
DENY: Final = 2
ALLOW: Final = 3
ALL: Final = 2
"""Operation that stands for every operation."""
WILDCARD: Final = "*"
EVERY_USER: Final = "User:*"
_ANY_NAME: Final = "hardcode"
"""Resource by which Kafka asks for a right on any resource of a type."""
_IMPLIED_BY: Final[Mapping[int, frozenset[int]]] = {
    AclOperation.DESCRIBE: frozenset((AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)),
    AclOperation.DESCRIBE_CONFIGS: frozenset((AclOperation.ALTER_CONFIGS,)),
}
"""Operations whose ALLOW implies another operation; a DENY implies nothing."""


class Acl(NamedTuple):
    """One ACL, with the codes of the protocol.

    pattern_type  LITERAL or PREFIXED
    principal     "User:alice", or "User:*" for all users
    host          "*", an IP address, or a network such as 10.0.0.0/8
    permission    DENY or ALLOW
    """

    resource_type: int
    pattern_type: int
    name: str
    principal: str
    host: str
    operation: int
    permission: int

    def encoded(self) -> bytes:
        """Return the value of its key in the metadata store."""
        return json.dumps({"format": 1, **self._asdict()}, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, value: bytes) -> "Acl":
        """Return the inverse of `encoded`."""
        fields = json.loads(value)
        return cls(*(fields[name] for name in cls._fields))

    def audit_text(self) -> str:
        """Return the ACL as Kafka's audit log writes it."""
        return (
            f"MatchingAcl(acl=StandardAcl[resourceType={AclResourceType(self.resource_type).name}, resourceName={self.name}, "
            f"patternType={'LITERAL' if self.pattern_type == LITERAL else 'PREFIXED'}, principal={self.principal}, "
            f"host={self.host}, operation={operation_name(self.operation)}, "
            f"permissionType={'ALLOW' if self.permission == ALLOW else 'DENY'}])"
        )

    def applies_to(self, name: str) -> bool:
        """Return whether the pattern covers a resource of its type."""
        if self.pattern_type == PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)

    def is_of(self, principal: str, host: str) -> bool:
        """Return whether the ACL is for a sender."""
        return self.principal in (principal, EVERY_USER) and matches_host(self.host, host)


def operation_name(operation: int) -> str:
    """Return the name of an operation of an ACL, ALL included."""
    return AclOperation(operation).name


class Decision(NamedTuple):
    """Outcome of a check, and the rule that decided: an ACL, or the name that Kafka's audit log has for the rule."""

    is_allowed: bool
    rule: Acl | str


SUPER_USER: Final = Decision(True, "SuperUser")
DEFAULT_DENY: Final = Decision(False, "DefaultDeny")
DEFAULT_ALLOW: Final = Decision(True, "DefaultAllow")


class InvalidHost(ValueError):
    """A host of an ACL that is empty, or no network although it has a slash."""


def check_host(host: str) -> None:
    """Raise InvalidHost for a host that Kafka refuses, with its text. A name that is no address is accepted, and never
    matches.
    """
    if not host:
        raise InvalidHost("Host pattern cannot be null or empty")
    if "/" not in host:
        return
    address, _, bits = host.partition("/")
    try:
        most = 128 if ipaddress.ip_address(address).version == 6 else 32
    except ValueError:
        raise InvalidHost(f"Invalid CIDR notation '{host}': Could not parse [{host}]") from None
    if not bits.isascii() or not bits.isdigit():
        raise InvalidHost(f"Invalid CIDR notation '{host}': Could not parse [{host}]")
    if int(bits) > most:
        raise InvalidHost(f"Invalid CIDR notation '{host}': Value [{int(bits)}] not in range [0,{most}]")


@cache
def _network(host: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Return the network of a host in an ACL. An IPv6 address is one too, as it can be written in several ways."""
    try:
        return ipaddress.ip_network(host, strict=False) if "/" in host or ":" in host else None
    except ValueError:
        return None


def matches_host(pattern: str, host: str) -> bool:
    """Return whether the host of an ACL covers an IP address."""
    if pattern in (WILDCARD, host):
        return True
    network = _network(pattern)
    if network is None:
        return False
    try:
        return ipaddress.ip_address(host) in network
    except ValueError:
        return False


class AclTable:
    """ACLs of a cluster, found by resource. Immutable."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self._literal: dict[tuple[int, str], list[Acl]] = {}
        self._prefixed: dict[int, dict[str, list[Acl]]] = {}
        self._lengths: dict[int, list[int]] = {}
        """Lengths of the prefixes of a resource type, ascending."""
        for acl in acls:
            if acl.pattern_type == PREFIXED:
                self._prefixed.setdefault(acl.resource_type, {}).setdefault(acl.name, []).append(acl)
            else:
                self._literal.setdefault((acl.resource_type, acl.name), []).append(acl)
        for resource_type, by_prefix in self._prefixed.items():
            self._lengths[resource_type] = sorted({len(prefix) for prefix in by_prefix})

    def of(self, resource_type: int, name: str) -> Iterator[Acl]:
        """Iterate over the ACLs that apply to a resource."""
        yield from self._literal.get((resource_type, name), ())
        if name != WILDCARD:
            yield from self._literal.get((resource_type, WILDCARD), ())
        by_prefix = self._prefixed.get(resource_type)
        if by_prefix is not None:
            for length in self._lengths[resource_type]:
                if length > len(name):
                    break
                yield from by_prefix.get(name[:length], ())

    def of_type(self, resource_type: int) -> Iterator[Acl]:
        """Iterate over the ACLs of all resources of a type."""
        for (kind, _), acls in self._literal.items():
            if kind == resource_type:
                yield from acls
        for acls in self._prefixed.get(resource_type, {}).values():
            yield from acls


class StandardAuthorizer:
    """Decisions by ACLs.

    super_users       principals that may do everything
    allows_everyone   allow.everyone.if.no.acl.found
    """

    def __init__(self, table: AclTable, super_users: Collection[str] = (), *, allows_everyone: bool = False) -> None:
        self._table = table
        self._super_users = frozenset(super_users)
        self._default = DEFAULT_ALLOW if allows_everyone else DEFAULT_DENY

    def decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> Decision:
        """Decide on an operation on a resource.

        host  IP address of the sender
        """
        if principal in self._super_users:
            return SUPER_USER
        allowing: Acl | None = None
        has_acl = False
        for acl in self._table.of(resource_type, name):
            has_acl = True
            if not acl.is_of(principal, host):
                continue
            if acl.permission == DENY:
                if acl.operation in (operation, ALL):
                    return Decision(False, acl)
            elif allowing is None and _allows(acl, operation):
                allowing = acl
        if allowing is not None:
            return Decision(True, allowing)
        return DEFAULT_DENY if has_acl else self._default

    def decide_for_any(self, principal: str, host: str, operation: int, resource_type: int) -> Decision:
        """Decide on an operation on any resource of a type: whether there can be a resource for which it is allowed."""
        plain = self.decide(principal, host, operation, resource_type, _ANY_NAME)
        if plain.is_allowed:
            return plain
        mine = [acl for acl in self._table.of_type(resource_type) if acl.is_of(principal, host)]
        denied = [acl for acl in mine if acl.permission == DENY and acl.operation in (operation, ALL)]
        for acl in denied:
            if acl.pattern_type == LITERAL and acl.name == WILDCARD:
                return Decision(False, acl)
        for acl in mine:
            if acl.permission == ALLOW and acl.operation in (operation, ALL) and not _is_dominated(acl, denied):
                return Decision(True, acl)
        return DEFAULT_DENY


def _allows(acl: Acl, operation: int) -> bool:
    return acl.operation in (operation, ALL) or acl.operation in _IMPLIED_BY.get(operation, ())


def _is_dominated(allow: Acl, denied: Iterable[Acl]) -> bool:
    """Return whether a DENY covers everything that an ALLOW covers. One on `*` is not, as no DENY is on `*`."""
    if allow.pattern_type == LITERAL and allow.name == WILDCARD:
        return False
    for deny in denied:
        if deny.pattern_type == PREFIXED and allow.name.startswith(deny.name):
            return True
        if deny.pattern_type == LITERAL and allow.pattern_type == LITERAL and allow.name == deny.name:
            return True
    return False


def parse_super_users(text: str) -> frozenset[str]:
    """Return the principals of super.users, which are separated by semicolons. Raises ValueError with Kafka's text."""
    principals = [part.strip() for part in text.split(";") if part.strip()]
    for principal in principals:
        kind, colon, _ = principal.partition(":")
        if not colon or not kind:
            raise ValueError(f"expected a string in format principalType:principalName but got {principal}")
    return frozenset(principals)
