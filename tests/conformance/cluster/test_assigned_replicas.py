"""CreateTopics and CreatePartitions with assignments of replicas."""

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest

from .conftest import Cluster, partition_of


def add_partitions(cluster: Cluster, topic: str, count: int, *assignments: list[int]) -> tuple[str, str | None]:
    """Return the error and its message."""
    new_partitions = [CreatePartitionsAssignment(broker_ids=replicas) for replicas in assignments]
    row = CreatePartitionsTopic(name=topic, count=count, assignments=new_partitions)
    (result,) = cluster[1].send(CreatePartitionsRequest(topics=[row], timeout_ms=10_000), 3).results
    return name_of(result.error_code), result.error_message


@pytest.mark.parametrize(
    ("assignment", "text"),
    [
        (
            {9: [1, 3], 1: [1]},
            "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent with previous "
            "partitions, which have 2 replica(s).",
        ),
        (
            {9: [1, 3], 1: [1, 9]},
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        ({9: [1, 3], 1: [1, 2]}, "partitions should be a consecutive 0-based integer sequence"),
    ],
)
def test_each_assignment_of_a_new_topic_is_checked_before_their_numbers(
    cluster: Cluster, assignment: dict[int, list[int]], text: str
) -> None:
    topic = CreatableTopic(
        name="assigned",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
            for index, replicas in assignment.items()
        ],
        configs=[],
    )
    (row,) = cluster[1].send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics
    assert (name_of(row.error_code), row.error_message) == ("INVALID_REPLICA_ASSIGNMENT", text)


def test_new_partitions_have_as_many_replicas_as_the_others(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2])
    for replicas in ([1], [1, 2, 3]):
        text = (
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not consistent "
            "with previous partitions, which have 2 replica(s)."
        )
        assert add_partitions(cluster, topic.name, 2, replicas) == ("INVALID_REPLICA_ASSIGNMENT", text)
    assert add_partitions(cluster, topic.name, 3, [2, 3], [3, 1]) == ("NONE", None)
    cluster.wait(lambda: len(cluster.described(topic.name).partitions) == 3)
    assert [partition_of(cluster.described(topic.name), index).replica_nodes for index in range(3)] == [
        [1, 2],
        [2, 3],
        [3, 1],
    ]
