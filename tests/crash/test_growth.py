"""Clusters that grow and shrink: brokers that are added and removed for good, and an etcd that gets more members."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Admin, NewTopic
from tests.etcd_server import EtcdServer, running

from .records import read_all
from .test_etcd_cluster import Brokers, produce, until


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    with running(tmp_path / "etcd") as server:
        yield server


def ottla(*words: str) -> str:
    """Run a command, and return what it prints."""
    done = subprocess.run([sys.executable, "-m", "ottla", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def holders(admin: Admin, topic: str) -> set[int]:
    """Return the brokers that have replicas of a topic, if all of them are in sync."""
    partitions = admin.describe_topics([topic])[topic].partitions
    if any(set(partition.replicas) != set(partition.isr) for partition in partitions):
        return set()
    return {node for partition in partitions for node in partition.replicas}


def test_a_broker_takes_over_for_one_that_is_removed_for_good(tmp_path: Path, etcd: EtcdServer) -> None:
    brokers = Brokers(tmp_path, etcd.url())
    try:
        for node_id in (1, 2):
            brokers.start(node_id)
        servers = brokers.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic("flights", 6, 2)]).check()
            produce(servers, "flights", [str(number) for number in range(300)])
            brokers.start(3)
            servers = brokers.bootstrap_servers
            topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
            topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "flights"}]}))
            common = ("reassign-partitions", "--bootstrap-server", servers)
            proposed = ottla(*common, "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1,3")
            plan.write_text(proposed.strip().splitlines()[-1])
            ottla(*common, "--execute", "--reassignment-json-file", str(plan))
            until(lambda: holders(admin, "flights") == {1, 3})
            assert "still in progress" not in ottla(*common, "--verify", "--reassignment-json-file", str(plan))
            brokers.processes[2].stop()
            ottla("cluster", "unregister", "--bootstrap-server", servers, "--id", "2")
            until(lambda: {node.id for node in admin.describe_cluster().nodes} == {1, 3})
            read = read_all(brokers.bootstrap_servers, "flights", 6)
            assert sorted(number for rows in read.values() for _, number in rows) == list(range(300))
    finally:
        brokers.end()


def test_an_etcd_of_one_member_gets_two_more(tmp_path: Path, etcd: EtcdServer) -> None:
    """The brokers learn the new addresses in a rolling restart; the first member may be lost then."""
    url = etcd.url()
    prefix = url.rpartition(f":{etcd.port}")[2]
    brokers = Brokers(tmp_path, url)
    members = [etcd]
    try:
        for node_id in (1, 2):
            brokers.start(node_id)
        with Admin(bootstrap_servers=brokers.bootstrap_servers, default_api_timeout_ms=8000) as admin:
            admin.create_topics([NewTopic("before", 2, 2)]).check()
            members.extend(etcd.add_member(name) for name in ("two", "three"))
            hosts = ",".join(f"127.0.0.1:{member.port}" for member in members)
            brokers.url = f"etcd://{hosts}{prefix}"
            for node_id in (1, 2):  # a rolling restart: the brokers get to know the new members
                brokers.processes[node_id].stop()
                brokers.start(node_id)
            etcd.kill()
            until(lambda: not admin.create_topics([NewTopic("after", 2, 2)]).errors)
            produce(brokers.bootstrap_servers, "before", ["1"])
            produce(brokers.bootstrap_servers, "after", ["1"])
    finally:
        brokers.end()
        for member in members:
            member.kill()
