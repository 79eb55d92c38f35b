"""`ottla get-offsets`, `delete-records`, `log-dirs`, `leader-election`, `reassign-partitions`, on Ottla and on Apache Kafka."""

import json
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin
from tests.conformance.members import wait_for

from .commands import Commands
from .conftest import Produce


def write_plan(path: Path, key: str, *rows: dict[str, Any]) -> str:
    """A file of such rows; its name."""
    path.write_text(json.dumps({"version": 1, key: rows}), encoding="utf-8")
    return str(path)


@pytest.fixture
def node(admin: Admin) -> int:
    """The only broker."""
    (broker,) = admin.describe_cluster().nodes
    return broker.id


def test_get_offsets(commands: Commands, topic: str, produce: Produce) -> None:
    produce(topic, 5)
    assert commands.output("get-offsets", "--topic", topic) == f"{topic}:0:5\n{topic}:1:0\n"
    assert commands.output("get-offsets", "--topic", topic, "--time", "-2") == f"{topic}:0:0\n{topic}:1:0\n"
    (newest,) = commands.json("get-offsets", "--topic", topic, "--time", "max-timestamp")
    assert newest["partition"] == 0
    assert commands.output("get-offsets", "--topic", topic, "--time", "9999999999999") == ""
    assert commands.output("get-offsets", "--topic", topic, "--partitions", "1") == f"{topic}:1:0\n"
    for pattern, lines in (
        (f"{topic}:0-1", 1),
        (f"{topic}:-1", 1),
        (f"{topic}:1-", 1),
        (topic, 2),
        (f"x,{topic}:1", 1),
    ):
        assert commands.output("get-offsets", "--topic-partitions", pattern).count("\n") == lines
    assert commands.json("get-offsets", "--topic", topic)[0] == {"topic": topic, "partition": 0, "offset": 5}
    assert f"{topic}:0:5\n" in commands.output("get-offsets", "--exclude-internal-topics")
    assert commands.refused("get-offsets", "--topic", "no-such-topic") == "no partition matches the options"


def test_delete_records(commands: Commands, topic: str, produce: Produce, tmp_path: Path) -> None:
    produce(topic, 5)
    rows = [{"topic": topic, "partition": 0, "offset": 2}, {"topic": topic, "partition": 1, "offset": -1}]
    file = write_plan(tmp_path / "offsets.json", "partitions", *rows)
    assert commands.output("delete-records", "--offset-json-file", file) == (
        "Executing records delete operation\nRecords delete operation completed:\n"
        f"partition: {topic}-0 low_watermark: 2\npartition: {topic}-1 low_watermark: 0\n"
    )
    assert commands.output("get-offsets", "--topic", topic, "--time", "earliest").startswith(f"{topic}:0:2\n")
    beyond = write_plan(tmp_path / "beyond.json", "partitions", {"topic": topic, "partition": 0, "offset": 99})
    result = commands.run("delete-records", "--offset-json-file", beyond)
    assert (result.exit_code, "OFFSET_OUT_OF_RANGE" in result.stdout) == (1, True)
    twice = write_plan(tmp_path / "twice.json", "partitions", rows[0], rows[0])
    assert commands.refused("delete-records", "--offset-json-file", twice) == f"{twice} names {topic}-0 twice"
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    assert "is not valid JSON" in commands.refused("delete-records", "--offset-json-file", str(tmp_path / "bad.json"))
    assert "No such file" in commands.refused("delete-records", "--offset-json-file", str(tmp_path / "absent.json"))
    odd = write_plan(tmp_path / "odd.json", "partitions", {"topic": topic, "partition": 0})
    assert "requires an offset" in commands.refused("delete-records", "--offset-json-file", odd)


