"""Followers of a cluster: they have what their leaders have, also after brokers were killed and started again."""

import time
from collections.abc import Callable
from functools import partial

from ottla import Producer
from ottla.log.log import Log
from ottla.protocol.errors import LEADER_NOT_AVAILABLE
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.testing import KafkaCluster
from tests.conformance.conftest import Wire

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


def produce_one(cluster: KafkaCluster) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        producer.produce("t", value=b"x")


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


def test_a_leader_whose_connection_broke_is_not_named() -> None:
    with KafkaCluster(3, _CONFIGS) as cluster:
        cluster.create_topic("t", 1)
        wait(lambda: is_seen_without_the_leader_that_lives(cluster))
        partition = cluster.image.topics["t"].partitions[0]
        for node in partition.replicas:
            wait(lambda node=node: listed(cluster, node) == [(0, leader_of_t(cluster))] * 2)  # type: ignore[misc]


def test_the_first_response_after_a_kill_names_the_next_leader() -> None:
    """librdkafka asks once a second after it has heard of the old leader, or of a list of brokers without that."""
    with KafkaCluster(3, _CONFIGS) as cluster:
        cluster.create_topic("t", 1)
        produce_one(cluster)
        wait_for_isr(cluster, 3)
        leader = leader_of_t(cluster)
        follower = next(node for node in (1, 2, 3) if node != leader)
        wire = Wire(cluster[follower].address, is_kafka=False)
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        cluster.kill(leader)
        answer = wire.send(request, 12)
        (partition,) = answer.topics[0].partitions
        assert (partition.error_code, partition.leader_id != leader, partition.leader_epoch) == (0, True, 1)
        assert sorted(node.node_id for node in answer.brokers) == [1, 2, 3]
        assert leader not in cluster[follower].broker.image.brokers
        wait(lambda: len(wire.send(request, 12).brokers) == 2)
        wire.close()


def leader_of_t(cluster: KafkaCluster) -> int:
    return cluster.image.topics["t"].partitions[0].leader


def is_seen_without_the_leader_that_lives(cluster: KafkaCluster) -> bool:
    """Cut a follower off from its leader. Return True if it lists no leader before the leader is fenced, and others list it."""
    wait_for_isr(cluster, 3)
    leader = leader_of_t(cluster)
    follower, other = (node for node in (1, 2, 3) if node != leader)
    broker = cluster[follower].broker
    assert listed(cluster, leader)[0][0] == 0
    with cluster.disconnect(leader, follower):
        until = time.monotonic() + 2  # a broker is lost for a second
        while leader in broker.image.brokers and time.monotonic() < until:
            seen = listed(cluster, follower), listed(cluster, other)
            if seen == ([(LEADER_NOT_AVAILABLE, -1)] * 2, [(0, leader)] * 2) and leader in broker.image.brokers:
                return True
    wait(lambda: len(broker.image.brokers) == 3)
    return False


def listed(cluster: KafkaCluster, node: int) -> list[tuple[int, int]]:
    """Return the error and leader of the partition as a broker lists it, alone and among all topics."""
    wire = Wire(cluster[node].address, is_kafka=False)
    requests = (MetadataRequest(topics=[MetadataRequestTopic(name="t")]), MetadataRequest(topics=None))
    rows = [
        (row.error_code, row.leader_id)
        for request in requests
        for topic in wire.send(request, 12).topics
        for row in topic.partitions
    ]
    wire.close()
    return rows


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
