"""Permission of the sender of a request, by kind of resource; always True without an authorizer."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from ottla.metadata.configs.alteration import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    GROUP_AUTHORIZATION_FAILED,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
)
from ottla.security.operations import CLUSTER_NAME, AclOperation, AclResourceType
from ottla.tasks.deferred import Answer, after
from ottla.tasks.scheduler import Scheduler

T = TypeVar("T")
_MANY_TOPICS: Final = 1000
"""Names of topics in one request from which on it may pause."""
_TOPIC: Final = AclResourceType.TOPIC
_GROUP: Final = AclResourceType.GROUP
_CLUSTER: Final = AclResourceType.CLUSTER
_TRANSACTIONAL_ID: Final = AclResourceType.TRANSACTIONAL_ID


def may_use_cluster(context: RequestContext, operation: AclOperation, *, is_logged: bool = True) -> bool:
    """Return whether the sender is authorized for an operation on the cluster."""
    return context.allowed(operation, _CLUSTER, CLUSTER_NAME, is_logged=is_logged)


def may_use_topic(context: RequestContext, operation: AclOperation, topic: str, *, is_logged: bool = True) -> bool:
    """Return whether the sender is authorized for an operation on a topic."""
    return context.allowed(operation, _TOPIC, topic, is_logged=is_logged)


def may_use_topics(context: RequestContext, operation: AclOperation, topics: Iterable[str]) -> bool:
    """Return whether the sender is authorized for an operation on all topics; every topic without it is logged."""
    allowed = [may_use_topic(context, operation, topic) for topic in topics]
    return all(allowed)


def after_topics(
    context: RequestContext,
    operation: AclOperation,
    topics: Sequence[str],
    tasks: Scheduler,
    then: Callable[[bool], Answer[T]],
) -> Answer[T]:
    """Answer `then(may_use_topics(...))`: at once, or with pauses if there are many topics."""
    if len(topics) <= _MANY_TOPICS:
        return then(may_use_topics(context, operation, topics))
    return after(tasks.start(may_use_many_topics(context, operation, topics, tasks)), then)


async def may_use_many_topics(
    context: RequestContext, operation: AclOperation, topics: Iterable[str], tasks: Scheduler
) -> bool:
    """Return what `may_use_topics` does, with pauses."""
    is_allowed = True
    for topic in topics:
        await tasks.pace()
        is_allowed &= may_use_topic(context, operation, topic)
    return is_allowed


def may_use_group(context: RequestContext, operation: AclOperation, group: str, *, is_logged: bool = True) -> bool:
    """Return whether the sender is authorized for an operation on a group."""
    return context.allowed(operation, _GROUP, group, is_logged=is_logged)


def may_use_transactional_id(
    context: RequestContext, operation: AclOperation, transactional_id: str, *, is_logged: bool = True
) -> bool:
    """Return whether the sender is authorized for an operation on a transactional id."""
    return context.allowed(operation, _TRANSACTIONAL_ID, transactional_id, is_logged=is_logged)


def config_denial(context: RequestContext, operation: AclOperation, kind: int, name: str) -> int:
    """Return the error code for a sender without a permission on the configs of a resource; NONE with it.

    kind, name  type and name of the resource, as in config requests; those of an unknown type have other errors
    """
    if context.authorizer is None:
        return NONE
    if kind == TOPIC:
        return NONE if may_use_topic(context, operation, name) else TOPIC_AUTHORIZATION_FAILED
    if kind == GROUP:
        return NONE if may_use_group(context, operation, name) else GROUP_AUTHORIZATION_FAILED
    if kind in (BROKER, BROKER_LOGGER, CLIENT_METRICS):
        return NONE if may_use_cluster(context, operation) else CLUSTER_AUTHORIZATION_FAILED
    return NONE


def split_topics(context: RequestContext, operation: AclOperation, topics: Iterable[T]) -> tuple[list[T], list[T]]:
    """Split the topics of a request, structs with a `name`, into those that the sender may use and the others."""
    allowed: list[T] = []
    denied: list[T] = []
    for topic in topics:
        named: Any = topic
        (allowed if may_use_topic(context, operation, named.name) else denied).append(topic)
    return allowed, denied
