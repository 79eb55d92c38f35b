"""`ottla cluster`, `broker-api-versions`, `features` and `transactions`, on Ottla and on Apache Kafka."""

import re
import time

import pytest
from click.testing import CliRunner

from ottla import Admin, KafkaError
from ottla.cli.main import main
from ottla.client.errors import UnsupportedVersion
from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import TopicFactory, Wire
from tests.conformance.members import wait_for
from tests.conformance.transactions import TransactionalProducer

from .commands import Commands


@pytest.fixture
def node(admin: Admin) -> int:
    """The only broker."""
    (broker,) = admin.describe_cluster().nodes
    return broker.id


def test_cluster(commands: Commands, admin: Admin, node: int) -> None:
    assert commands.output("cluster cluster-id") == f"Cluster ID: {admin.describe_cluster().cluster_id}\n"
    host, _, port = commands.bootstrap_servers.rpartition(":")
    output = commands.output("cluster list-endpoints", "--include-fenced-brokers")
    assert output == f"ID HOST PORT RACK STATE ENDPOINT_TYPE\n{node} {host} {port} null unfenced broker\n"
    assert commands.json("cluster list-endpoints")[0]["rack"] is None
    result = commands.run("cluster unregister", "--id", "4711")
    # Ottla has no brokers that register.
    expected = "BROKER_ID_NOT_REGISTERED" if _serves_unregister(admin) else "UnregisterBroker"
    assert (result.exit_code, expected in result.stderr) == (1, True)


def test_status(commands: Commands, admin: Admin, node: int, topic: str) -> None:
    cluster = admin.describe_cluster()
    first, titles, row, last = commands.output("status").splitlines()
    assert first == f"cluster {cluster.cluster_id}, controller {cluster.controller}"
    assert titles.split() == ["BROKER", "ADDRESS", "RACK", "STATE", "LEADERS", "REPLICAS", "NOT-IN-SYNC"]
    status = commands.json("status")
    partitions = status["partitions"]
    assert row.split() == [
        str(node), commands.bootstrap_servers, "-", "running", str(partitions), str(partitions), "0",
    ]  # fmt: skip
    assert last == f"{status['topics']} topics, {partitions} partitions: 0 under-replicated, 0 without a leader"
    assert topic in admin.list_topics()
    assert partitions == sum(len(part.partitions) for part in admin.describe_topics(list(admin.list_topics())).values())
    assert commands.run("status", "--healthy").exit_code == 0


def test_status_of_a_broker_that_does_not_answer(commands: Commands) -> None:
    result = CliRunner().invoke(main, ["status", "--bootstrap-server", "127.0.0.1:1", "--timeout", "0.3"])
    assert result.exit_code == 1
    assert "127.0.0.1:1: Connection refused" in result.stderr


def _serves_unregister(admin: Admin) -> bool:
    try:
        admin.unregister_broker(4711)
    except KafkaError as error:
        return not isinstance(error, UnsupportedVersion)
    return True


def test_versions_of_apis(commands: Commands, node: int) -> None:
    first, *lines, last = commands.output("broker-api-versions").splitlines()
    assert first == f"{commands.bootstrap_servers} (id: {node} rack: null isFenced: false) -> ("
    assert last == ")"
    assert " DescribeCluster(60): 0 to 2 [usable: 2]," in lines
    assert re.search(r" OffsetDelete\(47\): 0 \[usable: 0\],", "\n".join(lines))
    assert commands.output("cluster api-versions").splitlines()[1:] == [*lines, last]
    apis = commands.json("broker-api-versions")[0]["apis"]
    assert {"api_key": 60, "name": "DescribeCluster", "min": 0, "max": 2, "usable": 2} in apis


