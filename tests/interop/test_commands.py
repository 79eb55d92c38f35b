"""Ottla's commands beside Kafka's own tools: the same broker, the same question, the same answer.

Blanks are squeezed and rows are sorted before they are compared: tools of Kafka's print rows in the order of a hash table.

One file, because all of them ask one broker that something was put into, and are compared by the same few functions.
"""

import json
import re
import struct
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ottla as ottla_client
from ottla import Admin, ConfigChange, ConfigResource, NewTopic, Producer, ResourceType, TopicPartition
from ottla.client.admin.scram import ScramMechanism, UserScramCredentialUpsertion
from ottla.coordinators.groups.classic.embedded import encode_assignment
from ottla.protocol.codec import encode
from ottla.protocol.messages import remote_log_metadata_records as remote
from ottla.protocol.schema import Message
from ottla.records.batch import build
from ottla.records.legacy import for_old_client
from ottla.records.record import Record
from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import Topic, TopicFactory, Wire
from tests.conformance.consumers import Consumer, settle
from tests.conformance.members import NO_TOPICS, Member, wait_for
from tests.conformance.share_members import initialize, share_group, write
from tests.conformance.transactions import TransactionalProducer

from .apache_kafka import CACHE, SCRIPT, skip_without

pytestmark = pytest.mark.timeout(600)
TOOLS = "org.apache.kafka.tools"
CONSUMER_GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"


CONFIGS = {
    "group.initial.rebalance.delay.ms": "0",
    # The members say nothing more while the tools run.
    "group.consumer.max.session.timeout.ms": "3600000",
    "group.consumer.session.timeout.ms": "3600000",
    # The records are old, and no retention deletes them between one tool and the other.
    "log.initial.task.delay.ms": "3600000",
}


class Scene(NamedTuple):
    """A broker with something in it, and a directory for files."""

    bootstrap_servers: str
    folder: Path
    data: Path


@pytest.fixture(scope="module")
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    skip_without("kafka-tools-4.3.1", request)
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
    """Lines without what Kafka's tools and Ottla's commands may differ in: blanks, and the order of rows and of the configs of
    a topic (the tool prints those of a hash map).
    """
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if not line.startswith("SLF4J")]
    lines = [re.sub(r"(?<=Configs: )\S+$", lambda match: ",".join(sorted(match[0].split(","))), line) for line in lines]
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
    (f"{TOOLS}.MetadataQuorumCommand", "metadata-quorum", "describe --status"),
    (
        f"{TOOLS}.StreamsResetter",
        "streams-application-reset",
        "--application-id idle --input-topics flights --to-latest --dry-run",
    ),
]


@pytest.mark.parametrize(("tool", "command", "words"), CASES, ids=lambda value: value.rpartition(".")[2])
def test_same_answer(scene: Scene, tool: str, command: str, words: str) -> None:
    where = ["--bootstrap-server", scene.bootstrap_servers]
    theirs, ours = kafka(tool, [*where, *words.split()]), ottla([command, *where, *words.split()])
    if command == "features":  # the tool is of 4.3, and does not know the names of 4.4's levels
        theirs = theirs.replace("UNKNOWN 33", "4.4-IV2")
    assert normal(ours) == normal(theirs)


@pytest.mark.parametrize("scope", ["--all-groups", "--group classic --group idle"])
@pytest.mark.parametrize("export", ["", "--export"])
def test_offsets_of_empty_groups_are_reset_although_others_have_members(scene: Scene, scope: str, export: str) -> None:
    where = ["--bootstrap-server", scene.bootstrap_servers]
    words = f"--reset-offsets {scope} --topic flights --to-earliest {export} --dry-run".split()
    theirs = normal(kafka(CONSUMER_GROUPS, [*where, *words]))
    assert any(line.startswith("Error: Assignments can only be reset if the group 'classic'") for line in theirs)
    ours = normal(ottla(["consumer-groups", *where, *words]))
    assert ours == [line for line in theirs if not line.startswith("Error:")]
    assert any(line.startswith("idle") for line in ours)


