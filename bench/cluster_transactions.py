"""Transactions over three brokers beside Apache Kafka with three nodes, in turn; clients on the same machine.

    python bench/cluster_transactions.py [--rounds 5] [--skip-kafka]

Ottla runs over one etcd, Apache Kafka in combined mode. Topics, also internal ones, have three replicas; the records' topic has
min.insync.replicas=2. A transaction has one record of 100 bytes. Figures are ms from its begin to its committed end, p50 and
p99 of 500, after 300 that warm both sides. The next one begins at once, when the markers of the one before may not be written
yet.

    Python client            Ottla's, with transaction.version 2: the broker adds the partition
    Python client, offsets   with an offset of a group as well
    librdkafka               adds the partition by a request of its own
"""

import time
from collections.abc import Callable

import confluent_kafka

import ottla
from replication import create
from sides import Cluster, compare, options

VALUE = bytes(100)
TOPIC = "transactions"
WARMING, MEASURED = 300, 500


def times_ms(transaction: Callable[[], None]) -> tuple[float, float]:
    """Return the 50th and the 99th percentile of the times of a transaction."""
    for _ in range(WARMING):
        transaction()
    times = []
    for _ in range(MEASURED):
        begun = time.perf_counter()
        transaction()
        times.append((time.perf_counter() - begun) * 1000)
    times.sort()
    return times[MEASURED // 2], times[MEASURED * 99 // 100]


def by_ottla(servers: str, *, with_offsets: bool) -> tuple[float, float]:
    place, group = ottla.TopicPartition(TOPIC, 0), ottla.GroupMetadata("bench")
    with ottla.Producer(bootstrap_servers=servers, transactional_id=f"ottla-{with_offsets}") as producer:
        producer.init_transactions()

        def transaction() -> None:
            producer.begin_transaction()
            producer.produce(TOPIC, VALUE)
            if with_offsets:
                producer.send_offsets_to_transaction({place: 1}, group)
            producer.commit_transaction()

        return times_ms(transaction)


def by_confluent(servers: str) -> tuple[float, float]:
    configs = {"bootstrap.servers": servers, "transactional.id": "confluent", "linger.ms": 0, "log_level": 0}
    producer = confluent_kafka.Producer(configs)
    producer.init_transactions()

    def transaction() -> None:
        producer.begin_transaction()
        producer.produce(TOPIC, VALUE)
        producer.commit_transaction()

    return times_ms(transaction)


def measure(cluster: Cluster) -> dict[str, float]:
    servers = ",".join(f"127.0.0.1:{port}" for port in cluster.ports.values())
    create(cluster, TOPIC, 3)
    times = {
        "Python client": by_ottla(servers, with_offsets=False),
        "Python client, offsets": by_ottla(servers, with_offsets=True),
        "librdkafka": by_confluent(servers),
    }
    figures = {}
    for name, (median, late) in times.items():
        figures[f"{name}, p50 ms"], figures[f"{name}, p99 ms"] = median, late
    return figures


def main() -> None:
    compare("cluster_transactions", options(__doc__, 5).parse_args(), measure, internal_replicas=3)


if __name__ == "__main__":
    main()
