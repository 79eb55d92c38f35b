"""`ottla reassign-partitions` and `ottla topics --describe` while partitions move between three brokers of Ottla."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla import Admin, ConfigResource, Producer, ResourceType
from ottla.cli.main import main
from ottla.client.admin.topics import NewTopic
from ottla.testing import KafkaCluster

TOPIC = "orders"
SLOW = "1000"
WITHIN_S = 20


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(3, {"default.replication.factor": 2, "min.insync.replicas": 1}) as running:
        with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, replica_assignment=((1, 2), (2, 3), (1, 2)))]).check()
        with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            for partition in range(3):
                for _ in range(4):
                    producer.produce(TOPIC, value=b"x" * 900_000, partition=partition)
        yield running


class Tool:
    """The command, on the brokers of a test."""

    def __init__(self, cluster: KafkaCluster, directory: Path) -> None:
        self._servers = ["--bootstrap-server", cluster.bootstrap_servers]
        self._directory = directory

    def plan(self, *moves: tuple[int, list[int]], log_dirs: list[str] | None = None) -> str:
        """Write a plan of partitions and their replicas; return the name of its file."""
        rows = [{"topic": TOPIC, "partition": index, "replicas": replicas} for index, replicas in moves]
        if log_dirs is not None:
            rows = [{**row, "log_dirs": log_dirs} for row in rows]
        path = self._directory / f"plan-{len(list(self._directory.iterdir()))}.json"
        path.write_text(json.dumps({"version": 1, "partitions": rows}), encoding="utf-8")
        return str(path)

    def run(self, command: str, *words: str, exit_code: int = 0) -> list[str]:
        """Run a command, and return the lines of its output."""
        result = CliRunner().invoke(main, [command, *self._servers, *words])
        assert result.exit_code == exit_code, result.output
        return result.output.splitlines() if exit_code else result.stdout.splitlines()

    def reassign(self, action: str, plan: str, *words: str, exit_code: int = 0) -> list[str]:
        return self.run(
            "reassign-partitions", f"--{action}", "--reassignment-json-file", plan, *words, exit_code=exit_code
        )


@pytest.fixture
def tool(cluster: KafkaCluster, tmp_path: Path) -> Tool:
    return Tool(cluster, tmp_path)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def throttled(cluster: KafkaCluster) -> dict[str, str | None]:
    """Return the throttled replicas of the topic, and the rates of broker 1."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        resources = [ConfigResource(ResourceType.TOPIC, TOPIC), ConfigResource(ResourceType.BROKER, "1")]
        configs = admin.describe_configs(resources).check()
    return {
        name.replace(".replication.throttled", ""): entry.value
        for entries in configs.values()
        for name, entry in entries.items()
        if "replication.throttled" in name and not entry.is_default
    }


def test_a_plan_is_executed_listed_and_verified(cluster: KafkaCluster, tool: Tool) -> None:
    plan = tool.plan((0, [2, 3]), (1, [1, 2, 3]))
    started = tool.reassign("execute", plan, "--throttle", SLOW)
    assert json.loads(started[2])["partitions"][0]["replicas"] == [1, 2]
    assert started[-1] == "Successfully started partition reassignments for orders-0,orders-1"
    assert tool.run("reassign-partitions", "--list") == [
        "Current partition reassignments:",
        "orders-0: replicas: 2,3,1. adding: 3. removing: 1.",
        "orders-1: replicas: 1,2,3. adding: 1.",
    ]
    assert throttled(cluster) == {
        "leader.rate": SLOW,
        "follower.rate": SLOW,
        "leader.replicas": "0:1,0:2,1:2,1:3",
        "follower.replicas": "0:3,1:1",
    }
    verified = tool.reassign("verify", plan)
    assert verified[1:] == [f"Reassignment of partition orders-{index} is still in progress." for index in (0, 1)] + [
        ""
    ]
    lines = tool.run("topics", "--describe", "--topic", TOPIC)
    assert "ReplicationFactor: 2" in lines[0]
    assert "\tReplicas: 2,3,1\t" in lines[1]
    assert "\tAdding Replicas: 3\tRemoving Replicas: 1\t" in lines[1]
    assert "\tAdding Replicas: 1\tRemoving Replicas: \t" in lines[2]
    assert "Adding" not in lines[3]
    under_replicated = tool.run("topics", "--describe", "--topic", TOPIC, "--under-replicated-partitions")
    assert under_replicated == [], "replicas that are being added are not missing"
    refused = tool.reassign("execute", tool.plan((2, [3])), exit_code=1)
    assert refused[-1] == "ottla: another reassignment is in progress: wait for it, cancel it, or add --additional"

    assert tool.reassign("execute", plan, "--additional", "--throttle", "1000000000")[-2:] == [
        "The inter-broker throttle limit was set to 1000000000 B/s",
        "Successfully started partition reassignments for orders-0,orders-1",
    ]
    assert throttled(cluster)["follower.replicas"] == "0:3,1:1"
    until(lambda: tool.run("reassign-partitions", "--list") == ["No partition reassignments found."])
    verified = tool.reassign("verify", plan)
    assert verified[1:] == [
        *(f"Reassignment of partition orders-{index} is completed." for index in (0, 1)),
        "",
        "Clearing broker-level throttles on brokers 1,2,3",
        "Clearing topic-level throttles on topic orders",
    ]
    until(lambda: not throttled(cluster))


