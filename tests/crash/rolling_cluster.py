"""Three brokers over etcd in processes of their own that are restarted one after the other."""

import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ottla import Admin
from tests.etcd_server import EtcdServer
from tests.free_ports import free_ports

from .brokers import wait_until
from .conftest import command, environment
from .replicated_brokers import NODES, OPTIONS

SHUTDOWN: Final = re.compile(
    r"controlled shutdown of node \d took \d+ ms: handed over \d+ partitions led, \d+ others in sync"
)
_NOT_COMPLETE: Final = "without completing its controlled shutdown"


class RollingCluster:
    """Three brokers over one etcd, in processes of their own on fixed ports.

    sources  directory of the modules that a broker is started with, if they are not those under test
    """

    def __init__(self, home: Path, etcd: EtcdServer, sources: Path | None = None) -> None:
        self.sources = dict.fromkeys(NODES, sources)
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
        variables, sources = environment(), self.sources[node_id]
        if sources is not None:
            variables["PYTHONPATH"] = str(sources)
        with self.log(node_id).open("ab") as log:
            process = subprocess.Popen(
                command("--cluster", self._url, *place, *words), stdout=log, stderr=log, env=variables
            )
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


def restart_all(
    cluster: RollingCluster,
    failures: Callable[[], Sequence[object]],
    rounds: int,
    restarted: Callable[[int], None] = lambda node_id: None,
) -> None:
    """Restart the brokers, each when the replicas of the one before are in sync again.

    restarted  called with the node id when a broker is back
    """
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
                restarted(node_id)
    assert failures() == []


def assert_handed_over(cluster: RollingCluster, rounds: int) -> None:
    for node_id in NODES:
        text = cluster.log(node_id).read_text()
        assert len(SHUTDOWN.findall(text)) == rounds, text
        assert _NOT_COMPLETE not in text
