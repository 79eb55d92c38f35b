"""CreatePartitions with assignments of replicas."""

from ottla.protocol.errors import name_of
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)

from .conftest import Cluster, partition_of


def added(cluster: Cluster, topic: str, count: int, *assignments: list[int]) -> tuple[str, str | None]:
    """Return the error and its message."""
    wanted = [CreatePartitionsAssignment(broker_ids=replicas) for replicas in assignments]
    row = CreatePartitionsTopic(name=topic, count=count, assignments=wanted)
    (result,) = cluster[1].send(CreatePartitionsRequest(topics=[row], timeout_ms=10_000), 3).results
    return name_of(result.error_code), result.error_message


def test_new_partitions_have_as_many_replicas_as_the_others(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2])
    for replicas in ([1], [1, 2, 3]):
        text = (
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not consistent "
            "with previous partitions, which have 2 replica(s)."
        )
        assert added(cluster, topic.name, 2, replicas) == ("INVALID_REPLICA_ASSIGNMENT", text)
    assert added(cluster, topic.name, 3, [2, 3], [3, 1]) == ("NONE", None)
    cluster.wait(lambda: len(cluster.described(topic.name).partitions) == 3)
    assert [partition_of(cluster.described(topic.name), index).replica_nodes for index in range(3)] == [
        [1, 2],
        [2, 3],
        [3, 1],
    ]
