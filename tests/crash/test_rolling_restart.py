"""Three brokers that are restarted one after the other under load: no client notices, and no record is lost or doubled."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from ottla import Admin
from ottla import TopicPartition as Place
from tests.etcd_server import EtcdServer, free_ports, running

from .brokers import wait_until
from .conftest import command
from .replicated_brokers import NODES, OPTIONS
from .replicated_load import PARTITIONS, create
from .rolling_load import (
    LibrdkafkaLedger,
    LibrdkafkaNumbered,
    LibrdkafkaReader,
    Load,
    OttlaDefaultNumbered,
    OttlaLedger,
    OttlaReader,
    ShareReader,
)

_SHUTDOWN = re.compile(
    r"controlled shutdown of node \d took \d+ ms: handed over \d+ partitions led, \d+ others in sync"
)
_NOT_COMPLETE = "without completing its controlled shutdown"
ROUNDS = 2


class RollingCluster:
    """Three brokers over one etcd, in processes of their own on fixed ports."""

    def __init__(self, home: Path, etcd: EtcdServer) -> None:
        self._home = home
        self._url = etcd.url()
        self.ports = dict(zip(NODES, free_ports(len(NODES)), strict=True))
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        for node_id in NODES:
            self.start(node_id)
        for node_id in NODES:
            self.wait(node_id)

    @property
    def servers(self) -> str:
        """Bootstrap servers: all brokers."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def start(self, node_id: int, *options: str) -> None:
        words = [word for option in (f"node.id={node_id}", *OPTIONS, *options) for word in ("-o", option)]
        place = ["--listen", f"127.0.0.1:{self.ports[node_id]}", "--data-dir", str(self._home / f"broker{node_id}")]
        with self.log(node_id).open("ab") as log:
            process = subprocess.Popen(command("--cluster", self._url, *place, *words), stdout=log, stderr=log)
        self.processes[node_id] = process

    def wait(self, node_id: int) -> None:
        """Wait until a broker serves clients."""
        wait_until(lambda: self._serves(node_id), 30)

    def _serves(self, node_id: int) -> bool:
        assert self.processes[node_id].poll() is None, self.log(node_id).read_text()
        return self.log(node_id).read_text().count("started in ") > self._starts(node_id)

    def _starts(self, node_id: int) -> int:
        """Return the number of earlier starts that have ended."""
        return self.log(node_id).read_text().count("stopped in ")

    def stop(self, node_id: int) -> float:
        """Stop a broker with SIGTERM; return the seconds until its process has ended."""
        begun = time.monotonic()
        self.processes[node_id].send_signal(signal.SIGTERM)
        assert self.processes[node_id].wait(60) == 0, self.log(node_id).read_text()
        return time.monotonic() - begun

    def log(self, node_id: int) -> Path:
        """Return the file with the log lines of a broker."""
        return self._home / f"broker{node_id}.log"

    def is_whole(self, admin: Admin) -> bool:
        """Return True if all replicas of all partitions are in sync."""
        names = list(admin.list_topics())
        described = admin.describe_topics(names)
        topics = [] if described.errors else [described[name] for name in names]
        return bool(topics) and all(
            len(partition.isr) == len(NODES) for topic in topics for partition in topic.partitions
        )

    def close(self) -> None:
        """End all processes."""
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RollingCluster]:
    with running(tmp_path / "etcd") as etcd:
        brokers = RollingCluster(tmp_path, etcd)
        try:
            yield brokers
        finally:
            brokers.close()


def restart_all(cluster: RollingCluster, failures: Callable[[], Sequence[object]], rounds: int) -> None:
    """Restart the brokers, each when the replicas of the one before are in sync again."""
    with Admin(bootstrap_servers=cluster.servers) as admin:
        for _ in range(rounds):
            for node_id in NODES:
                time.sleep(0.5)
                cluster.stop(node_id)
                assert failures() == []
                time.sleep(0.3)
                cluster.start(node_id)
                cluster.wait(node_id)
                wait_until(lambda: cluster.is_whole(admin), 30)
    assert failures() == []


def assert_handed_over(cluster: RollingCluster, rounds: int) -> None:
    for node_id in NODES:
        text = cluster.log(node_id).read_text()
        assert len(_SHUTDOWN.findall(text)) == rounds, text
        assert _NOT_COMPLETE not in text


@pytest.mark.timeout(180)
def test_no_client_notices_a_rolling_restart(cluster: RollingCluster) -> None:
    servers = cluster.servers
    create(servers, "ottla", "librdkafka", "jobs", "ledger-1", "ledger-2")
    with Admin(bootstrap_servers=servers) as admin:
        assert not admin.alter_share_group_offsets("workers", {Place("jobs", n): 0 for n in range(PARTITIONS)}).errors
    load = Load(servers)
    load.producers = {
        "ottla": OttlaDefaultNumbered(servers, "ottla", 200),
        "librdkafka": LibrdkafkaNumbered(servers, "librdkafka", 200),
        "jobs": OttlaDefaultNumbered(servers, "jobs", 100),
    }
    load.ledgers = {"ledger-1": OttlaLedger(servers, "ledger-1"), "ledger-2": LibrdkafkaLedger(servers, "ledger-2")}
    load.readers = {
        "ottla": OttlaReader(servers, "ottla"),
        "librdkafka": LibrdkafkaReader(servers, "librdkafka"),
        "jobs": ShareReader(servers, "jobs"),
    }
    load.wait_until_working()
    restart_all(cluster, load.failures, ROUNDS)
    load.check()
    assert_handed_over(cluster, ROUNDS)


@pytest.mark.timeout(180)
def test_no_python_client_notices_a_rolling_restart(cluster: RollingCluster) -> None:
    pytest.importorskip("aiokafka")
    pytest.importorskip("kafka", exc_type=ImportError)
    create(cluster.servers, "kafka-python", "aiokafka")
    # In a process of its own: kafka-python leaves sockets open, and warnings are errors here.
    module = [sys.executable, "-m", "tests.crash.rolling_python_load", cluster.servers]
    pipe = subprocess.PIPE
    with subprocess.Popen(module, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as clients:
        assert clients.stdout is not None
        assert clients.stdout.readline() == "working\n"
        restart_all(cluster, lambda: [] if clients.poll() is None else ["the clients have ended"], ROUNDS)
        _, errors = clients.communicate("", timeout=60)
    assert clients.returncode == 0, errors
    assert_handed_over(cluster, ROUNDS)


def test_a_broker_without_controlled_shutdown_stops_at_once(cluster: RollingCluster) -> None:
    create(cluster.servers, "t")
    cluster.stop(1)
    cluster.start(1, "controlled.shutdown.enable=false")
    cluster.wait(1)
    with Admin(bootstrap_servers=cluster.servers) as admin:
        wait_until(lambda: cluster.is_whole(admin), 30)
        cluster.stop(1)
        assert len(_SHUTDOWN.findall(cluster.log(1).read_text())) == 1, "of the first stop only"
        wait_until(lambda: 1 not in {row.leader for row in admin.describe_topics(["t"])["t"].partitions}, 10)


def test_the_last_broker_stops_without_waiting_for_others(cluster: RollingCluster) -> None:
    create(cluster.servers, "t")
    for node_id in NODES:
        assert cluster.stop(node_id) < 10
    assert len(_SHUTDOWN.findall(cluster.log(3).read_text())) == 0
