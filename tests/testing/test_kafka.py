"""The broker of a test: topics and records, and how it comes and goes."""

import asyncio
import contextlib
import socket
import threading
import time
import unittest
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

import ottla.testing
from ottla import KafkaError, Record, aio
from ottla.broker.lifecycle import CannotStart
from ottla.client.errors import UnknownTopic
from ottla.metadata import changes
from ottla.metadata.configs import InvalidConfig
from ottla.protocol.errors import NONE
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.testing import Kafka
from tests.conformance.conftest import Closed, Topic, TopicFactory, Wire
from tests.conformance.members import Member, described, new_group, stable, wait_for
from tests.conformance.transactions import TransactionalProducer

TOPIC, BROKER = 2, 4


def config(wire: Wire, kind: int, resource: str, name: str) -> str:
    query = DescribeConfigsResource(resource_type=kind, resource_name=resource, configuration_keys=[name])
    (entry,) = wire.send(DescribeConfigsRequest(resources=[query]), 4).results[0].configs
    return str(entry.value)


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def is_refused(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def members_of(wire: Wire, group: str) -> list[str]:
    """Of a group whose coordinator is looked for first."""
    assert wire.send(FindCoordinatorRequest(key=group), 3).error_code == NONE
    description = described(wire, group)
    assert description.error_code == NONE
    return [member.member_id for member in description.members]


def held() -> dict[threading.Thread | str, str]:
    """Threads and descriptors of this process, with what they are. Some may be of an earlier test, and end by themselves."""
    handles: dict[threading.Thread | str, str] = {thread: thread.name for thread in threading.enumerate()}
    for path in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(FileNotFoundError):
            handles[path.name] = str(path.readlink())
    return handles


def left(before: dict[threading.Thread | str, str], directory: Path) -> list[str]:
    """Return what is held now and was not before. Other brokers of this process open files of theirs at any time."""
    new = [what for key, what in held().items() if key not in before]
    return [what for what in new if not what.startswith("/") or what.startswith(str(directory))]


# Topics and records.


def test_a_topic_has_the_partitions_and_configs_it_was_given(kafka: Kafka, wire: Wire) -> None:
    kafka.create_topic("orders", 3, cleanup_policy="compact", **{"retention.ms": 1234})
    assert kafka.topics() == ["orders"]
    assert config(wire, TOPIC, "orders", "cleanup.policy") == "compact"
    assert config(wire, TOPIC, "orders", "retention.ms") == "1234"
    assert [kafka.produce("orders", "", "k", partition=index).partition for index in range(3)] == [0, 1, 2]
    with pytest.raises(UnknownTopic, match="orders has 3 partitions, but no partition 3"):
        kafka.produce("orders", "", "k", partition=3)


def test_a_topic_is_refused_as_kafka_would(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    with pytest.raises(KafkaError, match=r"Topic 'orders' already exists\.") as error:
        kafka.create_topic("orders")
    assert error.value.name == "TOPIC_ALREADY_EXISTS"


def test_produced_records_are_returned(kafka: Kafka, wire: Wire) -> None:
    first = kafka.produce("orders", "one", "k", headers={"source": "test"}, timestamp=1_700_000_000_000)
    second = kafka.produce("orders", None, b"k")
    assert [first, second] == kafka.records("orders")
    assert (first.topic, first.partition, first.offset, first.timestamp) == ("orders", 0, 0, 1_700_000_000_000)
    assert (first.key, first.value, first.headers) == (b"k", b"one", [("source", b"test")])
    assert (second.offset, second.value) == (1, None)
    assert abs(int(second.timestamp) - int(time.time() * 1000)) < 60_000


def test_a_record_that_the_log_refuses_is_an_error(kafka: Kafka) -> None:
    kafka.create_topic("compacted", cleanup_policy="compact")
    with pytest.raises(KafkaError) as error:
        kafka.produce("compacted", "no key")
    assert error.value.name == "INVALID_RECORD"


def test_a_key_decides_as_in_kafkas_own_producer(kafka: Kafka) -> None:
    kafka.create_topic("keyed", 7)
    assert kafka.produce("keyed", "", "kafka").partition == kafka.produce("keyed", "again", "kafka").partition
    for number in range(20):
        kafka.produce("keyed", str(number), f"key-{number}")
    records = kafka.records("keyed")
    assert len({record.partition for record in records}) > 3
    assert [(record.partition, record.offset) for record in records] == sorted((r.partition, r.offset) for r in records)
    assert kafka.records("keyed", partition=2) == [record for record in records if record.partition == 2]


def test_an_unknown_topic_is_named(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    with pytest.raises(UnknownTopic, match="topic order does not exist; existing topics: orders"):
        kafka.records("order")


def test_records_are_waited_for(kafka: Kafka) -> None:
    later = threading.Timer(0.05, lambda: [kafka.produce("late", str(number)) for number in range(3)])
    later.start()
    assert values(kafka.records("late", at_least=3, wait_for_topic=True)) == [b"0", b"1", b"2"]
    later.join()
    with pytest.raises(TimeoutError, match=r"late has 3 of 4 records after 0\.01 s"):
        kafka.records("late", at_least=4, timeout=0.01)


def test_a_reader_of_committed_records_sees_what_is_committed(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    producer = TransactionalProducer(wire)
    for commit, count in ((True, 2), (False, 3)):  # offsets 0 to 2, the marker at 2; 3 to 6, the marker at 6
        producer.add(topic)
        producer.produce(topic, count=count)
        producer.end(commit=commit)
    kafka.produce("orders", "plain")
    producer.add(topic)
    producer.produce(topic)
    kafka.produce("orders", "behind what is open")
    committed = kafka.records("orders", isolation_level="read_committed")
    assert [record.offset for record in committed] == [0, 1, 7]
    assert [record.offset for record in kafka.records("orders")] == [0, 1, 3, 4, 5, 7, 8, 9]
    with pytest.raises(ValueError, match="not serializable"):
        kafka.records("orders", isolation_level="serializable")


def test_a_topic_that_is_misspelt_is_named_at_once(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    began = time.monotonic()
    with pytest.raises(UnknownTopic, match="topic typo does not exist; existing topics: orders"):
        kafka.records("typo", at_least=1)
    assert time.monotonic() - began < 8
    with pytest.raises(TimeoutError, match=r"topic typo does not exist; existing topics: orders after 0\.01 s"):
        kafka.records("typo", wait_for_topic=True, timeout=0.01)
    with pytest.raises(UnknownTopic, match="orders has 1 partitions, but no partition 1"):
        kafka.records("orders", partition=1)


def test_a_topic_is_deleted(kafka: Kafka) -> None:
    kafka.produce("orders", "one")
    kafka.delete_topic("orders")
    assert kafka.topics() == []
    with pytest.raises(UnknownTopic, match="topic orders does not exist; existing topics: none"):
        kafka.delete_topic("orders")


def test_a_replication_factor_is_checked_as_kafka_does(kafka: Kafka) -> None:
    kafka.create_topic("orders", replication_factor=1)
    with pytest.raises(KafkaError) as error:
        kafka.create_topic("more", replication_factor=2)
    assert error.value.name == "INVALID_REPLICATION_FACTOR"


def test_the_repr_names_the_address_and_the_state(kafka: Kafka) -> None:
    assert repr(kafka) == f"<Kafka {kafka.bootstrap_servers}>"
    kafka.stop()
    assert repr(kafka) == f"<Kafka {kafka.bootstrap_servers}, down>"


# Groups.


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_waited_for_and_its_offsets_are_seen(kafka: Kafka, protocol: str) -> None:
    assert (kafka.groups(), kafka.committed("billing")) == ([], {})
    kafka.create_topic("orders", 2)
    kafka.produce("orders", "one", partition=1)
    with pytest.raises(TimeoutError, match=r"group billing does not exist after 0\.01 s; existing groups: none"):
        kafka.wait_for_group("billing", timeout=0.01)
    configs = {
        **kafka.client_config,
        "group.id": "billing",
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
    }
    with ottla.Consumer(configs) as consumer:
        consumer.subscribe(["orders"])
        assert consumer.poll(10) is not None
        kafka.wait_for_group("billing")
        with pytest.raises(TimeoutError, match=r"group billing is Stable with 1 of 2 members after 0\.01 s"):
            kafka.wait_for_group("billing", 2, timeout=0.01)
        consumer.commit()
        assert kafka.committed("billing")[ottla.TopicPartition("orders", 1)] == 1
        with pytest.raises(KafkaError) as error:
            kafka.delete_group("billing")
        assert error.value.name == "NON_EMPTY_GROUP"
    kafka.wait_for_group("billing", 0)
    assert kafka.groups() == ["billing"]
    kafka.restart()
    assert kafka.committed("billing")[ottla.TopicPartition("orders", 1)] == 1
    kafka.delete_group("billing")
    assert kafka.groups() == []


# An event loop.


def test_on_a_running_event_loop_calls_that_wait_name_their_twins(kafka: Kafka) -> None:
    async def scenario() -> list[bytes | None]:
        kafka.create_topic("orders")
        assert kafka.records("orders") == []
        with pytest.raises(RuntimeError, match=r"would block the running event loop: use `await records_async"):
            kafka.records("orders", at_least=1)
        with pytest.raises(RuntimeError, match=r"use `await wait_for_group_async"):
            kafka.wait_for_group("billing")
        with (
            kafka.delay("Produce", timedelta(milliseconds=1)) as fault,
            pytest.raises(RuntimeError, match="wait_async"),
        ):
            fault.wait()
        configs = {**kafka.client_config, "group.id": "billing"}
        fault = kafka.fail("Produce", 1, error="NOT_LEADER_OR_FOLLOWER")
        async with aio.Producer(configs) as producer, aio.Consumer(configs) as consumer:
            consumer.subscribe(["orders"])
            reading = asyncio.create_task(consumer.poll(30))
            sending = asyncio.create_task(producer.send("orders", "one"))
            await fault.wait_async()
            await kafka.wait_for_group_async("billing")
            records = await kafka.records_async("orders", at_least=1)
            await sending
            reading.cancel()
        with pytest.raises(TimeoutError, match=r"orders has 1 of 2 records"):
            await kafka.records_async("orders", at_least=2, timeout=0.01)
        return values(records)

    assert asyncio.run(scenario()) == [b"one"]


# Configs.


@pytest.mark.kafka(**{"auto.create.topics.enable": False, "num_partitions": 3})
def test_the_marker_gives_configs(kafka: Kafka, wire: Wire) -> None:
    assert config(wire, BROKER, "1", "auto.create.topics.enable") == "false"
    assert config(wire, BROKER, "1", "num.partitions") == "3"
    with pytest.raises(UnknownTopic):
        kafka.produce("missing", "")


@pytest.mark.kafka(num_partitions=2)
class TestClosestMarker:
    @pytest.mark.kafka(num_partitions=4)
    def test_the_closest_marker_wins(self, wire: Wire) -> None:
        assert config(wire, BROKER, "1", "num.partitions") == "4"


class TestOwnConfig:
    @pytest.fixture
    def kafka_config(self) -> dict[str, object]:
        return {"num.partitions": 5}

    def test_the_fixture_can_be_overridden(self, kafka: Kafka, wire: Wire, kafka_factory: Callable[..., Kafka]) -> None:
        assert config(wire, BROKER, "1", "num.partitions") == "5"
        other = kafka_factory({"log.segment.bytes": 1 << 20})
        beside = Wire(other.address, is_kafka=False)
        assert config(beside, BROKER, "1", "num.partitions") == "5"
        assert config(beside, BROKER, "1", "log.segment.bytes") == "1048576"
        beside.close()


def test_a_group_does_not_wait_for_its_first_member(wire: Wire) -> None:
    assert config(wire, BROKER, "1", "group.initial.rebalance.delay.ms") == "0"


def test_a_config_that_is_misspelt_is_named() -> None:
    with pytest.raises(InvalidConfig, match=r"did you mean num\.partitions\?"):
        ottla.testing.broker({"num.partition": 3})


def test_several_brokers_are_clusters_of_their_own(kafka_factory: Callable[..., Kafka]) -> None:
    one, other = kafka_factory(), kafka_factory()
    one.produce("only-here", "")
    assert (one.topics(), other.topics()) == (["only-here"], [])
    assert one.bootstrap_servers != other.bootstrap_servers


# It comes and goes.


def test_a_broker_starts_within_50_ms() -> None:
    """The best of ten, so that a machine that is busy does not decide; it is about 6 ms on two cores."""
    best = 1.0
    for _ in range(10):
        began = time.perf_counter()
        with ottla.testing.broker():
            best = min(best, time.perf_counter() - began)
    assert best < 0.05


def test_nothing_is_left_behind() -> None:
    with ottla.testing.broker() as first:
        first.produce("warm", "up")
    before = held()
    with ottla.testing.broker({"log.flush.interval.messages": 1}) as broker:
        wire = Wire(broker.address, is_kafka=False)
        TopicFactory(wire)(name="orders").append(3)
        Member(wire, new_group(wire)).join()
        directory = broker.data_dir
        broker.restart()
        broker.kill()
        broker.restart()
        broker.advance(86_400_000)
        with broker.refuse():
            assert directory.exists()
        if Path("/proc/self/fd").exists():
            assert any(what.startswith(str(directory)) for what in left(before, directory))
        wire.close()
    assert not directory.exists()
    assert left(before, directory) == []
    broker.close()


def test_a_start_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    before = held()
    with ottla.testing.broker(data_dir=tmp_path / "data") as broker, pytest.raises(CannotStart, match="cannot listen"):
        ottla.testing.broker(port=broker.address[1])
    assert left(before, tmp_path) == []


def test_a_directory_that_is_given_is_kept(tmp_path: Path) -> None:
    with ottla.testing.broker(data_dir=tmp_path) as broker:
        broker.produce("orders", "kept")
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with ottla.testing.broker(data_dir=tmp_path) as broker:
        assert values(broker.records("orders")) == [b"kept"]


def test_a_restart_keeps_everything_and_the_port(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    topic.append(5)
    member = Member(wire, new_group(wire))
    stable(wire, member)
    servers = kafka.bootstrap_servers
    kafka.restart()
    with pytest.raises(Closed):
        wire.receive()
    assert kafka.bootstrap_servers == servers
    assert len(kafka.records("orders")) == 5
    assert [row.member_id for row in described(wire, member.group_id).members] == [member.member_id]


def test_a_killed_broker_is_gone_and_recovers(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    """The log keeps its records, and the indexes, which were in memory only, are rebuilt, since the stop was not clean."""
    topic.append(5)
    kafka.kill()
    with pytest.raises(Closed):
        wire.receive()
    assert is_refused(kafka.address)
    with pytest.raises(RuntimeError, match=r"the broker is down: restart\(\) starts it again"):
        kafka.topics()
    assert not (kafka.data_dir / ".kafka_cleanshutdown").exists()
    assert not list((kafka.data_dir / "orders-0").glob("*.snapshot"))
    assert all(not path.read_bytes() for path in (kafka.data_dir / "orders-0").glob("*.index"))
    kafka.restart()
    assert len(kafka.records("orders")) == 5
    topic.append(1)
    assert [record.offset for record in kafka.records("orders")] == list(range(6))


def test_a_kill_forgets_what_memory_alone_knew(kafka: Kafka, wire: Wire, topic: Topic) -> None:
    """A dynamic member that has not joined yet is in no log, unlike one of a stable group."""
    group = new_group(wire)
    stable(wire, Member(wire, group))
    other = new_group(wire)
    unknown = Member(wire, other)
    unknown.join()
    for end in (kafka.kill, kafka.kill):  # the second one finds nothing to do
        end()
    kafka.restart()
    again = Wire(kafka.address, is_kafka=False)
    wait_for(lambda: described(again, group).error_code == NONE)
    assert len(described(again, group).members) == 1
    assert described(again, other).members == []
    again.close()


def test_the_port_is_reserved_while_the_broker_is_down(kafka: Kafka) -> None:
    kafka.kill()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(kafka.address)
    kafka.restart()
    assert not is_refused(kafka.address)


def test_calls_waiting_for_the_broker_raise_when_it_goes_down(kafka: Kafka) -> None:
    """A jump of the clock in another thread, which takes a while."""
    kafka.create_topic("orders", 200)
    messages: list[str] = []

    def jump() -> None:
        try:
            while True:
                kafka.advance(30 * 86_400_000)
        except RuntimeError as error:
            messages.append(str(error))

    thread = threading.Thread(target=jump)
    thread.start()
    kafka.topics()
    kafka.kill()
    thread.join(30)
    assert not thread.is_alive()
    assert messages[0] in ("the broker went down", "the broker is down: restart() starts it again")
    kafka.restart()


class OnceMore(unittest.TestCase):
    """Use of the broker with `unittest`."""

    def test_in_a_with_block(self) -> None:
        kafka = self.enterContext(ottla.testing.broker())
        kafka.produce("orders", "from unittest")
        assert values(kafka.records("orders")) == [b"from unittest"]


# A broker for the session.


class TestSession:
    seen: list[str] = []  # noqa: RUF012

    @pytest.mark.parametrize("number", range(2))
    def test_topics_and_groups_are_gone_in_the_next_test(self, kafka_session: Kafka, number: int) -> None:
        wire = Wire(kafka_session.address, is_kafka=False)
        self.seen.append(kafka_session.bootstrap_servers)
        assert kafka_session.topics() == []
        assert members_of(wire, "the-same-group") == []
        stable(wire, Member(wire, "the-same-group"))
        assert len(members_of(wire, "the-same-group")) == 1
        kafka_session.create_topic("orders", number + 1)
        kafka_session.produce("orders", "")
        kafka_session.fail("Metadata", None, error="LEADER_NOT_AVAILABLE")
        kafka_session.clear()
        assert members_of(wire, "the-same-group") == []
        assert kafka_session.topics() == []
        kafka_session.produce("orders", "of this test")
        wire.close()
        assert len(set(self.seen)) == 1

    @pytest.mark.parametrize("change", ["advance", "kill", "freeze", "config"])
    def test_changes_of_a_test_are_undone_for_the_next_one(self, kafka_session: Kafka, change: str) -> None:
        """A new broker on the same port."""
        servers = kafka_session.bootstrap_servers
        kafka_session.produce("orders", "")
        if change == "advance":
            kafka_session.advance(86_400_000)
        elif change == "freeze":
            kafka_session.freeze()
        elif change == "kill":
            kafka_session.kill()
        else:
            kafka_session._change_metadata(
                lambda image, _: [changes.configure(image, BROKER, "", {"num.partitions": "9"})]
            )
        kafka_session.clear()
        assert kafka_session.bootstrap_servers == servers
        assert kafka_session.topics() == []
        record = kafka_session.produce("orders", "")
        assert abs(int(record.timestamp) - int(time.time() * 1000)) < 60_000
        wire = Wire(kafka_session.address, is_kafka=False)
        assert config(wire, BROKER, "1", "num.partitions") == "1"
        wire.close()
