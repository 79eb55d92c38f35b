"""Metrics of a listener from the progress of queries; no Spark is started."""

import json
import urllib.request
import uuid
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent, StreamingQueryProgress

from ottla.client.topics import TopicPartition
from ottla.spark.monitoring import QueryFigure, QueryFigures, partition_lags, serve_figures, write_figures

ID = uuid.UUID(int=7)
ENDED = QueryTerminatedEvent.fromJson(
    {"id": str(ID), "runId": str(ID), "exception": "boom\nat here", "errorClassOnException": None}
)


def progress(
    rows: int, sources: list[dict[str, Any]], *, name: str | None = "delays", out: int = -1
) -> QueryProgressEvent:
    """As Spark writes it."""
    document = {
        "id": str(ID),
        "runId": str(uuid.UUID(int=8)),
        "name": name,
        "timestamp": "2024-01-01T00:00:00.000Z",
        "batchId": 3,
        "batchDuration": 250,
        "numInputRows": rows,
        "inputRowsPerSecond": 0.0,
        "processedRowsPerSecond": rows * 4.0,
        "durationMs": {"triggerExecution": 250},
        "eventTime": {},
        "stateOperators": [],
        "sources": [
            {"description": "s", "startOffset": None, "numInputRows": rows, "inputRowsPerSecond": 0.0}
            | {"processedRowsPerSecond": 0.0, "metrics": {}}
            | {key: json.dumps(value) for key, value in source.items()}
            for source in sources
        ],
        "sink": {"description": "sink", "numOutputRows": out, "metrics": {}},
        "observedMetrics": {},
    }
    return QueryProgressEvent(StreamingQueryProgress.fromJson(document))


def test_lag_is_counted_by_partition_and_names_with_a_hash_are_no_topics() -> None:
    end = json.dumps({"t": {"0": 40, "1": 7}, "#topicIds": {"t": "Xk3v"}, "#turn": 3})
    latest = json.dumps({"t": {"0": 42, "1": 7, "2": 5}})
    assert partition_lags(end, latest) == {
        TopicPartition("t", 0): 2,
        TopicPartition("t", 1): 0,
        TopicPartition("t", 2): 5,
    }


def test_a_source_without_such_offsets_has_no_lag() -> None:
    for end, latest in ((None, None), ('{"logOffset": 3}', None), ('{"logOffset": 3}', '{"logOffset": 4}'), ("7", "9")):
        assert partition_lags(end, latest) is None
    assert partition_lags("not JSON", '{"t": {"0": 1}}') is None
    # What the latest offset has fallen below is data loss, which the query itself complains about.
    assert partition_lags('{"t": {"0": 5}}', '{"t": {"0": 3}}') == {TopicPartition("t", 0): 0}


def test_batches_add_up_and_the_last_lag_counts() -> None:
    seen: list[tuple[int, int | None]] = []
    figures = QueryFigures(lambda figure: seen.append((figure.rows_in, figure.lag)))
    figures.onQueryProgress(
        progress(100, [{"endOffset": {"t": {"0": 100}}, "latestOffset": {"t": {"0": 150}}}], out=90)
    )
    figures.onQueryProgress(progress(50, [{"endOffset": {"t": {"0": 150}}, "latestOffset": {"t": {"0": 150}}}], out=50))
    figures.onQueryProgress(progress(0, [{"endOffset": {"t": {"0": 150}}, "latestOffset": {"t": {"0": 151}}}], out=0))
    lags = {TopicPartition("t", 0): 1}
    assert figures.figures() == [QueryFigure("delays", str(ID), 3, 150, 140, 200.0, 250, lags)]
    assert seen == [(100, 50), (150, 0), (150, 1)]


def test_of_two_sources_each_counts_and_one_that_says_nothing_does_not() -> None:
    figures = QueryFigures()
    ottla = {"endOffset": {"t": {"0": 1}}, "latestOffset": {"t": {"0": 4}}}
    other = {"endOffset": {"u": {"0": 1}}, "latestOffset": {"u": {"0": 2}}}
    figures.onQueryProgress(
        progress(1, [ottla, {"endOffset": {"logOffset": 1}, "latestOffset": None}, other], name=None)
    )
    (figure,) = figures.figures()
    assert (figure.name, figure.lag, figure.rows_out) == (str(ID), 4, None)


def test_a_query_that_ends_is_waited_for() -> None:
    figures = QueryFigures()
    assert not figures.wait_ended({"delays"}, 0)
    figures.onQueryProgress(progress(1, []))
    assert not figures.wait_ended({"delays"}, 0)
    figures.onQueryTerminated(ENDED)
    assert figures.wait_ended({"delays"}, 0)
    assert figures.figures()[0].failure == "boom\nat here"
    figures.clear()
    assert figures.figures() == []


def test_prometheus_reads_them(tmp_path: Path) -> None:
    figures = QueryFigures()
    figures.onQueryProgress(
        progress(100, [{"endOffset": {"t": {"0": 100}}, "latestOffset": {"t": {"0": 150}}}], out=90)
    )
    port, stop = serve_figures("127.0.0.1", 0, figures)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            served = answer.read().decode()
    finally:
        stop()
    write_figures(tmp_path / "queries.prom", figures)
    for text in (served, (tmp_path / "queries.prom").read_text()):
        assert 'ottla_spark_rows_in_total{query="delays"} 100.0' in text
        assert 'ottla_spark_rows_out_total{query="delays"} 90.0' in text
        assert 'ottla_spark_batch_seconds{query="delays"} 0.25' in text
        assert 'ottla_spark_lag{partition="0",query="delays",topic="t"} 50.0' in text
        assert 'ottla_spark_query_running{query="delays"} 1.0' in text
