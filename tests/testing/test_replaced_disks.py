"""A broker of a cluster whose disk is replaced by an empty one, and the log directories of replicas in the metadata."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla import Producer
from ottla.metadata.image import NO_LEADER, UNASSIGNED
from ottla.metadata.store import Change, keys
from ottla.testing import KafkaCluster

from .test_offline_replicas import logs, partitions, produce, until


def directory_ids(cluster: KafkaCluster) -> dict[int, bytes]:
    return {node: broker.broker.replicas.directories[0].id for node, broker in cluster.brokers.items()}


def test_an_empty_disk_of_the_last_known_leader_deletes_nothing(
    kafka_cluster: Callable[..., KafkaCluster], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = kafka_cluster(3, {"default.replication.factor": 3, "min.insync.replicas": 1})
    cluster.create_topic("t")
    produce(cluster, 50)
    until(lambda: all(log.high_watermark == 50 for log in logs(cluster).values()))
    leader = cluster.leader_of("t", 0)
    others = [node for node in (1, 2, 3) if node != leader]
    for node in others:
        cluster.kill(node)
        until(lambda node=node: node not in partitions(cluster)[0].isr)  # type: ignore[misc]
    directory = Path(cluster[leader].broker.replicas.directories[0].path)
    cluster.kill(leader)
    shutil.rmtree(directory)
    for node in (*others, leader):
        cluster.restart(node)
    until(lambda: partitions(cluster)[0].replaced == (leader,))
    (state,) = partitions(cluster)
    assert (state.leader, state.isr, state.elr, state.last_known_leader) == (NO_LEADER, (), (), NO_LEADER)
    assert {logs(cluster)[node].end_offset for node in others} == {50}
    assert "the log directory of 1 replicas" in caplog.text


def test_every_replica_is_assigned_to_its_directory(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3, {"default.replication.factor": 3})
    cluster.create_topic("t", 3)
    ids = directory_ids(cluster)
    assert all(partition.directory_of(node) == ids[node] for partition in partitions(cluster) for node in (1, 2, 3))
    assert not any(partition.epoch for partition in partitions(cluster))  # it needed no further change


def test_replicas_of_an_earlier_release_are_assigned_by_their_brokers(
    kafka_cluster: Callable[..., KafkaCluster],
) -> None:
    cluster = kafka_cluster(3, {"default.replication.factor": 3})
    cluster.create_topic("t", 3)
    topic = cluster.image.topics["t"]
    states = [state._replace(directories=(), epoch=state.epoch + 1) for state in topic.partitions]
    put = {keys.partition_key(topic.id, index): state.encoded() for index, state in enumerate(states)}
    cluster.metadata.change(Change(put={keys.TOPICS + "t": topic._replace(directories={}).encoded(), **put}))
    ids = directory_ids(cluster)
    until(
        lambda: all(
            partition.directory_of(node) == ids[node] for partition in partitions(cluster) for node in (1, 2, 3)
        )
    )
    cluster.restart(1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.produce("t", b"1", partition=0)
        producer.flush()
    assert UNASSIGNED not in partitions(cluster)[0].directories