def test_features(commands: Commands, node: int) -> None:
    lines = commands.output("features", "describe", "--node-id", str(node)).splitlines()
    (line,) = [line for line in lines if line.startswith("Feature: metadata.version ")]
    assert re.fullmatch(
        r"Feature: metadata.version SupportedMinVersion: 3.3-IV3 SupportedMaxVersion: 4.4-IV2 "
        r"FinalizedVersionLevel: 4.4-IV2 Epoch: (\d+|-)",
        line,
    )
    rows = {row["feature"]: row for row in commands.json("features", "describe")["features"]}
    assert rows["transaction.version"]["supported_max_version"] == 2
    level = rows["transaction.version"]["finalized_version_level"]
    same = f"transaction.version={level}"
    assert commands.output("features", "upgrade", "--feature", same, "--dry-run") == (
        f"transaction.version can be upgraded to {level}.\n"
    )
    assert commands.output("features", "downgrade", "--feature", "transaction.version=1", "--dry-run") == (
        "transaction.version can be downgraded to 1.\n"
    )
    assert commands.output("features", "disable", "--feature", "share.version", "--dry-run") == (
        "share.version can be disabled.\n"
    )
    result = commands.run("features", "upgrade", "--feature", "odd.version=1")
    assert (result.exit_code, result.stderr.splitlines()[1:]) == (1, ["ottla: 1 out of 1 operation(s) failed."])
    assert result.stdout.startswith("Could not upgrade odd.version to 1. ")


def test_levels_of_features_by_release() -> None:
    def output(*words: str) -> str:
        result = CliRunner().invoke(main, ["features", *words])
        assert result.exit_code == 0, result.output
        return result.stdout

    mapping = output("version-mapping", "--release-version", "4.0-IV3").splitlines()
    assert mapping[:4] == [
        "metadata.version=25 (4.0-IV3)",
        "kraft.version=1",
        "transaction.version=2",
        "group.version=1",
    ]
    assert output("version-mapping", "--release-version", "4.1").startswith("metadata.version=27 (4.1)\n")
    assert output("version-mapping").startswith("metadata.version=33 (4.4-IV2)\n")
    words = ["feature-dependencies", "--feature", "metadata.version=20"]
    assert output(*words, "--feature", "eligible.leader.replicas.version=1") == (
        "metadata.version=20 (3.8-IV0) has no dependencies.\n"
        "eligible.leader.replicas.version=1 requires:\n    metadata.version=23 (4.0-IV1)\n"
    )
    unknown = CliRunner().invoke(main, ["features", "feature-dependencies", "--feature", "odd=1"])
    assert (unknown.exit_code, unknown.stderr) == (1, "ottla: Unknown feature: odd\n")


def test_transactions(commands: Commands, wire: Wire, node: int) -> None:
    subject = TopicFactory(wire)(1)
    producer = TransactionalProducer(wire)
    producer.add(subject)
    offset = producer.produce(subject)
    name = producer.transactional_id
    listed = commands.output("transactions", "list", "--transactional-id-pattern", f".*{name}")
    assert listed == (
        f"TransactionalId Coordinator ProducerId TransactionState\n{name} {node} {producer.producer_id} Ongoing\n"
    )
    words = ["--duration-filter", "600000", "--transactional-id-pattern", f".*{name}"]
    assert commands.json("transactions", "list", *words) == []
    (transaction,) = commands.json("transactions", "describe", "--transactional-id", name)
    assert (transaction["coordinator_id"], transaction["transaction_state"], transaction["topic_partitions"]) == (
        node,
        "Ongoing",
        [{"topic": subject.name, "partition": 0}],
    )
    titles, row = commands.output("transactions", "describe", "--transactional-id", name).splitlines()
    assert titles.split()[-2:] == ["TransactionDurationMs", "TopicPartitions"]
    assert row.split()[-1] == f"{subject.name}-0"
    assert "TRANSACTIONAL_ID_NOT_FOUND" in commands.refused("transactions", "describe", "--transactional-id", "no-such")
    where = ["--topic", subject.name, "--partition", "0"]
    _, producers = commands.output("transactions", "describe-producers", *where).splitlines()
    assert producers.split()[:2] == [str(producer.producer_id), str(producer.epoch)]
    assert producers.split()[-1] == str(offset)
    assert (
        commands.output("transactions", "describe-producers", *where, "--broker-id", str(node)).splitlines()[1]
        == producers
    )
    # Its coordinator knows it, so it does not hang.
    assert commands.json("transactions", "find-hanging", *where, "--max-transaction-timeout", "0") == []
    commands.output("transactions", "forceTerminateTransaction", "--transactionalId", name)
    wait_for(
        lambda: (
            commands.json("transactions", "describe-producers", *where)[0]["current_transaction_start_offset"] is None
        )
    )


