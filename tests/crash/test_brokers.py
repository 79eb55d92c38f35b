"""`ottla serve --brokers N`: one cluster of several processes, one of which, or the parent of all, is killed."""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.conformance.conftest import Closed, Wire

from .brokers import BrokerProcesses, is_running, state, wait_until
from .conftest import command
from .records import Numbers, create, read_all

PARTITIONS = 6
Start = Callable[..., BrokerProcesses]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    begun: list[BrokerProcesses] = []

    def starter(*options: str, **arguments: Any) -> BrokerProcesses:
        begun.append(BrokerProcesses(tmp_path / "data", *options, **arguments))
        return begun[-1]

    yield starter
    for brokers in begun:
        brokers.close()


def leaders(brokers: BrokerProcesses, topic: str) -> dict[int, int]:
    """Return the leader of each partition."""
    metadata = AdminClient({"bootstrap.servers": brokers.bootstrap_servers}).list_topics(topic, timeout=10)
    return {index: partition.leader for index, partition in metadata.topics[topic].partitions.items()}


def assert_read(brokers: BrokerProcesses, numbers: Numbers) -> None:
    """Every acknowledged record is read at the offset of its acknowledgement."""
    wait_until(lambda: set(leaders(brokers, "flights").values()) == {1, 2, 3})
    read = read_all(brokers.bootstrap_servers, "flights", PARTITIONS)
    for partition, acknowledged in numbers.acknowledged.items():
        assert set(acknowledged.items()) <= {(number, offset) for offset, number in read[partition]}


def test_options_reach_the_brokers_outside_their_command_lines(start: Start) -> None:
    brokers = start("-o", "ssl.key.password=never-shown", "-o", "num.partitions=7")
    wire = Wire(("127.0.0.1", brokers.ports[1]), is_kafka=False)
    topics = [CreatableTopic(name="wide", num_partitions=-1, replication_factor=-1)]
    answer = wire.send(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5)
    wire.close()
    assert [topic.num_partitions for topic in answer.topics] == [7]
    for pid in brokers.pids().values():
        assert b"never-shown" not in Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.usefixtures("hang_up")
