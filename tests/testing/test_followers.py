"""Followers of a cluster: they have what their leaders have, also after brokers were killed and started again."""

import time
from collections.abc import Callable
from functools import partial

from ottla import Producer
from ottla.log.log import Log
from ottla.testing import KafkaCluster

_PARTITIONS = 8
_CONFIGS = {"default.replication.factor": 3, "min.insync.replicas": 2, "num.replica.fetchers": 2}


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def produce(cluster: KafkaCluster, count: int) -> None:
    """Produce with acks=all, to each partition in turn."""
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all")
    for number in range(count):
        producer.produce("t", value=b"%d" % number * 50, partition=number % _PARTITIONS)
    producer.flush()
    producer.close()


def logs(cluster: KafkaCluster, index: int) -> list[Log]:
    replicas = (broker.broker.replicas.find("t", index) for broker in cluster.running)
    return [replica.log for replica in replicas if replica is not None]


def are_equally_long(cluster: KafkaCluster, index: int) -> bool:
    return len({(log.end_offset, log.high_watermark) for log in logs(cluster, index)}) == 1


def content(log: Log) -> bytes:
    region = log.read(0, 1 << 30, log.end_offset, whole_first=True)
    return b"" if region is None else region.read()


def wait_for_equal_logs(cluster: KafkaCluster) -> None:
    for index in range(_PARTITIONS):
        wait(partial(are_equally_long, cluster, index))
        first, *others = (content(log) for log in logs(cluster, index))
        assert first
        assert others == [first] * (len(cluster.running) - 1)


def wait_for_isr(cluster: KafkaCluster, size: int) -> None:
    wait(lambda: all(len(partition.isr) == size for partition in cluster.image.topics["t"].partitions))


def test_followers_have_the_bytes_of_their_leaders() -> None:
    with KafkaCluster(3, _CONFIGS) as cluster:
        cluster.create_topic("t", _PARTITIONS)
        produce(cluster, 400)
        wait_for_equal_logs(cluster)


def test_a_killed_broker_catches_up_and_joins_the_isr() -> None:
    with KafkaCluster(3, _CONFIGS) as cluster:
        cluster.create_topic("t", _PARTITIONS)
        produce(cluster, 80)
        cluster.kill(1)
        wait_for_isr(cluster, 2)
        produce(cluster, 80)
        cluster.restart(1)
        wait_for_isr(cluster, 3)
        wait_for_equal_logs(cluster)


def test_a_follower_that_was_cut_off_catches_up() -> None:
    with KafkaCluster(3, _CONFIGS) as cluster:
        cluster.create_topic("t", _PARTITIONS)
        produce(cluster, 80)
        cluster.disconnect(1, 2)
        cluster.disconnect(2, 3)
        cluster.reconnect(1, 2)
        cluster.reconnect(2, 3)
        produce(cluster, 80)
        wait_for_equal_logs(cluster)


def test_acknowledged_records_are_flushed_by_followers() -> None:
    with KafkaCluster(3, {**_CONFIGS, "log.flush.interval.messages": 1}) as cluster:
        cluster.create_topic("t", _PARTITIONS)
        produce(cluster, 80)
        for index in range(_PARTITIONS):
            for log in logs(cluster, index):
                assert log.recovery_point >= log.high_watermark
        wait_for_equal_logs(cluster)
