"""Brokers in processes of their own, whose metadata is in a real etcd: killed, stopped, and without their etcd for a while."""

import shlex
import subprocess
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer

from ottla import Admin, KafkaError, NewTopic
from tests.crash.conftest import Process, command
from tests.etcd_server import EtcdServer, running, running_cluster

WITHIN_S = 20


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    with running(tmp_path / "etcd") as server:
        yield server


class Brokers:
    """A cluster of processes; broker n has node id n."""

    def __init__(self, home: Path, url: str) -> None:
        self.home = home
        self.url = url
        self.processes: dict[int, Process] = {}
        self.ports: dict[int, int] = {}

    def start(self, node_id: int, *options: str) -> Process:
        process = Process(
            self.home / f"broker{node_id}",
            "--cluster",
            self.url,
            "-o",
            f"node.id={node_id}",
            "-o",
            "offsets.topic.replication.factor=1",
            *options,
            port=self.ports.get(node_id, 0),
        )
        self.processes[node_id] = process
        self.ports[node_id] = process.port
        return process

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(process.bootstrap_servers for process in self.processes.values() if process.runs)

    def leaders(self, topic: str) -> list[int]:
        """The leaders of a topic's partitions, -1 for one without a leader."""
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            described = admin.describe_topics([topic])[topic]
            return [-1 if partition.leader is None else partition.leader for partition in described.partitions]

    def controller(self) -> int | None:
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            return admin.describe_cluster().controller

    def end(self) -> None:
        for process in self.processes.values():
            if process.runs:
                process.kill()


@pytest.fixture
def brokers(tmp_path: Path, etcd: EtcdServer) -> Iterator[Brokers]:
    cluster = Brokers(tmp_path, etcd.url())
    yield cluster
    cluster.end()


def until(is_met: Callable[[], bool], within_s: float = WITHIN_S) -> None:
    deadline = time.monotonic() + within_s
    while not is_met():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def produce(bootstrap_servers: str, topic: str, values: list[str], partition: int = -1) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0})
    failures: list[object] = []
    for value in values:
        producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: failures.append(error) if error else None
        )
    assert producer.flush(WITHIN_S) == 0
    assert not failures


def consumed(bootstrap_servers: str, topic: str, count: int, group: str) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[str] = []
    deadline = time.monotonic() + WITHIN_S
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append((message.value() or b"").decode())
    consumer.close()
    return sorted(values)


