"""ottla_request_seconds as a native histogram: in the protobuf format, and in a real Prometheus."""

import urllib.request
from collections.abc import Iterator

import pytest

from tests.observability.conftest import Served
from tests.observability.exposition import families
from tests.observability.prometheus import Prometheus, scraping
from tests.unit.observability.metric_family import read_families

OF_PROMETHEUS = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,"
    "application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


def test_protobuf_has_the_families_of_the_text(served: Served) -> None:
    request = urllib.request.Request(f"{served.base}/metrics", headers={"Accept": OF_PROMETHEUS})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("application/vnd.google.protobuf;")
        by_name = {family.name: family for family in read_families(answer.read())}
    text = served.get()
    expected = {name.removesuffix("_bucket") for name in families(text)}
    assert by_name.keys() == expected
    produce = next(
        metric for metric in by_name["ottla_request_seconds"].metric if metric.label[0].value == "Produce"
    ).histogram
    assert produce.schema == 3
    assert len(produce.bucket) > 10
    assert sum(span.length for span in produce.positive_span) == len(produce.positive_delta) > 0


@pytest.fixture(scope="module")
def prometheus(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus with native histograms, under load."""
    folder = tmp_path_factory.mktemp("prometheus-native")
    with scraping(served, folder, "--enable-feature=native-histograms") as running:
        yield running


def test_prometheus_answers_quantiles_of_the_native_histogram(served: Served, prometheus: Prometheus) -> None:
    del served
    assert prometheus.query('up{job="ottla"}')[0]["value"][1] == "1"
    query = 'histogram_quantile(0.5, ottla_request_seconds{request="Produce"})'
    (answer,) = prometheus.query(query)
    assert 1e-6 < float(answer["value"][1]) < 10
    counts = prometheus.query("histogram_count(ottla_request_seconds)")
    assert {row["metric"]["request"] for row in counts} >= {"Produce", "FetchConsumer", "Metadata"}
    # Kafka's own names and counters are there, too.
    assert prometheus.query('sum(kafka_network_requestmetrics_requests_total{request="Produce"})')
