"""Authorization of requests: the decisions of the configured authorizer, kept for each connection, and their audit log.

    authorizer.class.name                                           decisions
    (none)                                                          every client may do everything, and nothing is checked
    org.apache.kafka.metadata.authorizer.StandardAuthorizer         by the ACLs in the metadata image
    package.module:Name                                             by a Python class

A Python class has a method `authorize(request: AuthorizationRequest) -> bool`, and may have `configure(configs)`, which is
called once with all configs of the broker as texts. It is called for each check, because only the class knows how long a
decision holds. A request for which it raises is denied.

The logger ottla.authorizer has a line for each decision, as Kafka's audit log: INFO if denied, DEBUG if allowed. A request has
20 lines at most, and one with the number of its other decisions: a client must not fill the disk with names that it makes up.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.broker.plugins import is_python_class, load_class
from ottla.metadata.configs import InvalidConfig
from ottla.metadata.image import Delta, Image
from ottla.protocol.api import APIS
from ottla.protocol.context import RequestContext
from ottla.security.acls import Acl, AclTable, Decision, StandardAuthorizer, parse_super_users
from ottla.security.operations import AclOperation, AclResourceType

AUTHORIZER: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
ALLOWS_EVERYONE: Final = "allow.everyone.if.no.acl.found"
_STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_MOST_DECISIONS: Final = 10_000
"""Permitted operations kept for one connection."""
LINES_A_REQUEST: Final = 20
"""Lines in the audit log about one request, before the one with the number of others."""
audit: Final = logging.getLogger("ottla.authorizer")
_TYPES: Final = {
    AclResourceType.TOPIC: "Topic",
    AclResourceType.GROUP: "Group",
    AclResourceType.CLUSTER: "Cluster",
    AclResourceType.TRANSACTIONAL_ID: "TransactionalId",
    AclResourceType.DELEGATION_TOKEN: "DelegationToken",
    AclResourceType.USER: "User",
}


class AuthorizationRequest(NamedTuple):
    """Question that a Python class decides.

    principal      "User:alice"
    host           IP address of the client
    operation      name of the operation, "READ"
    resource_type  name of the type, "TOPIC"
    resource_name  name of the resource; "kafka-cluster" for the cluster
    api            name of the request's API, "Fetch"
    client_id      client.id of the request, may be None
    listener       name of the listener that the client connected to
    """

    principal: str
    host: str
    operation: str
    resource_type: str
    resource_name: str
    api: str
    client_id: str | None
    listener: str


class Authorization:
    """The authorizer of a broker.

    requests, denied  number of decisions since the start, for metrics
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        """Set up the authorizer that configs name. Raises InvalidConfig."""
        name = texts[AUTHORIZER]
        self.plugin: Any = None
        self.requests = self.denied = 0
        try:
            self._super_users = parse_super_users(texts.get(SUPER_USERS) or "")
        except ValueError as cause:
            raise InvalidConfig(f"{SUPER_USERS}: {cause}") from None
        self._allows_everyone = _flag(texts.get(ALLOWS_EVERYONE) or "false")
        if is_python_class(name):
            self.plugin = load_class(AUTHORIZER, name, "authorize")()
            configure = getattr(self.plugin, "configure", None)
            if configure is not None:
                configure(dict(texts))
        elif name != _STANDARD:
            raise InvalidConfig(
                f"Invalid value {name} for configuration {AUTHORIZER}: Class {name} could not be found. Ottla has {_STANDARD}, "
                "and takes a Python class as package.module:Name"
            )
        self.acls: Mapping[str, Acl] = {}
        self.current = self._standard()

    def _standard(self) -> StandardAuthorizer:
        table = AclTable(self.acls.values())
        return StandardAuthorizer(table, self._super_users, allows_everyone=self._allows_everyone)

    def act_on(self, delta: Delta) -> None:
        """Act on a change of the metadata."""
        self.apply(delta.image)

    def apply(self, image: Image) -> None:
        """Take over the ACLs of a newer metadata image; the decisions that connections have kept are void."""
        if image.acls is not self.acls:
            self.acls = image.acls
            self.current = self._standard()

    def of(self, principal: str, host: str) -> "SessionAuthorizer | PluginAuthorizer":
        """Return the permissions of a connection.

        host  IP address of the client
        """
        if self.plugin is not None:
            return PluginAuthorizer(self, principal, host)
        return SessionAuthorizer(self, principal, host)


