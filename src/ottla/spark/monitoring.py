"""Metrics of a session's queries: rows, rates, batch times and lag per partition, for logs and Prometheus.

    figures = QueryFigures()
    spark.streams.addListener(figures)            classic or Spark Connect, any query
    serve_figures("127.0.0.1", 9400, figures)     or write_figures(Path("queries.prom"), figures)

Lag is computed from the progress that Spark reports for a source: latest offset minus end offset of the batch. Offsets of
`format("ottla")` and Spark's own Kafka source have the shape {"topic": {"0": 42}}; names that begin with "#" are not topics.
A file source has no lag.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from ottla.client.topics import TopicPartition

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

logger = logging.getLogger("ottla.spark.queries")

Lags = dict[TopicPartition, int]


@dataclass
class QueryFigure:
    """Metrics of one query.

    batches, rows_in, rows_out   totals over all batches; rows_out is None if the sink does not count (files)
    rows_per_second, batch_ms    of the last batch with rows
    lags                         lag by partition after the last batch; None if no source reports it
    ended, failure               whether the query has ended, and its error if it failed
    """

    name: str
    query_id: str
    batches: int = 0
    rows_in: int = 0
    rows_out: int | None = None
    rows_per_second: float = 0.0
    batch_ms: int = 0
    lags: Lags | None = None
    ended: bool = False
    failure: str | None = None

    @property
    def lag(self) -> int | None:
        """Total lag over all partitions."""
        return None if self.lags is None else sum(self.lags.values())


def partition_lags(end: str | None, latest: str | None) -> Lags | None:
    """Return `latest` minus `end` by partition, both as in a source's progress; None for offsets of another shape."""
    ends, latests = partition_offsets(end), partition_offsets(latest)
    if ends is None or latests is None:
        return None
    return {partition: max(offset - ends.get(partition, 0), 0) for partition, offset in latests.items()}


def partition_offsets(text: str | None) -> dict[TopicPartition, int] | None:
    """Parse offsets by partition from the JSON of a source; None for any other text."""
    try:
        offsets = json.loads(text) if text else None
    except ValueError:
        return None
    if not isinstance(offsets, dict):
        return None
    topics = {name: parts for name, parts in offsets.items() if not name.startswith("#")}
    if not all(isinstance(parts, dict) for parts in topics.values()):
        return None
    try:
        return {TopicPartition(name, int(n)): int(at) for name, parts in topics.items() for n, at in parts.items()}
    except (TypeError, ValueError):
        return None