@pytest.mark.parametrize("words", ["cluster-id", "list-endpoints"])
def test_cluster(scene: Scene, words: str) -> None:
    asked = [words, "--bootstrap-server", scene.bootstrap_servers]
    assert normal(ottla(["cluster", *asked])) == normal(kafka(f"{TOOLS}.ClusterTool", asked))


def test_versions_of_apis(scene: Scene) -> None:
    """The versions that a client would use depend on it; Kafka's tool also names APIs that the broker does not serve."""
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
    segments = sorted(path for path in scene.data.glob(files) if path.stat().st_size)
    assert segments
    asked = ["--files", ",".join(map(str, segments)), *words.split()]
    theirs = kafka(f"{TOOLS}.DumpLogSegments", asked)
    assert normal(ottla(["dump-log", *asked])) == normal(theirs)


# -- Directories without a broker: each side has a folder of its own, with the same server.properties. --

STORAGE = "kafka.tools.StorageTool"
FORMAT = ["format", "-c", "server.properties", "-t", "MkU3OEVBNTcwNTJENDM2Qg"]


def stored(command: list[str], folder: Path) -> tuple[int, list[str]]:
    """The exit code, and what is said without stack traces, the records that Kafka's tool writes, and random ids."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    lines = [line for line in [*done.stdout.splitlines(), *done.stderr.splitlines()] if line]
    kept = [line for line in lines if not re.match(r"SLF4J|\s+at |Bootstrap metadata", line)]
    varying = r"^ottla: |^Exception in thread \S+ [\w.]+: |directory\.id=[\w-]+, "
    return done.returncode, [re.sub(varying, "", line) for line in kept]


def test_storage(scene: Scene) -> None:
    """From nothing to two formatted directories; then one that is lost, of another node, and of another cluster."""
    config = (
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:9093\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\ncontroller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\nlog.dirs=z,a\n"
    )
    sides = {
        scene.folder / "theirs": [str(SCRIPT.resolve()), "tool", STORAGE],
        scene.folder / "ours": [sys.executable, "-m", "ottla", "storage"],
    }
    for folder in sides:
        folder.mkdir()
        (folder / "server.properties").write_text(config, encoding="utf-8")

    def same(*words: str) -> tuple[int, list[str]]:
        theirs, ours = (stored([*command, *words], folder) for folder, command in sides.items())
        assert ours == theirs
        return ours

    def paths(name: str) -> Iterator[Path]:
        return (folder / name for folder in sides)

    info = ["info", "-c", "server.properties"]
    assert same(*info)[0] == 1
    assert same(*FORMAT, "-r", "4.0", "-f", "metadata.version=25")[0] == 1
    assert same(*FORMAT, "-r", "4.0", "-f", "group.version=0", "--no-initial-controllers")[0] == 0
    assert same(*info)[0] == 0
    assert same(*FORMAT)[0] == 1
    assert same(*FORMAT, "-g") == (0, ["All of the log directories are already formatted."])
    assert same(*FORMAT[:-1], "odd", "-g")[0] == 1
    for directory in paths("a"):
        (directory / "meta.properties").unlink()
    assert same(*info)[0] == 1
    assert same(*FORMAT, "--ignore-formatted", "--release-version", "4.0-IV3")[0] == 0
    for file in paths("a/meta.properties"):
        file.write_text(file.read_text(encoding="utf-8").replace("node.id=1", "node.id=2"), encoding="utf-8")
    assert same(*info)[0] == same(*FORMAT, "-g")[0] == 1
    for file in paths("a/meta.properties"):
        file.write_text(file.read_text(encoding="utf-8").replace("cluster.id=M", "cluster.id=N"), encoding="utf-8")
    assert same(*info)[0] == same(*FORMAT, "-g")[0] == 1
    for directory in paths("a"):
        (directory / "meta.properties").unlink()
        for left in directory.iterdir():
            left.unlink()
        directory.rmdir()
        directory.touch()
    assert same(*info)[0] == 1
    assert same(*FORMAT, "-g")[0] == 0
    assert same("version-mapping", "-r", "4.2-IV1")[0] == 0
    assert same("feature-dependencies", "-f", "eligible.leader.replicas.version=1", "-f", "group.version=1")[0] == 0
    assert same("feature-dependencies", "-f", "odd=1") == (1, ["Unknown feature: odd"])


# -- Tools that write and read: numbers, times and the order of partitions aside. --

CONSOLE_CONSUMER = f"{TOOLS}.consumer.ConsoleConsumer"
# Without the epoch: Kafka's tool has lost it when it prints, and says NOT_PRESENT.
PARTS = ("timestamp", "partition", "offset", "delivery", "headers", "key", "value")


def output(command: list[str], stdin: str = "") -> str:
    """Return the output of a tool, both stdout and stderr: Kafka's tools do not agree on where warnings go."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=100, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    lines = [
        line
        for line in [*done.stdout.rstrip("\n").split("\n"), *done.stderr.splitlines()]
        if not re.search(r"SLF4J|KIP-848", line)
    ]
    return "\n".join(lines).rstrip("\n")


