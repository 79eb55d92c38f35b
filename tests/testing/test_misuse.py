"""Wrong calls of brokers and clusters of a test: each is an error that says what is wrong, in the words of the caller."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla.testing
from ottla.arguments import WrongArgument
from ottla.client.errors import KafkaError
from ottla.testing import Kafka, KafkaCluster, Security

DELIBERATE = (KafkaError, ValueError, RuntimeError, TimeoutError)
Call = Callable[[Any], object]

OF_BOTH: list[tuple[Call, str]] = [
    (lambda k: k.create_topic(), r"create_topic\(\): missing a required argument: 'name'"),
    (lambda k: k.create_topic(5), r"create_topic\(\): name must be str, not int"),
    (lambda k: k.create_topic(None), r"create_topic\(\): name must be str, not NoneType"),
    (lambda k: k.create_topic("t", "3"), r"create_topic\(\): partitions must be int, not str"),
    (lambda k: k.create_topic("t", True), r"create_topic\(\): partitions must be int, not bool"),
    (lambda k: k.create_topic("t", 0), "Number of partitions was set to an invalid non-positive value"),
    (lambda k: k.create_topic("t", replication_factor="1"), "replication_factor must be int, not str"),
    (lambda k: k.create_topic("t", replication_factor=0), "Replication factor must be larger than 0"),
    (lambda k: k.create_topic("t", partition=3), "Unknown topic config name: partition"),
    (lambda k: k.create_topic("t", retention_ms=None), "Invalid value None"),
    (lambda k: k.create_topic("a b"), "Topic name is invalid"),
    (lambda k: k.delete_topic(7), r"delete_topic\(\): name must be str, not int"),
    (lambda k: k.delete_topic("typo"), "topic typo does not exist; existing topics: orders"),
    (lambda k: k.produce(7, "v"), r"produce\(\): topic must be str, not int"),
    (lambda k: k.produce("orders"), r"produce\(\): missing a required argument: 'value'"),
    (lambda k: k.produce("orders", 5), r"produce\(\): value must be bytes \| str \| None, not int"),
    (lambda k: k.produce("orders", {"a": 1}), r"produce\(\): value must be bytes \| str \| None, not dict"),
    (lambda k: k.produce("orders", "v", 5), r"produce\(\): key must be bytes \| str \| None, not int"),
    (lambda k: k.produce("orders", "v", partition="0"), r"produce\(\): partition must be int \| None, not str"),
    (lambda k: k.produce("orders", "v", partition=1.0), r"produce\(\): partition must be int \| None, not float"),
    (lambda k: k.produce("orders", "v", partition=-1), "orders has 1 partitions, but no partition -1"),
    (lambda k: k.produce("orders", "v", partition=9), "orders has 1 partitions, but no partition 9"),
    (
        lambda k: k.produce("orders", "v", headers=5),
        r"produce\(\): headers must be Mapping\[.*\] \| Iterable\[.*\], not int",
    ),
    (
        lambda k: k.produce("orders", "v", headers="ab"),
        r"produce\(\): headers must be Mapping\[.*\] \| Iterable\[.*\], not str",
    ),
    (
        lambda k: k.produce("orders", "v", headers=[1]),
        r"produce\(\): headers must be .*, not list with an element of type int",
    ),
    (
        lambda k: k.produce("orders", "v", headers={"h": 1}),
        r"produce\(\): headers must be .*, not dict with a value of type int",
    ),
    (
        lambda k: k.produce("orders", "v", headers={1: "h"}),
        r"produce\(\): headers must be .*, not dict with a key of type int",
    ),
    (lambda k: k.produce("orders", "v", timestamp="now"), r"produce\(\): timestamp must be int \| None, not str"),
    (lambda k: k.produce("orders", "v", timestamp=-5), "timestamp"),
    (lambda k: k.produce("orders", "v", timestamp=2**70), "timestamp"),
    (lambda k: k.produce("orders", "\ud800"), "surrogates"),
    (lambda k: k.produce("orders", "v" * 2_000_000), "larger than"),
    (lambda k: k.produce("orders", "v", value="w"), r"produce\(\): multiple values for argument 'value'"),
    (lambda k: k.produce("orders", "v", colour="w"), r"produce\(\): got an unexpected keyword argument 'colour'"),
    (lambda k: k.records(None), r"records\(\): topic must be str, not NoneType"),
    (lambda k: k.records("orders", 0), r"records\(\): too many positional arguments"),
    (lambda k: k.records("orders", partition="0"), r"records\(\): partition must be int \| None, not str"),
    (lambda k: k.records("orders", partition=5), "orders has 1 partitions, but no partition 5"),
    (lambda k: k.records("orders", at_least="1"), r"records\(\): at_least must be int, not str"),
    (lambda k: k.records("orders", timeout="1"), r"records\(\): timeout must be float, not str"),
    (lambda k: k.records("orders", timeout=None), r"records\(\): timeout must be float, not NoneType"),
    (lambda k: k.records("orders", isolation_level=1), r"records\(\): isolation_level must be str, not int"),
    (lambda k: k.records("orders", isolation_level="x"), "isolation_level must be read_uncommitted or read_committed"),
    (lambda k: k.records("typo"), "topic typo does not exist; existing topics: orders"),
    (lambda k: k.committed(3), r"committed\(\): group must be str, not int"),
    (lambda k: k.delete_group(3), r"delete_group\(\): group must be str, not int"),
    (lambda k: k.delete_group("typo"), "group typo does not exist; existing groups: none"),
    (lambda k: k.wait_for_group(3), r"wait_for_group\(\): group must be str, not int"),
    (lambda k: k.wait_for_group("g", "1"), r"wait_for_group\(\): members must be int, not str"),
    (lambda k: k.wait_for_group("g", -1), "members must not be negative, but is -1"),
    (lambda k: k.records("t", at_least=-1), "at_least must not be negative, but is -1"),
    (lambda k: k.wait_for_group("g", timeout=0.01), "group g does not exist after 0.01 s; existing groups: none"),
    (lambda k: k.fail("Produce"), r"fail\(\): missing a required argument: 'error'"),
    (lambda k: k.fail(0, error="NONE"), r"fail\(\): api must be str, not int"),
    (lambda k: k.fail("Produce", "3", error="X"), r"fail\(\): count must be int \| None, not str"),
    (lambda k: k.fail("Produce", error=5), r"fail\(\): error must be str, not int"),
    (lambda k: k.fail("Produce", error="TYPO"), "unknown error name TYPO"),
    (lambda k: k.fail("produce", error="UNKNOWN_SERVER_ERROR"), "unknown API produce; did you mean Produce"),
    (lambda k: k.fail("Produce", -1, error="UNKNOWN_SERVER_ERROR"), "count must be positive or None, but is -1"),
    (lambda k: k.fail("Produce", 0, error="UNKNOWN_SERVER_ERROR"), "count must be positive or None, but is 0"),
    (lambda k: k.delay("Fetch", "1"), r"delay\(\): ms must be int \| timedelta, not str"),
    (lambda k: k.delay("Fetch", -1), "the delay is invalid: -1 is negative"),
    (lambda k: k.drop(None), r"drop\(\): api must be str, not NoneType"),
    (lambda k: k.drop("Fetch", 2.5), r"drop\(\): count must be int \| None, not float"),
    (lambda k: k.throttle("1"), r"throttle\(\): ms must be int \| timedelta, not str"),
    (lambda k: k.throttle(-1), "the throttle time is invalid: -1 is negative"),
    (lambda k: k.pin_versions(2.8), r"pin_versions\(\): release must be str, not float"),
    (lambda k: k.pin_versions("x"), "x"),
]

NEW_KAFKA: Any = Kafka
NEW_CLUSTER: Any = KafkaCluster
NEW_SECURITY: Any = Security
NEW_BROKER: Any = ottla.testing.broker
"""For calls that a type checker refuses."""

OF_A_BROKER: list[tuple[Call, str]] = [
    (lambda k: k.advance("1"), r"advance\(\): ms must be int \| timedelta, not str"),
    (lambda k: k.advance(1.5), r"advance\(\): ms must be int \| timedelta, not float"),
    (lambda k: k.advance(-1), "the clock cannot go back: -1 is negative"),
    (lambda k: k.move_coordinator(), "move_coordinator takes a group or a transactional_id"),
    (lambda k: k.move_coordinator(5), r"move_coordinator\(\): group must be str \| None, not int"),
    (lambda k: k.move_coordinator("g"), "g has no coordinator yet"),
    (lambda k: k.expire_session(5), r"expire_session\(\): group must be str, not int"),
    (lambda k: k.expire_session("g"), "group g has no member"),
    (lambda k: k.restart(5), r"restart\(\): too many positional arguments"),
    (lambda k: NEW_KAFKA("num.partitions=3"), r"Kafka\(\): configs must be Mapping\[str, object\] \| None, not str"),
    (lambda k: NEW_KAFKA({1: 2}), r"Kafka\(\): configs must be .*, not dict with a key of type int"),
    (lambda k: NEW_KAFKA({"num.partitions": None}), "Invalid value None"),
    (lambda k: NEW_KAFKA({"num.partition": 1}), "did you mean num.partitions"),
    (lambda k: NEW_KAFKA(security=5), r"Kafka\(\): got an unexpected keyword argument 'security'"),
    (lambda k: NEW_KAFKA({"security": 5}), "security must be a Security or the name of a protocol, not int"),
    (lambda k: NEW_KAFKA({"security": "TLS"}), "security TLS: must be one of"),
    (lambda k: NEW_KAFKA(port="9092"), r"Kafka\(\): port must be int, not str"),
    (lambda k: NEW_KAFKA(port=70_000), "70000"),
    (lambda k: NEW_KAFKA(data_dir=5), r"Kafka\(\): data_dir must be Path \| str \| None, not int"),
    (lambda k: NEW_BROKER(5), r"configs must be Mapping\[str, object\] \| None, not int"),
    (lambda k: NEW_SECURITY(5), r"Security\(\): protocol must be str, not int"),
    (lambda k: NEW_SECURITY(user=None), r"Security\(\): user must be str, not NoneType"),
]

OF_A_CLUSTER: list[tuple[Call, str]] = [
    (lambda c: c[9], "there is no broker 9; node ids: 1, 2"),
    (lambda c: c["1"], "there is no broker '1'; node ids: 1, 2"),
    (lambda c: c.kill(9), "there is no broker 9; node ids: 1, 2"),
    (lambda c: c.kill("1"), r"kill\(\): node_id must be int, not str"),
    (lambda c: c.stop(0), "there is no broker 0; node ids: 1, 2"),
    (lambda c: c.restart(), r"restart\(\): missing a required argument: 'node_id'"),
    (lambda c: c.restart(9), "there is no broker 9; node ids: 1, 2"),
    (lambda c: c.disconnect(1, 9), "there is no broker 9; node ids: 1, 2"),
    (lambda c: c.reconnect(9, 1), "there is no broker 9; node ids: 1, 2"),
    (lambda c: c.leader_of("typo", 0), "there is no partition typo-0"),
    (lambda c: c.leader_of("orders"), r"leader_of\(\): missing a required argument: 'partition'"),
    (lambda c: c.coordinator_of(5), r"coordinator_of\(\): group must be str, not int"),
    (lambda c: NEW_CLUSTER("3"), r"KafkaCluster\(\): size must be int, not str"),
    (lambda c: NEW_CLUSTER({"num.partitions": 3}), r"KafkaCluster\(\): size must be int, not dict"),
    (lambda c: NEW_CLUSTER(0), "a cluster has at least one broker, not 0"),
    (lambda c: NEW_CLUSTER(2, racks=["a"]), "racks must name one rack for each of the 2 brokers, but names 1"),
    (lambda c: NEW_CLUSTER(2, racks="ab"), r"KafkaCluster\(\): racks must be Sequence\[str\], not str"),
    (lambda c: NEW_CLUSTER(2, {1: 2}), r"KafkaCluster\(\): configs must be .*, not dict with a key of type int"),
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
