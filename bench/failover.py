"""Failover of three replicas beside Apache Kafka with three nodes, in turn: from kill -9 of a leader to the next ack.

    python bench/failover.py [--rounds 5] [--partitions 3000] [--skip-kafka]

Ottla runs over one etcd, Apache Kafka in combined mode; every topic has three replicas and min.insync.replicas=2, and the
killed broker leads a third of --partitions besides the one under load. A producer sends a record each 2 ms (acks=all,
idempotent). The victim is the controller, the coordinator of a group, or neither. Each figure is the median of the rounds.

    <role>, <client>   ms from the kill to the first acknowledgement of a record that was sent after it
    fenced             of that: ms until the controller logs that the broker is fenced (Ottla)
    elected            of that: ms until the controller logs the last of the elections (Ottla)
"""

import datetime
import itertools
import os
import re
import signal
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import Message
from confluent_kafka import Producer as LibrdkafkaProducer

from cluster import NODES, OttlaCluster, admin, until
from ottla import Consumer, ElectionType, NewTopic, Producer
from replication import VALUE, create, in_sync
from sides import Cluster, compare, options

SETTLED_S = 0.05
"""Acknowledgements of this time after the kill were on their way before it."""


def servers(cluster: Cluster) -> str:
    return ",".join(f"127.0.0.1:{port}" for port in cluster.ports.values())


class Librdkafka:
    """Producer of librdkafka, with its fastest settings for a lost leader."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        waits = {"retry.backoff.ms": 20, "retry.backoff.max.ms": 100, "reconnect.backoff.ms": 10}
        configs = {"enable.idempotence": True, "linger.ms": 0, "topic.metadata.refresh.fast.interval.ms": 20}
        self._producer = LibrdkafkaProducer({"bootstrap.servers": servers(cluster), "log_level": 0, **configs, **waits})
        self._topic = topic
        self.acknowledged: list[float] = []
        """Times of sending of acknowledged records."""

    def _delivered(self, error: object, _: Message, sent: float) -> None:
        if error is None:
            self.acknowledged.append(sent)

    def send(self) -> None:
        sent = time.perf_counter()
        self._producer.produce(
            self._topic, VALUE, partition=0, on_delivery=lambda error, message: self._delivered(error, message, sent)
        )
        self._producer.poll(0.002)

    def end(self) -> None:
        self._producer.flush(30)


class OttlaClient:
    """Producer of Ottla's client, with its defaults."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._producer = Producer(bootstrap_servers=servers(cluster), linger_ms=0)
        self._topic = topic
        self.acknowledged: list[float] = []
        """Times of sending of acknowledged records."""

    def send(self) -> None:
        sent = time.perf_counter()

        def delivered(future: Any) -> None:
            if future.exception() is None:
                self.acknowledged.append(sent)

        self._producer.send(self._topic, VALUE, partition=0).add_done_callback(delivered)
        time.sleep(0.002)  # the pace of the load

    def end(self) -> None:
        self._producer.close()


CLIENTS: dict[str, Callable[[Cluster, str], Librdkafka | OttlaClient]] = {
    "Ottla's client": OttlaClient,
    "librdkafka": Librdkafka,
}


def victims(cluster: Cluster) -> dict[str, int]:
    """Return a broker for each role."""
    with admin(cluster, 1) as requests:
        controller = requests.describe_cluster().controller or 1
        for number in itertools.count():
            group = f"bench-{number}"
            with Consumer(bootstrap_servers=servers(cluster), group_id=group) as member:
                member.subscribe(["failover"])
                while not member.assignment():
                    member.poll(0.1)
            coordinator = requests.describe_classic_groups([group])[group].coordinator[0]
            if coordinator != controller:
                break
    neither = next(node for node in NODES if node not in (controller, coordinator))
    return {"controller": controller, "coordinator": coordinator, "neither": neither}


def failover_ms(cluster: Cluster, victim: int, topic: str, client: str) -> tuple[float, float]:
    """Kill the leader of a topic under load; return the ms until a later record is acknowledged, and the time of the kill."""
    others = [node for node in NODES if node != victim]
    with admin(cluster, others[0]) as requests:
        assignment = ((victim, *others),)
        new = NewTopic(topic, replica_assignment=assignment, config={"min.insync.replicas": "2"})
        requests.create_topics([new]).check()
    until(lambda: in_sync(cluster, topic, others[0])[0] != ())
    sender = CLIENTS[client](cluster, topic)
    end = time.perf_counter() + 1
    while time.perf_counter() < end:
        sender.send()
    os.kill(cluster.pids[victim], signal.SIGKILL)
    killed, moment = time.perf_counter(), time.time()
    while not sender.acknowledged or sender.acknowledged[-1] < killed + SETTLED_S:
        sender.send()
    elapsed = (time.perf_counter() - killed) * 1000
    sender.end()
    return elapsed, moment


def logged_ms(cluster: Cluster, victim: int, killed: float) -> dict[str, float]:
    """Return the times of the controller's log lines about a dead broker, in ms since it was killed; none of Apache Kafka's."""
    times: dict[str, float] = {}
    if not isinstance(cluster, OttlaCluster):
        return times
    for node in NODES:
        for line in cluster.log(node).splitlines():
            match = re.match(r"(\S+ \S+?),(\d+) INFO (.*)", line)
            if match is None:
                continue
            second = datetime.datetime.fromisoformat(match[1]).replace(tzinfo=datetime.UTC).timestamp()
            after = (second + int(match[2]) / 1000 - killed) * 1000
            if 0 <= after < 20_000 and f"broker {victim} is fenced" in match[3]:
                times["fenced"] = after
            elif after >= times.get("fenced", 20_000) and re.search(r"[1-9]\d* leaders elected", match[3]):
                times["elected"] = after
    return times


def measure(cluster: Cluster, partitions: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    create(cluster, "failover", 1)
    create(cluster, "many", partitions)
    parts: dict[str, list[float]] = {}
    numbers = itertools.count()
    for client in CLIENTS:
        for role in ("controller", "coordinator", "neither"):
            victim = victims(cluster)[role]
            time.sleep(1)  # the failover is another event than the groups that have just ended
            elapsed, killed = failover_ms(cluster, victim, f"failover-{next(numbers)}", client)
            figures[f"{role}, {client}"] = elapsed
            time.sleep(1)  # its return is another event than the elections
            for part, after in logged_ms(cluster, victim, killed).items():
                parts.setdefault(part, []).append(after)
            cluster.start(victim)
            other = next(node for node in NODES if node != victim)
            until(lambda other=other: min(map(len, in_sync(cluster, "many", other))) == 3)  # type: ignore[misc]
            with admin(cluster, other) as requests:
                requests.elect_leaders(ElectionType.PREFERRED)
    return figures | {part: statistics.median(times) for part, times in parts.items()}


def main() -> None:
    parser = options(__doc__, 5)
    parser.add_argument("--partitions", type=int, default=3000)
    arguments = parser.parse_args()
    compare("failover", arguments, partial(measure, partitions=arguments.partitions))


if __name__ == "__main__":
    main()
