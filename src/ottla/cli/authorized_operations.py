"""Authorized operations in the JSON output of commands that describe resources (KIP-430)."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ottla.cli.cluster_access import AdminConnection
from ottla.client.admin.results import Results
from ottla.client.errors import UnsupportedVersion
from ottla.client.permissions import AclOperation

K = TypeVar("K")
V = TypeVar("V")
Describe = Callable[[bool], Coroutine[Any, Any, Results[K, V]]]


def describe_with_operations(
    cluster: AdminConnection[Any], describe: Describe[K, V], *, include: bool
) -> Results[K, V]:
    """Call `describe` with `include`; without authorized operations if the broker is too old for them (before Kafka 2.3)."""
    if include:
        try:
            results = cluster.ask(describe(True))
        except UnsupportedVersion:
            return cluster.ask(describe(False))
        if not any(isinstance(error, UnsupportedVersion) for error in results.errors.values()):
            return results
    return cluster.ask(describe(False))


def operation_names(operations: tuple[AclOperation, ...] | None) -> list[str] | None:
    """Return the names of authorized operations, None if the broker did not return them."""
    return None if operations is None else [operation.name for operation in operations]
