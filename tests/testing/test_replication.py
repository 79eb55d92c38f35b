"""Topics with three replicas in a cluster of three brokers, of which some are killed, stopped or emptied."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from ottla import Admin, ElectionType, ShareConsumer, TopicPartition
from ottla import Producer as OttlaProducer
from ottla.coordinators.partitions import partition_of
from ottla.coordinators.share.state import share_key
from ottla.metadata.image import SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC, PartitionImage
from ottla.protocol.errors import name_of
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import build
from ottla.records.record import Record
from ottla.testing import KafkaCluster
from tests.conformance.conftest import Wire

CONFIGS = {"default.replication.factor": 3, "min.insync.replicas": 2}
NODES = [1, 2, 3]
QUICK_RETRIES = {
    "linger.ms": 1,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
}


@pytest.fixture
def cluster(kafka_cluster: Callable[..., KafkaCluster]) -> KafkaCluster:
    return kafka_cluster(3, {**CONFIGS, "group.share.assignment.interval.ms": 0})


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def placed(cluster: KafkaCluster, topic: str, index: int = 0) -> PartitionImage:
    return cluster.image.topics[topic].partitions[index]


def until_in_sync(cluster: KafkaCluster, topic: str, nodes: list[int] | None = None) -> None:
    """Wait until all partitions of a topic have these replicas in sync, by default all."""
    expected = NODES if nodes is None else nodes
    until(lambda: all(sorted(partition.isr) == expected for partition in cluster.image.topics[topic].partitions))


def values_at(cluster: KafkaCluster, topic: str, index: int) -> list[bytes | None]:
    """Return the values of a partition in the log of its leader."""
    broker = cluster[cluster.leader_of(topic, index)]
    return [record.value for record in broker.records(topic, partition=index)]


def until_replicas_agree(cluster: KafkaCluster, topic: str, index: int, expected: list[bytes | None]) -> None:
    for broker in cluster.running:
        if broker.node_id not in placed(cluster, topic, index).replicas:
            continue
        until(lambda broker=broker: [row.value for row in broker.records(topic, partition=index)] == expected)  # type: ignore[misc]


class Load:
    """Idempotent producer of confluent-kafka that sends numbers to the partitions of a topic in turn, on a thread.

    acknowledged  numbers by partition in the order of their acknowledgements, with the acknowledged offsets. Numbers without
                  an offset are left out: a repeated batch that is older than the five that brokers remember is refused
                  (OUT_OF_ORDER_SEQUENCE_NUMBER), by which librdkafka knows that it was written
    """

    def __init__(self, cluster: KafkaCluster, topic: str, partitions: int) -> None:
        self.acknowledged: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]
        self.count = 0
        self.failures: list[KafkaError] = []
        self._topic = topic
        self._sent = 0
        self._is_ended = False
        servers = {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True}
        self._producer = Producer({**servers, **QUICK_RETRIES})
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
            return
        offset, partition, value = message.offset(), message.partition(), message.value()
        assert partition is not None
        assert value is not None
        if offset is not None:
            self.acknowledged[partition].append((offset, int(value)))
        self.count += 1

    def _run(self) -> None:
        count = len(self.acknowledged)
        while not self._is_ended:
            while self._sent < self.count + 200:
                self._producer.produce(
                    self._topic, b"%d" % self._sent, partition=self._sent % count, on_delivery=self._delivered
                )
                self._sent += 1
            self._producer.poll(0.002)

    def more(self, count: int = 200) -> None:
        """Wait until so many records more were acknowledged."""
        target = self.count + count
        until(lambda: self.count >= target or bool(self.failures))
        assert self.failures == []

    def end(self) -> None:
        """Stop sending, and wait for all acknowledgements."""
        self._is_ended = True
        self._thread.join(20)
        assert self._producer.flush(20) == 0
        assert self.failures == []
        assert self.count == self._sent


@contextmanager
def load(cluster: KafkaCluster, topic: str, partitions: int) -> Iterator[Load]:
    running = Load(cluster, topic, partitions)
    try:
        yield running
    finally:
        running.end()


def assert_all_once_and_in_order(cluster: KafkaCluster, topic: str, sent: Load) -> None:
    count = len(sent.acknowledged)
    for index, acknowledged in enumerate(sent.acknowledged):
        values = values_at(cluster, topic, index)
        assert values == [b"%d" % number for number in range(index, sent.count, count)]
        assert all(values[offset] == b"%d" % number for offset, number in acknowledged)
        until_replicas_agree(cluster, topic, index, values)


def test_acknowledged_records_survive_the_kill_of_any_leader(cluster: KafkaCluster) -> None:
    cluster.create_topic("orders", 3)
    with load(cluster, "orders", 3) as sent:
        for node_id in NODES:
            sent.more()
            cluster.kill(node_id)
            sent.more()
            assert all(cluster.leader_of("orders", index) not in (-1, node_id) for index in range(3))
            cluster.restart(node_id)
            until_in_sync(cluster, "orders")
    assert_all_once_and_in_order(cluster, "orders", sent)


def test_a_clean_stop_hands_leadership_over_before_the_broker_ends(cluster: KafkaCluster) -> None:
    cluster.create_topic("orders", 6)
    epochs = [placed(cluster, "orders", index).leader_epoch for index in range(6)]
    with load(cluster, "orders", 6) as sent:
        sent.more()
        stopped = placed(cluster, "orders").leader
        cluster.stop(stopped)
        assert all(cluster.leader_of("orders", index) not in (-1, stopped) for index in range(6))
        assert all(placed(cluster, "orders", index).leader_epoch <= epochs[index] + 1 for index in range(6))
        sent.more()
        cluster.restart(stopped)
        until_in_sync(cluster, "orders")
        sent.more()
    assert_all_once_and_in_order(cluster, "orders", sent)


def test_acks_all_is_refused_below_min_insync_replicas(cluster: KafkaCluster) -> None:
    cluster.create_topic("orders", 1)
    leader, one, other = placed(cluster, "orders").replicas
    assert produce_once(cluster, leader, b"before") == "NONE"
    cluster.kill(one)
    cluster.kill(other)
    until_in_sync(cluster, "orders", [leader])
    assert produce_once(cluster, leader, b"refused") == "NOT_ENOUGH_REPLICAS"
    assert values_at(cluster, "orders", 0) == [b"before"]
    outcomes: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, **QUICK_RETRIES})
    producer.produce("orders", b"after", on_delivery=lambda error, _: outcomes.append(error))
    producer.poll(0.3)
    assert outcomes == []
    cluster.restart(one)
    assert producer.flush(20) == 0
    assert outcomes == [None]
    until_in_sync(cluster, "orders", sorted((leader, one)))
    until_replicas_agree(cluster, "orders", 0, [b"before", b"after"])


def produce_once(cluster: KafkaCluster, leader: int, value: bytes) -> str:
    """Produce with acks=all in one request, and return the name of the error."""
    wire = Wire(cluster[leader].address, is_kafka=False)
    data = PartitionProduceData(index=0, records=build([Record(0, 1, None, value)]))
    topic = TopicProduceData(name="orders", partition_data=[data])
    answer = wire.send(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]), 9)
    wire.close()
    return name_of(answer.responses[0].partition_responses[0].error_code)


def test_a_transaction_goes_on_when_its_coordinator_is_killed(cluster: KafkaCluster) -> None:
    cluster.create_topic("a", 3)
    cluster.create_topic("b", 3)
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "billing"}
    producer = Producer({**servers, **QUICK_RETRIES})
    producer.init_transactions(20)
    state = cluster.image.topics[TRANSACTION_STATE_TOPIC]
    index = partition_of("billing", len(state.partitions))
    expected = []
    for number in range(4):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce("a", b"%d" % number, partition=partition)
            producer.produce("b", b"%d" % number, partition=partition)
        producer.flush(20)
        coordinator = cluster.leader_of(TRANSACTION_STATE_TOPIC, index)
        if number % 2:
            cluster.kill(coordinator)
            producer.commit_transaction(20)
            assert cluster.leader_of(TRANSACTION_STATE_TOPIC, index) not in (-1, coordinator)
            cluster.restart(coordinator)
            expected.append(b"%d" % number)
        else:
            cluster.kill(coordinator)
            producer.abort_transaction(20)
            cluster.restart(coordinator)
        until_in_sync(cluster, "a")
        until_in_sync(cluster, TRANSACTION_STATE_TOPIC)
    for topic in ("a", "b"):
        for partition in range(3):
            broker = cluster[cluster.leader_of(topic, partition)]
            read = broker.records(topic, partition=partition, isolation_level="read_committed")
            assert [record.value for record in read] == expected


def test_a_group_keeps_offsets_and_assignment_when_its_coordinator_is_killed(cluster: KafkaCluster) -> None:
    cluster.create_topic("orders", 2)
    for number in range(10):
        cluster[cluster.leader_of("orders", number % 2)].produce("orders", f"{number}", partition=number % 2)
    assignments: list[list[int]] = []
    revoked: list[object] = []
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "board",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
        }
    )
    consumer.subscribe(
        ["orders"],
        on_assign=lambda _, parts: assignments.append([part.partition for part in parts]),
        on_revoke=lambda _, parts: revoked.append(parts),
    )
    assert len(read_messages(consumer, 10)) == 10
    consumer.commit(asynchronous=False)
    coordinator = cluster.coordinator_of("board")
    cluster.kill(coordinator)
    until(lambda: cluster.coordinator_of("board") not in (-1, coordinator))
    for number in range(10, 14):
        cluster[cluster.leader_of("orders", number % 2)].produce("orders", f"{number}", partition=number % 2)
    assert len(read_messages(consumer, 4)) == 4
    consumer.commit(asynchronous=False)
    assert (assignments, revoked) == ([[0, 1]], [])
    consumer.close()
    cluster.restart(coordinator)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        offsets = admin.list_consumer_group_offsets(["board"])["board"]
    assert {place.partition: committed.offset for place, committed in offsets.items()} == {0: 7, 1: 7}


def read_messages(consumer: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    deadline = time.monotonic() + 20
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
    return values


def test_a_share_group_keeps_its_acknowledgements_when_brokers_are_killed(cluster: KafkaCluster) -> None:
    cluster.create_topic("jobs", 1)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert not admin.alter_share_group_offsets("workers", {TopicPartition("jobs", 0): 0}).errors
    done: list[int] = []
    sent = 0
    for _ in range(3):
        producer = OttlaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all")
        for _ in range(20):
            producer.produce("jobs", value=b"%d" % sent)
            sent += 1
        producer.close()
        with ShareConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id="workers") as consumer:
            consumer.subscribe(["jobs"])
            deadline = time.monotonic() + 20
            while len(done) < sent and time.monotonic() < deadline:
                done += [int(record.value or b"") for record in consumer.poll(0.2)]
            consumer.commit()
        assert sorted(done) == list(range(sent))
        leader, coordinator = cluster.leader_of("jobs", 0), share_coordinator(cluster, "workers", "jobs", 0)
        for node_id in dict.fromkeys((coordinator, leader)):
            cluster.kill(node_id)
            until(lambda node_id=node_id: cluster.leader_of("jobs", 0) not in (-1, node_id))  # type: ignore[misc]
            cluster.restart(node_id)
            until_in_sync(cluster, "jobs")
            until_in_sync(cluster, SHARE_STATE_TOPIC)


def share_coordinator(cluster: KafkaCluster, group: str, topic: str, index: int) -> int:
    """Return the broker that keeps the state of a share partition."""
    count = len(cluster.image.topics[SHARE_STATE_TOPIC].partitions)
    key = share_key(group, cluster.image.topics[topic].id, index)
    return cluster.leader_of(SHARE_STATE_TOPIC, partition_of(key, count))


def test_a_lost_data_directory_is_filled_again(cluster: KafkaCluster) -> None:
    cluster.create_topic("orders", 3)
    with load(cluster, "orders", 3) as sent:
        for node_id in NODES:
            sent.more()
            cluster.kill(node_id)
            shutil.rmtree(cluster[node_id].data_dir)
            sent.more()
            cluster.restart(node_id)
            until_in_sync(cluster, "orders")
    assert_all_once_and_in_order(cluster, "orders", sent)


def test_records_are_deleted_at_all_live_replicas_before_the_answer(cluster: KafkaCluster) -> None:
    cluster.create_topic("orders", 1)
    producer = OttlaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all")
    for number in range(10):
        producer.produce("orders", value=b"%d" % number)
    producer.close()
    leader, one, other = placed(cluster, "orders").replicas
    assert delete_records(cluster, leader, 4) == (0, 4)
    assert [log_start(cluster, node_id) for node_id in NODES] == [4, 4, 4]
    cluster.kill(other)
    assert delete_records(cluster, leader, 6) == (0, 6)
    assert [log_start(cluster, node_id) for node_id in (leader, one)] == [6, 6]
    cluster.disconnect(leader, one)
    assert delete_records(cluster, leader, 8, timeout_ms=300)[0] == 7, "REQUEST_TIMED_OUT: one replica has not deleted"
    assert [log_start(cluster, node_id) for node_id in (leader, one)] == [8, 6]
    cluster.reconnect(leader, one)
    cluster.restart(other)
    until(lambda: [log_start(cluster, node_id) for node_id in NODES] == [8, 8, 8])


def delete_records(cluster: KafkaCluster, leader: int, offset: int, timeout_ms: int = 10_000) -> tuple[int, int]:
    """Return the error code and the low watermark."""
    wire = Wire(cluster[leader].address, is_kafka=False)
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name="orders", partitions=[partition])
    (row,) = wire.send(DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms), 2).topics[0].partitions
    wire.close()
    return row.error_code, row.low_watermark


def log_start(cluster: KafkaCluster, node_id: int) -> int:
    partition = cluster[node_id].broker.replicas.find("orders", 0)
    assert partition is not None
    return partition.log.start_offset


def test_a_replica_that_is_not_in_sync_does_not_lead(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3, {"default.replication.factor": 3, "min.insync.replicas": 1})
    cluster.create_topic("orders", 1)
    leader, one, other = placed(cluster, "orders").replicas
    assert produce_once(cluster, leader, b"before") == "NONE"
    until_in_sync(cluster, "orders")
    cluster.kill(one)
    cluster.kill(other)
    assert produce_once(cluster, leader, b"on one replica") == "NONE"
    cluster.kill(leader)
    cluster.restart(one)
    cluster.restart(other)
    time.sleep(0.3)  # an election would have been written by now: the absence of one cannot be waited for
    assert cluster.leader_of("orders", 0) == -1
    cluster.restart(leader)
    until(lambda: cluster.leader_of("orders", 0) == leader)
    until_in_sync(cluster, "orders")
    until_replicas_agree(cluster, "orders", 0, [b"before", b"on one replica"])


def test_an_unclean_election_loses_what_only_the_old_leader_had(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3, {"default.replication.factor": 3, "min.insync.replicas": 1})
    cluster.create_topic("orders", 1)
    leader, one, other = placed(cluster, "orders").replicas
    assert produce_once(cluster, leader, b"before") == "NONE"
    until_in_sync(cluster, "orders")
    cluster.kill(one)
    cluster.kill(other)
    for value in (b"lost", b"lost too"):
        assert produce_once(cluster, leader, value) == "NONE"
    cluster.kill(leader)
    cluster.restart(one)
    with Admin(bootstrap_servers=cluster[one].bootstrap_servers) as admin:
        assert not admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition("orders", 0)]).errors
    until(lambda: cluster.leader_of("orders", 0) == one)
    assert produce_once(cluster, one, b"after") == "NONE"
    cluster.restart(other)
    cluster.restart(leader)
    until_in_sync(cluster, "orders")
    until_replicas_agree(cluster, "orders", 0, [b"before", b"after"])
    assert placed(cluster, "orders").leader == one