def both(tool: str, command: str, words: list[str], scene: Scene, stdin: str = "") -> tuple[str, str]:
    """Return the output of Kafka's tool and of Ottla's command."""
    where = ["--bootstrap-server", scene.bootstrap_servers]
    theirs = output([str(SCRIPT), "tool", tool, *where, *words], stdin=stdin)
    return theirs, output([sys.executable, "-m", "ottla", command, *where, *words], stdin=stdin)


def fresh(scene: Scene, partitions: int = 1) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=scene.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, partitions, 1)]).check()
    return name


@pytest.fixture(scope="module")
def letters(scene: Scene) -> str:
    """A topic with two partitions: headers, keys, nulls, and a transaction that was aborted."""
    name = fresh(scene, 2)
    with Producer(bootstrap_servers=scene.bootstrap_servers) as producer:
        producer.produce(name, "one", "k1", 0, headers=[("h1", b"v1"), ("h2", None)])
        producer.produce(name, "two", None, 0)
        producer.produce(name, None, "k3", 1, timestamp=1000)
        producer.produce(name, "vier", "k4", 1)
    with Producer(bootstrap_servers=scene.bootstrap_servers, transactional_id="letters") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(name, "aborted", "k5", 1)
        producer.flush()
        producer.abort_transaction()
    return name


def properties(*texts: str) -> list[str]:
    return [word for text in texts for word in ("--formatter-property", text)]