def test_records_on_all_brokers_survive_a_stop(start: Start) -> None:
    brokers = start("-o", "group.initial.rebalance.delay.ms=0")
    assert sorted(brokers.ports) == [1, 2, 3]
    create(brokers.bootstrap_servers, "flights", PARTITIONS)
    assert set(leaders(brokers, "flights").values()) == {1, 2, 3}
    numbers = Numbers(brokers.bootstrap_servers, "flights", PARTITIONS)
    numbers.until(lambda: numbers.count > 3000)
    numbers.flush()
    consumer = Consumer(
        {"bootstrap.servers": brokers.bootstrap_servers, "group.id": "board", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["flights"])
    wait_until(lambda: consumer.consume(5000, timeout=1.0))
    consumer.close()
    brokers.stop()
    assert all(re.match(r"\[[123]\] \d{4}-\d\d-\d\d \S+ (INFO|WARNING) ", line) for line in brokers.log), brokers.log
    assert sum(" INFO stopped in " in line for line in brokers.log) == 3
    for node_id in (1, 2, 3):
        assert (brokers.data_dir / f"broker-{node_id}" / ".kafka_cleanshutdown").exists()
    again = start()
    assert_read(again, numbers)
    again.stop(signal.SIGHUP)


def test_a_killed_broker_leaves_the_cluster_at_once_and_starts_again(start: Start) -> None:
    brokers = start()
    create(brokers.bootstrap_servers, "flights", PARTITIONS)
    numbers = Numbers(brokers.bootstrap_servers, "flights", PARTITIONS)
    numbers.until(lambda: numbers.count > 1000)
    (controller,) = brokers.query("SELECT value FROM entries WHERE key = '/controller'")
    node_id = int(re.findall(rb'"node_id":(\d+)', controller[0])[0])
    (sign,) = brokers.query("SELECT lease FROM entries WHERE key = ?", f"/live/{node_id}")
    killed = brokers.kill(node_id)
    left_s = wait_until(lambda: not brokers.query("SELECT 1 FROM leases WHERE id = ?", *sign))
    assert brokers.query("SELECT key FROM entries WHERE lease = ?", *sign) == []
    wait_until(lambda: len(brokers.announced) == 4)
    assert left_s < 1, "the lease did not end with the process"
    assert brokers.announced[3].split()[4:] == brokers.announced[[*brokers.ports].index(node_id)].split()[4:]
    assert brokers.pids()[node_id] != killed
    assert any(f"node {node_id} ended with SIGKILL: it starts again in 0.1 s" in line for line in brokers.log)
    before = numbers.count
    numbers.until(lambda: numbers.count > before + 3000)
    numbers.flush()
    assert set(leaders(brokers, "flights").values()) == {1, 2, 3}
    assert_read(brokers, numbers)
    wait_until(lambda: brokers.keys("/controller"))
    assert brokers.live() == {1, 2, 3}


def test_the_delay_grows_with_every_crash(start: Start) -> None:
    brokers = start(count=2)
    for crashes in range(3):
        brokers.kill(2)
        wait_until(lambda: brokers.live() == {1})
        if crashes == 2:
            assert 2 not in brokers.pids(), "the parent ends the lease, long before the next process could"
        wait_until(lambda crashes=crashes: len(brokers.announced) == 3 + crashes)  # type: ignore[misc]
    delays = [float(delay) for line in brokers.log for delay in re.findall(r"starts again in ([.\d]+) s", line)]
    assert delays == [0.1, 0.2, 0.4]


def test_brokers_end_with_their_parent(start: Start) -> None:
    brokers = start()
    create(brokers.bootstrap_servers, "flights", PARTITIONS)
    numbers = Numbers(brokers.bootstrap_servers, "flights", PARTITIONS)
    numbers.until(lambda: numbers.count > 500)
    numbers.flush()
    pids = brokers.pids().values()
    assert len(pids) == 3
    brokers.process.kill()
    wait_until(lambda: not any(map(is_running, pids)), 5)
    again = start()
    assert_read(again, numbers)
    again.stop(signal.SIGINT)


def test_the_directory_is_locked_until_the_last_broker_has_ended(start: Start) -> None:
    for _ in range(5):
        brokers = start(count=2)
        pids = brokers.pids()
        brokers.process.kill()
        brokers.process.wait()  # a process that is stopped before would be continued at the end of its parent
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[1], signal.SIGSTOP)
        wait_until(lambda pid=pids[1]: state(pid)[:1] in ("", "Z", "T"))  # type: ignore[misc]
        if is_running(pids[1]):
            break  # else it has ended before, as its parent has
    try:
        # The other one may have been stopped inside a transaction: writing to the file then waits for a time-out.
        wait_until(lambda: not is_running(pids[2]))
        text = f"ottla: {brokers.data_dir} is in use by another broker: stop it, or give another --data-dir\n"
        assert run("--listen", "127.0.0.1:0", "--data-dir", str(brokers.data_dir), "--brokers", "2") == (1, text)
    finally:
        os.kill(pids[1], signal.SIGCONT)
    wait_until(lambda: not is_running(pids[1]), 5)
    start(count=2).stop()


def test_leases_end_when_all_processes_are_killed(start: Start) -> None:
    brokers = start()
    pids = brokers.pids()
    brokers.process.send_signal(signal.SIGSTOP)  # it must not end the leases
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    brokers.process.kill()
    wait_until(lambda: not any(map(is_running, pids.values())))
    assert brokers.live() == {1, 2, 3}
    assert start(count=2).live() == {1, 2}


def test_a_broker_that_hangs_is_fenced_and_started_again(start: Start) -> None:
    brokers = start("-o", "broker.session.timeout.ms=3000")
    wait_until(lambda: brokers.live() == {1, 2, 3})
    pids = brokers.pids()
    os.kill(pids[2], signal.SIGSTOP)
    fenced = "node 2 has not renewed its lease"
    assert wait_until(lambda: any(fenced in line for line in brokers.log)) < 5
    wait_until(lambda: brokers.pids().get(2, pids[2]) != pids[2] and brokers.live() == {1, 2, 3})
    assert sum(fenced in line for line in brokers.log) == 1
    assert {node: pid for node, pid in brokers.pids().items() if node != 2} == {1: pids[1], 3: pids[3]}
    brokers.stop()


