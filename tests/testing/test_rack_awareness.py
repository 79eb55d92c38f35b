"""Consumers that read from the replica in their rack (KIP-392)."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla import Producer
from ottla.testing import KafkaCluster
from tests.conformance.cluster.conftest import create
from tests.conformance.conftest import Wire

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture
def cluster(kafka_cluster: Callable[..., KafkaCluster]) -> KafkaCluster:
    """A partition that broker 1 leads, in rack a, with a follower in rack b; no broker fetches from broker 2."""
    configs = {"replica.selector.class": SELECTOR, "min.insync.replicas": 1, "offsets.topic.replication.factor": 1}
    running = kafka_cluster(3, configs, racks=["a", "b", "c"])
    wire = Wire(running[1].address, is_kafka=False)
    assert create(wire, "orders", [[1, 2]]).error_code == 0
    wire.close()
    deadline = time.monotonic() + 10
    while not all("orders" in broker.broker.image.topics for broker in running.running):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return running


def produce(cluster: KafkaCluster, first: int, last: int) -> None:
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all")
    for number in range(first, last):
        producer.produce("orders", value=b"%d" % number)
    producer.close()


class Reader:
    """Consumer of confluent-kafka in a rack."""

    def __init__(self, cluster: KafkaCluster, rack: str) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "none",
                "client.rack": rack,
                "enable.auto.commit": False,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "topic.metadata.refresh.fast.interval.ms": 50,
            }
        )
        self.consumer.assign([TopicPartition("orders", 0, 0)])

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *error: object) -> None:
        self.consumer.close()

    def read(self, count: int) -> list[int]:
        numbers: list[int] = []
        deadline = time.monotonic() + 20
        while len(numbers) < count and time.monotonic() < deadline:
            for message in self.consumer.consume(count, 0.1):
                assert message.error() is None, message.error()
                numbers.append(int(message.value() or b""))
        return numbers


@pytest.mark.parametrize(("rack", "is_follower"), [("a", False), ("b", True), ("c", False), ("", False)])
def test_the_replica_in_the_rack_serves(cluster: KafkaCluster, rack: str, is_follower: bool) -> None:
    produce(cluster, 0, 50)
    fetches = cluster[2].delay("Fetch", 0)
    with Reader(cluster, rack) as reader:
        assert reader.read(50) == list(range(50))
        produce(cluster, 50, 100)
        assert reader.read(50) == list(range(50, 100))
        assert (fetches.hits > 0) == is_follower


def test_the_leader_serves_when_the_follower_is_killed(cluster: KafkaCluster) -> None:
    produce(cluster, 0, 50)
    fetches = cluster[2].delay("Fetch", 0)
    with Reader(cluster, "b") as reader:
        assert reader.read(50) == list(range(50))
        assert fetches.hits > 0
        cluster.kill(2)
        produce(cluster, 50, 100)
        assert reader.read(50) == list(range(50, 100))
        cluster.restart(2)
        produce(cluster, 100, 150)
        assert reader.read(50) == list(range(100, 150))


def test_the_follower_becomes_leader_while_it_serves(cluster: KafkaCluster) -> None:
    produce(cluster, 0, 50)
    with Reader(cluster, "b") as reader:
        assert reader.read(50) == list(range(50))
        cluster.kill(1)
        produce(cluster, 50, 100)
        assert reader.read(50) == list(range(50, 100))
