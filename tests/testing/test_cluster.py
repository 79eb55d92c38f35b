"""The fixture `kafka_cluster`: brokers in this process that form a cluster."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from ottla import AcknowledgeType, Admin, ConfigChange, ConfigResource, ResourceType, ShareConsumer, TopicPartition
from ottla import Consumer as OttlaConsumer
from ottla.broker.cluster.membership import Membership
from ottla.broker.lifecycle import CannotStart
from ottla.client.errors import KafkaError, UnknownTopic
from ottla.metadata.image import Delta
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import build
from ottla.records.record import Record
from ottla.testing import KafkaCluster
from ottla.testing.cluster import ClusterBroker
from tests.conformance.conftest import Wire


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


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


def test_transactions_span_brokers(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3)
    cluster.create_topic("a", 3)
    cluster.create_topic("b", 3)
    for number in range(6):  # their coordinators are on different brokers
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"tx{number}"})
        producer.init_transactions(30)
        for commit in (True, False):
            producer.begin_transaction()
            for partition in range(3):
                producer.produce("a", f"{number}-{commit}", partition=partition)
                producer.produce("b", f"{number}-{commit}", partition=partition)
            if commit:
                producer.commit_transaction(30)
            else:
                producer.flush(30)
                producer.abort_transaction(30)
    for topic in ("a", "b"):
        values = sorted(consume_committed(cluster, topic, 18))
        assert values == sorted(b"%d-True" % number for number in range(6) for _ in range(3))


def consume_committed(cluster: KafkaCluster, topic: str, count: int) -> list[bytes]:
    with OttlaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=f"committed-{topic}",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.subscribe([topic])
        values: list[bytes] = []
        deadline = time.monotonic() + 20
        while len(values) < count and time.monotonic() < deadline:
            values += [record.value or b"" for record in consumer.consume(100, 0.2)]
        assert not consumer.consume(100, 0.3)
        return values


def test_offsets_are_committed_in_transactions_at_another_broker(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3)
    cluster.create_topic("in", 3)
    cluster.create_topic("out", 3)
    assert produce(cluster, "in", 30) == []
    for number in range(4):
        group = f"group{number}"
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["in"])
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"copy{number}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        copied = 0
        while copied < 30:
            message = consumer.poll(10)
            assert message is not None
            assert message.error() is None
            producer.produce("out", message.value())
            copied += 1
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30
        )
        producer.commit_transaction(30)
        consumer.close()
        committed = committed_offsets(cluster, group)
        assert sum(committed.values()) == 30, committed
    assert len(consume_committed(cluster, "out", 120)) == 120


def committed_offsets(cluster: KafkaCluster, group: str) -> dict[int, int]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        offsets = admin.list_consumer_group_offsets([group], require_stable=True)
        return {
            place.partition: committed.offset for place, committed in offsets[group].items() if committed.offset >= 0
        }


def test_share_groups_whose_coordinators_are_on_other_brokers(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3, {"group.share.assignment.interval.ms": 0})
    cluster.create_topic("jobs", 6)
    assert produce(cluster, "jobs", 60) == []
    for number in range(3):
        group = f"workers{number}"
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            offsets = {TopicPartition("jobs", index): 0 for index in range(6)}
            assert not admin.alter_share_group_offsets(group, offsets).errors
        with ShareConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=group) as consumer:
            consumer.subscribe(["jobs"])
            values: list[bytes] = []
            deadline = time.monotonic() + 20
            while len(values) < 60 and time.monotonic() < deadline:
                values += [record.value or b"" for record in consumer.poll(0.5)]
            consumer.commit()
        assert sorted(values) == sorted(b"v%d" % number for number in range(60))


def test_a_broker_that_does_not_lead_names_the_leader(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    """KIP-951: the client needs no metadata to find the new leader."""
    cluster = kafka_cluster(2)
    cluster.create_topic("t", 2)
    (index,) = (index for index in range(2) if cluster.leader_of("t", index) == 2)
    topic = cluster.image.topics["t"]
    wire = Wire(cluster[1].address, is_kafka=False)
    data = TopicProduceData(
        name="t", partition_data=[PartitionProduceData(index=index, records=build([Record(0, 1, None, b"v")]))]
    )
    produced = wire.send(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 12)
    (row,) = produced.responses[0].partition_responses
    assert (row.error_code, row.current_leader.leader_id, row.current_leader.leader_epoch) == (6, 2, 0)
    assert [(node.node_id, node.host, node.port) for node in produced.node_endpoints] == [(2, *cluster[2].address)]
    partition = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
    fetched = wire.send(FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic_id=topic.id, partitions=[partition])]), 16)
    (read,) = fetched.responses[0].partitions
    assert (read.error_code, read.current_leader.leader_id) == (6, 2)
    assert [(node.node_id, node.port) for node in fetched.node_endpoints] == [(2, cluster[2].address[1])]
    wire.close()


def test_dead_letters_go_to_a_topic_that_another_broker_leads(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3, {"group.share.assignment.interval.ms": 0})
    cluster.create_topic("jobs", 3)
    cluster.create_topic("dlq.jobs", 3, **{"errors.deadletterqueue.group.enable": True})
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as own:
        group = ConfigResource(ResourceType.GROUP, "workers")
        name = ConfigChange("errors.deadletterqueue.topic.name", "dlq.jobs")
        own.incremental_alter_configs({group: [name]}).check()
        offsets = {TopicPartition("jobs", index): 0 for index in range(3)}
        assert not own.alter_share_group_offsets("workers", offsets).errors
    for index in range(3):
        cluster[cluster.leader_of("jobs", index)].produce("jobs", f"bad{index}", partition=index)
    with ShareConsumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id="workers", share_acknowledgement_mode="explicit"
    ) as consumer:
        consumer.subscribe(["jobs"])
        rejected = 0
        deadline = time.monotonic() + 20
        while rejected < 3 and time.monotonic() < deadline:
            for record in consumer.poll(0.5):
                consumer.acknowledge(record, AcknowledgeType.REJECT)
                rejected += 1
            consumer.commit()
    while time.monotonic() < deadline:
        letters = [
            record
            for index in range(3)
            for record in cluster[cluster.leader_of("dlq.jobs", index)].records("dlq.jobs", partition=index)
        ]
        if len(letters) == 3:
            break
        time.sleep(0.05)
    assert sorted(dict(record.headers)["__dlq.errors.partition"] or b"" for record in letters) == [b"0", b"1", b"2"]


def test_only_a_stopped_broker_is_unregistered(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3)
    with Admin(bootstrap_servers=cluster[1].bootstrap_servers) as admin:
        with pytest.raises(KafkaError, match="Broker 3 is running: stop it before it is unregistered"):
            admin.unregister_broker(3)
        with pytest.raises(KafkaError, match="Broker ID 7 is not currently registered"):
            admin.unregister_broker(7)
        cluster.stop(3)
        admin.unregister_broker(3)
        assert cluster.image.registered.keys() == {1, 2}


def test_elections_are_requested_at_any_broker(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3)
    cluster.create_topic("t", 3)
    (lost,) = (index for index in range(3) if cluster.leader_of("t", index) == 3)
    cluster.kill(3)
    wire = Wire(cluster[1].address, is_kafka=False)
    topic = TopicPartitions(topic="t", partitions=[0, 1, 2])
    for election_type, lost_error in ((0, 80), (1, 83)):
        request = ElectLeadersRequest(election_type=election_type, topic_partitions=[topic], timeout_ms=5000)
        (result,) = wire.send(request, 2).replica_election_results
        by_index = {row.partition_id: row.error_code for row in result.partition_result}
        assert by_index.pop(lost) == lost_error, "PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE"
        assert set(by_index.values()) == {84}, "ELECTION_NOT_NEEDED"
    wire.close()


def test_a_share_consumer_reads_on_when_partitions_have_a_leader_again(
    kafka_cluster: Callable[..., KafkaCluster],
) -> None:
    cluster = kafka_cluster(3, {"group.share.assignment.interval.ms": 0})
    cluster.create_topic("jobs", 1)
    leader = cluster.leader_of("jobs", 0)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert not admin.alter_share_group_offsets("workers", {TopicPartition("jobs", 0): 0}).errors
    cluster[leader].produce("jobs", "before")
    with ShareConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id="workers") as consumer:
        consumer.subscribe(["jobs"])
        assert [record.value for record in consumer.poll(20)] == [b"before"]
        cluster.kill(leader)
        for _ in range(5):  # the metadata shows no leader meanwhile
            assert consumer.poll(0.2) == []
        cluster.restart(leader)
        cluster[leader].produce("jobs", "after")
        values: list[bytes | None] = []
        deadline = time.monotonic() + 15
        while b"after" not in values and time.monotonic() < deadline:
            values += [record.value for record in consumer.poll(0.5)]
        assert b"after" in values


def test_unclean_elections_begin_when_the_broker_has_applied_the_config(
    kafka_cluster: Callable[..., KafkaCluster],
) -> None:
    cluster = kafka_cluster(2, {"default.replication.factor": 2, "broker.session.timeout.ms": 1000})
    cluster.create_topic("t")
    first, second = cluster.leader_of("t", 0), 3 - cluster.leader_of("t", 0)
    cluster.kill(second)
    until(lambda: cluster.image.topics["t"].partitions[0].isr == (first,))
    cluster.kill(first)
    cluster.restart(second)
    broker = cluster[second]
    until(lambda: broker.broker.image.topics["t"].partitions[0].leader == -1)
    node = broker.server.node
    assert node is not None
    # The log of a broker that may be back within the session timeout is not given up.
    until(lambda: node.controller.is_active and not node.controller._missing)

    tasks = broker.server.tasks

    def slow(delta: Delta) -> object:
        """Take longer than one turn of the loop, like a broker with many partitions."""
        return tasks.run_pieces(iter([None] * 10), "test") if delta.configured else None

    def add_listener() -> None:
        metadata = broker.broker.metadata
        metadata._listeners = (slow, *metadata._listeners)

    broker._call(add_listener)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        change = ConfigChange("unclean.leader.election.enable", "true")
        admin.incremental_alter_configs({ConfigResource(ResourceType.BROKER, ""): [change]}).check()
    until(lambda: broker.broker.image.topics["t"].partitions[0].leader == second)


def test_records_are_produced_at_and_read_from_the_leaders() -> None:
    """`cluster.produce` said that the topic has no partition 0, where another broker has it."""
    with KafkaCluster(3) as cluster:
        assert repr(cluster) == "<KafkaCluster of 3 brokers>"
        cluster.create_topic("orders", 6, replication_factor=2)
        for index in range(6):
            cluster.produce("orders", str(index), partition=index)
        assert [record.value for record in cluster.records("orders", at_least=6)] == [
            b"%d" % index for index in range(6)
        ]
        assert {cluster.leader_of("orders", index) for index in range(6)} == {1, 2, 3}
        assert cluster.produce("made", "v", "k").topic == "made"
        cluster.kill(1)
        assert repr(cluster) == "<KafkaCluster of 3 brokers, down: 1>"
        assert len(cluster.records("orders", at_least=6)) == 6
        with pytest.raises(UnknownTopic, match="topic typo does not exist; existing topics: made, orders"):
            cluster.records("typo", at_least=1)
        cluster.delete_topic("orders")
        assert cluster.topics() == ["made"]
        with pytest.raises(UnknownTopic):
            cluster.delete_topic("orders")


def test_groups_are_seen_at_their_coordinators() -> None:
    with KafkaCluster(3) as cluster:
        cluster.produce("orders", "v")
        for group in ("a", "b", "c", "d"):
            configs = {**cluster.client_config, "group.id": group, "auto.offset.reset": "earliest"}
            with OttlaConsumer(configs) as consumer:
                consumer.subscribe(["orders"])
                assert consumer.poll(10) is not None
                cluster.wait_for_group(group)
                consumer.commit()
        assert cluster.groups() == ["a", "b", "c", "d"]
        assert len({cluster.coordinator_of(group) for group in cluster.groups()}) > 1
        assert {group: cluster.committed(group) for group in "abcx"} == {
            **{group: {("orders", 0): 1} for group in "abc"},
            "x": {},
        }
        cluster.delete_group("c")
        assert cluster.groups() == ["a", "b", "d"]


def test_a_bug_in_a_start_is_logged_once_and_ends_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def join(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Membership, "join", join)
    with pytest.raises(CannotStart, match=r"^an unexpected error occurred, which is in the log$"), KafkaCluster(1):
        pass
    errors = [record for record in caplog.records if record.exc_info is not None]
    assert [(record.message, str(record.exc_info[1])) for record in errors if record.exc_info] == [
        ("the start of the broker failed", "a bug")
    ]
