"""A broker of a cluster whose log directory fails, and is repaired."""

import errno
import time
from collections.abc import Callable

from ottla.metadata.image import PartitionImage
from ottla.testing import KafkaCluster


def partitions(cluster: KafkaCluster) -> tuple[PartitionImage, ...]:
    return cluster.image.topics["t"].partitions


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_other_replicas_lead_while_a_log_directory_is_offline(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3, {"default.replication.factor": 3})
    cluster.create_topic("t", 3)
    assert {partition.leader for partition in partitions(cluster)} == {1, 2, 3}
    broken = cluster[1]
    broken._call(lambda: broken.broker.replicas.directories[0].fail(OSError(errno.EIO, "the disk is broken")))
    until(lambda: all(partition.offline == (1,) for partition in partitions(cluster)))
    assert all(sorted(partition.isr) == [2, 3] for partition in partitions(cluster))
    assert all(partition.leader in (2, 3) for partition in partitions(cluster))
    cluster.kill(1)
    cluster.restart(1)
    until(lambda: all(sorted(partition.isr) == [1, 2, 3] for partition in partitions(cluster)))
    assert not any(partition.offline for partition in partitions(cluster))