class AuditLog:
    """Audit log of the requests of one connection."""

    __slots__ = ("_lines", "_others", "_others_denied")

    def __init__(self) -> None:
        self._lines = self._others = self._others_denied = 0

    @property
    def has_room(self) -> bool:
        """Return whether the request may have another line."""
        return self._lines < LINES_A_REQUEST

    def record(
        self, decision: Decision, context: RequestContext, operation: int, resource_type: int, name: str
    ) -> None:
        """Write a decision, or count it."""
        level = logging.DEBUG if decision.is_allowed else logging.INFO
        if not audit.isEnabledFor(level):
            return
        if not self.has_room:
            self._others += 1
            self._others_denied += not decision.is_allowed
            return
        self._lines += 1
        audit.log(
            level,
            "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s for request = %s "
            "with resourceRefCount = 1 based on rule %s",
            context.principal,
            "Allowed" if decision.is_allowed else "Denied",
            AclOperation(operation).name,
            context.client_host.removeprefix("/"),
            _TYPES[AclResourceType(resource_type)],
            name,
            APIS[context.api].name if context.api in APIS else "?",
            decision.rule if isinstance(decision.rule, str) else decision.rule.audit_text(),
        )

    def end_request(self, context: RequestContext) -> None:
        """Write the number of decisions that were only counted."""
        self._lines = 0
        if self._others:
            audit.log(
                logging.INFO if self._others_denied else logging.DEBUG,
                "Principal = %s from host = %s: %d more decisions for request = %s, %d of them Denied",
                context.principal,
                context.client_host.removeprefix("/"),
                self._others,
                APIS[context.api].name if context.api in APIS else "?",
                self._others_denied,
            )
            self._others = self._others_denied = 0


class SessionAuthorizer:
    """Permissions of one connection by ACLs; what they allow is kept until ACLs change."""

    __slots__ = ("_allowed", "_authorization", "_host", "_log", "_principal", "_standard", "end_request")

    def __init__(self, authorization: Authorization, principal: str, host: str) -> None:
        self._authorization = authorization
        self._principal = principal
        self._host = host
        self._log = AuditLog()
        self.end_request = self._log.end_request
        self._standard = authorization.current
        self._allowed: set[tuple[int, int, str]] = set()
        """Operation, resource type and name of what the standard authorizer has allowed."""

    def allows(
        self, context: RequestContext, operation: int, resource_type: int, name: str, *, is_logged: bool = True
    ) -> bool:
        """Return True if the sender of a request is authorized for an operation on a resource; codes as in ACLs."""
        authorization = self._authorization
        if (operation, resource_type, name) in self._allowed and self._standard is authorization.current:
            authorization.requests += 1
            if is_logged and audit.isEnabledFor(logging.DEBUG):
                self._decide(context, operation, resource_type, name, is_logged=True)
            return True
        if self._standard is not authorization.current:
            self._standard = authorization.current
            self._allowed.clear()
        authorization.requests += 1
        return self._decide(context, operation, resource_type, name, is_logged=is_logged)

    def _decide(
        self, context: RequestContext, operation: int, resource_type: int, name: str, *, is_logged: bool
    ) -> bool:
        decision = self._standard.decide(self._principal, self._host, operation, resource_type, name)
        if is_logged:
            self._log.record(decision, context, operation, resource_type, name)
        if not decision.is_allowed:
            self._authorization.denied += 1
            return False
        if len(self._allowed) >= _MOST_DECISIONS:
            self._allowed.clear()
        self._allowed.add((operation, resource_type, name))
        return True

    def allows_any(self, context: RequestContext, operation: int, resource_type: int) -> bool:
        """Return True if there can be a resource of a type on which the sender is authorized for an operation."""
        decision = self._authorization.current.decide_for_any(self._principal, self._host, operation, resource_type)
        self._authorization.requests += 1
        self._authorization.denied += not decision.is_allowed
        self._log.record(decision, context, operation, resource_type, "hardcode")
        return decision.is_allowed


class PluginAuthorizer:
    """Permissions of one connection by a Python class."""

    __slots__ = ("_authorization", "_host", "_log", "_principal", "end_request")

    def __init__(self, authorization: Authorization, principal: str, host: str) -> None:
        self._authorization = authorization
        self._principal = principal
        self._host = host
        self._log = AuditLog()
        self.end_request = self._log.end_request

    def allows(
        self, context: RequestContext, operation: int, resource_type: int, name: str, *, is_logged: bool = True
    ) -> bool:
        """Return True if the class allows it."""
        authorization = self._authorization
        request = AuthorizationRequest(
            self._principal,
            self._host,
            AclOperation(operation).name,
            AclResourceType(resource_type).name,
            name,
            APIS[context.api].name if context.api in APIS else "",
            context.client_id,
            context.listener,
        )
        rule = type(authorization.plugin).__name__
        try:
            is_allowed = bool(authorization.plugin.authorize(request))
        except Exception:  # noqa: BLE001
            if self._log.has_room:
                audit.exception("%s failed, the request is denied: %s", rule, request)
            is_allowed = False
        authorization.requests += 1
        authorization.denied += not is_allowed
        if is_logged:
            self._log.record(Decision(is_allowed, rule), context, operation, resource_type, name)
        return is_allowed

    def allows_any(self, context: RequestContext, operation: int, resource_type: int) -> bool:
        """Return True if the class allows it on the resource that Kafka asks for: "hardcode"."""
        return self.allows(context, operation, resource_type, "hardcode")


def _flag(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise InvalidConfig(
            f"Invalid value {text} for configuration {ALLOWS_EVERYONE}: Expected value to be either true or false"
        )
    return text.strip().lower() == "true"
