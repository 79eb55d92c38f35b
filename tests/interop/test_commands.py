"""Ottla's commands beside Kafka's own tools: the same broker, the same question, the same answer.

Blanks are squeezed and rows are sorted before they are compared: tools of Kafka's print rows in the order of a hash table.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla import Admin, ConfigChange, ConfigResource, NewTopic, ResourceType, TopicPartition
from ottla.client.admin.scram import ScramMechanism, UserScramCredentialUpsertion
from ottla.coordinators.groups.embedded import encode_assignment
from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import Topic, TopicFactory, Wire
from tests.conformance.consumers import Consumer, settle
from tests.conformance.members import NO_TOPICS, Member, wait_for
from tests.conformance.share_members import initialize, share_group, write
from tests.conformance.transactions import TransactionalProducer

from .apache_kafka import SCRIPT, lacking

pytestmark = pytest.mark.timeout(600)
TOOLS = "org.apache.kafka.tools"
CONSUMER_GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"


CONFIGS = {
    "group.initial.rebalance.delay.ms": "0",
    # The members say nothing more while the tools run.
    "group.consumer.max.session.timeout.ms": "3600000",
    "group.consumer.session.timeout.ms": "3600000",
}


class Scene(NamedTuple):
    """A broker with something in it, and a directory for files."""

    bootstrap_servers: str
    folder: Path
    data: Path


@pytest.fixture(scope="module")
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    why = lacking("kafka-tools-4.3.1") if request.config.getoption("--interop") else "with --interop"
    if why:
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("commands")
    with EmbeddedBroker(CONFIGS, data_dir=folder / "data") as broker:
        wire = Wire(broker.address, is_kafka=False)
        _fill(broker, wire)
        yield Scene(broker.bootstrap_servers, folder, folder / "data")
        wire.close()


def _fill(broker: EmbeddedBroker, wire: Wire) -> None:
    flights = TopicFactory(wire)(3, name="flights")
    flights.append(5)
    flights.append(2, partition=2)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics(
            [NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact", "segment.bytes": "2000000"})]
        )
        admin.alter_consumer_group_offsets("idle", {TopicPartition("flights", 0): 3, TopicPartition("flights", 2): 2})
        admin.incremental_alter_configs(
            {
                ConfigResource(ResourceType.CLIENT_METRICS, "all"): [ConfigChange("interval.ms", "30000")],
                ConfigResource(ResourceType.GROUP, "idle"): [ConfigChange("consumer.session.timeout.ms", "50000")],
                ConfigResource(ResourceType.BROKER, ""): [ConfigChange("log.cleaner.backoff.ms", "15001")],
            }
        ).check()
        alice = frozenset({("user", "alice"), ("client-id", None)})
        admin.alter_client_quotas({alice: {"producer_byte_rate": 2e7, "request_percentage": 12.5}}).check()
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("bob", ScramMechanism.SCRAM_SHA_256, "pw")]
        ).check()
    member = Member(wire, "classic", instance="i1")
    wait_for(lambda: member.join(session_timeout_ms=1_000_000).error_code == 0)
    member.sync({member.member_id: encode_assignment({"flights": [0, 1, 2]}, NO_TOPICS)})
    consumer = Consumer(wire, "modern")
    consumer.join("flights")
    settle(wire, "modern", consumer, until=lambda: consumer.partitions_of(flights) == {0, 1, 2})
    _transactions(wire, flights)
    shared = share_group(wire)
    initialize(wire, shared, flights.id, state_epoch=3, start_offset=5)
    assert write(wire, shared, flights.id, [(5, 6, 2, 1)], state_epoch=3) == ("NONE", None)


def _transactions(wire: Wire, topic: Topic) -> None:
    producer = TransactionalProducer(wire, transactional_id="payments")
    producer.add(topic, 1)
    producer.produce(topic, partition=1)
    producer.end(commit=True)
    producer.add(topic, 1)
    producer.produce(topic, partition=1)


def normal(text: str) -> list[str]:
    """Lines without what Kafka's tools and Ottla's commands may differ in: blanks, and the order of rows."""
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if not line.startswith("SLF4J")]
    return sorted(line for line in lines if line)


def kafka(tool: str, words: list[str]) -> str:
    command = [str(SCRIPT), "tool", tool, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.strip(), done.stderr
    return done.stdout


def ottla(words: list[str]) -> str:
    command = [sys.executable, "-m", "ottla", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


CASES = [
    (f"{TOOLS}.TopicCommand", "topics", "--list"),
    (f"{TOOLS}.TopicCommand", "topics", "--describe --topic flights|compacted"),
    (f"{TOOLS}.TopicCommand", "topics", "--describe --topics-with-overrides --exclude-internal"),
    (f"{TOOLS}.TopicCommand", "topics", "--describe --at-min-isr-partitions --topic flights"),
    ("kafka.admin.ConfigCommand", "configs", "--describe --entity-type topics"),
    ("kafka.admin.ConfigCommand", "configs", "--describe --topic compacted --all"),
    ("kafka.admin.ConfigCommand", "configs", "--describe --entity-type brokers"),
    ("kafka.admin.ConfigCommand", "configs", "--describe --broker 1 --all"),
    ("kafka.admin.ConfigCommand", "configs", "--describe --broker-logger 1"),
    ("kafka.admin.ConfigCommand", "configs", "--describe --entity-type users --entity-type clients"),
    ("kafka.admin.ConfigCommand", "configs", "--describe --entity-type users"),
    ("kafka.admin.ConfigCommand", "configs", "--describe --entity-type groups"),
    ("kafka.admin.ConfigCommand", "configs", "--describe --entity-type client-metrics"),
    (CONSUMER_GROUPS, "consumer-groups", "--list"),
    (CONSUMER_GROUPS, "consumer-groups", "--list --state --type"),
    (CONSUMER_GROUPS, "consumer-groups", "--describe --all-groups"),
    (CONSUMER_GROUPS, "consumer-groups", "--describe --all-groups --verbose"),
    (CONSUMER_GROUPS, "consumer-groups", "--describe --all-groups --members"),
    (CONSUMER_GROUPS, "consumer-groups", "--describe --all-groups --members --verbose"),
    (CONSUMER_GROUPS, "consumer-groups", "--describe --all-groups --state --verbose"),
    (CONSUMER_GROUPS, "consumer-groups", "--reset-offsets --group idle --topic flights --to-earliest --dry-run"),
    (CONSUMER_GROUPS, "consumer-groups", "--reset-offsets --group idle --all-topics --shift-by -1 --dry-run"),
    (CONSUMER_GROUPS, "consumer-groups", "--reset-offsets --group idle --topic flights:0,1 --to-offset 9 --dry-run"),
    (CONSUMER_GROUPS, "consumer-groups", "--reset-offsets --group idle --topic flights --to-latest --export --dry-run"),
    (CONSUMER_GROUPS, "consumer-groups", "--reset-offsets --group idle --topic flights --by-duration PT1H --dry-run"),
    (f"{TOOLS}.GroupsCommand", "groups", "--list"),
    (f"{TOOLS}.GroupsCommand", "groups", "--list --consumer"),
    (f"{TOOLS}.GetOffsetShell", "get-offsets", ""),
    (f"{TOOLS}.GetOffsetShell", "get-offsets", "--topic-partitions flights:1-,compacted --time earliest"),
    (f"{TOOLS}.LogDirsCommand", "log-dirs", "--describe --topic-list compacted"),
    (f"{TOOLS}.FeatureCommand", "features", "describe"),
    (f"{TOOLS}.FeatureCommand", "features", "upgrade --feature group.version=1 --dry-run"),
    (f"{TOOLS}.TransactionsCommand", "transactions", "list"),
    (f"{TOOLS}.TransactionsCommand", "transactions", "describe-producers --topic flights --partition 1"),
    (f"{TOOLS}.TransactionsCommand", "transactions", "find-hanging --broker-id 1"),
    (f"{TOOLS}.LeaderElectionCommand", "leader-election", "--election-type preferred --topic flights --partition 1"),
    (f"{TOOLS}.ClientMetricsCommand", "client-metrics", "--list"),
    (f"{TOOLS}.ClientMetricsCommand", "client-metrics", "--describe"),
    (REASSIGN, "reassign-partitions", "--list"),
]


@pytest.mark.parametrize(("tool", "command", "words"), CASES, ids=lambda value: value.rpartition(".")[2])
def test_same_answer(scene: Scene, tool: str, command: str, words: str) -> None:
    where = ["--bootstrap-server", scene.bootstrap_servers]
    theirs, ours = kafka(tool, [*where, *words.split()]), ottla([command, *where, *words.split()])
    if command == "features":  # the tool is of 4.3, and does not know the names of 4.4's levels
        theirs = theirs.replace("UNKNOWN 33", "4.4-IV2")
    assert normal(ours) == normal(theirs)


@pytest.mark.parametrize("words", ["cluster-id", "list-endpoints"])
def test_cluster(scene: Scene, words: str) -> None:
    asked = [words, "--bootstrap-server", scene.bootstrap_servers]
    assert normal(ottla(["cluster", *asked])) == normal(kafka(f"{TOOLS}.ClusterTool", asked))


def test_versions_of_apis(scene: Scene) -> None:
    """Which versions a client would use depends on the client; Kafka's tool also names what the broker does not serve."""
    where = ["--bootstrap-server", scene.bootstrap_servers]

    def served(text: str) -> list[str]:
        return [re.sub(r"\[.*|,$", "", line) for line in normal(text) if "UNSUPPORTED" not in line and "(" in line]

    ours, theirs = ottla(["broker-api-versions", *where]), kafka(f"{TOOLS}.BrokerApiVersionsCommand", where)
    # The tool keeps APIs for itself that its client has no use for.
    assert set(served(theirs)) <= set(served(ours)) | {line for line in served(theirs) if line.startswith("UNKNOWN")}