def test_a_stall_of_the_whole_machine_fences_no_broker(start: Start) -> None:
    brokers = start("-o", "broker.session.timeout.ms=3000")
    wait_until(lambda: brokers.live() == {1, 2, 3})
    pids = brokers.pids()
    stalled = [brokers.process.pid, *pids.values()]
    for _ in range(2):
        for pid in stalled:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(5)
        for pid in stalled:  # the judge first: it must not take the stall of the others for their own
            os.kill(pid, signal.SIGCONT)
        time.sleep(1)
    assert brokers.pids() == pids
    assert not any("lease" in line for line in brokers.log)
    brokers.stop()


def test_changes_are_seen_by_the_other_brokers_before_they_poll(start: Start) -> None:
    """Without the notifications through the parent the delay is anything up to 100 ms: a fifth of the changes are seen within
    20 ms, and 16 of 40 in less than one run of 300.
    """
    brokers = start(count=2)
    one, two = (Wire(("127.0.0.1", port), is_kafka=False) for port in brokers.ports.values())
    delays = []
    for number in range(40):
        topic = CreatableTopic(name=f"t-{number}", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        assert one.send(CreateTopicsRequest(topics=[topic]), 5).topics[0].error_code == 0
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=f"t-{number}")], allow_auto_topic_creation=False)
        delays.append(wait_until(lambda asked=asked: two.send(asked, 5).topics[0].error_code == 0))  # type: ignore[misc]
        time.sleep(0.037)  # other phases of the polling
    one.close()
    two.close()
    assert sum(delay < 0.02 for delay in delays) >= 16, delays


def run(*arguments: str) -> tuple[int, str]:
    """Run `ottla serve`, which must end soon; return its exit code and its log."""
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=20, check=False)
    return done.returncode, done.stderr


def test_refused_directories_and_ports(start: Start, tmp_path: Path) -> None:
    brokers = start(count=2)
    data = str(brokers.data_dir)
    in_use = (1, f"ottla: {data} is in use by another broker: stop it, or give another --data-dir\n")
    assert run("--listen", "127.0.0.1:0", "--data-dir", data) == in_use
    assert run("--listen", "127.0.0.1:0", "--data-dir", data, "--brokers", "2") == in_use
    port = brokers.ports[1]
    code, log = run("--brokers", f"{port},0", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "other"))
    assert code == 1
    assert f"[1] ottla: cannot listen on 127.0.0.1:{port}: Address already in use\n" in log
    assert log.splitlines()[-1] == "ottla: broker 1 cannot be started, the line above has the reason"
    brokers.stop()
    assert run("--listen", "127.0.0.1:0", "--data-dir", data) == (
        1,
        f"ottla: {data} has the data of several brokers: start them with `ottla serve --brokers N`, or give another "
        "--data-dir\n",
    )


