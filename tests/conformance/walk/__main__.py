"""Compare Ottla with Apache Kafka over random requests:

    python -m tests.conformance.walk --kafka HOST:PORT --requests 10000 --seed N

With --kafka HOST:PORT,HOST:PORT,HOST:PORT clusters of as many brokers are compared, whose node ids are 1, 2, and so on. Ottla
runs in this process, unless --ottla names its brokers. Brokers that are named need the configs of --configs.

With --kafka-cluster DIRECTORY (of bench/reference/kafka-cluster) and --stop one of three brokers is stopped during the walks.
"""

import argparse
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

from ottla.testing import EmbeddedBroker, KafkaCluster
from tests.conformance.cluster.brokers import KafkaNodes, OttlaBrokers
from tests.conformance.cluster.conftest import Cluster

from .apis import PROFILES
from .side import Side
from .walk import run, run_without_a_broker

Addresses = dict[int, tuple[str, int]]
CONFIGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.share.assignment.interval.ms": "0",  # which targets it holds up differs on purpose: docs/differences.md
    "group.share.min.record.lock.duration.ms": "1000",
    "log.initial.task.delay.ms": "86400000",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


def main() -> int:
    """Run the walks of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", metavar="HOST:PORT,...")
    parser.add_argument("--kafka-cluster", metavar="DIRECTORY", type=Path)
    parser.add_argument("--stop", action="store_true", help="stop a broker during the walks")
    parser.add_argument("--ottla", metavar="HOST:PORT,...")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--apis", choices=PROFILES, default="most")
    parser.add_argument("--history", type=int, default=5, help="requests to print before a difference")
    parser.add_argument("--configs", action="store_true", help="print the configs that a broker needs")
    options = parser.parse_args()
    if options.configs:
        print(*(f"{name}={value}" for name, value in CONFIGS.items()))  # noqa: T201
        return 0
    if bool(options.kafka) == bool(options.kafka_cluster) or (options.stop and not options.kafka_cluster):
        parser.error("either --kafka or --kafka-cluster is required, and the latter for --stop")
    began = time.monotonic()
    with ExitStack() as stack:
        nodes = KafkaNodes(options.kafka_cluster) if options.kafka_cluster else None
        kafka = nodes.addresses if nodes else _addresses(options.kafka)
        if nodes and options.stop:
            brokers = OttlaBrokers(start_cluster(len(kafka), stack))
            clusters = [stack.enter_context(closing(Cluster(source))) for source in (brokers, nodes)]
            sides = _sides(brokers.addresses, kafka, stack)
            unequal = run_without_a_broker(sides, clusters, options.seed, options.requests, print, options.history)
        else:
            ottla = _addresses(options.ottla) if options.ottla else _start(len(kafka), stack)
            sides = _sides(ottla, kafka, stack)
            unequal = run(sides, options.seed, options.requests, print, options.apis, options.history)
    print(f"{options.requests} requests, {len(unequal)} differences, {time.monotonic() - began:.0f} s")  # noqa: T201
    return 1 if unequal else 0


def _sides(ottla: Addresses, kafka: Addresses, stack: ExitStack) -> list[Side]:
    return [
        stack.enter_context(closing(Side("Ottla", ottla, is_kafka=False))),
        stack.enter_context(closing(Side("Apache Kafka", kafka, is_kafka=True))),
    ]


def _start(size: int, stack: ExitStack) -> Addresses:
    if size > 1:
        return OttlaBrokers(start_cluster(size, stack)).addresses
    return {1: stack.enter_context(EmbeddedBroker({"node.id": "1", **CONFIGS})).address}


def start_cluster(size: int, stack: ExitStack) -> KafkaCluster:
    """Start brokers of Ottla with the configs of Apache Kafka's in bench/reference/kafka-cluster."""
    configs = {**CONFIGS, "default.replication.factor": 3, "min.insync.replicas": 2}
    return stack.enter_context(KafkaCluster(size, configs, racks=[f"RACK{at + 1}" for at in range(size)]))


def _addresses(text: str) -> Addresses:
    places = [place.rpartition(":") for place in text.split(",")]
    return {at: (host, int(port)) for at, (host, _, port) in enumerate(places, 1)}


if __name__ == "__main__":
    sys.exit(main())
