"""Rolling restarts of three brokers with 1,000 partitions: how long each stop takes, and how long a producer waits.

    python bench/rolling_restart.py [--rounds 3] [--partitions 1000]

Ottla runs over one etcd. All partitions have three replicas, and each broker leads about a third of them. Brokers are stopped
with SIGTERM one after the other and started again; the next one stops when all replicas are in sync and the preferred replicas
lead again. Meanwhile an idempotent producer of librdkafka sends a record to one of twelve partitions every 5 ms. Each figure is
the median over all stops, with the longest one beside it.

    led          partitions that the broker leads before its stop
    shutdown     ms until the broker leads nothing and all others know it, from its log
    stop         ms from SIGTERM to the end of the process
    start        ms until the broker serves requests again, from its log
    in sync      ms from the start of the process until all replicas are in sync again
    longest gap  ms between two acknowledgements of the producer
"""

import argparse
import re
import shutil
import statistics
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path

from confluent_kafka import Message, Producer

from brokers import record
from cluster import NODES, OttlaCluster, admin, etcd, until, wait_for_all
from ottla import Admin, ElectionType, NewTopic, TopicPartition

IDLE, LOAD = "idle", "load"
LOADED = 12
SHUTDOWN = re.compile(r"controlled shutdown of node \d took (\d+) ms")
STARTED = re.compile(r" started in (\d+) ms")


class Load(threading.Thread):
    """Producer that sends a record every 5 ms, until `over`; `gaps` are the times of acknowledgements, in s."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self._servers = servers
        self.over = threading.Event()
        self.times: list[float] = []
        self.failures: list[object] = []

    def run(self) -> None:
        configs = {"enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        producer = Producer({"bootstrap.servers": self._servers, **configs})

        def delivered(error: object, _: Message) -> None:
            self.times.append(time.perf_counter())
            if error is not None:
                self.failures.append(error)

        number = 0
        while not self.over.is_set():
            producer.produce(LOAD, b"x", partition=number % LOADED, on_delivery=delivered)
            producer.poll(0.005)
            number += 1
        producer.flush(60)

    def longest_gap_ms(self, begun: float) -> float:
        times = [moment for moment in list(self.times) if moment >= begun]
        return max((b - a for a, b in pairwise(times)), default=0.0) * 1000


def leaders(requests: Admin) -> list[int]:
    topics = requests.describe_topics([IDLE, LOAD])
    return [part.leader or -1 for name in (IDLE, LOAD) for part in topics[name].partitions]


def is_whole(requests: Admin) -> bool:
    topics = requests.describe_topics([IDLE, LOAD])
    return all(len(part.isr) == len(NODES) for name in (IDLE, LOAD) for part in topics[name].partitions)


def elect_preferred(requests: Admin, partitions: int) -> None:
    sizes = {IDLE: partitions - LOADED, LOAD: LOADED}
    requests.elect_leaders(
        ElectionType.PREFERRED, [TopicPartition(name, n) for name, count in sizes.items() for n in range(count)]
    )


def measure(cluster: OttlaCluster, partitions: int, rounds: int) -> dict[str, list[float]]:
    servers = ",".join(f"127.0.0.1:{port}" for port in cluster.ports.values())
    with admin(cluster, 1) as requests:
        configs = {"min.insync.replicas": "2"}
        requests.create_topics([NewTopic(IDLE, partitions - LOADED, 3, config=configs)]).check()
        requests.create_topics([NewTopic(LOAD, LOADED, 3, config=configs)]).check()
        until(lambda: is_whole(requests))
    load = Load(servers)
    load.start()
    figures: dict[str, list[float]] = {
        name: [] for name in ("led", "shutdown ms", "stop ms", "start ms", "in sync ms", "longest gap ms")
    }
    time.sleep(3)
    for _ in range(rounds):
        for node in NODES:
            with admin(cluster, node % 3 + 1) as requests:
                figures["led"].append(leaders(requests).count(node))
                begun = time.perf_counter()
                cluster.stop(node)
                figures["stop ms"].append((time.perf_counter() - begun) * 1000)
                restarted = time.perf_counter()
                cluster.start(node)
                starts = len(STARTED.findall(cluster.log(node)))
                until(lambda node=node, starts=starts: len(STARTED.findall(cluster.log(node))) > starts)  # type: ignore[misc]
                until(lambda requests=requests: is_whole(requests))  # type: ignore[misc]
                figures["in sync ms"].append((time.perf_counter() - restarted) * 1000)
                elect_preferred(requests, partitions)
                time.sleep(2)  # the next stop must not meet the elections
                figures["longest gap ms"].append(load.longest_gap_ms(begun))
    load.over.set()
    load.join()
    assert not load.failures, load.failures[:3]
    for node in NODES:
        figures["shutdown ms"] += map(float, SHUTDOWN.findall(cluster.log(node)))
        figures["start ms"] += map(float, STARTED.findall(cluster.log(node))[1:])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=1000)
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="ottla-bench-"))
    try:
        with etcd(home) as (url, _):
            cluster = OttlaCluster(home, url)
            try:
                for node in NODES:
                    cluster.start(node)
                wait_for_all(cluster)
                figures = measure(cluster, options.partitions, options.rounds)
            finally:
                cluster.end()
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print(f"{'':16}{'median':>10}{'longest':>10}")
    for name, values in figures.items():
        print(f"{name:16}{statistics.median(values):>10.0f}{max(values):>10.0f}")
    medians = {name: round(statistics.median(values)) for name, values in figures.items()}
    record({"rolling_restart": medians, "options": vars(options)})


if __name__ == "__main__":
    main()
