"""Three brokers in processes of their own that replicate topics, over etcd or on one machine, and their faults."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Final, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.etcd_server import EtcdServer, free_ports

from .brokers import BrokerProcesses, wait_until
from .conftest import command

NODES: Final = (1, 2, 3)
OPTIONS: Final = (
    "default.replication.factor=3",
    "min.insync.replicas=2",
    "group.initial.rebalance.delay.ms=0",
    "broker.session.timeout.ms=3000",
    "offsets.topic.num.partitions=5",
    "transaction.state.log.num.partitions=5",
    "share.coordinator.state.topic.num.partitions=5",
)
WITHIN_S: Final = 90.0


class Brokers(Protocol):
    """Brokers 1, 2 and 3 on fixed ports."""

    ports: dict[int, int]

    def pid(self, node_id: int) -> int:
        """Return the process of a broker; 0 while it does not run."""
        ...

    def start(self, node_id: int) -> None:
        """Start a broker that was killed, unless something else does."""
        ...

    def directory(self, node_id: int) -> Path:
        """Return the data directory of a broker."""
        ...

    def stop(self) -> None:
        """Stop all brokers cleanly."""
        ...

    def close(self) -> None:
        """End all processes."""
        ...


class EtcdBrokers:
    """`ottla serve --cluster etcd://...`, three times; standard error goes to a file for each broker."""

    def __init__(self, home: Path, url: str) -> None:
        self._home = home
        self._url = url
        self.ports = dict(zip(NODES, free_ports(len(NODES)), strict=True))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for node_id in NODES:
            self.start(node_id)

    def start(self, node_id: int) -> None:
        words = [word for option in (f"node.id={node_id}", *OPTIONS) for word in ("-o", option)]
        place = ["--listen", f"127.0.0.1:{self.ports[node_id]}", "--data-dir", str(self.directory(node_id))]
        with (self._home / f"broker{node_id}.log").open("ab") as log:
            self._processes[node_id] = subprocess.Popen(
                command("--cluster", self._url, "--log-level", "warning", *place, *words), stdout=log, stderr=log
            )

    def pid(self, node_id: int) -> int:
        process = self._processes[node_id]
        return process.pid if process.poll() is None else 0

    def directory(self, node_id: int) -> Path:
        return self._home / f"broker{node_id}"

    def stop(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            assert process.wait(30) == 0

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


class SupervisedBrokers:
    """`ottla serve --brokers 3`: its parent process starts a broker that was killed again."""

    def __init__(self, home: Path) -> None:
        words = [word for option in OPTIONS for word in ("-o", option)]
        self._processes = BrokerProcesses(home / "data", "--log-level", "warning", *words)
        self.ports = self._processes.ports

    def start(self, node_id: int) -> None:
        """Do nothing: the parent starts it."""

    def pid(self, node_id: int) -> int:
        return self._processes.pids().get(node_id, 0)

    def directory(self, node_id: int) -> Path:
        return self._processes.data_dir / f"broker-{node_id}"

    def stop(self) -> None:
        self._processes.stop()

    def close(self) -> None:
        if self._processes.process.poll() is None:
            self._processes.close()


class ReplicatedCluster:
    """Brokers, and the faults that they suffer.

    kills   number of brokers killed so far
    faults  names of all faults, in their order
    """

    def __init__(self, brokers: Brokers, dice: random.Random, etcd: list[EtcdServer]) -> None:
        self.brokers = brokers
        self.kills = 0
        self.faults: list[str] = []
        self._dice = dice
        self._etcd = etcd
        self.servers = ",".join(f"127.0.0.1:{port}" for port in brokers.ports.values())
        self._admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        wait_until(lambda: self.live() == set(NODES), WITHIN_S)

    def metadata(self) -> Any:
        """Return the metadata of any broker, None while none answers."""
        with contextlib.suppress(KafkaException):
            return self._admin.list_topics(timeout=2)
        return None

    def live(self) -> set[int]:
        """Return the brokers that are listed, and whose port accepts connections."""
        found = self.metadata()
        return set() if found is None else {node for node in found.brokers if self._accepts(node)}

    def _accepts(self, node_id: int) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.brokers.ports[node_id]), 1).close()
        except OSError:
            return False
        return True

    def is_whole(self) -> bool:
        """Return True if all brokers are live, and all replicas of all partitions in sync."""
        found = self.metadata()
        if found is None or set(found.brokers) != set(NODES):
            return False
        partitions = [row for topic in found.topics.values() for row in topic.partitions.values()]
        return all(row.leader in NODES and len(row.isrs) == len(NODES) for row in partitions)

    def wait_until_whole(self) -> float:
        """Wait for `is_whole`, and return the seconds that it took."""
        return wait_until(self.is_whole, WITHIN_S)

    # -- faults --

    def fail(self) -> None:
        """Let a random fault happen, and end it: all brokers are started again, not necessarily in sync."""
        kinds = [self._kill_one] * 6 + [self._kill_two] * 2 + [self._kill_controller] * 2 + [self._pause]
        if self._etcd:
            kinds += [self._kill_etcd_leader]
        fault = self._dice.choice(kinds)
        self.faults.append(fault.__name__.removeprefix("_"))
        fault()
        if self._dice.random() < 0.7:
            self.wait_until_whole()

    def _kill(self, *nodes: int) -> None:
        killed = []
        for node_id in nodes:
            pid = self.brokers.pid(node_id)
            if pid:
                os.kill(pid, signal.SIGKILL)
                self.kills += 1
                killed.append((node_id, pid))
        time.sleep(self._dice.choice((0.0, 0.3, 1.5)))
        for node_id, pid in killed:
            wait_until(lambda node_id=node_id, pid=pid: self.brokers.pid(node_id) != pid)  # type: ignore[misc]
            self.brokers.start(node_id)
        for node_id, _ in killed:
            wait_until(lambda node_id=node_id: self._accepts(node_id), WITHIN_S)  # type: ignore[misc]

    def _kill_one(self) -> None:
        self._kill(self._dice.choice(NODES))

    def _kill_two(self) -> None:
        self._kill(*self._dice.sample(NODES, 2))

    def _kill_controller(self) -> None:
        found = self.metadata()
        if found is not None and found.controller_id in NODES:
            self._kill(found.controller_id)

    def _pause(self) -> None:
        """Stop a process for some seconds, sometimes longer than its session: it does not know that it was fenced."""
        pid = self.brokers.pid(self._dice.choice(NODES))
        if pid:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self._dice.choice((0.5, 2.0, 5.0)))
            os.kill(pid, signal.SIGCONT)

    def _kill_etcd_leader(self) -> None:
        status = self._etcd[0].post("/v3/maintenance/status", {})
        leader = next(
            (
                server
                for server in self._etcd
                if server.post("/v3/maintenance/status", {})["header"]["member_id"] == status["leader"]
            ),
            self._etcd[0],
        )
        leader.kill()
        time.sleep(self._dice.choice((0.0, 1.0)))
        leader.start()

    def close(self) -> None:
        """End all processes."""
        self.brokers.close()
