"""Kafka's own tools, and clients of other libraries, on a cluster of three brokers."""

import re
import subprocess
import time
from collections.abc import Callable

import pytest

from ottla.testing import KafkaCluster
from tests.interop.apache_kafka import SCRIPT, skip_without

TOOLS = "org.apache.kafka.tools"


@pytest.fixture(autouse=True)
def tools(request: pytest.FixtureRequest) -> None:
    skip_without("kafka-tools-4.3.1", request)


def tool(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [str(SCRIPT), "tool", name, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kafkas_tools_see_a_cluster(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3, {"broker.rack": "here"})
    cluster.create_topic("orders", 6)
    servers = cluster[2].bootstrap_servers
    described = tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", servers, "--describe")
    leaders = {int(index): int(leader) for index, leader in re.findall(r"Partition: (\d)\tLeader: (\d)", described)}
    assert leaders == {index: cluster.leader_of("orders", index) for index in range(6)}
    versions = tool("org.apache.kafka.tools.BrokerApiVersionsCommand", "--bootstrap-server", servers)
    assert sorted(re.findall(r"\(id: (\d) rack: here", versions)) == ["1", "2", "3"]
    assert cluster.image.cluster_id in tool(
        "org.apache.kafka.tools.ClusterTool", "cluster-id", "--bootstrap-server", servers
    )
    endpoints = tool("org.apache.kafka.tools.ClusterTool", "list-endpoints", "--bootstrap-server", servers)
    assert all(str(broker.address[1]) in endpoints for broker in cluster.brokers.values())
    quorum = tool("org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server", servers, "describe", "--status")
    assert re.search(rf"LeaderId:\s+{cluster.image.controller_id}\n", quorum)
    assert cluster.image.controller is not None
    assert re.search(rf"LeaderEpoch:\s+{cluster.image.controller.epoch}\n", quorum)
    replication = tool(
        "org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server", servers, "describe", "--replication"
    )
    assert sorted(re.findall(r"^(\d)\s", replication, re.MULTILINE)) == ["1", "2", "3"]


def test_kafkas_tools_after_a_broker_died(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3)
    cluster.create_topic("orders", 3)
    cluster.kill(2)
    (lost,) = (index for index in range(3) if cluster.leader_of("orders", index) == -1)
    servers = cluster[1].bootstrap_servers
    unavailable = tool(
        "org.apache.kafka.tools.TopicCommand",
        "--bootstrap-server",
        servers,
        "--describe",
        "--unavailable-partitions",
    )
    assert re.findall(r"Partition: (\d)\tLeader: none\tReplicas: 2\tIsr: \tElr: 2\t", unavailable) == [str(lost)]
    fenced = tool(
        "org.apache.kafka.tools.ClusterTool",
        "list-endpoints",
        "--bootstrap-server",
        servers,
        "--include-fenced-brokers",
    )
    assert re.search(r"^2 .*fenced", fenced, re.MULTILINE)
    cluster.restart(2)
    elected = tool(
        "org.apache.kafka.tools.LeaderElectionCommand",
        "--bootstrap-server",
        servers,
        "--election-type",
        "preferred",
        "--topic",
        "orders",
        "--partition",
        "0",
    )
    assert "orders-0" in elected
    deadline = time.monotonic() + 10
    while cluster.leader_of("orders", lost) != 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_kafkas_consoles_use_all_brokers(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3)
    cluster.create_topic("letters", 6)
    servers = ["--bootstrap-server", cluster[3].bootstrap_servers, "--topic", "letters"]
    separated = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    done = subprocess.run(
        [str(SCRIPT), "tool", f"{TOOLS}.ConsoleProducer", *servers, *separated],
        input="".join(f"k{number}:v{number:02}\n" for number in range(40)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    read = tool(
        f"{TOOLS}.consumer.ConsoleConsumer",
        "--bootstrap-server",
        cluster[1].bootstrap_servers,
        "--topic",
        "letters",
        "--group",
        "g",
        "--from-beginning",
        "--max-messages",
        "40",
    )
    assert sorted(read.split()) == [f"v{number:02}" for number in range(40)]
    groups = tool(
        f"{TOOLS}.consumer.group.ConsumerGroupCommand",
        "--bootstrap-server",
        cluster[2].bootstrap_servers,
        "--describe",
        "--group",
        "g",
    )
    lags = re.findall(r"^g\s+letters\s+\d\s+(\d+)\s+(\d+)\s+0", groups, re.MULTILINE)
    assert sum(int(offset) for offset, _ in lags) == 40
