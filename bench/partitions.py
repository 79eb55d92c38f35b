"""Many partitions with three replicas on three brokers beside Apache Kafka with three nodes, in turn.

    python bench/partitions.py [--rounds 3] [--partitions 10000] [--skip-kafka]

Ottla runs over one etcd, Apache Kafka in combined mode. The partitions are those of ten topics. Each figure is the median of
the rounds.

    create    s from the first CreateTopics until every broker knows a leader of every partition, and all replicas are in sync
    memory    MB of resident memory of a broker after that, the largest of the three
    stop      s from SIGTERM to the end of a broker
    start     s from the start of that process until it is in sync in all partitions again
    crash     s from the start of a process that was killed (-9) until it is in sync in all partitions again
"""

import argparse
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from brokers import kafka_is_there, record, surroundings
from cluster import NODES, KafkaCluster, OttlaCluster, admin, etcd, resident_mb, until, wait_for_all
from ottla import NewTopic

Cluster = OttlaCluster | KafkaCluster
TOPICS = tuple(f"many-{number}" for number in range(10))


def is_whole(cluster: Cluster, node: int) -> bool:
    """Return True if a broker knows of all partitions that their three replicas are in sync."""
    with admin(cluster, node) as requests:
        described = requests.describe_topics(TOPICS)
        return not described.errors and all(
            len(part.isr) == len(NODES) for name in TOPICS for part in described[name].partitions
        )


def ended(pid: int) -> bool:
    """Return True if a process has ended; a child is reaped."""
    with suppress(ChildProcessError):
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return True
    return not Path(f"/proc/{pid}").exists()


def measure(cluster: Cluster, partitions: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    begun = time.perf_counter()
    with admin(cluster, 1) as requests:
        for name in TOPICS:
            requests.create_topics([NewTopic(name, partitions // len(TOPICS), 3)], timeout=300).check()
    for node in NODES:
        until(lambda node=node: is_whole(cluster, node))  # type: ignore[misc]
    figures["create s"] = time.perf_counter() - begun
    time.sleep(5)  # memory at rest is what is measured next
    figures["memory MB"] = max(resident_mb(pid) for pid in cluster.pids.values())
    for name, number in (("start", signal.SIGTERM), ("crash", signal.SIGKILL)):
        pid = cluster.pids[3]
        begun = time.perf_counter()
        os.kill(pid, number)
        until(lambda pid=pid: ended(pid))  # type: ignore[misc]
        if number == signal.SIGTERM:
            figures["stop s"] = time.perf_counter() - begun
        time.sleep(2)  # the elections are over when it returns
        begun = time.perf_counter()
        cluster.start(3)
        until(lambda: is_whole(cluster, 3))
        figures[f"{name} s"] = time.perf_counter() - begun
    return figures


def of_ottla(home: Path, partitions: int) -> dict[str, float]:
    with etcd(home) as (url, _):
        cluster = OttlaCluster(home, url)
        try:
            for node in NODES:
                cluster.start(node)
            wait_for_all(cluster)
            return measure(cluster, partitions)
        finally:
            cluster.end()


def of_kafka(home: Path, partitions: int) -> dict[str, float]:
    cluster = KafkaCluster(home)
    try:
        cluster.start_all()
        wait_for_all(cluster)
        return measure(cluster, partitions)
    finally:
        cluster.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--skip-kafka", action="store_true")
    options = parser.parse_args()
    sides: dict[str, Callable[[Path, int], dict[str, float]]] = {"ottla": of_ottla}
    missing = "--skip-kafka" if options.skip_kafka else kafka_is_there()
    if missing is None:
        sides["kafka"] = of_kafka
    else:
        print(f"without Apache Kafka: {missing}", file=sys.stderr)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for _ in range(options.rounds):
        for name, run in sides.items():
            home = Path(tempfile.mkdtemp(prefix="ottla-bench-"))
            try:
                runs[name].append(run(home, options.partitions))
            finally:
                shutil.rmtree(home, ignore_errors=True)
    medians: dict[str, Any] = {
        name: {figure: round(statistics.median(run[figure] for run in results), 2) for figure in results[0]}
        for name, results in runs.items()
    }
    print(f"{options.partitions:,} partitions".ljust(24) + "".join(f"{name:>12}" for name in medians))
    for figure in medians["ottla"]:
        print(f"{figure:24}" + "".join(f"{figures[figure]:>12}" for figures in medians.values()))
    record({"partitions": medians, "rounds": options.rounds, "count": options.partitions, **surroundings()})


if __name__ == "__main__":
    main()
