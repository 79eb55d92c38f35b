"""Clusters of three brokers beside Apache Kafka with three nodes, in turn: start, creation of topics, memory, a killed broker.

    python bench/cluster.py [--rounds 5]

Ottla runs over one etcd (its memory is listed apart), Apache Kafka in combined mode; replication factor 1, see replication.py
for more replicas. Each figure is the median of the rounds.

    start        from the start of the processes until every broker lists all three
    create       CreateTopics of 1,000 partitions until every broker knows a live leader of each
    idle memory  resident memory of the three processes
    kill         kill -9 of a broker until its partitions are shown without a leader: the elections are written
    return       from the start of that process until all partitions have a leader again
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol
from urllib.request import urlopen

from brokers import REFERENCE, free_port, kafka_is_there, record
from ottla import Admin, NewTopic
from ottla.client.errors import KafkaError

PARTITIONS = 1_000
NODES = (1, 2, 3)
SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
_INTERNAL_TOPICS = ("offsets.topic", "transaction.state.log")


class Cluster(Protocol):
    """Three brokers; `pids` are their processes by node id."""

    pids: dict[int, int]
    ports: dict[int, int]

    def start(self, node: int) -> None: ...


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class OttlaCluster:
    def __init__(self, home: Path, url: str) -> None:
        self._home = home
        self._url = url
        self.ports = {node: free_port() for node in NODES}
        self.pids: dict[int, int] = {}
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, node: int) -> None:
        command = [sys.executable, "-m", "ottla", "serve", "--cluster", self._url, "-o", f"node.id={node}"]
        command += ["--listen", f"127.0.0.1:{self.ports[node]}", "--data-dir", str(self._home / str(node))]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=(self._home / f"{node}.log").open("ab"))
        self._processes.append(process)
        self.pids[node] = process.pid

    def stop(self, node: int) -> None:
        """Stop a broker with SIGTERM, and wait until its process has ended."""
        process = next(one for one in self._processes if one.pid == self.pids[node])
        process.terminate()
        process.wait()

    def log(self, node: int) -> str:
        """Return the log lines of a broker."""
        return (self._home / f"{node}.log").read_text()

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


class KafkaCluster:
    """Nodes of the reference, with the heap of its own start script and both of Java's compilers.

    internal_replicas  replication factor of the internal topics
    """

    _environment: ClassVar[dict[str, str]] = {**os.environ, "KAFKA_JVM": "-Xms1g -Xmx1g"}

    def __init__(self, home: Path, internal_replicas: int = 1) -> None:
        self._home = home
        self._internal_replicas = internal_replicas
        first = free_port()
        self.ports = {node: first + node - 1 for node in NODES}
        self.pids: dict[int, int] = {}

    def start_all(self) -> None:
        """Start all nodes; the script waits until all are registered."""
        command = [str(REFERENCE / "kafka-cluster"), "start", "3", str(self.ports[1]), str(self._home)]
        internal = [f"{name}.replication.factor={self._internal_replicas}" for name in _INTERNAL_TOPICS]
        configs = ["default.replication.factor=1", "min.insync.replicas=1", *internal]
        subprocess.run([*command, *configs], check=True, stdout=subprocess.DEVNULL, env=self._environment)
        self._read_pids()

    def start(self, node: int) -> None:
        subprocess.run(
            [REFERENCE / "kafka-cluster", "up", str(node), str(self._home)], check=True, env=self._environment
        )
        self._read_pids()

    def _read_pids(self) -> None:
        self.pids = {node: int((self._home / str(node) / "pid").read_text()) for node in NODES}

    def end(self) -> None:
        subprocess.run([REFERENCE / "kafka-cluster", "stop", str(self._home)], check=False)


@contextlib.contextmanager
def etcd(home: Path) -> Iterator[tuple[str, int]]:
    """An etcd; yields its URL for Ottla and its process id."""
    binary = subprocess.run([SCRIPTS / "etcd"], check=True, capture_output=True, text=True).stdout.strip()
    port, peer = free_port(), free_port()
    url = f"http://127.0.0.1:{port}"
    options = ["--data-dir", str(home / "etcd"), "--listen-client-urls", url, "--advertise-client-urls", url]
    process = subprocess.Popen(
        [binary, *options, "--listen-peer-urls", f"http://127.0.0.1:{peer}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while True:
        with contextlib.suppress(OSError), urlopen(f"{url}/health", timeout=2) as health:
            if json.load(health)["health"] == "true":
                break
        time.sleep(0.01)  # a port without a listener gives nothing to wait for
    try:
        yield f"etcd://127.0.0.1:{port}/bench", process.pid
    finally:
        process.kill()
        process.wait()


def admin(cluster: Cluster, node: int) -> Admin:
    return Admin(bootstrap_servers=f"127.0.0.1:{cluster.ports[node]}", client_id="bench")


def until(is_met: Callable[[], bool]) -> None:
    while True:
        with contextlib.suppress(KafkaError):
            if is_met():
                return
        time.sleep(0.01)  # brokers have no notification of a new leader: they are asked


def leaders(asked: Admin) -> list[int]:
    described = asked.describe_topics(["bench"])
    topic = described.get("bench") if not described.errors else None
    return [] if topic is None else [-1 if part.leader is None else part.leader for part in topic.partitions]


def has_leaders(asked: Admin, count: int) -> bool:
    """Return True if exactly `count` partitions have a leader."""
    return sum(leader > 0 for leader in leaders(asked)) == count


def measure(cluster: Cluster, started_ms: float) -> dict[str, float]:
    figures = {"start ms": started_ms}
    with contextlib.ExitStack() as stack:
        admins = {node: stack.enter_context(admin(cluster, node)) for node in NODES}
        time.sleep(3)  # idle memory is what is measured next: let start-up work come to rest
        figures["idle memory MB"] = sum(resident_mb(pid) for pid in cluster.pids.values())
        begun = time.perf_counter()
        admins[1].create_topics([NewTopic("bench", PARTITIONS, 1)]).check()
        for asked in admins.values():
            until(partial(has_leaders, asked, PARTITIONS))
        figures["create ms"] = (time.perf_counter() - begun) * 1000
        controller = admins[1].describe_cluster().controller or 1
        for name, victim in (("controller", controller), ("other", next(node for node in NODES if node != controller))):
            watcher = admins[next(node for node in NODES if node != victim)]
            owned = leaders(watcher).count(victim)
            begun = time.perf_counter()
            os.kill(cluster.pids[victim], signal.SIGKILL)
            until(partial(has_leaders, watcher, PARTITIONS - owned))
            figures[f"kill {name} ms"] = (time.perf_counter() - begun) * 1000
            begun = time.perf_counter()
            cluster.start(victim)
            until(partial(has_leaders, watcher, PARTITIONS))
            figures[f"return {name} ms"] = (time.perf_counter() - begun) * 1000
            time.sleep(1)  # the next kill must not meet elections of this one
    return figures


def wait_for_all(cluster: Cluster) -> None:
    for node in NODES:

        def sees_all(node: int = node) -> bool:
            with admin(cluster, node) as asked:
                return len(asked.describe_cluster().nodes) == len(NODES)

        until(sees_all)


def of_ottla(home: Path) -> dict[str, float]:
    with etcd(home) as (url, etcd_pid):
        cluster = OttlaCluster(home, url)
        try:
            begun = time.perf_counter()
            for node in NODES:
                cluster.start(node)
            wait_for_all(cluster)
            figures = measure(cluster, (time.perf_counter() - begun) * 1000)
            return {**figures, "etcd MB": resident_mb(etcd_pid)}
        finally:
            cluster.end()


def of_kafka(home: Path) -> dict[str, float]:
    cluster = KafkaCluster(home)
    try:
        begun = time.perf_counter()
        cluster.start_all()
        wait_for_all(cluster)
        return measure(cluster, (time.perf_counter() - begun) * 1000)
    finally:
        cluster.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    sides: dict[str, Callable[[Path], dict[str, float]]] = {"ottla": of_ottla}
    missing = kafka_is_there()
    if missing is None:
        sides["kafka"] = of_kafka
    else:
        print(f"without Apache Kafka: {missing}", file=sys.stderr)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, run in sides.items():
            home = Path(tempfile.mkdtemp(prefix="ottla-bench-"))
            try:
                runs[name].append(run(home))
            finally:
                shutil.rmtree(home, ignore_errors=True)
    medians: dict[str, Any] = {
        name: {figure: round(statistics.median(run[figure] for run in results)) for figure in results[0]}
        for name, results in runs.items()
    }
    names = list(dict.fromkeys(figure for figures in medians.values() for figure in figures))
    print(f"{'':24}" + "".join(f"{name:>12}" for name in medians))
    for figure in names:
        print(f"{figure:24}" + "".join(f"{figures.get(figure, '-'):>12}" for figures in medians.values()))
    record({"cluster": medians, "rounds": rounds})


if __name__ == "__main__":
    main()
