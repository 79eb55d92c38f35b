"""cordoned.log.dirs of a broker with two log directories (KIP-1066).

Against Apache Kafka the tests run if it was started with two: log.dirs=/tmp/kafka/data,/tmp/kafka/data2.
"""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Admin, ConfigChange, ConfigResource, NewTopic, ResourceType
from ottla.metadata.plans.cordons import CORDONED
from ottla.protocol.errors import name_of
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResult
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.testing import EmbeddedBroker, KafkaCluster

from .conftest import Wire
from .members import wait_for

BROKER = 4
NONE_USABLE = "All brokers are currently fenced, or have all their log directories cordoned."
MANUAL = "The manual partition assignment includes broker 1, but all its log directories are cordoned."
Result = tuple[str, str | None]


class Cordons:
    """Broker with two log directories, and the requests of the tests."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.paths = sorted(row.log_dir for row in self.rows())

    def rows(self, version: int = 5) -> list[DescribeLogDirsResult]:
        return list(self.wire.send(DescribeLogDirsRequest(topics=None), version).results)

    @property
    def cordoned(self) -> list[str]:
        return sorted(row.log_dir for row in self.rows() if row.is_cordoned)

    def set(self, value: str | None, node: str = "1") -> Result:
        config = AlterableConfig(name=CORDONED, config_operation=0 if value is not None else 1, value=value)
        resource = AlterConfigsResource(resource_type=BROKER, resource_name=node, configs=[config])
        row = self.wire.send(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0]
        return name_of(row.error_code), row.error_message

    def cordon(self, *paths: str) -> None:
        """Cordon directories, and wait until this is known."""
        assert self.set(",".join(paths)) == ("NONE", None)
        expected = self.paths if paths == ("*",) else sorted(paths)
        wait_for(lambda: self.cordoned == expected)
        if expected == self.paths:  # the controller of Apache Kafka learns it with a heartbeat
            wait_for(lambda: self.create(f"t-{uuid.uuid4().hex[:8]}", is_validated=True)[0] != "NONE")

    def create(self, name: str, *, count: int = 1, factor: int = 1, is_validated: bool = False) -> Result:
        return self._create(CreatableTopic(name=name, num_partitions=count, replication_factor=factor), is_validated)

    def assign(self, name: str, replicas: list[int]) -> Result:
        rows = [CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)]
        return self._create(
            CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=rows), False
        )

    def _create(self, topic: CreatableTopic, is_validated: bool) -> Result:
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=is_validated)
        row = self.wire.send(request, 7).topics[0]
        return name_of(row.error_code), row.error_message

    def grow(self, name: str, count: int, assigned: list[int] | None = None) -> Result:
        rows = None if assigned is None else [CreatePartitionsAssignment(broker_ids=assigned)]
        topic = CreatePartitionsTopic(name=name, count=count, assignments=rows)
        row = self.wire.send(CreatePartitionsRequest(topics=[topic], timeout_ms=10_000), 3).results[0]
        return name_of(row.error_code), row.error_message

    def homes(self, topic: str) -> dict[int, str]:
        """Return the log directory of each partition of a topic."""
        return {
            part.partition_index: row.log_dir
            for row in self.rows()
            for placed in row.topics
            if placed.name == topic
            for part in placed.partitions
            if not part.is_future_key
        }

    def move(self, path: str, topic: str) -> str:
        moved = AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[0])])
        answer = self.wire.send(AlterReplicaLogDirsRequest(dirs=[moved]), 2)
        return name_of(answer.results[0].partitions[0].error_code)


@pytest.fixture
def cordons(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cordons]:
    address = request.config.getoption("--broker")
    if address:
        host, _, port = address.rpartition(":")
        wire = Wire((host, int(port)), is_kafka=True)
        cordons = Cordons(wire)
        if len(cordons.paths) != 2:
            wire.close()
            pytest.skip("this broker was not started with two log directories")
        yield cordons
        cordons.set(None)
        wait_for(lambda: cordons.create(f"t-{uuid.uuid4().hex[:8]}", is_validated=True)[0] == "NONE")
        wire.close()
        return
    paths = [tmp_path / "one", tmp_path / "two"]
    with EmbeddedBroker({"log.dirs": ",".join(map(str, paths))}) as embedded:
        wire = Wire(embedded.address, is_kafka=False)
        yield Cordons(wire)
        wire.close()


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


def test_a_cordoned_directory_gets_no_new_partitions(cordons: Cordons, topic: str) -> None:
    first, second = cordons.paths
    cordons.cordon(first)
    assert cordons.create(topic, count=4) == ("NONE", None)
    wait_for(lambda: cordons.homes(topic) == dict.fromkeys(range(4), second))
    cordons.cordon(second)
    assert cordons.grow(topic, 6) == ("NONE", None)
    wait_for(lambda: cordons.homes(topic) == dict.fromkeys(range(4), second) | {4: first, 5: first})


def test_older_versions_of_describe_log_dirs_do_not_show_cordons(cordons: Cordons) -> None:
    cordons.cordon(cordons.paths[0])
    assert [row.is_cordoned for row in cordons.rows(4)] == [False, False]


def test_a_partition_is_not_moved_to_a_cordoned_directory(cordons: Cordons, topic: str) -> None:
    first, second = cordons.paths
    cordons.cordon(first)
    assert cordons.create(topic) == ("NONE", None)
    wait_for(lambda: cordons.homes(topic) == {0: second})
    assert cordons.move(first, topic) == "INVALID_REPLICA_ASSIGNMENT"
    assert cordons.move(first, "no-such-topic") == "INVALID_REPLICA_ASSIGNMENT"
    cordons.cordon(second)
    assert cordons.move(second, topic) == "INVALID_REPLICA_ASSIGNMENT"  # where it is
    assert cordons.move(first, topic) == "NONE"
    wait_for(lambda: cordons.homes(topic) == {0: first})


@pytest.mark.parametrize("is_listed", [False, True], ids=["star", "listed"])
def test_a_broker_whose_directories_are_all_cordoned_gets_no_new_partitions(
    cordons: Cordons, topic: str, is_listed: bool
) -> None:
    assert cordons.create(topic) == ("NONE", None)
    cordons.cordon(*(cordons.paths if is_listed else ["*"]))
    other = f"{topic}-2"
    for factor in (1, 2):
        text = f"Unable to replicate the partition {factor} time(s): {NONE_USABLE}"
        assert cordons.create(other, factor=factor) == ("INVALID_REPLICATION_FACTOR", text)
        assert cordons.create(other, factor=factor, is_validated=True) == ("INVALID_REPLICATION_FACTOR", text)
    assert cordons.assign(other, [1]) == ("INVALID_REPLICA_ASSIGNMENT", MANUAL)
    assert cordons.grow(topic, 2) == ("INVALID_REPLICATION_FACTOR", NONE_USABLE)
    assert cordons.grow(topic, 2, [1]) == ("INVALID_REPLICA_ASSIGNMENT", MANUAL)
    assert cordons.set(None) == ("NONE", None)
    wait_for(lambda: cordons.create(other)[0] == "NONE")
    assert cordons.cordoned == []


def test_topics_are_not_created_automatically_on_a_cordoned_broker(cordons: Cordons, topic: str) -> None:
    cordons.cordon("*")
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    for _ in range(2):
        assert name_of(cordons.wire.send(request, 12).topics[0].error_code) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_partitions_of_a_cordoned_directory_are_served(cordons: Cordons, topic: str) -> None:
    assert cordons.create(topic) == ("NONE", None)
    wait_for(lambda: len(cordons.homes(topic)) == 1)
    cordons.cordon("*")
    row = cordons.wire.send(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics[0]
    assert (name_of(row.error_code), row.partitions[0].leader_id) == ("NONE", 1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            "/nope",
            "requirement failed: All entries in {} must be present in log.dirs or log.dir. Missing entries : /nope",
        ),
        (
            "{first}/",
            "requirement failed: All entries in {} must be present in log.dirs or log.dir. Missing entries : {first}/",
        ),
        ("*,{first}", "requirement failed: When {} is set to *, it must not contain other values"),
        ("{first},{first}", "Configuration '{}' values must not be duplicated."),
    ],
)
def test_values_that_are_refused(cordons: Cordons, value: str, text: str) -> None:
    value, text = (part.replace("{first}", cordons.paths[0]).replace("{}", CORDONED) for part in (value, text))
    assert cordons.set(value) == ("INVALID_REQUEST", text)
    assert cordons.cordoned == []


def test_it_is_a_config_of_one_broker(cordons: Cordons) -> None:
    text = f"Cannot update these configs at default cluster level, broker id must be specified: [{CORDONED}]"
    assert cordons.set("*", node="") == ("INVALID_REQUEST", text)


def test_an_empty_value_cordons_nothing(cordons: Cordons) -> None:
    cordons.cordon(cordons.paths[1])
    assert cordons.set("") == ("NONE", None)
    wait_for(lambda: cordons.cordoned == [])


@pytest.mark.parametrize("brokers", [1, 3])
def test_directories_are_cordoned_from_the_start(brokers: int) -> None:
    """Compared with Apache Kafka by hand: a test cannot restart the broker at `--broker`."""
    configs = {"cordoned.log.dirs": "*"}
    started = EmbeddedBroker(configs) if brokers == 1 else KafkaCluster(brokers, configs)
    with started as kafka, Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        assert NONE_USABLE in str(admin.create_topics([NewTopic("t", 1, 1)]).errors["t"])
        for node in range(1, brokers + 1):
            changes = [ConfigChange(CORDONED, "")]
            admin.incremental_alter_configs({ConfigResource(ResourceType.BROKER, str(node)): changes}).check()
        wait_for(lambda: not admin.create_topics([NewTopic("t", 1, 1)]).errors)