def test_plans_of_reassignment(scene: Scene) -> None:
    topics, plan = scene.folder / "topics.json", scene.folder / "plan.json"
    topics.write_text('{"topics": [{"topic": "flights"}], "version": 1}', encoding="utf-8")
    where = ["--bootstrap-server", scene.bootstrap_servers]
    words = [*where, "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1"]
    ours = ottla(["reassign-partitions", *words])
    assert normal(ours) == normal(kafka(REASSIGN, words))
    plan.write_text(ours.splitlines()[1], encoding="utf-8")
    for action in ("--execute", "--verify", "--cancel"):
        words = [*where, action, "--reassignment-json-file", str(plan)]
        theirs = kafka(REASSIGN, words).replace("active.Clearing", "active.\nClearing")
        assert normal(ottla(["reassign-partitions", *words])) == normal(theirs)


def test_records_are_deleted(scene: Scene) -> None:
    file = scene.folder / "offsets.json"
    file.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "flights", "partition": 0, "offset": 1}]}), encoding="utf-8"
    )
    words = ["--bootstrap-server", scene.bootstrap_servers, "--offset-json-file", str(file)]
    assert normal(ottla(["delete-records", *words])) == normal(kafka(f"{TOOLS}.DeleteRecordsCommand", words))


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ("flights-*/*.log", ""),
        ("flights-*/*.log", "--print-data-log"),
        ("flights-*/*.log", "--deep-iteration"),
        ("__consumer_offsets-*/*.log", "--offsets-decoder"),
        ("__transaction_state-*/*.log", "--transaction-log-decoder"),
        ("__share_group_state-*/*.log", "--share-group-state-decoder"),
    ],
)
def test_dumps(scene: Scene, files: str, words: str) -> None:
    found = sorted(path for path in scene.data.glob(files) if path.stat().st_size)
    assert found
    asked = ["--files", ",".join(map(str, found)), *words.split()]
    theirs = kafka(f"{TOOLS}.DumpLogSegments", asked)
    assert normal(ottla(["dump-log", *asked])) == normal(theirs)
