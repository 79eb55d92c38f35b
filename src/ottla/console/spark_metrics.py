"""Metrics of Spark's streaming queries, read from the /metrics that `ottla.spark.monitoring` serves."""

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.client.topics import TopicPartition

_PREFIX: Final = "ottla_spark_"
_MOST_BYTES: Final = 8 << 20
_TIMEOUT_S: Final = 2.0
_THREADS: Final = 8
_SAMPLE: Final = re.compile(r'ottla_spark_(\w+)\{((?:\w+="(?:\\.|[^"\\])*",?)*)\} (\S+)')
_LABEL: Final = re.compile(r'(\w+)="((?:\\.|[^"\\])*)"')
_ESCAPES: Final = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


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
    """Read the metrics of applications, in threads. It blocks for some seconds at most."""
    queries: list[SparkQuery] = []
    errors: list[str] = []

    def read(address: str) -> list[SparkQuery] | str:
        try:
            return queries_of(address, _fetch(address))
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            return f"{address} does not answer: {reason}. The application may have ended."

    with ThreadPoolExecutor(_THREADS) as threads:
        for answer in threads.map(read, addresses):
            if isinstance(answer, str):
                errors.append(answer)
            else:
                queries += answer
    return Scrape(queries, errors)


def _fetch(address: str) -> str:
    with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as response:
        body: bytes = response.read(_MOST_BYTES + 1)
    if len(body) > _MOST_BYTES:
        raise ValueError(f"more than {_MOST_BYTES >> 20} MiB")
    return body.decode("utf-8", "replace")


def queries_of(source: str, text: str) -> list[SparkQuery]:
    """Return the queries of a text in the Prometheus format, in its order. Raises ValueError."""
    queries: dict[str, SparkQuery] = {}
    for metric, labels, value in _samples(text):
        name = labels.get("query", "")
        query = queries.setdefault(name, SparkQuery(source, name))
        match metric:
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


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for line in text.splitlines():
        if line.startswith(_PREFIX):
            sample = _SAMPLE.fullmatch(line.strip())
            if sample is not None:
                labels = {name: _unescaped(value) for name, value in _LABEL.findall(sample[2])}
                yield sample[1], labels, float(sample[3])


def _unescaped(text: str) -> str:
    return re.sub(r"\\.", lambda match: _ESCAPES.get(match[0], match[0]), text)
