"""Records of share groups that are in flight, read from the metrics of brokers: Kafka has no request for them.

`ottla serve --metrics` names them as Kafka does, and so does an Apache Kafka whose JMX exporter turns the properties of
`kafka.server:type=SharePartitionMetrics,name=InFlightMessageCount` into the labels group, topic and partition.
"""

from collections.abc import Iterable
from typing import Final

from ottla.client.topics import TopicPartition
from ottla.console.prometheus_text import Sample, scrape_all

_IN_FLIGHT: Final = "kafka_server_sharepartitionmetrics_inflightmessagecount"


def in_flight(addresses: Iterable[str], group_id: str) -> tuple[dict[TopicPartition, int], list[str]]:
    """Return the records in flight of a share group, and an error for each broker that does not answer. It blocks for
    some seconds at most.

    A leader counts the records from the start offset to the last acquired one that are not done.
    """

    def of_broker(address: str, samples: Iterable[Sample]) -> dict[TopicPartition, int]:
        del address
        return {
            TopicPartition(labels.get("topic", ""), int(labels.get("partition", "-1"))): int(value)
            for name, labels, value in samples
            if name == _IN_FLIGHT and labels.get("group") == group_id
        }

    counts: dict[TopicPartition, int] = {}
    brokers, errors = scrape_all(addresses, _IN_FLIGHT, of_broker, "The broker may be down.")
    for broker in brokers:
        for partition, count in broker.items():
            # While leadership moves, two brokers may count the same records.
            counts[partition] = max(count, counts.get(partition, 0))
    return counts, errors
