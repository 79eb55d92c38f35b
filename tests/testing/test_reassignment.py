"""Reassignments in a cluster of four brokers, under load, while brokers are killed at any moment."""

from collections.abc import Callable

import pytest

from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.coordinators.partitions import partition_of
from ottla.metadata.changes.reassignment import is_reassigned
from ottla.metadata.image import OFFSETS_TOPIC
from ottla.testing import KafkaCluster

from .test_replication import assert_all_once_and_in_order, load, placed, until

CONFIGS = {"default.replication.factor": 2, "min.insync.replicas": 1, "offsets.topic.replication.factor": 2}


@pytest.fixture
def cluster(kafka_cluster: Callable[..., KafkaCluster]) -> KafkaCluster:
    return kafka_cluster(4, CONFIGS)


def reassign(cluster: KafkaCluster, topic: str, *replicas: tuple[int, ...] | None) -> None:
    """Begin to reassign the partitions of a topic, from the first on; None cancels."""
    moves = {TopicPartition(topic, index): nodes for index, nodes in enumerate(replicas)}
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.alter_partition_reassignments(moves).check()


def until_placed(cluster: KafkaCluster, topic: str, *replicas: tuple[int, ...]) -> None:
    """Wait until partitions have these replicas, all in sync, and no reassignment is in progress."""

    def is_placed() -> bool:
        partitions = [placed(cluster, topic, index) for index in range(len(replicas))]
        return all(
            partition.replicas == nodes and set(partition.isr) == set(nodes) and not is_reassigned(partition)
            for partition, nodes in zip(partitions, replicas, strict=True)
        )

    until(is_placed)