def test_a_second_plan_keeps_the_throttles_of_the_first(cluster: KafkaCluster, tool: Tool) -> None:
    first, second = tool.plan((0, [2, 3])), tool.plan((1, [3, 1]))
    tool.reassign("execute", first, "--throttle", SLOW)
    tool.reassign("execute", second, "--additional", "--throttle", SLOW)
    throttles = throttled(cluster)
    assert sorted((throttles["leader.replicas"] or "").split(",")) == ["0:1", "0:2", "1:2", "1:3"]
    assert sorted((throttles["follower.replicas"] or "").split(",")) == ["0:3", "1:1"]
    assert len(tool.run("reassign-partitions", "--list")) == 3
    tool.reassign("cancel", first, "--preserve-throttles")
    text = "There is no active reassignment of partition orders-0, but replica set is 2,1 rather than 2,3."
    assert text in tool.reassign("verify", first, exit_code=1)
    assert throttled(cluster)["follower.replicas"], "the second plan still needs its throttle"


def test_cancelling(cluster: KafkaCluster, tool: Tool) -> None:
    plan = tool.plan((0, [3]), (2, [3]))
    tool.reassign("execute", plan, "--throttle", SLOW)
    assert tool.reassign("cancel", plan, "--preserve-throttles") == [
        "Successfully cancelled partition reassignments for: orders-0,orders-2",
        "None of the specified partition moves are active.",
    ]
    assert throttled(cluster)
    assert tool.reassign("cancel", plan)[0] == "None of the specified partition reassignments are active."
    until(lambda: not throttled(cluster))
    assert cluster.image.topics[TOPIC].partitions[0].replicas == (1, 2)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--list", "--throttle", "1"], "--throttle can only be used with --execute"),
        (["--verify", "--reassignment-json-file", "f", "--additional"], "--additional can only be used with --execute"),
        (["--execute", "--reassignment-json-file", "f", "--preserve-throttles"], "--verify and --cancel"),
        (["--cancel", "--reassignment-json-file", "f", "--broker-list", "1"], "can only be used with --generate"),
        (["--generate", "--topics-to-move-json-file", "f", "--broker-list", "1,1"], "names a broker twice"),
    ],
)
def test_wrong_usage(tool: Tool, words: list[str], why: str) -> None:
    assert why in tool.run("reassign-partitions", *words, exit_code=2)[-1]


def test_a_topic_is_moved_once(tool: Tool, tmp_path: Path) -> None:
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": TOPIC}, {"topic": TOPIC}]}), encoding="utf-8")
    words = ["--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1,2"]
    assert tool.run("reassign-partitions", *words, exit_code=1) == [f"ottla: {topics} names a topic twice"]


def test_the_replication_factor_may_be_kept(tool: Tool) -> None:
    plan = tool.plan((0, [1, 3]), (1, [1, 2, 3]))
    lines = tool.reassign("execute", plan, "--disallow-replication-factor-change", exit_code=1)
    assert lines[-1].endswith("INVALID_REPLICATION_FACTOR: The replication factor is changed from 2 to 3")


def test_the_log_directory_of_a_new_replica(cluster: KafkaCluster, tool: Tool) -> None:
    """The command waits until the new broker has created its replica."""
    directory = str(cluster[3].data_dir)
    plan = tool.plan((0, [1, 3]), log_dirs=["any", directory])
    assert tool.reassign("execute", plan)[-2:] == [
        "Successfully started partition reassignment for orders-0",
        f"Successfully started moving log directory to {directory} for replica orders-0 with broker 3",
    ]
    until(lambda: tool.run("reassign-partitions", "--list") == ["No partition reassignments found."])
    assert "Reassignment of replica orders-0-3 completed successfully." in tool.reassign("verify", plan)
