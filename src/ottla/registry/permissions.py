"""Permissions of a registry's users, by the ACLs of topics.

    subject orders-value, orders-key       topic orders
    another subject                        topic of that name
    without a subject                      the cluster, for configs and modes

    look up, read, check compatibility     Read
    register                               Write
    delete                                 Delete
    read, change a config or mode          DescribeConfigs, AlterConfigs
    a schema by its id or GUID             Read on the topic of one of its subjects

Lists have what the user may read. A principal is `User:` and the name of the login; the ACLs are those of the cluster.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from ottla.environment.http_server import HttpRequest, HttpResponse
from ottla.registry import records, subjects
from ottla.registry.calls import segments_of
from ottla.registry.state import State
from ottla.security.acls import Acl, AclTable, StandardAuthorizer
from ottla.security.operations import CLUSTER_NAME, AclOperation, AclResourceType

_ENDINGS: Final = ("-value", "-key")
_NOT_READ: Final = "The permissions of users are not known yet: the ACLs of the cluster could not be read"


class Needed(NamedTuple):
    """Operation on a resource."""

    operation: int
    resource_type: int
    name: str

    def __str__(self) -> str:
        kind = "Topic" if self.resource_type == AclResourceType.TOPIC else "Cluster"
        return f"{AclOperation(self.operation).name} on {kind}:{self.name}"


def topic_of(subject: str) -> str:
    """Return the topic whose ACLs are those of a subject."""
    name = subjects.split(subject)[1]
    return next((name.removesuffix(ending) for ending in _ENDINGS if name.endswith(ending)), name)


def needs_of(request: HttpRequest, state: State | None) -> list[list[Needed]]:
    """Return what a request needs: one of each of these lists.

    state  of the registry, None while it is not known
    """
    segments, query = segments_of(request.target)
    is_reading = request.method in ("GET", "HEAD")
    if segments[0] == "subjects" and len(segments) > 1:
        return [[need] for need in _of_subject(request.method, segments, state)]
    if segments[:2] == ["compatibility", "subjects"] and len(segments) > 2:
        return [[need] for need in _reading(segments[2], state)]
    if segments[0] in ("config", "mode"):
        operation = AclOperation.DESCRIBE_CONFIGS if is_reading else AclOperation.ALTER_CONFIGS
        named = len(segments) > 1 and subjects.split(segments[1])[1]
        need = _on_topic(operation, segments[1]) if named else Needed(operation, AclResourceType.CLUSTER, CLUSTER_NAME)
        return [[need]]
    if segments[0] == "contexts" and not is_reading:
        return [[Needed(AclOperation.ALTER_CONFIGS, AclResourceType.CLUSTER, CLUSTER_NAME)]]
    if segments[:2] in (["schemas", "ids"], ["schemas", "guids"]) and len(segments) > 2 and state is not None:
        named = (query.get("subject") or [""])[-1]
        readers = [_on_topic(AclOperation.READ, subject) for subject in _having(state, segments[1], segments[2], named)]
        return [readers] if readers else []
    return []


def _of_subject(method: str, segments: list[str], state: State | None) -> Iterator[Needed]:
    subject = segments[1]
    if method == "DELETE":
        yield _on_topic(AclOperation.DELETE, subject)
    elif method == "POST" and len(segments) > 2:
        yield _on_topic(AclOperation.WRITE, subject)
    else:
        yield from _reading(subject, state)


def _reading(subject: str, state: State | None) -> Iterator[Needed]:
    yield _on_topic(AclOperation.READ, subject)
    config = {} if state is None else state.setting(records.CONFIG, subjects.normal(subject)) or {}
    if config.get("alias"):  # otherwise who may change one config could read all subjects
        yield _on_topic(AclOperation.READ, str(config["alias"]))


def _on_topic(operation: int, subject: str) -> Needed:
    return Needed(operation, AclResourceType.TOPIC, topic_of(subject))


def _having(state: State, kind: str, identifier: str, named: str) -> Iterator[str]:
    """Yield the subjects that have a schema, in any context."""
    context = subjects.context_of(named)
    for name, known in state.contexts.items():
        if kind == "ids":
            number = int(identifier[:20]) if identifier.isdecimal() and identifier.isascii() else -1
            if context != subjects.DEFAULT and name != context:
                continue
        else:
            number = known.by_digest.get(_digest(identifier), -1)
        identified = known.ids.get(number)
        if identified is not None:
            yield from sorted({subject for subject, _ in identified.versions})


def _digest(guid: str) -> bytes:
    try:
        return uuid.UUID(guid).bytes
    except ValueError:
        return b""


class Permissions:
    """Permissions of users.

    super_users  names of users who may do everything
    state        returns the state of the registry, None while it is not known
    """

    def __init__(self, super_users: Iterable[str], state: Callable[[], State | None]) -> None:
        self._super_users = frozenset(f"User:{user}" for user in super_users)
        self._state = state
        self._authorizer: StandardAuthorizer | None = None

    def apply(self, acls: Iterable[Acl]) -> None:
        """Take over the ACLs of the cluster."""
        self._authorizer = StandardAuthorizer(AclTable(acls), self._super_users)

    def refusal(self, request: HttpRequest, user: str) -> HttpResponse | None:
        """Return the answer to a request that a user may not send, None if it is allowed."""
        if f"User:{user}" in self._super_users:
            return None
        if self._authorizer is None:
            return _answer(HTTPStatus.SERVICE_UNAVAILABLE, _NOT_READ)
        for either in needs_of(request, self._state()):
            if not any(self._allows(user, request.peer, need) for need in either):
                what = " or ".join(sorted({str(need) for need in either})[:3])
                return _answer(HTTPStatus.FORBIDDEN, f"User {user} is denied {what}")
        return None

    def hide_unreadable(self, request: HttpRequest, user: str, response: HttpResponse) -> HttpResponse:
        """Return a response without the subjects that a user may not read."""
        segments = segments_of(request.target)[0]
        is_list = segments in (["subjects"], ["schemas"]) or (segments[0] == "schemas" and len(segments) > 3)
        if f"User:{user}" in self._super_users or response.status != HTTPStatus.OK or not is_list:
            return response
        try:
            listed = json.loads(response.body)
        except ValueError:  # the text of a schema
            return response
        if not isinstance(listed, list):
            return response
        kept = [
            self._without_aliases(user, request.peer, row) for row in listed if self._shows(user, request.peer, row)
        ]
        if kept == listed:
            return response
        body = json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        return response._replace(body=body)

    def _shows(self, user: str, host: str, row: Any) -> bool:
        subject = row.get("subject") if isinstance(row, dict) else row
        return not isinstance(subject, str) or self._allows(user, host, _on_topic(AclOperation.READ, subject))

    def _without_aliases(self, user: str, host: str, row: Any) -> Any:
        """Return a row without the aliases that a user may not read."""
        if not isinstance(row, dict) or "aliases" not in row:
            return row
        return {**row, "aliases": [alias for alias in row["aliases"] if self._shows(user, host, alias)]}

    def _allows(self, user: str, host: str, need: Needed) -> bool:
        authorizer = self._authorizer
        return authorizer is not None and authorizer.decide(f"User:{user}", host, *need).is_allowed


def _answer(status: HTTPStatus, message: str) -> HttpResponse:
    error = {"error_code": status.value, "message": message}
    return HttpResponse(json.dumps(error).encode(), status, "application/json")