class QueryFigures(StreamingQueryListener):
    """Listener that keeps metrics of every query by its name, or by its id if it has no name, and logs each batch.

    `on_change` is called in Spark's thread after each event, with the metrics that changed.
    """

    def __init__(self, on_change: Callable[[QueryFigure], None] | None = None) -> None:
        self._changed = threading.Condition()
        self._figures: dict[str, QueryFigure] = {}
        self._on_change = on_change

    # -- callbacks of Spark --

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  (Spark's name)
        with self._changed:
            figure = self._figure(event.name, str(event.id))
            figure.ended, figure.failure = False, None
        logger.info("query %s: started", figure.name)
        self._notify(figure)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        figure = self.progress(event.progress)
        logger.info(
            "query %s: batch %d, %d rows in %d ms, lag %s",
            figure.name,
            event.progress.batchId,
            event.progress.numInputRows,
            _batch_ms(event.progress),
            "unknown" if figure.lag is None else figure.lag,
        )
        self._notify(figure)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Keep the metrics: an idle query has no new batch."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        with self._changed:
            figure = self._by_id(str(event.id))
            figure.ended, figure.failure = True, event.exception
            self._changed.notify_all()
        if event.exception is None:
            logger.info("query %s: ended", figure.name)
        else:
            logger.error("query %s: failed: %s", figure.name, event.exception.partition("\n")[0])
        self._notify(figure)

    # -- queries --

    def progress(self, progress: StreamingQueryProgress) -> QueryFigure:
        """Update the metrics of a query from the progress of a batch, and return them."""
        lags = [partition_lags(source.endOffset, source.latestOffset) for source in progress.sources]
        with self._changed:
            figure = self._figure(progress.name, str(progress.id))
            figure.lags = _merge_lags(lags)
            if progress.numInputRows or not figure.batches:
                figure.batch_ms = _batch_ms(progress)
                figure.rows_per_second = progress.processedRowsPerSecond or 0.0
            figure.batches += 1
            figure.rows_in += progress.numInputRows
            if progress.sink.numOutputRows >= 0:
                figure.rows_out = (figure.rows_out or 0) + progress.sink.numOutputRows
        return figure

    def figures(self) -> list[QueryFigure]:
        """Return the metrics of all queries, in the order of their first event."""
        with self._changed:
            return list(self._figures.values())

    def clear(self) -> None:
        """Drop the metrics of all queries."""
        with self._changed:
            self._figures.clear()

    def wait_ended(self, names: set[str], timeout_s: float) -> bool:
        """Wait for the termination events of these queries, which arrive with a delay. False after `timeout_s`."""

        def all_ended() -> bool:
            return all(name in self._figures and self._figures[name].ended for name in names)

        with self._changed:
            return self._changed.wait_for(all_ended, timeout_s)

    def _figure(self, name: str | None, query_id: str) -> QueryFigure:
        return self._figures.setdefault(name or query_id, QueryFigure(name or query_id, query_id))

    def _by_id(self, query_id: str) -> QueryFigure:
        matches = [figure for figure in self._figures.values() if figure.query_id == query_id]
        return matches[0] if matches else self._figure(None, query_id)

    def _notify(self, figure: QueryFigure) -> None:
        if self._on_change is not None:
            self._on_change(figure)


def _merge_lags(lags: list[Lags | None]) -> Lags | None:
    """Merge the lags of several sources; a partition read by two sources has the larger lag."""
    known = [source_lags for source_lags in lags if source_lags is not None]
    if not known:
        return None
    merged: Lags = {}
    for source_lags in known:
        for partition, lag in source_lags.items():
            merged[partition] = max(lag, merged.get(partition, 0))
    return merged


def _batch_ms(progress: StreamingQueryProgress) -> int:
    durations: Mapping[str, int] = progress.durationMs
    return int(durations.get("triggerExecution", 0))


def collector(figures: QueryFigures) -> "Collector":
    """Return the collector for prometheus-client. Raises ImportError without the extra `metrics`."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector

    class QueryCollector(Collector):
        """Prometheus collector of the current metrics."""

        def collect(self) -> Iterator[Any]:
            """Yield one metric family per field."""
            label = ["query"]
            batches = CounterMetricFamily("ottla_spark_batches", "Batches completed by a query.", labels=label)
            rows_in = CounterMetricFamily("ottla_spark_rows_in", "Rows read by a query.", labels=label)
            rows_out = CounterMetricFamily("ottla_spark_rows_out", "Rows counted by the sink of a query.", labels=label)
            rate = GaugeMetricFamily(
                "ottla_spark_rows_per_second", "Rows per second of the last batch with rows.", labels=label
            )
            took = GaugeMetricFamily("ottla_spark_batch_seconds", "Duration of the last batch with rows.", labels=label)
            up = GaugeMetricFamily(
                "ottla_spark_query_running", "1 while a query runs, 0 after it has ended.", labels=label
            )
            lag = GaugeMetricFamily(
                "ottla_spark_lag", "Lag of a partition in offsets.", labels=["query", "topic", "partition"]
            )
            for figure in figures.figures():
                name = [figure.name]
                batches.add_metric(name, figure.batches)
                rows_in.add_metric(name, figure.rows_in)
                if figure.rows_out is not None:
                    rows_out.add_metric(name, figure.rows_out)
                rate.add_metric(name, figure.rows_per_second)
                took.add_metric(name, figure.batch_ms / 1000)
                up.add_metric(name, 0 if figure.ended else 1)
                for partition, behind in (figure.lags or {}).items():
                    lag.add_metric([figure.name, partition.topic, str(partition.partition)], behind)
            yield from (batches, rows_in, rows_out, rate, took, up, lag)

    return QueryCollector()


def serve_figures(host: str, port: int, figures: QueryFigures) -> tuple[int, Callable[[], None]]:
    """Serve GET /metrics in a thread; returns the port (a free one for 0) and a function that stops the server.

    Raises OSError, and ImportError without the extra `metrics`.
    """
    from ottla.observability.metrics import serve_collectors

    return serve_collectors(host, port, collector(figures))


def write_figures(path: Path, figures: QueryFigures) -> None:
    """Write the metrics in the Prometheus text format, for the textfile collector of the node exporter.

    Raises OSError, and ImportError without the extra `metrics`.
    """
    from prometheus_client import CollectorRegistry, write_to_textfile

    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector(figures))
    write_to_textfile(str(path), registry)
