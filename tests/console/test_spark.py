"""The view of Spark's streaming queries, against metrics as `ottla.spark.monitoring` serves them."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from ottla import TopicPartition
from ottla.console import prometheus_text
from ottla.console.prometheus_text import samples
from ottla.console.spark_metrics import queries_of, scrape
from tests.console.browser import Browse

TEXT = r"""# HELP ottla_spark_batches_total Batches completed by a query.
# TYPE ottla_spark_batches_total counter
ottla_spark_batches_total{query="delays"} 3.0
ottla_spark_batches_total{query="a \"b\" \\ c"} 1.0
ottla_spark_rows_in_total{query="delays"} 1200.0
ottla_spark_rows_per_second{query="delays"} 61.5
ottla_spark_batch_seconds{query="delays"} 0.25
ottla_spark_query_running{query="delays"} 1.0
ottla_spark_query_running{query="a \"b\" \\ c"} 0.0
ottla_spark_lag{partition="0",query="delays",topic="flights"} 7.0
ottla_spark_lag{query="delays",topic="flights",partition="1"} 5.0
ottla_spark_lag{query="delays",topic="elsewhere",partition="0"} 1e+03
ottla_spark_lag{query="broken
python_gc_objects_collected_total{generation="0"} 1.0
"""


@contextmanager
def publishing(text: str) -> Iterator[str]:
    """Serve a text as metrics of an application."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            payload = text.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_metrics_are_read_by_query() -> None:
    delays, other = queries_of("x", samples(TEXT.splitlines(), "ottla_spark_"))
    assert (delays.name, delays.is_running, delays.batches, delays.rows_in, delays.rows_out) == (
        "delays",
        True,
        3,
        1200,
        None,
    )
    assert delays.lags[TopicPartition("elsewhere", 0)] == 1000
    assert delays.topic_lags == {"elsewhere": 1000, "flights": 12}
    assert delays.lag == 1012
    assert (other.name, other.is_running, other.lag) == ('a "b" \\ c', False, None)


def test_an_address_that_sends_for_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_text, "_LONGEST_S", 0)
    with publishing(TEXT) as url:
        result = scrape([url])
    assert result.queries == []
    assert "sends for more than 0 s" in result.errors[0]


def test_queries_are_listed_with_their_lag(browse: Browse, flights: None) -> None:
    with publishing(TEXT) as url:
        browser = browse(spark_metrics=("http://127.0.0.1:1/metrics", url))
        text = browser.get("/spark")
        assert "elsewhere 1\N{NARROW NO-BREAK SPACE}000, flights 12" in text
        assert "http://127.0.0.1:1/metrics does not answer" in text
        assert 'href="/c/test/spark/query?name=delays&source=1"' in text
        text = browser.get("/spark/query", name="delays", source=1)
        assert 'href="/c/test/topics/flights"' in text
        assert 'href="/c/test/topics/elsewhere"' not in text
        assert "0.25 s" in text
        points = browser.client.get("/c/test/spark/lag?name=delays&source=1").json()["series"]["lag"]
        assert [lag for _, lag in points] == [1012, 1012, 1012]
        assert "No application publishes" in browser.get("/spark/query", 404, name="delays", source=0)


def test_queries_of_a_spark_session_are_read(browse: Browse, flights: None) -> None:
    pytest.importorskip("pyspark", reason="these metrics are those of a Spark session")
    pytest.importorskip("prometheus_client", reason="serving metrics needs the extra metrics")
    from ottla.spark.monitoring import QueryFigures, serve_figures
    from tests.unit.spark.test_monitoring import progress

    figures = QueryFigures()
    figures.onQueryProgress(
        progress(9, [{"endOffset": {"flights": {"0": 4}}, "latestOffset": {"flights": {"0": 10}}}], out=9)
    )
    port, stop = serve_figures("127.0.0.1", 0, figures)
    try:
        text = browse(spark_metrics=(f"http://127.0.0.1:{port}/metrics",)).get("/spark")
    finally:
        stop()
    assert "flights 6" in text
    assert "running" in text


def test_without_metrics_there_is_no_view(browse: Browse) -> None:
    browser = browse()
    assert "/spark" not in browser.get("")
    assert "--spark-metrics URL" in browser.get("/spark", 404)
