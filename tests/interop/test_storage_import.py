"""Apache Kafka's directory is adopted, served and given back: what either wrote, the other reads."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.schema import Request
from ottla.protocol.uuids import uuid_text
from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import Wire
from tests.interop.apache_kafka import ApacheKafka, skip_without

TOPICS = {"plain": 3, "compacted": 2}
CONFIGS = {"plain": {"retention.ms": "-1"}, "compacted": {"cleanup.policy": "compact", "segment.bytes": "1048576"}}
BROKER, CLIENT_METRICS, GROUP = 4, 16, 32
# Topics, a record of each config, a quota, a credential: whatever the metadata log may hold.
SETTINGS = [
    (BROKER, "", "message.max.bytes", "2000000"),
    (BROKER, "1", "log.cleaner.threads", "2"),
    (GROUP, "g1", "consumer.session.timeout.ms", "50000"),
    (CLIENT_METRICS, "m1", "interval.ms", "60000"),
]
Values = dict[tuple[str, int], list[bytes]]
Topics = dict[str, tuple[str, list[int]]]
pytestmark = pytest.mark.timeout(300)


class Written:
    """The written values, by partition, in order: those that count, and all with the aborted records."""

    def __init__(self, before: "Written | None" = None) -> None:
        self.committed: Values = {key: list(values) for key, values in before.committed.items()} if before else {}
        self.everything: Values = {key: list(values) for key, values in before.everything.items()} if before else {}

    def idempotently(self, servers: str, mark: str) -> None:
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        for topic, partitions in TOPICS.items():
            for number in range(90):
                self._produce(producer, topic, number % partitions, b"%s %d" % (mark.encode(), number), keep=True)
        assert producer.flush(30) == 0

    def in_transactions(self, servers: str, mark: str) -> None:
        """One committed, one aborted, one committed."""
        producer = Producer({"bootstrap.servers": servers, "transactional.id": "tx"})
        producer.init_transactions(60)
        for commit in (True, False, True):
            producer.begin_transaction()
            for topic, partitions in TOPICS.items():
                for number in range(12):
                    self._produce(producer, topic, number % partitions, b"%s tx" % mark.encode(), keep=commit)
            producer.flush(30)
            if commit:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)

    def _produce(self, producer: Producer, topic: str, partition: int, value: bytes, *, keep: bool) -> None:
        # A key of its own for every record: compaction must take none of them.
        everything = self.everything.setdefault((topic, partition), [])
        producer.produce(topic, key=b"%d-%d" % (len(everything), partition), value=value, partition=partition)
        everything.append(value)
        if keep:
            self.committed.setdefault((topic, partition), []).append(value)


def read_all(servers: str, *, committed: bool = True) -> Values:
    """Every record, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    parts = [TopicPartition(topic, index, 0) for topic, count in TOPICS.items() for index in range(count)]
    consumer.assign(parts)
    values: Values = {(str(part.topic), int(part.partition)): [] for part in parts}
    ended = 0
    while ended < len(parts):
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            ended += 1
            continue
        topic, partition, value = message.topic(), message.partition(), message.value()
        assert isinstance(value, bytes)
        values[str(topic), int(partition or 0)].append(value)
    consumer.close()
    return values


def assert_holds(servers: str, committed: Values) -> None:
    """The broker answers the end of a transaction before its last markers are written: read again until they are."""
    deadline = time.monotonic() + 30
    while (values := read_all(servers)) != committed and time.monotonic() < deadline:
        pass
    assert values == committed


def wire(servers: str) -> Wire:
    host, _, port = servers.rpartition(":")
    return Wire((host, int(port)), is_kafka=False)


def ask(servers: str, request: Request, version: int) -> Any:
    connection = wire(servers)
    answer = connection.send(request, version)
    connection.close()
    return answer


def topics_of(servers: str) -> Topics:
    """Ids and leader epochs."""
    answer = ask(servers, MetadataRequest(topics=None), 12)
    return {
        topic.name: (uuid_text(topic.topic_id), [part.leader_epoch for part in sorted(topic.partitions, key=str)])
        for topic in answer.topics
        if topic.name in TOPICS
    }


def settings_of(version: str) -> list[tuple[int, str, str, str]]:
    """Apache Kafka 3.9 had no configs of groups yet."""
    return [setting for setting in SETTINGS if version != "3.9.1" or setting[0] != GROUP]


def set_up(servers: str, version: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    new = [NewTopic(name, count, 1, config=CONFIGS[name]) for name, count in TOPICS.items()]
    for made in admin.create_topics([*new, NewTopic("gone", 1, 1, config={"retention.ms": "1000"})]).values():
        made.result()
    for done in admin.delete_topics(["gone"]).values():
        done.result()
    for kind, name, config, value in settings_of(version):
        edit = AlterableConfig(name=config, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[edit])
        answer = ask(servers, IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == 0
    entity = [EntityData(entity_type="user", entity_name="u"), EntityData(entity_type="client-id", entity_name=None)]
    quotas = [OpData(key="producer_byte_rate", value=1e6, remove=False)]
    answer = ask(servers, AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=quotas)]), 1)
    assert answer.entries[0].error_code == 0
    upsertion = ScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
    )
    answer = ask(servers, AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
    assert answer.results[0].error_code == 0


@pytest.fixture(scope="module", params=["4.4.0", "3.9.1"])
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Written, Topics]:
    """The version and the directory of an Apache Kafka that was stopped, what it had been given, and its topics."""
    version = request.param
    skip_without(f"kafka-{version}", request)
    directory = tmp_path_factory.mktemp(f"kafka-{version}")
    kafka = ApacheKafka(directory, version)
    try:
        set_up(kafka.bootstrap_servers, version)
        written = Written()
        written.idempotently(kafka.bootstrap_servers, "kafka")
        written.in_transactions(kafka.bootstrap_servers, "kafka")
        assert_holds(kafka.bootstrap_servers, written.committed)
        topics = topics_of(kafka.bootstrap_servers)
    finally:
        kafka.stop()
    return version, directory, written, topics