def test_a_transaction_that_hangs(request: pytest.FixtureRequest) -> None:
    """A batch that belongs to no transaction of its coordinator: brokers before KIP-890 let it in."""
    if request.config.getoption("--broker"):
        pytest.skip("that broker verifies transactions: nothing hangs there")
    with EmbeddedBroker({"transaction.partition.verification.enable": "false"}) as broker:
        commands, wire = Commands(broker.bootstrap_servers), Wire(broker.address, is_kafka=False)
        subject = TopicFactory(wire)(1)
        producer = TransactionalProducer(wire)
        hours_ago = int(time.time() * 1000) - 3 * 3_600_000
        producer.produce(subject, version=11, timestamp=hours_ago)
        where = ["--topic", subject.name, "--partition", "0"]
        for scope in (where, ["--broker-id", "1"]):
            (hanging,) = commands.json("transactions", "find-hanging", *scope)
            assert (hanging["producer_id"], hanging["start_offset"]) == (producer.producer_id, 0)
            assert hanging["duration_min"] == 180
        assert "no open transaction begins at offset 999" in commands.refused(
            "transactions", "abort", *where, "--start-offset", "999"
        )
        assert commands.output("transactions", "abort", *where, "--start-offset", "0") == ""
        assert commands.json("transactions", "find-hanging", *where) == []
        wire.close()


@pytest.mark.parametrize(
    ("command", "words", "why"),
    [
        ("transactions", ["find-hanging"], "requires --topic, or --broker-id without --partition"),
        ("transactions", ["abort", "--topic", "t", "--partition", "0"], "by --start-offset, or by --producer-id"),
        ("features", ["upgrade"], "at least one --feature"),
        ("features", ["upgrade", "--feature", "x"], "a feature must be NAME=LEVEL"),
        ("features", ["upgrade", "--feature", "x=1", "--release-version", "4.0"], "cannot be combined with --feature"),
        ("features", ["version-mapping", "--release-version", "2.8"], "unknown release 2.8"),
        ("features", ["upgrade", "--feature", "x=0"], "level 0 disables a feature: use downgrade or disable"),
        ("features", ["disable", "--feature", "x", "--feature", "x"], "a feature is specified twice"),
        ("groups", ["--list", "--share", "--protocol", ""], "one of --consumer, --share, --streams"),
        ("groups", [], "--list is required"),
        ("groups", ["--list", "--share", "--consumer"], "one of --consumer, --share, --streams"),
    ],
)
def test_wrong_usage(commands: Commands, command: str, words: list[str], why: str) -> None:
    assert why in commands.misused(command, *words)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    """The line in the shell's rc file loads the completion script, which then lists the options."""

    def ottla(**environment: str) -> str:
        result = CliRunner().invoke(main, env=environment, prog_name="ottla", complete_var="_OTTLA_COMPLETE")
        return result.stdout

    assert "_OTTLA_COMPLETE" in ottla(_OTTLA_COMPLETE=f"{shell}_source")
    current = "--re" if shell == "fish" else "2"
    asked = {"COMP_WORDS": "ottla consumer-groups --re", "COMP_CWORD": current}
    assert "--reset-offsets" in ottla(_OTTLA_COMPLETE=f"{shell}_complete", **asked)