def test_three_processes_are_a_cluster_that_survives_a_kill(brokers: Brokers) -> None:
    for node_id in (1, 2, 3):
        brokers.start(node_id)
    with Admin(bootstrap_servers=brokers.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", 6)]).check()
    until(lambda: sorted(brokers.leaders("t")) == [1, 1, 2, 2, 3, 3])
    leaders = brokers.leaders("t")
    values = [f"{number:03}" for number in range(60)]
    produce(brokers.bootstrap_servers, "t", values)
    assert consumed(brokers.bootstrap_servers, "t", 60, "before") == values
    controller = brokers.controller()
    assert controller in (1, 2, 3)
    brokers.processes[controller].kill()
    killed_at = time.monotonic()
    until(lambda: brokers.leaders("t").count(-1) == 2)
    assert time.monotonic() - killed_at < 8, "quicker than the session timeout of 9 seconds"
    until(lambda: brokers.controller() not in (None, controller))
    other = next(index for index, leader in enumerate(leaders) if leader != controller)
    produce(brokers.bootstrap_servers, "t", ["while it was down"], other)
    brokers.start(controller)  # its own sign of life ends at once
    until(lambda: brokers.leaders("t") == leaders)
    assert consumed(brokers.bootstrap_servers, "t", 61, "after") == [*values, "while it was down"]


def test_the_brokers_serve_on_while_etcd_is_stopped(brokers: Brokers, etcd: EtcdServer) -> None:
    for node_id in (1, 2):
        brokers.start(node_id)
    with Admin(bootstrap_servers=brokers.bootstrap_servers, default_api_timeout_ms=4000) as admin:
        admin.create_topics([NewTopic("t", 2)]).check()
        until(lambda: sorted(brokers.leaders("t")) == [1, 2])
        produce(brokers.bootstrap_servers, "t", ["before"])
        etcd.pause()
        time.sleep(1)
        produce(brokers.bootstrap_servers, "t", ["during"])
        with pytest.raises(Exception, match=r"(?i)time|answer"):
            admin.create_topics([NewTopic("u", 1)]).check()
        etcd.resume()
        until(lambda: not admin.create_topics([NewTopic("v", 1)]).errors)
    assert consumed(brokers.bootstrap_servers, "t", 2, "g") == ["before", "during"]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("prefix", "the metadata store has no cluster, and the data directories belong to cluster"),
        ("node", "Another broker is registered with that broker id."),
        ("endpoint", "no endpoint of etcd answers: 127.0.0.1:1 (Connection refused)"),
    ],
)
def test_a_broker_that_cannot_join_says_why_in_one_line(
    brokers: Brokers, etcd: EtcdServer, tmp_path: Path, wrong: str, reason: str
) -> None:
    first = brokers.start(1, "-o", "broker.session.timeout.ms=2000")
    options = ["--listen", "127.0.0.1:0", "-o", "node.id=1", "-o", "broker.session.timeout.ms=2000"]
    data_dir, url = tmp_path / "broker1", brokers.url
    if wrong == "prefix":
        first.stop()
        url = f"{brokers.url}-other"
    elif wrong == "node":
        data_dir = tmp_path / "another"
    else:
        first.stop()
        url = "etcd://127.0.0.1:1/x"
    ran = subprocess.run(
        command(*options, "--data-dir", str(data_dir), "--cluster", url, "--log-level", "error"),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert line.startswith("ottla: ")
    assert reason in line


def test_a_broker_waits_for_an_etcd_that_does_not_answer_yet(brokers: Brokers, etcd: EtcdServer) -> None:
    etcd.kill()
    begun = time.monotonic()
    reached = threading.Timer(4, etcd.start)
    reached.start()
    try:
        brokers.start(1, "--wait-for-store", "60")
    finally:
        reached.join()
    assert time.monotonic() - begun > 4


def test_a_broker_without_etcd_stops_after_wait_for_store() -> None:
    waiting = ("--listen", "127.0.0.1:0", "--ephemeral", "--wait-for-store", "1", "--log-level", "error")
    ran = subprocess.run(
        command(*waiting, "--cluster", "etcd://127.0.0.1:1/x"), capture_output=True, text=True, timeout=30, check=False
    )
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert ran.stderr.startswith("ottla: no endpoint of etcd answers")
    ran = subprocess.run(command(*waiting), capture_output=True, text=True, timeout=30, check=False)
    assert ran.returncode == 2
    assert "--wait-for-store waits for etcd: it needs --cluster" in ran.stderr


def test_a_clean_stop_ends_at_once_and_the_next_start_finds_everything(brokers: Brokers, etcd: EtcdServer) -> None:
    brokers.start(1)
    with Admin(bootstrap_servers=brokers.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", 1)]).check()
    produce(brokers.bootstrap_servers, "t", ["kept"])
    assert brokers.processes[1].stop() == ""
    with urlopen(f"http://127.0.0.1:{etcd.port}/health") as health:  # etcd itself is untouched
        assert health.status == 200
    brokers.start(1)
    until(lambda: brokers.leaders("t") == [1])
    assert consumed(brokers.bootstrap_servers, "t", 1, "g") == ["kept"]


def storage(*arguments: str) -> subprocess.CompletedProcess[str]:
    ran = command("storage", *arguments)
    ran.remove("serve")
    return subprocess.run(ran, capture_output=True, text=True, timeout=30, check=False)


def test_a_single_broker_moves_into_etcd_and_back(brokers: Brokers, tmp_path: Path) -> None:
    home = tmp_path / "broker1"
    single = Process(home, "-o", "node.id=1")
    with Admin(bootstrap_servers=single.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(f"t{number}", 3) for number in range(250)]).check()
    produce(single.bootstrap_servers, "t7", ["single"], 0)
    running = storage("migrate", "--to", brokers.url, str(home), "-o", "node.id=1")
    assert (running.returncode, "is in use" in running.stderr or "locked" in running.stderr) == (1, True), running
    single.stop()
    moved = storage("migrate", "--to", brokers.url, str(home), "-o", "node.id=1")
    assert moved.returncode == 0, moved.stderr
    assert (
        f"serve with: ottla serve --data-dir {shlex.quote(str(home))} -o node.id=1 --cluster {brokers.url}"
        in moved.stdout
    )
    again = storage("migrate", "--to", brokers.url, str(home), "-o", "node.id=1")
    assert (again.returncode, "there is no metadata to move" in again.stderr) == (1, True)
    brokers.start(1)
    produce(brokers.bootstrap_servers, "t7", ["cluster"], 0)
    assert consumed(brokers.bootstrap_servers, "t7", 2, "g") == ["cluster", "single"]
    brokers.processes[1].stop()
    back = storage("migrate", "--from", brokers.url, str(home), "-o", "node.id=1")
    assert back.returncode == 0, back.stderr
    single = Process(home, "-o", "node.id=1")
    with Admin(bootstrap_servers=single.bootstrap_servers) as admin:
        assert len(admin.list_topics()) == 251, "with the offsets of groups"
    assert consumed(single.bootstrap_servers, "t7", 2, "h") == ["cluster", "single"]
    single.stop()
    empty = subprocess.run(
        command("--data-dir", str(home), "--cluster", brokers.url),
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (empty.returncode, "the metadata store has no cluster" in empty.stderr) == (1, True)


def test_a_killed_broker_keeps_its_session_without_quick_fencing(brokers: Brokers) -> None:
    options = ["--no-quick-fencing", "-o", "broker.session.timeout.ms=4000"]
    for node_id in (1, 2, 3):
        brokers.start(node_id, *options)
    with Admin(bootstrap_servers=brokers.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", 3)]).check()
    until(lambda: sorted(brokers.leaders("t")) == [1, 2, 3])
    brokers.processes[2].kill()
    time.sleep(2)
    assert sorted(brokers.leaders("t")) == [1, 2, 3]
    until(lambda: sorted(brokers.leaders("t")) == [-1, 1, 3])


def test_the_brokers_serve_on_while_etcd_restarts_from_its_disk(brokers: Brokers, etcd: EtcdServer) -> None:
    for node_id in (1, 2):
        brokers.start(node_id)
    with Admin(bootstrap_servers=brokers.bootstrap_servers, default_api_timeout_ms=4000) as admin:
        admin.create_topics([NewTopic("t", 2)]).check()
        until(lambda: sorted(brokers.leaders("t")) == [1, 2])
        etcd.kill()
        produce(brokers.bootstrap_servers, "t", ["during"])
        etcd.start()
        until(lambda: not admin.create_topics([NewTopic("u", 2)]).errors)
    until(lambda: sorted(brokers.leaders("u")) == [1, 2])
    produce(brokers.bootstrap_servers, "u", ["after"])


def test_brokers_stop_with_one_line_when_etcd_was_restored(brokers: Brokers, etcd: EtcdServer) -> None:
    process = brokers.start(1)
    with Admin(bootstrap_servers=brokers.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", 1)]).check()
    etcd.kill()
    etcd.erase()
    etcd.start()
    until(lambda: not process.runs)
    lines = process.finish().splitlines()
    assert any(line.startswith("ottla: etcd") and "restored" in line for line in lines), lines
    assert not any("Traceback" in line for line in lines)


def test_the_loss_of_one_etcd_member_is_not_noticed_for_long(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "etcd") as members:
        one, two, three = members
        brokers = Brokers(tmp_path, one.url(two, three))
        try:
            for node_id in (1, 2):
                brokers.start(node_id)
            with Admin(bootstrap_servers=brokers.bootstrap_servers, default_api_timeout_ms=8000) as admin:
                for number, member in enumerate(members):  # one of them is the leader
                    member.kill()
                    until(lambda name=f"t{number}": not admin.create_topics([NewTopic(name, 2)]).errors)  # type: ignore[misc]
                    produce(brokers.bootstrap_servers, f"t{number}", ["x"])
                    member.start()
                assert {"t0", "t1", "t2"} <= set(admin.list_topics())
        finally:
            brokers.end()


def fill(etcd: EtcdServer) -> None:
    large = b64encode(bytes(100_000)).decode()
    for number in range(1000):
        etcd.post("/v3/kv/put", {"key": b64encode(b"/other/%d" % number).decode(), "value": large})


def test_a_full_etcd_and_one_whose_history_was_dropped(tmp_path: Path) -> None:
    with running(tmp_path / "etcd", "--quota-backend-bytes", "600000") as etcd:
        brokers = Brokers(tmp_path, etcd.url())
        try:
            for node_id in (1, 2):
                brokers.start(node_id)
            with Admin(bootstrap_servers=brokers.bootstrap_servers, default_api_timeout_ms=4000) as admin:
                admin.create_topics([NewTopic("t", 2)]).check()
                etcd.post("/v3/kv/compaction", {"revision": str(etcd.revision())})
                admin.create_topics([NewTopic("u", 2)]).check()
                until(lambda: sorted(brokers.leaders("u")) == [1, 2])
                with pytest.raises(HTTPError):  # another user of the same etcd fills it
                    fill(etcd)
                with pytest.raises(KafkaError, match="etcd has no space left"):
                    admin.create_topics([NewTopic("v", 2)]).check()
                produce(brokers.bootstrap_servers, "t", ["while it is full"])
        finally:
            brokers.end()
