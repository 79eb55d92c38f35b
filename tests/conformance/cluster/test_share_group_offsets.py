"""DescribeShareGroupOffsets of partitions that several brokers lead, asked of all of them."""

import uuid
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from ottla.protocol.errors import NONE, name_of
from tests.conformance.conftest import Topic
from tests.conformance.share_members import alter, altered, offsets

from .brokers import NODES
from .conftest import Cluster
from .coordinators import GROUP, SHARE, coordinator_of

PARTITIONS = range(len(NODES))


@pytest.fixture(name="topic", scope="module")
def _topic(cluster: Cluster) -> Iterator[Topic]:
    """Partitions that one broker each leads, with five records each."""
    topic = cluster.topic(*([node_id] for node_id in NODES))
    for partition in PARTITIONS:
        topic.wire = cluster[NODES[partition]]
        topic.append(5, partition=partition)
    yield topic
    if cluster.listed(1) != list(NODES):
        cluster.start(NODES[-1])


class Group(NamedTuple):
    """Share group and its coordinator."""

    id: str
    node_id: int


@pytest.fixture(name="group", scope="module")
def _group(cluster: Cluster, topic: Topic) -> Group:
    """A group that begins at offset 1 of partition 0, 2 of partition 1, and so on."""
    group_id = f"g-{uuid.uuid4().hex[:12]}"
    node_id = coordinator_of(cluster, GROUP, group_id)
    coordinator_of(cluster, SHARE, f"{group_id}:AAAAAAAAAAAAAAAAAAAAAQ:0")
    starts = {partition: partition + 1 for partition in PARTITIONS}

    def is_altered() -> bool:
        answer = alter(cluster[node_id], group_id, [(topic.name, starts)])
        return answer.error_code == NONE and {error for error, _ in altered(answer).values()} == {"NONE"}

    cluster.wait(is_altered)
    return Group(group_id, node_id)


def described(
    cluster: Cluster, node_id: int, group_id: str, topics: list[tuple[str, list[int]]] | None
) -> tuple[str, dict[int, tuple[str, int, int]]]:
    """Return the error of the group, and error, start offset and lag of each partition."""
    group = offsets(cluster[node_id], group_id, topics)
    rows = {
        row.partition_index: (name_of(row.error_code), row.start_offset, row.lag)
        for topic in group.topics
        for row in topic.partitions
    }
    return name_of(group.error_code), rows


def test_lags_of_partitions_of_all_brokers(cluster: Cluster, topic: Topic, group: Group) -> None:
    expected = {partition: ("NONE", partition + 1, 4 - partition) for partition in PARTITIONS}
    assert described(cluster, group.node_id, group.id, None) == ("NONE", expected)
    for node_id in NODES:
        assert described(cluster, node_id, group.id, [(topic.name, list(PARTITIONS))]) == ("NONE", expected)


def test_only_the_coordinator_knows_all_partitions(cluster: Cluster, group: Group) -> None:
    for node_id in set(NODES) - {group.node_id}:
        assert described(cluster, node_id, group.id, None) == ("NOT_COORDINATOR", {})


def test_lags_while_a_leader_is_stopped(cluster: Cluster, topic: Topic, group: Group) -> None:
    cluster.stop(3)
    expected = {0: ("NONE", 1, 4), 1: ("NONE", 2, 3), 2: ("LEADER_NOT_AVAILABLE", 0, -1)}
    for node_id in (1, 2):
        cluster.wait(
            lambda node_id=node_id: (  # type: ignore[misc]
                described(cluster, node_id, group.id, [(topic.name, list(PARTITIONS))]) == ("NONE", expected)
            )
        )