@pytest.mark.parametrize(
    "words",
    [
        ["--from-beginning"],
        ["--from-beginning", "--isolation-level", "read_committed"],
        ["--from-beginning", *properties(*(f"print.{part}=true" for part in PARTS))],
        ["--from-beginning", *properties("print.key=true", "key.separator=:", "null.literal=NIL", "print.value=false")],
        ["--from-beginning", *properties("print.headers=true", "headers.separator=/", "line.separator=@@\n")],
        ["--from-beginning", "--formatter", "org.apache.kafka.tools.consumer.NoOpMessageFormatter"],
        ["--from-beginning", "--formatter", "org.apache.kafka.tools.consumer.LoggingMessageFormatter"],
        ["--from-beginning", "--enable-systest-events"],
        ["--from-beginning", "--property", "print.key=true", "--consumer-property", "client.id=x"],
        ["--partition", "0", "--offset", "earliest", *properties("print.offset=true", "print.partition=true")],
        ["--partition", "1", "--offset", "1", "--max-messages", "1", *properties("print.offset=true")],
        ["--partition", "1", "--offset", "latest"],
        ["--partition", "1", "--offset", "99"],
        [],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_console_consumer(scene: Scene, letters: str, words: list[str]) -> None:
    theirs, ours = both(
        CONSOLE_CONSUMER, "console-consumer", ["--topic", letters, "--timeout-ms", "1500", *words], scene
    )
    assert normal(ours) == normal(theirs)


def test_console_consumer_of_many_topics(scene: Scene, letters: str) -> None:
    words = ["--include", f"{letters}|none.*", "--from-beginning", "--timeout-ms", "1500"]
    theirs, ours = both(CONSOLE_CONSUMER, "console-consumer", words, scene)
    assert normal(ours) == normal(theirs)


@pytest.mark.parametrize("kind", ["Long", "Integer", "Short", "Double", "Float", "UUID"])
def test_deserializers(scene: Scene, kind: str) -> None:
    topic = fresh(scene)
    value = {
        "Long": bytes(7) + b"\x05",
        "Integer": b"\xff" * 4,
        "Short": b"\0\x07",
        "Double": struct.pack(">d", 1.5),
        "Float": struct.pack(">f", -2.25),
        "UUID": b"00000000-0000-0001-0000-000000000002",
    }[kind]
    with Producer(bootstrap_servers=scene.bootstrap_servers) as producer:
        producer.produce(topic, value, value)
    name = f"org.apache.kafka.common.serialization.{kind}Deserializer"
    words = ["--topic", topic, "--from-beginning", "--max-messages", "1", "--timeout-ms", "3000"]
    words += ["--key-deserializer", name, "--value-deserializer", name, *properties("print.key=true")]
    theirs, ours = both(CONSOLE_CONSUMER, "console-consumer", words, scene)
    assert normal(ours) == normal(theirs)


INTERNAL = [
    ("__consumer_offsets", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"),
    ("__consumer_offsets", "org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter"),
    ("__consumer_offsets", "org.apache.kafka.tools.consumer.ShareGroupMessageFormatter"),
    ("__transaction_state", "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"),
    ("__share_group_state", "org.apache.kafka.tools.consumer.group.share.ShareGroupStateMessageFormatter"),
]


@pytest.mark.parametrize(("topic", "formatter"), INTERNAL, ids=lambda value: value.rpartition(".")[2])
def test_formatters_of_internal_topics(scene: Scene, topic: str, formatter: str) -> None:
    """Kafka's end no line, and a console consumer is a group itself while it reads."""
    with ottla_client.Consumer(bootstrap_servers=scene.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, number) for number in consumer_partitions(scene, topic)])
        copy = fresh(scene)
        with Producer(bootstrap_servers=scene.bootstrap_servers) as producer:
            while records := consumer.consume(500, timeout=1):
                for record in records:
                    producer.produce(copy, record.value, record.key, 0)
    words = [
        "--topic",
        copy,
        "--partition",
        "0",
        "--offset",
        "earliest",
        "--timeout-ms",
        "1500",
        "--formatter",
        formatter,
    ]
    theirs, ours = both(CONSOLE_CONSUMER, "console-consumer", words, scene)
    assert "".join(ours.split("\n")) == "".join(theirs.split("\n"))
    assert ours.count('{"key":') > 0 or "ShareGroupMessage" in formatter


def consumer_partitions(scene: Scene, topic: str) -> list[int]:
    with Admin(bootstrap_servers=scene.bootstrap_servers) as admin:
        return sorted(admin.list_topics()[topic].leaders)


def test_formatters_and_what_they_cannot_read(scene: Scene) -> None:
    """Unknown types are passed by, unknown versions and damaged records end the tool, or are left out."""
    key = bytes.fromhex("0001 0001 67 0001 74 00000000")
    old = bytes.fromhex("0001 0000000000000007 0000 0000000000000001 0000000000000002")
    records = [(b"k0", b"v"), (key, old), (key, None), (None, b"v"), (b"\0\2\0\1g", None), (key + b"more", None)]
    broken = [(key, b"\0\x63zz"), (key, b"\0\4\0"), (key, b"\0"), (key[:5], None), (b"\0", b"x")]
    for bad in broken:
        topic = fresh(scene)
        with Producer(bootstrap_servers=scene.bootstrap_servers) as producer:
            for record_key, value in [*records, bad, (key, None)]:
                producer.produce(topic, value, record_key, 0)
        words = ["--topic", topic, "--partition", "0", "--offset", "earliest", "--timeout-ms", "1500"]
        words += ["--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"]
        for more in ([], ["--skip-message-on-error"]):
            theirs, ours = both(CONSOLE_CONSUMER, "console-consumer", [*words, *more], scene)
            lines = [line for line in ours.splitlines() if not line.startswith("ottla: the record ")]
            assert "".join(lines) == theirs.replace("\n", ""), bad


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ([], "one\ntwo\n\nlast"),
        (["--reader-property", "parse.key=true"], "k1\tone\n\tno key\nk3\t\n"),
        (
            [
                *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
                *("--reader-property", "key.separator=|", "--reader-property", "null.marker=NULL"),
            ],
            "h1:v1,h2:v2\tkey|value\nNULL\tNULL|NULL\n",
        ),
        (["--reader-property", "parse.key=true", "--reader-property", "ignore.error=true"], "nokey\nk\tv\n"),
        (["--property", "parse.key=true", "--producer-property", "acks=1", "--sync"], "k\tv\n"),
        (["--compression-codec", "zstd"], "a\nb\n"),
    ],
)
def test_console_producer(scene: Scene, words: list[str], lines: str) -> None:
    """The same lines are the same records."""
    records_read, outputs = [], []
    for command in (
        [str(SCRIPT), "tool", f"{TOOLS}.ConsoleProducer"],
        [sys.executable, "-m", "ottla", "console-producer"],
    ):
        topic = fresh(scene)
        where = ["--bootstrap-server", scene.bootstrap_servers, "--topic", topic]
        outputs.append(normal(output([*command, *where, *words], stdin=lines)))
        with ottla_client.Consumer(bootstrap_servers=scene.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            records = consumer.consume(4, timeout=0.5)
            records += consumer.consume(4, timeout=0.5)
        records_read.append([(record.key, record.value, record.headers) for record in records])
    assert records_read[0] == records_read[1] != []
    assert outputs[1] == outputs[0]


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["--reader-property", "parse.key=true"], "nokey\n"),
        (["--reader-property", "parse.headers=true"], "nodelimiter\n"),
        (["--reader-property", "parse.headers=true"], "odd\tv\n"),
    ],
)
def test_console_producer_refuses_lines(scene: Scene, words: list[str], lines: str) -> None:
    theirs, ours = both(f"{TOOLS}.ConsoleProducer", "console-producer", ["--topic", "letters", *words], scene, lines)
    reason = ours.strip().removeprefix("ottla: ")
    assert reason
    assert reason in theirs


