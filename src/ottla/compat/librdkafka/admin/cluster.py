"""Request about the cluster."""

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from ottla.compat.librdkafka.admin.requests import Node, Requests, limit, require
from ottla.compat.librdkafka.enums import operations


@dataclass(eq=False)
class DescribeClusterResult:
    """Cluster with its controller and nodes.

    authorized_operations  None unless requested
    """

    controller: Node | None
    nodes: list[Node]
    cluster_id: str | None = None
    authorized_operations: Any = None

    def __post_init__(self) -> None:
        self.authorized_operations = operations(self.authorized_operations)


class Cluster(Requests):
    """Request about the cluster."""

    def describe_cluster(
        self, *, include_authorized_operations: bool = False, request_timeout: float | None = None
    ) -> "Future[DescribeClusterResult]":
        """Describe the cluster. Raises TypeError, ValueError."""
        kind = type(include_authorized_operations)
        reason = f"Expected include_authorized_operations to be bool type, not {kind.__name__}"
        require(kind is bool, TypeError, reason)
        seconds = limit(request_timeout)

        def request() -> DescribeClusterResult:
            described = self._admin.describe_cluster(
                include_authorized_operations=include_authorized_operations, timeout=seconds
            )
            nodes = [Node(row.id, row.host, row.port, row.rack) for row in described.nodes]
            controller = next((node for node in nodes if node.id == described.controller), None)
            return DescribeClusterResult(controller, nodes, described.cluster_id, described.authorized_operations)

        return self._future(request)
