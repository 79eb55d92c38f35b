"""Replication over three brokers beside Apache Kafka with three nodes, in turn; clients on the same machine.

    python bench/replication.py [--rounds 5] [--megabytes 256] [--skip-kafka]

Ottla runs over one etcd, Apache Kafka in combined mode. Topics have three replicas and min.insync.replicas=2. The client is
librdkafka with an idempotent producer (acks=all). Both sides are warm. Each figure is the median of the rounds.

    produce       MB/s of records of 1 KB to six partitions, from the first record to the last acknowledgement
    cpu           CPU seconds of all brokers for each GB produced in that time
    latency       ms from produce to acknowledgement of one record at a time, p50 and p99 of 4,000; after 12,000, in which
                  Java goes on compiling: the median of Apache Kafka falls by half from the first thousand to the last
    failover      ms from kill -9 of a leader under load to the next acknowledged record of its partition
    catch up      MB/s of a follower that was down while --megabytes were produced, until it is in sync again
    idle          per cent of a core of all brokers together, with 1,000 partitions of which nothing is used
"""

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Message, Producer

from cluster import NODES, admin, until
from ottla import NewTopic
from sides import Cluster, compare, options

VALUE = os.urandom(1024)
TICKS = os.sysconf("SC_CLK_TCK")
IDLE_S = 20
WARMING, MEASURED = 12_000, 4_000
"""Numbers of records of the latencies."""


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def all_cpu_seconds(cluster: Cluster) -> float:
    return sum(cpu_seconds(pid) for pid in cluster.pids.values())


def producer(cluster: Cluster, **configs: Any) -> Producer:
    servers = ",".join(f"127.0.0.1:{port}" for port in cluster.ports.values())
    defaults = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
    return Producer({**defaults, "queue.buffering.max.messages": 200_000, **configs})


def create(cluster: Cluster, topic: str, partitions: int) -> None:
    with admin(cluster, 1) as requests:
        requests.create_topics([NewTopic(topic, partitions, 3, config={"min.insync.replicas": "2"})]).check()
    until(lambda: min(len(members) for members in in_sync(cluster, topic, 2)) == 3)


def in_sync(cluster: Cluster, topic: str, node: int) -> list[tuple[int, ...]]:
    with admin(cluster, node) as requests:
        return [tuple(part.isr) for part in requests.describe_topics([topic])[topic].partitions]


def leader_of(cluster: Cluster, topic: str, node: int) -> int:
    with admin(cluster, node) as requests:
        return requests.describe_topics([topic])[topic].partitions[0].leader or -1


def produce(cluster: Cluster, topic: str, partitions: int, megabytes: int) -> float:
    """Produce records of 1 KB; returns the seconds until all are acknowledged."""
    failures: list[object] = []

    def delivered(error: object, _: Message) -> None:
        if error is not None:
            failures.append(error)

    sender = producer(cluster, **{"batch.size": 262_144, "linger.ms": 10})
    begun = time.perf_counter()
    for number in range(megabytes * 1000):
        while True:
            try:
                sender.produce(topic, VALUE, partition=number % partitions, on_delivery=delivered)
                break
            except BufferError:
                sender.poll(0.01)
    sender.flush(300)
    seconds = time.perf_counter() - begun
    assert not failures, failures[:3]
    return seconds


def latencies_ms(cluster: Cluster, count: int) -> list[float]:
    sender = producer(cluster, **{"linger.ms": 0})
    times: list[float] = []
    for _ in range(count):
        begun = time.perf_counter()
        sender.produce("bench", VALUE, partition=0)
        sender.flush(10)
        times.append((time.perf_counter() - begun) * 1000)
    return sorted(times)


def failover_ms(cluster: Cluster, victim: int) -> float:
    """Kill the leader of a partition under load; return the ms until the next acknowledgement."""
    acknowledged: list[float] = []

    def delivered(error: object, _: Message) -> None:
        if error is None:
            acknowledged.append(time.perf_counter())

    sender = producer(
        cluster, **{"linger.ms": 0, "retry.backoff.ms": 20, "retry.backoff.max.ms": 100, "reconnect.backoff.ms": 10,
                    "topic.metadata.refresh.fast.interval.ms": 20}
    )  # fmt: skip
    end = time.perf_counter() + 1
    while time.perf_counter() < end:
        sender.produce("failover", VALUE, partition=0, on_delivery=delivered)
        sender.poll(0.002)
    os.kill(cluster.pids[victim], signal.SIGKILL)
    killed = time.perf_counter()
    while not acknowledged or acknowledged[-1] < killed + 0.05:
        sender.produce("failover", VALUE, partition=0, on_delivery=delivered)
        sender.poll(0.002)
    first = next(moment for moment in acknowledged if moment > killed + 0.05)
    sender.flush(30)
    return (first - killed) * 1000


def measure(cluster: Cluster, megabytes: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    create(cluster, "bench", 6)
    produce(cluster, "bench", 6, megabytes)  # warm: Java compiles what runs often
    before = all_cpu_seconds(cluster)
    seconds = produce(cluster, "bench", 6, megabytes)
    figures["produce MB/s"] = megabytes * 1.024 / seconds
    figures["cpu s/GB"] = (all_cpu_seconds(cluster) - before) / (megabytes * 1.024 / 1000)
    latencies_ms(cluster, WARMING)
    times = latencies_ms(cluster, MEASURED)
    figures["latency p50 ms"], figures["latency p99 ms"] = times[MEASURED // 2], times[MEASURED * 99 // 100]
    create(cluster, "failover", 1)
    for _ in range(2):
        victim = leader_of(cluster, "failover", 1)
        other = next(node for node in NODES if node != victim)
        with admin(cluster, other) as requests:
            role = "controller" if requests.describe_cluster().controller == victim else "other"
        figures.setdefault(f"failover {role} ms", failover_ms(cluster, victim))
        time.sleep(1)  # its return is another event than the election
        cluster.start(victim)
        until(lambda other=other: len(in_sync(cluster, "failover", other)[0]) == 3)  # type: ignore[misc]
        until(lambda other=other: min(map(len, in_sync(cluster, "bench", other))) == 3)  # type: ignore[misc]
    victim = next(node for node in NODES if node != leader_of(cluster, "failover", 1))
    other = next(node for node in NODES if node != victim)
    create(cluster, "refill", 3)
    os.kill(cluster.pids[victim], signal.SIGKILL)
    until(lambda: max(map(len, in_sync(cluster, "refill", other))) == 2)
    produce(cluster, "refill", 3, megabytes)
    begun = time.perf_counter()
    cluster.start(victim)
    until(lambda: min(map(len, in_sync(cluster, "refill", other))) == 3)
    figures["catch up MB/s"] = megabytes * 1.024 / (time.perf_counter() - begun)
    create(cluster, "idle", 1000)
    time.sleep(5)  # idle is what is measured next: let start-up work come to rest
    before = all_cpu_seconds(cluster)
    time.sleep(IDLE_S)
    figures["idle %"] = (all_cpu_seconds(cluster) - before) / IDLE_S * 100
    return figures


def main() -> None:
    parser = options(__doc__, 5)
    parser.add_argument("--megabytes", type=int, default=256)
    arguments = parser.parse_args()
    compare("replication", arguments, partial(measure, megabytes=arguments.megabytes))


if __name__ == "__main__":
    main()
