"""Requests of reassignments, and what they lead to."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.protocol.errors import NONE, name_of
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

from .conftest import Cluster, partition_of

Outcome = tuple[str, str | None]
"""Error and its message."""
DONE: Outcome = ("NONE", None)


def reassign(
    cluster: Cluster,
    topic: str,
    *rows: tuple[int, Sequence[int] | None],
    version: int = 1,
    may_change_factor: bool = True,
    via: int = 1,
) -> list[Outcome]:
    """Reassign partitions of a topic to replicas, None to cancel; return the outcome of each."""
    partitions = [
        ReassignablePartition(partition_index=index, replicas=None if replicas is None else list(replicas))
        for index, replicas in rows
    ]
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=10_000,
        topics=[ReassignableTopic(name=topic, partitions=partitions)],
        allow_replication_factor_change=may_change_factor,
    )
    answer = cluster[via].send(request, version)
    assert (answer.error_code, answer.error_message) == (NONE, None)
    assert answer.allow_replication_factor_change is may_change_factor
    (result,) = answer.responses
    assert result.name == topic
    assert [row.partition_index for row in result.partitions] == [index for index, _ in rows]
    return [(name_of(row.error_code), row.error_message) for row in result.partitions]


class Ongoing(NamedTuple):
    """Reassignment in progress."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]


def listed(
    cluster: Cluster, topic: str | None, indexes: Sequence[int] = (0,), *, via: int = 1
) -> dict[tuple[str, int], Ongoing]:
    """List reassignments in progress, of a topic's partitions or (None) of all."""
    topics = None if topic is None else [ListPartitionReassignmentsTopics(name=topic, partition_indexes=list(indexes))]
    answer = cluster[via].send(ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=topics), 0)
    assert (answer.error_code, answer.error_message) == (NONE, None)
    return {
        (place.name, row.partition_index): Ongoing(
            list(row.replicas), list(row.adding_replicas), list(row.removing_replicas)
        )
        for place in answer.topics
        for row in place.partitions
    }


class Shown(NamedTuple):
    """Partition 0 in the metadata; the order of the ISR is of no account."""

    leader: int
    epoch: int
    replicas: list[int]
    isr: list[int]


def shown(cluster: Cluster, topic: str, *, via: int = 1) -> Shown:
    row: Any = partition_of(cluster.described(topic, via), 0)
    return Shown(row.leader_id, row.leader_epoch, list(row.replica_nodes), sorted(row.isr_nodes))


def wait_for(cluster: Cluster, topic: str, expected: Shown) -> None:
    """Wait until every broker shows partition 0 so, and no reassignment of it."""
    for node_id in (1, 2, 3):
        if node_id in cluster.listed(1):
            cluster.wait(lambda node_id=node_id: shown(cluster, topic, via=node_id) == expected)  # type: ignore[misc]
    cluster.wait(lambda: not listed(cluster, topic))
