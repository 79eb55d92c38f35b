"""The fixture `kafka_cluster`: brokers in this process that form a cluster."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from ottla.client.errors import KafkaError
from ottla.testing import KafkaCluster
from ottla.testing.cluster import ClusterBroker


def produce(cluster: KafkaCluster, topic: str, count: int, **configs: object) -> list[object]:
    """Produce records to all partitions; the errors of those that failed."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, **configs})
    for number in range(count):
        producer.produce(
            topic, f"v{number}", f"k{number}", on_delivery=lambda error, _: errors.append(error and error.name())
        )
    assert producer.flush(30) == 0
    return [error for error in errors if error is not None]


def consume(cluster: KafkaCluster, topic: str, count: int, group: str = "g") -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


def test_three_brokers_serve_a_topic(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3)
    cluster.create_topic("orders", 6)
    assert sorted(cluster.leader_of("orders", index) for index in range(6)) == [1, 1, 2, 2, 3, 3]
    assert produce(cluster, "orders", 60) == []
    assert sorted(consume(cluster, "orders", 60)) == sorted(b"v%d" % number for number in range(60))
    assert cluster.coordinator_of("g") in (1, 2, 3)
    described = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=10)
    assert sorted(described.brokers) == [1, 2, 3]
    assert described.controller_id == cluster.image.controller_id


def test_the_others_serve_on_when_a_broker_dies_and_it_returns(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3)
    cluster.create_topic("orders", 3)
    victim = cluster.image.controller_id
    (lost,) = (index for index in range(3) if cluster.leader_of("orders", index) == victim)
    epoch = cluster.image.topics["orders"].partitions[lost].leader_epoch
    assert produce(cluster, "orders", 30) == []
    cluster.kill(victim)
    deadline = time.monotonic() + 10
    while cluster.image.controller_id in (-1, victim) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert cluster.image.controller_id not in (-1, victim)
    assert cluster.leader_of("orders", lost) == -1
    admin = AdminClient({"bootstrap.servers": cluster.running[0].bootstrap_servers})
    partition = admin.list_topics("orders", timeout=10).topics["orders"].partitions[lost]
    assert partition.error is not None
    assert (partition.leader, partition.error.name()) == (-1, "LEADER_NOT_AVAILABLE")
    cluster.restart(victim)
    while cluster.leader_of("orders", lost) != victim and time.monotonic() < deadline:
        time.sleep(0.01)
    assert cluster.leader_of("orders", lost) == victim
    assert cluster.image.topics["orders"].partitions[lost].leader_epoch > epoch
    assert produce(cluster, "orders", 30) == []
    assert len(consume(cluster, "orders", 60)) == 60


def test_two_brokers_change_the_metadata_at_once(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(2)
    one, two = cluster[1], cluster[2]
    two.delay("CreateTopics", 1)

    def create(broker: ClusterBroker) -> str:
        try:
            broker.create_topic("t", 2)
        except KafkaError as error:
            return str(error)
        return "created"

    assert [create(one), create(two)] == ["created", "Topic 't' already exists."]


def test_a_second_broker_with_the_same_node_id_does_not_start(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(1, {"broker.session.timeout.ms": 500})
    with pytest.raises(Exception, match=r"Another broker is registered with that broker id\."):
        ClusterBroker(cluster, 1, {"broker.session.timeout.ms": 500}, cluster[1].data_dir.parent / "other")
    assert cluster.image.brokers.keys() == {1}


def test_a_replication_factor_above_one_is_refused(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(2, {"default.replication.factor": 2})
    with pytest.raises(KafkaError, match="the replication factor must be 1"):
        cluster.create_topic("t")
