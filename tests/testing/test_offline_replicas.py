"""A broker of a cluster whose log directory fails, and is repaired."""

import errno
import time
from collections.abc import Callable

from ottla import Consumer, Producer, TopicPartition
from ottla.log.log import Log
from ottla.metadata.image import PartitionImage
from ottla.testing import KafkaCluster


def partitions(cluster: KafkaCluster) -> tuple[PartitionImage, ...]:
    return cluster.image.topics["t"].partitions


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def produce(cluster: KafkaCluster, count: int) -> None:
    """Produce records with the values 0, 1, 2, ..., each in a batch of its own."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(count):
            producer.produce("t", b"%d" % number, partition=0)
            producer.flush()


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


def test_a_replica_without_its_log_directory_is_not_eligible_as_leader(
    kafka_cluster: Callable[..., KafkaCluster],
) -> None:
    cluster = kafka_cluster(3, {"default.replication.factor": 2, "min.insync.replicas": 2})
    cluster.create_topic("t")
    (partition,) = partitions(cluster)
    assert partition.min_isr == 2
    leader, follower = partition.replicas
    broken = cluster[follower]
    broken._call(lambda: broken.broker.replicas.directories[0].fail(OSError(errno.EIO, "the disk is broken")))
    until(lambda: partitions(cluster)[0].offline == (follower,))
    assert (partitions(cluster)[0].isr, partitions(cluster)[0].elr) == ((leader,), ())
    cluster.stop(leader)
    assert (partitions(cluster)[0].isr, partitions(cluster)[0].elr) == ((), (leader,))


def test_a_leader_with_a_damaged_log_gives_up_and_fetches_it_again(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3, {"default.replication.factor": 3})
    cluster.create_topic("t")
    produce(cluster, 400)
    leader = cluster.leader_of("t", 0)
    segment = logs(cluster)[leader].segments[0].path
    sound = segment.read_bytes()
    with segment.open("r+b") as file:
        file.seek(len(sound) // 400 * 80)
        file.write(b"\xff" * 200)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        # Its position is found by the headers of the batches since the last entry of the index, which is before the damage.
        consumer.seek(TopicPartition("t", 0), 100)
        values: list[bytes | None] = []
        while len(values) < 300:
            values += [record.value for record in consumer.consume(10, 0.1)]
    assert values == [b"%d" % number for number in range(100, 400)]
    until(lambda: cluster.leader_of("t", 0) != leader and sorted(partitions(cluster)[0].isr) == [1, 2, 3])
    assert segment.read_bytes() == sound


def test_nothing_is_lost_when_a_damaged_follower_is_elected(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    """It has cut its log, and has not fetched the rest again: it must not be in the ISR."""
    cluster = kafka_cluster(3, {"default.replication.factor": 3})
    cluster.create_topic("t", 1, follower_replication_throttled_replicas="*")
    produce(cluster, 100)
    leader = cluster.leader_of("t", 0)
    victim = next(node for node in (1, 2, 3) if node != leader)
    until(lambda: logs(cluster)[victim].high_watermark == 100)
    segment = logs(cluster)[victim].segments[0].path
    with segment.open("r+b") as file:
        file.seek(segment.stat().st_size // 100 * 20)
        file.write(b"\xff" * 200)
    broker = cluster[victim].broker

    def damage() -> None:
        throttle = broker.replication_throttles.follower  # stands for a log of gigabytes
        throttle.limit = 1
        throttle.record(10**9, broker.clock.now_ms())
        partition = broker.replicas.find("t", 0)
        assert partition is not None
        broker.replicas.report_damage(partition, 30)

    cluster[victim]._call(damage)
    until(lambda: 0 < logs(cluster)[victim].end_offset < 30)
    for node in (1, 2, 3):
        if node != victim:
            cluster.kill(node)
    until(lambda: broker.image.topics["t"].partitions[0].leader == -1)
    time.sleep(0.3)
    state = broker.image.topics["t"].partitions[0]
    assert (state.leader, victim in state.isr) == (-1, False)


def logs(cluster: KafkaCluster) -> dict[int, Log]:
    replicas = {node: broker.broker.replicas.find("t", 0) for node, broker in cluster.brokers.items()}
    return {node: partition.log for node, partition in replicas.items() if partition is not None}


def test_a_log_that_has_lost_its_end_does_not_keep_its_high_watermark(
    kafka_cluster: Callable[..., KafkaCluster],
) -> None:
    """Otherwise records appended next would be committed after another crash, before any follower has them."""
    cluster = kafka_cluster(3, {"default.replication.factor": 3})
    cluster.create_topic("t")
    produce(cluster, 20)
    leader = cluster.leader_of("t", 0)
    follower = next(node for node in (1, 2, 3) if node != leader)
    until(lambda: logs(cluster)[follower].high_watermark == 20)
    directory = logs(cluster)[follower].directory
    cluster[follower]._call(cluster[follower].broker.replicas.directories[0].checkpoint)
    cluster.kill(follower)
    checkpoint = directory.parent / "replication-offset-checkpoint"
    assert "t 0 20" in checkpoint.read_text().splitlines()
    cluster.kill(leader)  # nothing can be fetched again
    (segment,) = directory.glob("*.log")
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size // 2)
    cluster.restart(follower)
    assert "t 0 10" in checkpoint.read_text().splitlines()
