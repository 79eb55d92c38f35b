"""Placement of the replicas of a new topic.

Leaders are placed round robin over the brokers from a random start, followers on the brokers after their leader, so that both
are spread evenly.
"""

from collections.abc import Sequence

from ottla.metadata.image import PartitionImage


def place(partitions: int, replication_factor: int, brokers: Sequence[int], start: int) -> list[PartitionImage]:
    """Place `partitions` partitions on `brokers` (sorted node ids); `start` is any number from 0 on."""
    count = len(brokers)
    placed = []
    for number in range(partitions):
        replicas = tuple(brokers[(start + number + step) % count] for step in range(replication_factor))
        placed.append(PartitionImage(replicas, replicas, replicas[0], 0))
    return placed
