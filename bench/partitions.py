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

import os
import signal
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from cluster import NODES, admin, resident_mb, until
from ottla import NewTopic
from sides import Cluster, compare, options

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


def main() -> None:
    parser = options(__doc__, 3)
    parser.add_argument("--partitions", type=int, default=10_000)
    arguments = parser.parse_args()
    compare("partitions", arguments, partial(measure, partitions=arguments.partitions))


if __name__ == "__main__":
    main()