def create_share_group(scene: Scene, topic: str, partitions: int = 1) -> str:
    """A share group that reads a topic from its beginning."""
    name = f"s-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=scene.bootstrap_servers) as admin:
        places = {TopicPartition(topic, number): 0 for number in range(partitions)}
        wait_for(lambda: not admin.alter_share_group_offsets(name, places).errors)
    return name


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--release", "--max-messages", "2"],
        ["--reject"],
        ["--enable-systest-events", *properties(*(f"print.{part}=true" for part in PARTS))],
        ["--property", "print.key=true", "--consumer-property", "client.id=x"],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_console_share_consumer(scene: Scene, words: list[str]) -> None:
    topic = fresh(scene)
    with Producer(bootstrap_servers=scene.bootstrap_servers) as producer:
        for number in range(2):
            producer.produce(topic, f"v{number}", f"k{number}", headers=[("h", b"x")])
    answers = []
    for command in (
        [str(SCRIPT), "tool", f"{TOOLS}.consumer.ConsoleShareConsumer"],
        [sys.executable, "-m", "ottla", "console-share-consumer"],
    ):
        where = [
            "--bootstrap-server",
            scene.bootstrap_servers,
            "--topic",
            topic,
            "--group",
            create_share_group(scene, topic),
        ]
        answers.append(normal(output([*command, *where, "--timeout-ms", "3000", *words])))
    assert answers[1] == answers[0]


def figures(text: str) -> list[str]:
    """Lines without their numbers; how often one of the same form comes is a matter of pace."""
    forms = []
    for line in text.splitlines():
        form = re.sub(r"\d+(\.\d+)?(E-?\d+)?", "N", re.sub(r"\b50th|95th|99th|99\.9th|\bt-[0-9a-f]{8}\b", "", line))
        if form not in forms:
            forms.append(form)
    return forms


