"""A real etcd that is restored from a snapshot under a broker, and what it takes to go on with what it has."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Admin, ConfigChange, ConfigResource, NewTopic, ResourceType
from tests.crash.conftest import Process, command
from tests.etcd_server import EtcdServer, running


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    with running(tmp_path / "etcd") as server:
        yield server


def topics(broker: Process) -> set[str]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        return set(admin.list_topics())


def create(broker: Process, *names: str) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, 1) for name in names]).check()


def retain(broker: Process, ms: int) -> None:
    """Change a config of a topic."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.incremental_alter_configs(
            {ConfigResource(ResourceType.TOPIC, "before"): [ConfigChange("retention.ms", str(ms))]}
        ).check()


@pytest.mark.parametrize("bump", [False, True], ids=["as it was", "with a higher revision"])
def test_a_restored_etcd_stops_brokers_until_they_accept_it(etcd: EtcdServer, tmp_path: Path, bump: bool) -> None:
    if bump and not etcd.binary.with_name("etcdutl").exists():
        pytest.skip("etcd 3.4 cannot bump the revision: OTTLA_TEST_ETCD=$(scripts/etcd --build) is a newer one")
    url, home = etcd.url(), tmp_path / "broker"
    options = ("--cluster", url, "-o", "node.id=1", "-o", "broker.session.timeout.ms=3000")
    broker = Process(home, *options)
    create(broker, "before", "deleted")
    retain(broker, 1)
    etcd.save(tmp_path / "snapshot")
    create(broker, "after")
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_topics(["deleted"]).check()
    retain(broker, 2)  # a key that comes back older is what shows a restore whose revision is higher

    etcd.restore(tmp_path / "snapshot", *(("--bump-revision", "1000000", "--mark-compacted") if bump else ()))
    (line,) = (line for line in broker.finish().splitlines() if line.startswith("ottla: "))
    assert "was restored" in line

    again = subprocess.run(
        command("--listen", "127.0.0.1:0", "--data-dir", str(home), "--log-level", "error", *options),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    assert "--accept-older-metadata" in again.stderr

    accepting = Process(home, *options, "--accept-older-metadata")
    assert topics(accepting) == {"before", "deleted"}
    create(accepting, "later")
    accepting.stop()
    last = Process(home, *options)
    assert topics(last) == {"before", "deleted", "later"}
    last.stop()