def create_orders_on(cluster: KafkaCluster, *nodes: int) -> None:
    """Create topic "orders" with one partition, whose replicas these brokers have."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("orders", replica_assignment=(nodes,))]).check()
    until_placed(cluster, "orders", nodes)


def has_log(cluster: KafkaCluster, node_id: int, partition: str) -> bool:
    """Return True if a broker has a directory of this name."""
    return (cluster[node_id].data_dir / partition).exists()


def in_order(cluster: KafkaCluster, *others: int) -> list[int]:
    """Return the brokers without the controller and `others`."""
    excluded = {cluster.image.controller_id, *others}
    return [node_id for node_id in cluster.brokers if node_id not in excluded]


def test_partitions_move_under_load(cluster: KafkaCluster) -> None:
    cluster.create_topic("orders", 3)
    plans: list[list[tuple[int, ...]]] = [
        [(1, 2), (2, 3), (3, 4)],
        [(3, 4), (4, 1), (1, 2)],
        [(4, 3), (1,), (2, 3, 4)],
        [(1,), (2,), (3,)],
        [(1, 2, 3, 4), (2, 1), (3, 1)],
    ]
    with load(cluster, "orders", 3) as sent:
        for plan in plans:
            sent.more()
            reassign(cluster, "orders", *plan)
            until_placed(cluster, "orders", *plan)
            for index, nodes in enumerate(plan):
                for node_id in cluster.brokers:
                    until(
                        lambda node_id=node_id, nodes=nodes, index=index: (  # type: ignore[misc]
                            has_log(cluster, node_id, f"orders-{index}") == (node_id in nodes)
                        )
                    )
    assert_all_once_and_in_order(cluster, "orders", sent)


def test_the_leader_is_killed_in_the_middle(cluster: KafkaCluster) -> None:
    create_orders_on(cluster, 1, 2)
    until(lambda: cluster.leader_of("orders", 0) in (1, 2))
    with load(cluster, "orders", 1) as sent:
        sent.more()
        leader = cluster.leader_of("orders", 0)
        other = 3 - leader
        cluster.disconnect(leader, 3)
        reassign(cluster, "orders", (other, 3))
        until(lambda: is_reassigned(placed(cluster, "orders")))
        sent.more()
        assert is_reassigned(placed(cluster, "orders")), "the new replica cannot fetch yet"
        assert has_log(cluster, leader, "orders-0")
        cluster.kill(leader)
        until_placed(cluster, "orders", (other, 3))
        sent.more()
        assert has_log(cluster, leader, "orders-0"), "a broker that is down removes nothing"
        cluster.restart(leader)
        assert not has_log(cluster, leader, "orders-0")
        sent.more()
    assert_all_once_and_in_order(cluster, "orders", sent)


def test_the_new_replica_is_killed_in_the_middle(cluster: KafkaCluster) -> None:
    create_orders_on(cluster, 1, 2)
    with load(cluster, "orders", 1) as sent:
        leader = cluster.leader_of("orders", 0)
        cluster.disconnect(leader, 4)
        reassign(cluster, "orders", (4,))
        until(lambda: has_log(cluster, 4, "orders-0"))
        cluster.kill(4)
        sent.more()
        assert sorted(placed(cluster, "orders").isr) == [1, 2]
        assert is_reassigned(placed(cluster, "orders"))
        cluster.heal()
        cluster.restart(4)
        until_placed(cluster, "orders", (4,))
        sent.more()
    assert_all_once_and_in_order(cluster, "orders", sent)


def test_the_controller_is_killed_in_the_middle(cluster: KafkaCluster) -> None:
    controller = cluster.image.controller_id
    first, second, third = in_order(cluster)
    create_orders_on(cluster, first, second)
    with load(cluster, "orders", 1) as sent:
        leader = cluster.leader_of("orders", 0)
        cluster.disconnect(leader, third)
        reassign(cluster, "orders", (third,))
        until(lambda: is_reassigned(placed(cluster, "orders")))
        cluster.kill(controller)
        cluster.heal()
        until_placed(cluster, "orders", (third,))
        assert cluster.image.controller_id not in (-1, controller)
        sent.more()
    assert_all_once_and_in_order(cluster, "orders", sent)


def test_a_reassignment_is_cancelled_under_load(cluster: KafkaCluster) -> None:
    create_orders_on(cluster, 1, 2)
    with load(cluster, "orders", 1) as sent:
        cluster.kill(4)
        reassign(cluster, "orders", (3, 4))
        until(lambda: 3 in placed(cluster, "orders").isr)
        sent.more()
        reassign(cluster, "orders", None)
        until_placed(cluster, "orders", (1, 2))
        until(lambda: not has_log(cluster, 3, "orders-0"))
        sent.more()
    assert_all_once_and_in_order(cluster, "orders", sent)


def test_a_cancelled_reassignment_gives_the_leadership_back(cluster: KafkaCluster) -> None:
    create_orders_on(cluster, 1, 2)
    cluster.kill(4)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.produce("orders", value=b"before")
    reassign(cluster, "orders", (3, 4))
    until(lambda: 3 in placed(cluster, "orders").isr)
    cluster.kill(1)
    cluster.kill(2)
    until(lambda: cluster.leader_of("orders", 0) == 3)
    with Admin(bootstrap_servers=cluster[3].bootstrap_servers) as admin:
        (error,) = admin.alter_partition_reassignments({TopicPartition("orders", 0): None}).errors.values()
        assert error.name == "INVALID_REPLICA_ASSIGNMENT"
        assert "would require an unclean leader election" in str(error)
    cluster.restart(2)
    until(lambda: 2 in placed(cluster, "orders").isr)
    reassign(cluster, "orders", None)
    until(lambda: placed(cluster, "orders").replicas == (1, 2))
    until(lambda: cluster.leader_of("orders", 0) == 2)
    cluster.restart(1)
    until_placed(cluster, "orders", (1, 2))
    assert [record.value for record in cluster[2].records("orders", partition=0)] == [b"before"]


def test_a_group_goes_on_when_its_coordinator_is_moved(cluster: KafkaCluster) -> None:
    cluster.create_topic("orders", 1)
    servers = cluster.bootstrap_servers
    with Consumer(bootstrap_servers=servers, group_id="board", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        number = 0
        for nodes in ((1, 2), (3, 4), (4, 1), (2,)):
            with Producer(bootstrap_servers=servers) as producer:
                producer.produce("orders", value=b"%d" % number)
            record = None
            while record is None:
                record = consumer.poll(1)
            assert record.value == b"%d" % number
            number += 1
            consumer.commit()
            count = len(cluster.image.topics[OFFSETS_TOPIC].partitions)
            place = TopicPartition(OFFSETS_TOPIC, partition_of("board", count))
            with Admin(bootstrap_servers=servers) as admin:
                admin.alter_partition_reassignments({place: nodes}).check()
            until(lambda place=place, nodes=nodes: placed(cluster, *place).replicas == nodes)  # type: ignore[misc]
            assert cluster.coordinator_of("board") in nodes
    with Admin(bootstrap_servers=servers) as admin:
        (committed,) = admin.list_consumer_group_offsets(["board"])["board"].values()
    assert committed.offset == number
