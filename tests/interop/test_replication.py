"""Replicas of Ottla, seen by Kafka's own consumer and tools."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla import Admin
from ottla.metadata.image import Image
from ottla.testing import KafkaCluster
from tests.conformance.cluster.conftest import create
from tests.conformance.conftest import Wire
from tests.interop.apache_kafka import SCRIPT, skip_without
from tests.interop.test_dump_log_segments import TOPICS, assert_readable, load

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
TOOLS = "org.apache.kafka.tools"
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def tools(request: pytest.FixtureRequest) -> None:
    skip_without("kafka-tools-4.3.1", request)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def create_topic(cluster: KafkaCluster, name: str, *replicas: int, **configs: str) -> None:
    wire = Wire(cluster[1].address, is_kafka=False)
    created = create(wire, name, [replicas], **configs)
    wire.close()
    assert created.error_code == 0, created.error_message
    until(lambda: all(name in broker.broker.image.topics for broker in cluster.running))


def test_kafkas_consumer_reads_from_the_replica_in_its_rack(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3, {"replica.selector.class": SELECTOR, "min.insync.replicas": 1}, racks=["a", "b", "c"])
    create_topic(cluster, "orders", 1, 2)
    for number in range(100):
        cluster[1].produce("orders", f"{number}")
    for rack, is_follower in [("b", True), ("c", False)]:
        fetches = cluster[2].delay("Fetch", 0)
        command = [f"{TOOLS}.consumer.ConsoleConsumer", "--bootstrap-server", cluster.bootstrap_servers]
        command += ["--topic", "orders", "--partition", "0", "--offset", "earliest", "--max-messages", "100"]
        command += ["--command-property", f"client.rack={rack}"]
        done = subprocess.run([SCRIPT, "tool", *command], capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout.split() == [str(number) for number in range(100)], done.stderr
        assert (fetches.hits > 0) == is_follower
        fetches.end()


def test_kafkas_replica_verification(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3, {"default.replication.factor": 3})
    cluster.create_topic("orders", 3)
    for number in range(90):
        partition = number % 3
        cluster[cluster.leader_of("orders", partition)].produce("orders", f"{number}", partition=partition)
    command = [f"{TOOLS}.ReplicaVerificationTool", "--broker-list", cluster.bootstrap_servers, "--time", "-2"]
    command += ["--max-wait-ms", "100", "--report-interval-ms", "1000", "--topics-include", "orders"]
    process = subprocess.Popen(
        [SCRIPT, "tool", *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    lines: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if "max lag is 0 for partition" in line or len(lines) > 20:
            break
    os.killpg(process.pid, signal.SIGKILL)  # the script and its Java
    process.wait(20)
    process.stdout.close()
    assert re.search(r"max lag is 0 for partition orders-\d at offset 30 among 3 partitions", lines[-1]), lines
    assert not any("match" in line or "Error" in line for line in lines), lines


def checkpoint(path: Path) -> list[str]:
    """Return the entries of a checkpoint of Kafka's: version 0, the number of entries, then one a line."""
    version, count, *entries = path.read_text().splitlines()
    assert (version, int(count)) == ("0", len(entries))
    return entries


def test_the_directory_of_a_follower_is_one_of_kafka(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    configs = {
        "log.cleaner.backoff.ms": 20,
        "log.initial.task.delay.ms": 20,
        "log.retention.check.interval.ms": 20,
        "default.replication.factor": 3,
    }
    cluster = kafka_cluster(3, configs)
    for name, values in TOPICS.items():
        create_topic(cluster, name, 1, 2, 3, **{key.replace(".", "_"): value for key, value in values.items()})
    load(cluster.bootstrap_servers, 100)
    cluster.kill(1)
    until(lambda: cluster.leader_of("plain", 0) == 2)
    load(cluster.bootstrap_servers, 100)
    cluster.restart(1)
    for name in TOPICS:
        until(lambda name=name: sorted(cluster.image.topics[name].partitions[0].isr) == [1, 2, 3])  # type: ignore[misc]
        until(lambda name=name: len({ends(cluster, name, node_id) for node_id in (1, 2, 3)}) == 1)  # type: ignore[misc]
    image, end = cluster.image, ends(cluster, "plain", 2)
    for node_id in (3, 1, 2):
        cluster.stop(node_id)
    for node_id in (1, 2, 3):
        data = cluster[node_id].data_dir
        assert_readable(data, list(TOPICS))
        high_watermarks = checkpoint(data / "replication-offset-checkpoint")
        assert f"plain 0 {end[1]}" in high_watermarks
        assert len(high_watermarks) == sum(map(len, partitions_of(image, node_id)))
        epochs = [
            tuple(map(int, entry.split(" "))) for entry in checkpoint(data / "plain-0" / "leader-epoch-checkpoint")
        ]
        assert epochs[0] == (0, 0)
        assert len(epochs) > 1
        assert epochs == sorted(epochs)


def partitions_of(image: Image, node_id: int) -> list[list[int]]:
    """Return the partitions with a replica on a broker, by topic."""
    return [
        [index for index, partition in enumerate(topic.partitions) if node_id in partition.replicas]
        for topic in image.topics.values()
    ]


def ends(cluster: KafkaCluster, topic: str, node_id: int) -> tuple[int, int]:
    """Return log end and high watermark of a replica."""
    partition = cluster[node_id].broker.replicas.find(topic, 0)
    assert partition is not None
    return partition.log.end_offset, partition.log.high_watermark


def test_kafkas_tools_describe_replicas(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3, {"default.replication.factor": 3})
    cluster.create_topic("orders", 1)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        replicas = admin.describe_topics(["orders"])["orders"].partitions[0].replicas
    follower = replicas[1]
    cluster.kill(follower)
    servers = cluster[replicas[0]].bootstrap_servers
    command = [f"{TOOLS}.TopicCommand", "--bootstrap-server", servers, "--describe", "--under-replicated-partitions"]
    done = subprocess.run([SCRIPT, "tool", *command], capture_output=True, text=True, timeout=60, check=False)
    isr = ",".join(str(node_id) for node_id in replicas if node_id != follower)
    listed = ",".join(map(str, replicas))
    assert f"Leader: {replicas[0]}\tReplicas: {listed}\tIsr: {isr}" in done.stdout, done.stdout + done.stderr