def import_(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", "storage", "import", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def partitions_in(data: Path) -> dict[str, bytes]:
    """Every file of every partition and of the metadata log."""
    return {str(path.relative_to(data)): path.read_bytes() for path in sorted(data.glob("*-*/*"))}


def test_there_and_back(left: tuple[str, Path, Written, Topics], tmp_path: Path) -> None:
    version, directory, before, topics = left
    written = Written(before)
    home = tmp_path / "kafka"
    shutil.copytree(directory, home)
    data = home / "data"
    untouched = partitions_in(data)

    done = import_(str(data), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert partitions_in(data) == untouched
    output = json.loads(done.stdout)
    imported = {topic["name"]: (topic["id"], topic["configs"]) for topic in output["topics"]}
    assert {name: imported[name] for name in TOPICS} == {name: (topics[name][0], CONFIGS[name]) for name in TOPICS}
    assert "gone" not in imported
    assert output["quotas"] == [
        {"entity": {"client-id": None, "user": "u"}, "quotas": {"producer_byte_rate": 1_000_000.0}}
    ]
    assert output["scram_users"] == ["alice"]
    assert "metadata.version" in output["features"]
    assert output["next_producer_id"] > 1 << 32  # never one that Apache Kafka gives out when it has its directory back
    assert import_(str(data)).stdout == f"{data} is imported already\n"

    with EmbeddedBroker(data_dir=data) as broker:
        servers = broker.bootstrap_servers
        assert read_all(servers, committed=False) == written.everything
        assert read_all(servers) == written.committed
        assert topics_of(servers).keys() == topics.keys()
        for name, (topic_id, epochs) in topics_of(servers).items():
            assert topic_id == topics[name][0]
            # A controlled stop of Apache Kafka takes the leadership away: one epoch on.
            assert all(mine >= theirs for mine, theirs in zip(epochs, topics[name][1], strict=True))
        for kind, name, config, value in settings_of(version):
            resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[config])
            configs = ask(servers, DescribeConfigsRequest(resources=[resource]), 4).results[0].configs
            assert [row.value for row in configs] == [value]
        written.idempotently(servers, "ottla")
        assert read_all(servers, committed=False) == written.everything

    kafka = ApacheKafka(home, version)
    try:
        assert_holds(kafka.bootstrap_servers, written.committed)
        assert {name: topic_id for name, (topic_id, _) in topics_of(kafka.bootstrap_servers).items()} == {
            name: topic_id for name, (topic_id, _) in topics.items()
        }
        written.idempotently(kafka.bootstrap_servers, "kafka again")
        written.in_transactions(kafka.bootstrap_servers, "kafka again")
        assert_holds(kafka.bootstrap_servers, written.committed)
    finally:
        kafka.stop()
    again = import_(str(data))
    assert again.returncode == 1
    assert "Apache Kafka has written" in again.stderr


def test_partition_directories_alone_go_back(left: tuple[str, Path, Written, Topics], tmp_path: Path) -> None:
    """Ottla works on a copy; only the partitions are carried back to where Apache Kafka left its other files."""
    version, directory, before, _ = left
    written = Written(before)
    shutil.copytree(directory, tmp_path / "kafka")
    copy = tmp_path / "copy"
    shutil.copytree(directory / "data", copy)
    assert import_("-o", f"log.dirs={copy}").returncode == 0
    with EmbeddedBroker(data_dir=copy) as broker:
        written.idempotently(broker.bootstrap_servers, "ottla")
    for topic, count in TOPICS.items():
        for index in range(count):
            target = tmp_path / "kafka" / "data" / f"{topic}-{index}"
            shutil.rmtree(target)
            shutil.copytree(copy / f"{topic}-{index}", target)
    kafka = ApacheKafka(tmp_path / "kafka", version)
    try:
        assert_holds(kafka.bootstrap_servers, written.committed)
        written.idempotently(kafka.bootstrap_servers, "kafka again")
        assert_holds(kafka.bootstrap_servers, written.committed)
    finally:
        kafka.stop()


def test_a_running_kafka_is_left_alone(left: tuple[str, Path, Written, Topics], tmp_path: Path) -> None:
    version, directory, _, _ = left
    shutil.copytree(directory, tmp_path / "kafka")
    kafka = ApacheKafka(tmp_path / "kafka", version)
    try:
        done = import_("--config", str(tmp_path / "kafka" / "server.properties"), "-o", f"log.dirs={kafka.data}")
        assert (done.returncode, done.stderr) == (
            1,
            f"ottla: {kafka.data} is in use by another broker: stop it first\n",
        )
    finally:
        kafka.stop()
