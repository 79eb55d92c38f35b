"""Three brokers that are restarted one after the other under load: no client notices, and no record is lost or doubled."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Admin
from ottla import TopicPartition as Place
from tests.etcd_server import running

from .brokers import wait_until
from .replicated_brokers import NODES
from .replicated_load import PARTITIONS, create
from .rolling_cluster import SHUTDOWN, RollingCluster, assert_handed_over, restart_all
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


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """The number of restarts of every broker: more than one with `--soak`."""
    return min(2, int(request.config.getoption("--soak")))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RollingCluster]:
    with running(tmp_path / "etcd") as etcd:
        brokers = RollingCluster(tmp_path, etcd)
        try:
            yield brokers
        finally:
            brokers.close()


@pytest.mark.timeout(180)
def test_no_client_notices_a_rolling_restart(cluster: RollingCluster, rounds: int) -> None:
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
    restart_all(cluster, load.failures, rounds)
    load.check()
    assert_handed_over(cluster, rounds)


@pytest.mark.timeout(180)
def test_no_python_client_notices_a_rolling_restart(cluster: RollingCluster, rounds: int) -> None:
    pytest.importorskip("aiokafka")
    pytest.importorskip("kafka", exc_type=ImportError)
    create(cluster.servers, "kafka-python", "aiokafka")
    # In a process of its own: kafka-python leaves sockets open, and warnings are errors here.
    module = [sys.executable, "-m", "tests.crash.rolling_python_load", cluster.servers]
    pipe = subprocess.PIPE
    with subprocess.Popen(module, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as clients:
        assert clients.stdout is not None
        if clients.stdout.readline() != "working\n":
            raise AssertionError(clients.communicate("", timeout=60)[1])
        restart_all(cluster, lambda: [] if clients.poll() is None else ["the clients have ended"], rounds)
        _, errors = clients.communicate("", timeout=60)
    assert clients.returncode == 0, errors
    assert_handed_over(cluster, rounds)


def test_a_broker_without_controlled_shutdown_stops_at_once(cluster: RollingCluster) -> None:
    create(cluster.servers, "t")
    cluster.stop(1)
    cluster.start(1, "controlled.shutdown.enable=false")
    cluster.wait(1)
    with Admin(bootstrap_servers=cluster.servers) as admin:
        wait_until(lambda: cluster.is_whole(admin), 30)
        cluster.stop(1)
        assert len(SHUTDOWN.findall(cluster.log(1).read_text())) == 1, "of the first stop only"
        wait_until(lambda: 1 not in {row.leader for row in admin.describe_topics(["t"])["t"].partitions}, 10)


def test_the_last_broker_stops_without_waiting_for_others(cluster: RollingCluster) -> None:
    create(cluster.servers, "t")
    for node_id in NODES:
        assert cluster.stop(node_id) < 10
    assert len(SHUTDOWN.findall(cluster.log(3).read_text())) == 0
