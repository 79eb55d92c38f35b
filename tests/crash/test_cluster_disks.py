"""Log directories of brokers in a cluster: replicas that move between them under load, and a disk that is full."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Admin, NewTopic, Producer, TopicPartitionReplica
from tests.etcd_server import EtcdServer, running

from .conftest import Process
from .records import Numbers, read_all
from .test_etcd_cluster import Brokers, until
from .test_log_directories import lost

PARTITIONS = 4


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    with running(tmp_path / "etcd") as server:
        yield server


@pytest.fixture
def brokers(tmp_path: Path, etcd: EtcdServer) -> Iterator[Brokers]:
    cluster = Brokers(tmp_path, etcd.url())
    yield cluster
    cluster.end()


def start(brokers: Brokers, node_id: int, *names: str, most_bytes: int | None = None) -> Process:
    """Start a broker on log directories with these names."""
    directories = ",".join(str(brokers.home / f"{name}{node_id}") for name in names)
    options = ("--cluster", brokers.url, "-o", f"node.id={node_id}", "-o", "offsets.topic.replication.factor=1")
    process = Process(Path(directories), *options, port=brokers.ports.get(node_id, 0), most_bytes=most_bytes)
    brokers.processes[node_id], brokers.ports[node_id] = process, process.port
    return process


def homes(admin: Admin, node_id: int, topic: str) -> set[str]:
    """Return the names of the directories with replicas of a topic on a broker, copies that are being made included."""
    return {
        Path(path).name
        for path, directory in admin.describe_log_dirs([node_id])[node_id].items()
        for place in directory.replicas
        if place.topic == topic
    }


def in_sync(admin: Admin, topic: str) -> set[tuple[int, ...]]:
    return {tuple(sorted(partition.isr)) for partition in admin.describe_topics([topic])[topic].partitions}


@pytest.mark.timeout(120)
def test_leaders_and_followers_move_between_directories_under_load(brokers: Brokers, tmp_path: Path) -> None:
    for node_id in (1, 2):
        start(brokers, node_id, "broker", "more")
    servers = brokers.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("t", PARTITIONS, 2, config={"segment.bytes": "1048576"})]).check()
        numbers = Numbers(servers, "t", PARTITIONS, 1000, enable_idempotence=True)
        numbers.until(lambda: numbers.count >= 2000)
        for name in ("broker", "more", "broker"):
            moves = {
                TopicPartitionReplica("t", index, node_id): str(tmp_path / f"{name}{node_id}")
                for index in range(PARTITIONS)
                for node_id in (1, 2)
            }
            admin.alter_replica_log_dirs(moves).check()
            count = numbers.count
            numbers.until(lambda: all(homes(admin, node, "t") == {f"{name}{node}"} for node in (1, 2)))  # noqa: B023
            numbers.until(lambda: numbers.count >= count + 500)  # noqa: B023
        numbers.flush()
        until(lambda: in_sync(admin, "t") == {(1, 2)})
    assert lost(numbers, read_all(servers, "t", PARTITIONS)) == []
    words = ["replica-verification", "--broker-list", servers, "--topics-include", "t", "--once"]
    done = subprocess.run([sys.executable, "-m", "ottla", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(120)
def test_other_brokers_lead_when_a_disk_is_full_and_it_is_filled_again(brokers: Brokers, tmp_path: Path) -> None:
    start(brokers, 2, "broker")
    home = tmp_path / "broker1"
    full = start(brokers, 1, "broker", most_bytes=2 << 20)
    servers = brokers.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        topic = NewTopic("t", replica_assignment=((1, 2),), config={"min.insync.replicas": "1"})
        admin.create_topics([topic]).check()
        with Producer(bootstrap_servers=servers, max_request_size=1 << 20) as producer:
            for _ in range(12):
                producer.send("t", bytes(300_000), partition=0).result(30)
        until(lambda: brokers.leaders("t") == [2] and in_sync(admin, "t") == {(2,)})
    error = full.stop()
    assert f"{home} is offline: File too large" in error
    shutil.rmtree(home)  # a new, empty disk
    start(brokers, 1, "broker")
    with Admin(bootstrap_servers=servers) as admin:
        until(lambda: in_sync(admin, "t") == {(1, 2)})
    assert [path.stat().st_size for path in (home / "t-0").glob("*.log")] == [
        path.stat().st_size for path in (tmp_path / "broker2" / "t-0").glob("*.log")
    ]
