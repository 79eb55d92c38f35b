"""Metrics of Spark's streaming queries, read from the /metrics that `ottla.spark.monitoring` serves."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.client.topics import TopicPartition
from ottla.console.prometheus_text import Sample, scrape_all

_PREFIX: Final = "ottla_spark_"


@dataclass
class SparkQuery:
    """Metrics of a query; a value is None if the application does not publish it.

    source            address of the application's metrics
    rows_per_second   of the last batch with rows
    batch_s           duration of the last batch with rows
    lags              by partition, empty if no source of the query has a lag
    """

    source: str
    name: str
    is_running: bool = False
    batches: int | None = None
    rows_in: int | None = None
    rows_out: int | None = None
    rows_per_second: float | None = None
    batch_s: float | None = None
    lags: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def lag(self) -> int | None:
        """Lag over all partitions."""
        return sum(self.lags.values()) if self.lags else None

    @property
    def topic_lags(self) -> dict[str, int]:
        """Lag by topic."""
        lags: dict[str, int] = {}
        for partition, lag in sorted(self.lags.items()):
            lags[partition.topic] = lags.get(partition.topic, 0) + lag
        return lags


class Scrape(NamedTuple):
    """Queries of all applications, and an error for each application that did not answer."""

    queries: list[SparkQuery]
    errors: list[str]


def scrape(addresses: Iterable[str]) -> Scrape:
    """Read the metrics of applications. It blocks for some seconds at most."""
    queries, errors = scrape_all(addresses, _PREFIX, queries_of, "The application may have ended.")
    return Scrape([query for of_application in queries for query in of_application], errors)


def queries_of(source: str, samples: Iterable[Sample]) -> list[SparkQuery]:
    """Return the queries of an application's samples, in their order. Raises ValueError."""
    queries: dict[str, SparkQuery] = {}
    for metric, labels, value in samples:
        name = labels.get("query", "")
        query = queries.setdefault(name, SparkQuery(source, name))
        match metric.removeprefix(_PREFIX):
            case "query_running":
                query.is_running = value == 1
            case "batches_total":
                query.batches = int(value)
            case "rows_in_total":
                query.rows_in = int(value)
            case "rows_out_total":
                query.rows_out = int(value)
            case "rows_per_second":
                query.rows_per_second = value
            case "batch_seconds":
                query.batch_s = value
            case "lag":
                partition = TopicPartition(labels.get("topic", ""), int(labels.get("partition", "-1")))
                query.lags[partition] = int(value)
            case _:  # metrics of a later version, and times of creation
                pass
    return list(queries.values())