def without_metrics(text: str) -> str:
    """Clients count different things; what is before them, and their titles, are the same."""
    before, blank, after = text.partition("\n\n")
    return before + blank + re.sub(r" +", " ", after.partition("\n")[0])


def test_producer_performance(scene: Scene) -> None:
    for words in (
        "--num-records 500 --throughput -1 --record-size 20",
        "--num-records 500 --throughput -1 --record-size 20 --warmup-records 100 --print-metrics",
        "--num-records 900 --throughput 500 --payload-monotonic --reporting-interval 500",
        "--num-records 1500 --throughput 1000 --record-size 9 --warmup-records 300 --reporting-interval 500",
        "--num-records 50 --throughput -1 --record-size 20 --producer-props acks=1",
        "--num-records 50 --throughput -1 --record-size 20 --transaction-duration-ms 50",
    ):
        asked = ["--topic", fresh(scene), *words.split()]
        theirs, ours = both(f"{TOOLS}.ProducerPerformance", "producer-perf-test", asked, scene)
        assert sorted(figures(without_metrics(ours))) == sorted(figures(without_metrics(theirs))), words


def test_consumer_performance(scene: Scene) -> None:
    topic = fresh(scene)
    with Producer(bootstrap_servers=scene.bootstrap_servers) as producer:
        for number in range(3000):
            producer.produce(topic, str(number))
    for words in (
        "--num-records 500",
        "--num-records 3000 --hide-header --print-metrics",
        "--messages 3000 --show-detailed-stats --reporting-interval 1 --consumer.config /dev/null",
        "--num-records 9999 --timeout 1500",
        "--num-records 500 --date-format yyyy/MM/dd",
    ):
        theirs, ours = both(
            f"{TOOLS}.ConsumerPerformance", "consumer-perf-test", ["--topic", topic, *words.split()], scene
        )
        assert sorted(figures(without_metrics(ours))) == sorted(figures(without_metrics(theirs))), words


def test_share_consumer_performance(scene: Scene) -> None:
    topic = fresh(scene)
    with Producer(bootstrap_servers=scene.bootstrap_servers) as producer:
        for number in range(3000):
            producer.produce(topic, str(number))
    for words in (
        "--num-records 3000",
        "--num-records 3000 --threads 2 --show-consumer-stats --print-metrics",
        "--num-records 3000 --show-detailed-stats --reporting-interval 1 --hide-header",
        "--messages 3000 --consumer.config /dev/null",
    ):
        answers = []
        for command in (
            [str(SCRIPT), "tool", f"{TOOLS}.ShareConsumerPerformance"],
            [sys.executable, "-m", "ottla", "share-consumer-perf-test"],
        ):
            where = [
                "--bootstrap-server",
                scene.bootstrap_servers,
                "--topic",
                topic,
                "--group",
                create_share_group(scene, topic),
            ]
            answers.append(sorted(figures(without_metrics(output([*command, *where, *words.split()])))))
        assert answers[1] == answers[0], words


def test_latency(scene: Scene) -> None:
    for words in (
        "--num-records 20 --producer-acks all --record-size 20",
        "--num-records 20 --producer-acks 1 --record-size 2 --num-headers 2 --record-header-size -1 --record-header-key-size 3",
    ):
        answers = []
        for command in (
            [str(SCRIPT), "tool", f"{TOOLS}.EndToEndLatency"],
            [sys.executable, "-m", "ottla", "e2e-latency"],
        ):
            topic = f"t-{uuid.uuid4().hex[:8]}"
            where = ["--bootstrap-server", scene.bootstrap_servers, "--topic", topic]
            answers.append(figures(output([*command, *where, *words.split()])))
        assert answers[1] == answers[0]


def events(text: str) -> list[dict[str, Any]]:
    """Events of a verifiable client, without times and paces; the order of their fields is that of the text."""
    normalized = []
    for line in text.splitlines():
        event = json.loads(line)
        assert next(iter(event)) == "timestamp", line
        event = {name: value for name, value in event.items() if name not in ("timestamp", "avg_throughput", "message")}
        event["fields"] = list(json.loads(line))
        for part in event.get("partitions", []):
            if "offsets" in part:
                part["offsets"].sort()
        normalized.append(event)
    return normalized