def test_log_dirs(commands: Commands, topic: str, produce: Produce, node: int) -> None:
    produce(topic, 1)
    lines = commands.output("log-dirs", "--describe", "--topic-list", topic).splitlines()
    assert lines[:2] == [
        "Querying brokers for log directories information",
        f"Received log directory information from brokers {node}",
    ]
    (broker,) = json.loads(lines[2])["brokers"]
    (directory,) = broker["logDirs"]
    assert (broker["broker"], directory["error"]) == (node, None)
    assert [partition["partition"] for partition in directory["partitions"]] == [f"{topic}-0", f"{topic}-1"]
    assert directory["partitions"][0]["size"] > 60
    assert commands.json("log-dirs", "--describe", "--broker-list", str(node))["version"] == 1
    assert (
        commands.refused("log-dirs", "--describe", "--broker-list", "4711") == f"there is no broker 4711, only {node}"
    )


def test_leader_election(commands: Commands, topic: str, tmp_path: Path) -> None:
    place = ["--topic", topic, "--partition", "0"]
    for kind in ("preferred", "UNCLEAN"):
        assert commands.output("leader-election", "--election-type", kind, *place) == (
            f"Valid replica already elected for partitions {topic}-0\n"
        )
    assert commands.output("leader-election", "--election-type", "preferred", "--all-topic-partitions") == ""
    rows = [{"topic": topic, "partition": 1}, {"topic": "no-such-topic", "partition": 0}]
    file = write_plan(tmp_path / "partitions.json", "partitions", *rows)
    result = commands.run("leader-election", "--election-type", "preferred", "--path-to-json-file", file)
    assert result.stderr.splitlines()[1:] == ["ottla: 1 replica(s) could not be elected"]
    assert f"Valid replica already elected for partitions {topic}-1\n" in result.stdout
    assert "leader election (PREFERRED) for partition: no-such-topic-0: " in result.stdout
    outcome = commands.json("leader-election", "--election-type", "preferred", *place)
    assert outcome == {"elected": [], "not_needed": [{"topic": topic, "partition": 0}], "failed": []}


def test_reassign_partitions(commands: Commands, topic: str, node: int, tmp_path: Path) -> None:
    topics = write_plan(tmp_path / "topics.json", "topics", {"topic": topic})
    output = commands.output(
        "reassign-partitions", "--generate", "--topics-to-move-json-file", topics, "--broker-list", str(node)
    )
    title, current, _, other, proposed = output.splitlines()
    assert (title, other) == (
        "Current partition replica assignment",
        "Proposed partition reassignment configuration",
    )
    assert [row["log_dirs"] for row in json.loads(proposed)["partitions"]] == [["any"], ["any"]]
    (path,) = json.loads(current)["partitions"][0]["log_dirs"]
    plan = tmp_path / "plan.json"
    plan.write_text(current, encoding="utf-8")
    words = ["--reassignment-json-file", str(plan)]
    started = commands.output(
        "reassign-partitions", "--execute", *words, "--throttle", "5000", "--replica-alter-log-dirs-throttle", "2000"
    )
    assert started.splitlines()[-5:] == [
        "The inter-broker throttle limit was set to 5000 B/s",
        "The replica-alter-dir throttle limit was set to 2000 B/s",
        f"Successfully started partition reassignments for {topic}-0,{topic}-1",
        *[
            f"Successfully started moving log directory to {path} for replica {topic}-{index} with broker {node}"
            for index in range(2)
        ],
    ]
    wait_for(lambda: "5000" in commands.output("configs", "--describe", "--broker", str(node)))
    assert commands.output("reassign-partitions", "--list") == "No partition reassignments found.\n"
    assert commands.output("reassign-partitions", "--verify", *words).splitlines() == [
        "Status of partition reassignment:",
        *[f"Reassignment of partition {topic}-{index} is completed." for index in range(2)],
        *[f"Reassignment of replica {topic}-{index}-{node} completed successfully." for index in range(2)],
        f"Clearing broker-level throttles on broker {node}",
        f"Clearing topic-level throttles on topic {topic}",
    ]
    wait_for(lambda: "5000" not in commands.output("configs", "--describe", "--broker", str(node)))
    assert commands.output("reassign-partitions", "--cancel", *words).startswith(
        "None of the specified partition reassignments are active.\nNone of the specified partition moves are active.\n"
    )