def test_the_metadata_of_a_single_broker_without_its_data_is_refused(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    process = subprocess.Popen(
        command("--listen", "127.0.0.1:0", "--data-dir", data), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
    (tmp_path / "data" / "meta.properties").unlink()
    text = f"ottla: {data} has the data of a single broker: start it with `ottla serve` without --brokers, or give another "
    assert run("--listen", "127.0.0.1:0", "--data-dir", data, "--brokers", "2") == (1, text + "--data-dir\n")


class AdminThread:
    """Admin client that creates, deletes and configures topics of its own at all brokers, through kills of them.

    topics    names of the acknowledged topics, with the acknowledged retention.ms
    deleted   names whose deletion was acknowledged
    unknown   names with a change that was not acknowledged: they may exist or not, and have any config
    """

    def __init__(self, number: int, brokers: BrokerProcesses, seed: int) -> None:
        self.topics: dict[str, str | None] = {}
        self.deleted: set[str] = set()
        self.unknown: set[str] = set()
        self.acknowledged = 0
        self._number = number
        self._dice = random.Random(seed)
        self._wires = [Wire(("127.0.0.1", port), is_kafka=False) for port in brokers.ports.values()]
        self._is_stopped = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            count = 0
            while not self._is_stopped:
                count += 1
                self._change_one(f"t-{self._number}-{count}")
        except BaseException as failure:
            self._failure = failure
            raise

    def _change_one(self, new: str) -> None:
        old = self._dice.choice([*self.topics]) if self.topics else None
        kind = self._dice.random()
        if old is None or kind < 0.5:
            topic = CreatableTopic(name=new, num_partitions=2, replication_factor=1, assignments=[], configs=[])
            request: Any = CreateTopicsRequest(topics=[topic], timeout_ms=3000)
            if self._is_done(new, request, 5, "topics"):
                self.topics[new] = None
        elif kind < 0.6:
            if self._is_done(old, DeleteTopicsRequest(topic_names=[old], timeout_ms=3000), 4, "responses"):
                self.deleted.add(old)
            self.topics.pop(old)
        else:
            value = str(self._dice.randrange(1000, 1_000_000))
            config = AlterableConfig(name="retention.ms", config_operation=0, value=value)
            resource = AlterConfigsResource(resource_type=2, resource_name=old, configs=[config])
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
            if self._is_done(old, request, 1, "responses"):
                self.topics[old] = value
            else:
                self.topics.pop(old)

    def _connected(self) -> Wire:
        """Return a connection to any broker that can be reached."""
        while True:
            wire = self._dice.choice(self._wires)
            try:
                wire.socket()
            except OSError:
                time.sleep(0.005)
            else:
                return wire

    def _is_done(self, name: str, request: Any, version: int, field: str) -> bool:
        """Send a request to any broker; False if it was not acknowledged."""
        wire = self._connected()
        try:
            (result,) = getattr(wire.send(request, version), field)
        except (Closed, OSError):
            with contextlib.suppress(OSError):
                wire.close()
            self.unknown.add(name)
            time.sleep(0.01)
            return False
        if result.error_code:
            self.unknown.add(name)
            return False
        self.acknowledged += 1
        return True

    def stop(self) -> None:
        self._is_stopped = True
        self._thread.join(30)
        assert not self._thread.is_alive()
        for wire in self._wires:
            wire.close()
        assert self._failure is None, self._failure


class RevisionThread:
    """Reads the revision of the store all the time."""

    def __init__(self, brokers: BrokerProcesses) -> None:
        self.revisions: list[int] = []
        self._brokers = brokers
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_stopped:
            ((revision,),) = self._brokers.query("SELECT newest FROM revision")
            self.revisions.append(revision)
            time.sleep(0.005)

    def stop(self) -> None:
        self._is_stopped = True
        self._thread.join(30)


def _acknowledged(admins: list[AdminThread]) -> int:
    return sum(admin.acknowledged for admin in admins)


def test_no_acknowledged_change_is_lost_when_brokers_are_killed(start: Start, dice: random.Random) -> None:
    brokers = start("--log-level", "error")
    watching = RevisionThread(brokers)
    admins = [AdminThread(number, brokers, dice.getrandbits(32)) for number in range(4)]
    begun = time.monotonic()
    kills = 0
    try:
        # Longer on a busy machine.
        while (spent := time.monotonic() - begun) < 6 or (_acknowledged(admins) <= 100 and spent < 60):
            time.sleep(dice.uniform(0.2, 0.9))
            pids = brokers.pids()
            if pids:
                kills += 1
                os.kill(dice.choice(sorted(pids.values())), signal.SIGKILL)
    finally:
        for admin in admins:
            admin.stop()
        watching.stop()
    assert kills >= 4
    assert _acknowledged(admins) > 100
    assert watching.revisions == sorted(watching.revisions)
    wait_until(lambda: brokers.live() == {1, 2, 3}, 30)
    ((newest,),) = brokers.query("SELECT newest FROM revision")
    brokers.stop()
    again = start("--log-level", "error")
    ((later,),) = again.query("SELECT newest FROM revision")
    assert later > newest
    stored = {name.removeprefix("/topics/") for name in again.keys("/topics/")}
    for port in again.ports.values():
        metadata = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=10)
        assert {name for name in metadata.topics if name.startswith("t-")} == stored
    for admin in admins:
        sure = {name: value for name, value in admin.topics.items() if name not in admin.unknown}
        assert set(sure) <= stored
        assert not admin.deleted - admin.unknown & stored
        for name, value in sure.items():
            ((text,),) = again.query("SELECT value FROM entries WHERE key = ?", f"/topics/{name}")
            assert (value is None) or f'"retention.ms":"{value}"'.encode() in text
    sys.stdout.write(f"{kills} kills, {_acknowledged(admins)} changes\n")