def test_verifiable_producer(scene: Scene) -> None:
    for words in (
        "--max-messages 5",
        "--max-messages 4 --value-prefix 7 --repeating-keys 3 --throughput 20 --acks 1 --message-create-time 1000",
        "--max-messages 0",
        "--max-messages 1 --throughput 0",
    ):
        answers = []
        for command in (
            [str(SCRIPT), "tool", f"{TOOLS}.VerifiableProducer"],
            [sys.executable, "-m", "ottla", "verifiable-producer"],
        ):
            topic = fresh(scene)
            where = ["--bootstrap-server", scene.bootstrap_servers, "--topic", topic]
            answers.append(events(output([*command, *where, *words.split()]).replace(topic, "T")))
        assert answers[1] == answers[0], words
    asked = ["--topic", "bad/topic", "--max-messages", "2"]
    theirs, ours = both(f"{TOOLS}.VerifiableProducer", "verifiable-producer", asked, scene)
    assert events(ours) == events(theirs)


def test_verifiable_consumer(scene: Scene) -> None:
    topic = fresh(scene)
    with Producer(bootstrap_servers=scene.bootstrap_servers) as producer:
        for number in range(20):
            producer.produce(topic, f"v{number}", f"k{number}" if number % 2 else None)
    for words in (
        "--max-messages 15",
        "--max-messages 20 --verbose --group-protocol consumer",
        "--max-messages 20 --enable-autocommit --session-timeout 20000 --group-instance-id one",
    ):
        answers = []
        for command in (
            [str(SCRIPT), "tool", f"{TOOLS}.VerifiableConsumer"],
            [sys.executable, "-m", "ottla", "verifiable-consumer"],
        ):
            group = f"g-{uuid.uuid4().hex[:8]}"
            where = ["--bootstrap-server", scene.bootstrap_servers, "--topic", topic, "--group-id", group]
            answers.append(events(output([*command, *where, *words.split()])))
        assert answers[1] == answers[0], words


def test_verifiable_share_consumer(scene: Scene) -> None:
    topic = fresh(scene)
    with Producer(bootstrap_servers=scene.bootstrap_servers) as producer:
        for number in range(20):
            producer.produce(topic, f"v{number}")
    for words in ("", "--verbose", "--acknowledgement-mode sync", "--acknowledgement-mode async"):
        answers = []
        for command in (
            [str(SCRIPT), "tool", f"{TOOLS}.VerifiableShareConsumer"],
            [sys.executable, "-m", "ottla", "verifiable-share-consumer"],
        ):
            group = f"s-{uuid.uuid4().hex[:8]}"
            where = ["--bootstrap-server", scene.bootstrap_servers, "--topic", topic, "--group-id", group]
            asked = [*words.split(), "--max-messages", "20", "--offset-reset-strategy", "earliest"]
            answers.append(events(output([*command, *where, *asked])))
        assert answers[1] == answers[0], words


CLOSING = {
    "VerifiableProducer": (["--throughput", "50"], "producer_send_success", 2),
    "VerifiableConsumer": (["--group-id", "closing"], "partitions_assigned", 3),
    "VerifiableShareConsumer": (["--group-id", "closing-share"], "startup_complete", 1),
}