def test_plans_that_cannot_be(commands: Commands, topic: str, node: int, tmp_path: Path) -> None:
    def refused(**row: Any) -> str:
        plan = write_plan(tmp_path / "plan.json", "partitions", {"topic": topic, "partition": 0, **row})
        return commands.refused("reassign-partitions", "--execute", "--reassignment-json-file", plan)

    assert refused(replicas=[4711]) == f"there is no broker 4711, only {node}"
    assert refused(replicas=[node], partition=9) == f"{topic}-9 does not exist"
    assert refused().endswith(f"{topic}-0 requires replicas, as in [1, 2]")
    assert refused(replicas=[node, node]).endswith(f"{topic}-0 has a replica twice")
    for action in ("--verify", "--cancel"):
        words = [action, "--reassignment-json-file", str(tmp_path / "plan.json")]
        assert commands.refused("reassign-partitions", *words).endswith(f"{topic}-0 has a replica twice")
    topics = write_plan(tmp_path / "topics.json", "topics", {"topic": topic})
    proposal = ["--generate", "--topics-to-move-json-file", topics, "--broker-list", f"{node},4711"]
    assert commands.refused("reassign-partitions", *proposal) == f"there is no broker 4711, only {node}"
    assert refused(replicas=[node], log_dirs=["a", "b"]).endswith(f"{topic}-0 has 1 replicas and 2 log_dirs")
    assert "LOG_DIR_NOT_FOUND" in refused(replicas=[node], log_dirs=["/odd"])
    plan = write_plan(tmp_path / "plan.json", "partitions", {"topic": "no-such", "partition": 0, "replicas": [node]})
    result = commands.run("reassign-partitions", "--verify", "--reassignment-json-file", plan)
    assert result.exit_code == 1
    assert "There is no active reassignment of partition no-such-0, but replica set is  rather than" in result.stdout


@pytest.mark.parametrize(
    ("command", "words", "why"),
    [
        ("get-offsets", ["--time", "soon"], "ms since the epoch"),
        ("get-offsets", ["--topic", "t", "--topic-partitions", "t"], "cannot be combined with --topic"),
        ("get-offsets", ["--topic-partitions", "t:a"], "TOPIC:N-M"),
        ("get-offsets", ["--topic", "("], "--topic (:"),
        ("log-dirs", [], "--describe is required"),
        ("log-dirs", ["--describe", "--broker-list", "a"], "numbers, as in 0,1"),
        ("leader-election", ["--election-type", "preferred"], "exactly one of --topic, --all-topic-partitions"),
        ("leader-election", ["--election-type", "preferred", "--topic", "t"], "--topic and --partition go together"),
        ("reassign-partitions", [], "exactly one of --generate, --execute, --verify, --cancel, --list"),
        ("reassign-partitions", ["--execute"], "--execute requires --reassignment-json-file"),
        ("reassign-partitions", ["--generate"], "--generate requires --topics-to-move-json-file and --broker-list"),
    ],
)
def test_wrong_usage(commands: Commands, command: str, words: list[str], why: str) -> None:
    assert why in commands.misused(command, *words)


def test_old_names_of_options(commands: Commands, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("client.id=old\n", encoding="utf-8")
    line = "is deprecated and will be removed in a future version. Use --command-config instead.\n"
    words = ["--election-type", "preferred", "--all-topic-partitions", "--admin.config", str(config)]
    first, _, rest = commands.run("leader-election", *words).stderr.partition("\n")
    assert (f"{first}\n", rest.startswith("Changing the cluster at ")) == (f"Option --admin.config {line}", True)
    assert commands.run("cluster cluster-id", "--config", str(config)).stderr == f"Option --config {line}"
