"""Wrong calls of brokers and clusters of a test: each is an error that says what is wrong, in the words of the caller."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla.testing
from ottla.client.errors import KafkaError
from ottla.testing import Kafka, KafkaCluster, Security
from ottla.testing.calls import WrongArgument

DELIBERATE = (KafkaError, ValueError, RuntimeError, TimeoutError)
Call = Callable[[Any], object]

OF_BOTH: list[tuple[Call, str]] = [
    (lambda k: k.create_topic(), "create_topic: missing a required argument: 'name'"),
    (lambda k: k.create_topic(5), "create_topic: name must be str, not int 5"),
    (lambda k: k.create_topic(None), "create_topic: name must be str, not NoneType None"),
    (lambda k: k.create_topic("t", "3"), "create_topic: partitions must be int, not str '3'"),
    (lambda k: k.create_topic("t", True), "create_topic: partitions must be int, not bool True"),
    (lambda k: k.create_topic("t", 0), "Number of partitions was set to an invalid non-positive value"),
    (lambda k: k.create_topic("t", replication_factor="1"), "replication_factor must be int, not str '1'"),
    (lambda k: k.create_topic("t", replication_factor=0), "Replication factor must be larger than 0"),
    (lambda k: k.create_topic("t", partition=3), "Unknown topic config name: partition"),
    (lambda k: k.create_topic("t", retention_ms=None), "Invalid value None"),
    (lambda k: k.create_topic("a b"), "Topic name is invalid"),
    (lambda k: k.delete_topic(7), "delete_topic: name must be str, not int 7"),
    (lambda k: k.delete_topic("typo"), "topic typo does not exist; existing topics: orders"),
    (lambda k: k.produce(7, "v"), "produce: topic must be str, not int 7"),
    (lambda k: k.produce("orders"), "produce: missing a required argument: 'value'"),
    (lambda k: k.produce("orders", 5), "produce: value must be bytes or str or None, not int 5"),
    (lambda k: k.produce("orders", {"a": 1}), "produce: value must be bytes or str or None, not dict"),
    (lambda k: k.produce("orders", "v", 5), "produce: key must be bytes or str or None, not int 5"),
    (lambda k: k.produce("orders", "v", partition="0"), "produce: partition must be int or None, not str '0'"),
    (lambda k: k.produce("orders", "v", partition=1.0), "produce: partition must be int or None, not float"),
    (lambda k: k.produce("orders", "v", partition=-1), "orders has 1 partitions, but no partition -1"),
    (lambda k: k.produce("orders", "v", partition=9), "orders has 1 partitions, but no partition 9"),
    (lambda k: k.produce("orders", "v", headers=5), "produce: headers must be Mapping or Iterable, not int 5"),
    (lambda k: k.produce("orders", "v", headers="ab"), "produce: headers must be Mapping or Iterable, not str 'ab'"),
    (lambda k: k.produce("orders", "v", headers=[1]), "headers are \\(name, value\\) pairs, not 1"),
    (lambda k: k.produce("orders", "v", headers={"h": 1}), "header h must be bytes, str or None, not int"),
    (lambda k: k.produce("orders", "v", headers={1: "h"}), "the name of a header must be str, not int"),
    (lambda k: k.produce("orders", "v", timestamp="now"), "produce: timestamp must be int or None, not str 'now'"),
    (lambda k: k.produce("orders", "v", timestamp=-5), "timestamp"),
    (lambda k: k.produce("orders", "v", timestamp=2**70), "timestamp"),
    (lambda k: k.produce("orders", "\ud800"), "surrogates"),
    (lambda k: k.produce("orders", "v" * 2_000_000), "larger than"),
    (lambda k: k.produce("orders", "v", value="w"), "produce: multiple values for argument 'value'"),
    (lambda k: k.produce("orders", "v", colour="w"), "produce: got an unexpected keyword argument 'colour'"),
    (lambda k: k.records(None), "records: topic must be str, not NoneType None"),
    (lambda k: k.records("orders", 0), "records: too many positional arguments"),
    (lambda k: k.records("orders", partition="0"), "records: partition must be int or None, not str '0'"),
    (lambda k: k.records("orders", partition=5), "orders has 1 partitions, but no partition 5"),
    (lambda k: k.records("orders", at_least="1"), "records: at_least must be int, not str '1'"),
    (lambda k: k.records("orders", timeout="1"), "records: timeout must be float, not str '1'"),
    (lambda k: k.records("orders", timeout=None), "records: timeout must be float, not NoneType None"),
    (lambda k: k.records("orders", isolation_level=1), "records: isolation_level must be str, not int 1"),
    (lambda k: k.records("orders", isolation_level="x"), "isolation_level must be read_uncommitted or read_committed"),
    (lambda k: k.records("typo"), "topic typo does not exist; existing topics: orders"),
    (lambda k: k.committed(3), "committed: group must be str, not int 3"),
    (lambda k: k.delete_group(3), "delete_group: group must be str, not int 3"),
    (lambda k: k.delete_group("typo"), "group typo does not exist; existing groups: none"),
    (lambda k: k.wait_for_group(3), "wait_for_group: group must be str, not int 3"),
    (lambda k: k.wait_for_group("g", "1"), "wait_for_group: members must be int, not str '1'"),
    (lambda k: k.wait_for_group("g", -1), "members must not be negative, but is -1"),
    (lambda k: k.wait_for_group("g", timeout=0.01), "group g does not exist after 0.01 s; existing groups: none"),
    (lambda k: k.fail("Produce"), "fail: missing a required argument: 'error'"),
    (lambda k: k.fail(0, error="NONE"), "fail: api must be str, not int 0"),
    (lambda k: k.fail("Produce", "3", error="X"), "fail: count must be int or None, not str '3'"),
    (lambda k: k.fail("Produce", error=5), "fail: error must be str, not int 5"),
    (lambda k: k.fail("Produce", error="TYPO"), "unknown error name TYPO"),
    (lambda k: k.fail("produce", error="UNKNOWN_SERVER_ERROR"), "unknown API produce; did you mean Produce"),
    (lambda k: k.fail("Produce", -1, error="UNKNOWN_SERVER_ERROR"), "count must be positive or None, but is -1"),
    (lambda k: k.fail("Produce", 0, error="UNKNOWN_SERVER_ERROR"), "count must be positive or None, but is 0"),
    (lambda k: k.delay("Fetch", "1"), "delay: ms must be int or timedelta, not str '1'"),
    (lambda k: k.delay("Fetch", -1), "the delay is invalid: -1 is negative"),
    (lambda k: k.drop(None), "drop: api must be str, not NoneType None"),
    (lambda k: k.drop("Fetch", 2.5), "drop: count must be int or None, not float 2.5"),
    (lambda k: k.throttle("1"), "throttle: ms must be int or timedelta, not str '1'"),
    (lambda k: k.throttle(-1), "the throttle time is invalid: -1 is negative"),
    (lambda k: k.pin_versions(2.8), "pin_versions: release must be str, not float 2.8"),
    (lambda k: k.pin_versions("x"), "x"),
]

NEW_KAFKA: Any = Kafka
NEW_CLUSTER: Any = KafkaCluster
NEW_SECURITY: Any = Security
NEW_BROKER: Any = ottla.testing.broker
"""For calls that a type checker refuses."""

OF_A_BROKER: list[tuple[Call, str]] = [
    (lambda k: k.advance("1"), "advance: ms must be int or timedelta, not str '1'"),
    (lambda k: k.advance(1.5), "advance: ms must be int or timedelta, not float 1.5"),
    (lambda k: k.advance(-1), "the clock cannot go back: -1 is negative"),
    (lambda k: k.move_coordinator(), "move_coordinator takes a group or a transactional_id"),
    (lambda k: k.move_coordinator(5), "move_coordinator: group must be str or None, not int 5"),
    (lambda k: k.move_coordinator("g"), "g has no coordinator yet"),
    (lambda k: k.expire_session(5), "expire_session: group must be str, not int 5"),
    (lambda k: k.expire_session("g"), "group g has no member"),
    (lambda k: k.restart(5), "restart: too many positional arguments"),
    (lambda k: NEW_KAFKA("num.partitions=3"), "Kafka: configs must be Mapping or None, not str"),
    (lambda k: NEW_KAFKA({1: 2}), "configs: names must be str, not int 1"),
    (lambda k: NEW_KAFKA({"num.partitions": None}), "Invalid value None"),
    (lambda k: NEW_KAFKA({"num.partition": 1}), "did you mean num.partitions"),
    (lambda k: NEW_KAFKA(security=5), "Kafka: got an unexpected keyword argument 'security'"),
    (lambda k: NEW_KAFKA({"security": 5}), "security must be a Security or the name of a protocol, not int 5"),
    (lambda k: NEW_KAFKA({"security": "TLS"}), "security TLS: must be one of"),
    (lambda k: NEW_KAFKA(port="9092"), "Kafka: port must be int, not str '9092'"),
    (lambda k: NEW_KAFKA(port=70_000), "70000"),
    (lambda k: NEW_KAFKA(data_dir=5), "Kafka: data_dir must be Path or str or None, not int 5"),
    (lambda k: NEW_BROKER(5), "configs must be Mapping or None, not int 5"),
    (lambda k: NEW_SECURITY(5), "Security: protocol must be str, not int 5"),
    (lambda k: NEW_SECURITY(user=None), "Security: user must be str, not NoneType None"),
]

OF_A_CLUSTER: list[tuple[Call, str]] = [
    (lambda c: c[9], "there is no broker 9; node ids: 1, 2"),
    (lambda c: c["1"], "there is no broker '1'; node ids: 1, 2"),
    (lambda c: c.kill(9), "there is no broker 9; node ids: 1, 2"),
    (lambda c: c.kill("1"), "kill: node_id must be int, not str '1'"),
    (lambda c: c.stop(0), "there is no broker 0; node ids: 1, 2"),
    (lambda c: c.restart(), "restart: missing a required argument: 'node_id'"),
    (lambda c: c.restart(9), "there is no broker 9; node ids: 1, 2"),
    (lambda c: c.disconnect(1, 9), "there is no broker 9; node ids: 1, 2"),
    (lambda c: c.reconnect(9, 1), "there is no broker 9; node ids: 1, 2"),
    (lambda c: c.leader_of("typo", 0), "there is no partition typo-0"),
    (lambda c: c.leader_of("orders"), "leader_of: missing a required argument: 'partition'"),
    (lambda c: c.coordinator_of(5), "coordinator_of: group must be str, not int 5"),
    (lambda c: NEW_CLUSTER("3"), "KafkaCluster: size must be int, not str '3'"),
    (lambda c: NEW_CLUSTER({"num.partitions": 3}), "KafkaCluster: size must be int, not dict"),
    (lambda c: NEW_CLUSTER(0), "a cluster has at least one broker, not 0"),
    (lambda c: NEW_CLUSTER(2, racks=["a"]), "racks must name one rack for each of the 2 brokers, but names 1"),
    (lambda c: NEW_CLUSTER(2, racks="ab"), "KafkaCluster: racks must be Sequence, not str 'ab'"),
    (lambda c: NEW_CLUSTER(2, {1: 2}), "configs: names must be str, not int 1"),
    (lambda c: NEW_CLUSTER(2, {"num.partition": 3}), "did you mean num.partitions"),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafka]:
    with Kafka() as kafka:
        kafka.create_topic("orders")
        yield kafka


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(2) as cluster:
        cluster.create_topic("orders")
        yield cluster


def check(call: Call, target: object, text: str) -> None:
    """Check the message, and that a traceback as pytest shows it ends in the test."""
    with pytest.raises((*DELIBERATE, WrongArgument, LookupError), match=text) as raised:
        call(target)
    assert type(raised.value) is not KeyError
    shown = [Path(entry.path).name for entry in raised.traceback if not entry.ishidden(None)]
    assert set(shown) == {Path(__file__).name}


@pytest.mark.parametrize(
    ("call", "text"), [*OF_BOTH, *OF_A_BROKER], ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_wrong_call_of_a_broker_says_what_is_wrong(broker: Kafka, call: Call, text: str) -> None:
    check(call, broker, text)


@pytest.mark.parametrize(
    ("call", "text"), [*OF_BOTH, *OF_A_CLUSTER], ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_wrong_call_of_a_cluster_says_what_is_wrong(cluster: KafkaCluster, call: Call, text: str) -> None:
    check(call, cluster, text)


CALLS: list[Call] = [
    lambda k: k.create_topic("t"),
    lambda k: k.delete_topic("orders"),
    lambda k: k.topics(),
    lambda k: k.produce("orders", "v"),
    lambda k: k.records("orders"),
    lambda k: k.groups(),
    lambda k: k.committed("g"),
    lambda k: k.delete_group("g"),
    lambda k: k.wait_for_group("g"),
]
OF_ONE: list[Call] = [
    lambda k: k.expire_session("g"),
    lambda k: k.move_coordinator("g"),
]


@pytest.mark.parametrize("number", range(len(CALLS) + len(OF_ONE)))
def test_calls_of_a_broker_that_is_down_or_closed_say_so(number: int) -> None:
    kafka = Kafka()
    call = [*CALLS, *OF_ONE][number]
    with kafka:
        kafka.create_topic("orders")
        kafka.kill()
        with pytest.raises(RuntimeError, match=r"the broker is down: restart\(\) starts it again"):
            call(kafka)
    for after in (call, Kafka.restart, Kafka.stop, Kafka.kill, Kafka.clear):
        with pytest.raises(RuntimeError, match="the broker is closed"):
            after(kafka)
    kafka.close()


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_calls_of_a_cluster_that_is_down_or_closed_say_so(number: int) -> None:
    with KafkaCluster(1) as cluster:
        cluster.kill(1)
        with pytest.raises(RuntimeError, match="no broker of the cluster is running"):
            CALLS[number](cluster)
    with pytest.raises(RuntimeError, match="the cluster is closed"):
        CALLS[number](cluster)
    for after in (KafkaCluster.kill, KafkaCluster.stop, KafkaCluster.restart):
        with pytest.raises(RuntimeError, match="the broker is closed"):
            after(cluster, 1)
    cluster.close()