@pytest.mark.parametrize("tool", CLOSING)
def test_verifiable_clients_report_their_end_after_sigterm(scene: Scene, tool: str) -> None:
    """The last events after SIGTERM."""
    words, begun, count = CLOSING[tool]
    topic = fresh(scene)
    command = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", tool).lower()
    java = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{CACHE / 'kafka-tools-4.3.1'}/*", f"{TOOLS}.{tool}"]
    endings = []
    for run in (java, [sys.executable, "-m", "ottla", command]):
        where = ["--bootstrap-server", scene.bootstrap_servers, "--topic", topic]
        with subprocess.Popen(
            [*run, *where, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            while f'"name":"{begun}"' not in process.stdout.readline():
                assert process.poll() is None
            process.terminate()
            rest, _ = process.communicate(timeout=60)
        endings.append([(event["name"], event["fields"]) for event in events(rest)[-count:]])
    assert endings[1] == endings[0]


@pytest.mark.parametrize(
    "words", ["", "--deep-iteration", "--print-data-log", "--print-data-log --skip-record-metadata"]
)
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_dumps_of_older_formats(scene: Scene, magic: int, words: str) -> None:
    """Files as Kafka 0.8 to 0.10 wrote them, by Ottla's codec; one with a message that is damaged."""
    folder = scene.folder / f"old-{uuid.uuid4().hex}"
    folder.mkdir()
    log = folder / f"{10:020}.log"
    batches = []
    for codec in range(4):
        records = [
            Record(10 + 3 * codec + n, 1000 + n, None if n == 1 else b"k%d" % n, None if n == 2 else b"value %d" % n)
            for n in range(3)
        ]
        batch = build(records, codec=codec, base_offset=records[0].offset)
        batches.append(batch if magic == 2 else for_old_client(batch, magic, 0, 1 << 20))
    log.write_bytes(b"".join(batches))
    damaged = bytearray(batches[0])
    damaged[-5] ^= 1  # of the last key
    broken = folder / f"{30:020}.log"
    broken.write_bytes(damaged if magic < 2 else batches[1])
    asked = ["--files", f"{log},{broken}", *words.split()]
    theirs = output([str(SCRIPT), "tool", f"{TOOLS}.DumpLogSegments", *asked])
    ours = output([sys.executable, "-m", "ottla", "dump-log", *asked])
    lines = [line for line in ours.splitlines() if not line.startswith("ottla: ")]  # what is wrong, in one line
    assert normal("\n".join(lines)) == normal(theirs)


def test_dumps_of_remote_segments(scene: Scene) -> None:
    partition = remote.TopicIdPartitionEntry(name="flights", id=bytes(range(16)), partition=3)
    segment = remote.RemoteLogSegmentIdEntry(topic_id_partition=partition, id=bytes(range(1, 17)))
    body: dict[str, Any] = {
        "start_offset": 5,
        "end_offset": 9,
        "broker_id": 1,
        "segment_leader_epochs": [remote.SegmentLeaderEpochEntry(leader_epoch=n, offset=5 + n) for n in range(2)],
        "segment_size_in_bytes": 100,
    }
    messages: list[Message] = [
        remote.RemoteLogSegmentMetadataRecord(remote_log_segment_id=segment, custom_metadata=b"abc", **body),
        remote.RemoteLogSegmentMetadataRecord(remote_log_segment_id=segment, txn_index_empty=True, **body),
        *(
            remote.RemoteLogSegmentMetadataUpdateRecord(remote_log_segment_id=segment, remote_log_segment_state=state)
            for state in range(4)
        ),
        *(
            remote.RemotePartitionDeleteMetadataRecord(
                topic_id_partition=partition, remote_partition_delete_state=state
            )
            for state in range(3)
        ),
        remote.RemoteLogSegmentMetadataSnapshotRecord(segment_id=bytes(range(1, 17)), **body),
    ]
    values = [encode(message, 0, bytes([1, message.API, 0])) for message in messages]
    log = scene.folder / f"{0:020}.log"
    log.write_bytes(build([Record(number, 1000, None, value) for number, value in enumerate(values)]))
    asked = ["--files", str(log), "--remote-log-metadata-decoder"]
    assert ottla(["dump-log", *asked]).splitlines() == kafka(f"{TOOLS}.DumpLogSegments", asked).splitlines()
    topic = fresh(scene)
    with Producer(bootstrap_servers=scene.bootstrap_servers) as producer:
        for value in values:
            producer.produce(topic, value)
    name = "org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde"
    words = [
        "--topic",
        topic,
        "--from-beginning",
        "--timeout-ms",
        "1500",
        "--formatter",
        f"{name}$RemoteLogMetadataFormatter",
    ]
    theirs, ours = both(CONSOLE_CONSUMER, "console-consumer", words, scene)
    assert normal(ours) == normal(theirs)
