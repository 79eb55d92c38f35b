"""Counters, gauges and histograms by name and labels."""

import pytest

from ottla.observability.registry import Counter, Histogram, Registry
from ottla.observability.request_metrics import RequestMetrics


def test_one_name_and_labels_are_one_metric() -> None:
    registry = Registry()
    first = registry.counter("requests", {"api": "Fetch", "version": "12"})
    first.add()
    again = registry.counter("requests", {"version": "12", "api": "Fetch"})
    other = registry.counter("requests", {"api": "Fetch", "version": "13"})
    again.add(2)
    assert again is first
    assert (first.value, other.value) == (3, 0)


def test_a_name_is_one_kind_of_metric() -> None:
    registry = Registry()
    registry.counter("requests")
    with pytest.raises(ValueError, match="metric requests is a counter, not a gauge"):
        registry.gauge("requests", lambda: 1.0)


def test_a_gauge_is_asked_when_it_is_read() -> None:
    values = [1.0, 2.0]
    gauge = Registry().gauge("queue", lambda: values.pop(0))
    assert (gauge.value, gauge.value) == (1.0, 2.0)


def test_a_histogram_counts_values_up_to_its_bounds() -> None:
    histogram = Histogram((10, 100))
    for value in (0, 10, 11, 100, 101):
        histogram.record(value)
    assert histogram.counts == [2, 2, 1]
    assert (histogram.count, histogram.total) == (5, 222)
    assert (histogram.quantile(0.4), histogram.quantile(0.5), histogram.quantile(1)) == (10, 100, 100)
    assert Histogram((10,)).quantile(0.5) == 0


def test_samples_come_by_name_and_labels_and_announce_a_reader() -> None:
    registry = Registry()
    registry.counter("b", {"x": "2"})
    registry.counter("b", {"x": "1"})
    registry.gauge("a", lambda: 0.0)
    assert not registry.has_readers
    samples = [(sample.name, sample.labels) for sample in registry.samples()]
    assert samples == [("a", ()), ("b", (("x", "1"),)), ("b", (("x", "2"),))]
    assert registry.has_readers


def test_requests_are_counted_by_api_and_version() -> None:
    registry = Registry()
    metrics = RequestMetrics(registry)
    for size, spent_ns in ((100, 15_000), (50, 25_000)):
        metrics.record("Fetch", 12, size, spent_ns)
    labels = {"request": "Fetch", "version": "12"}
    values = {sample.name: sample.metric for sample in registry.samples() if dict(sample.labels) == labels}
    requests, size_counter, times = values["requests"], values["request_bytes"], values["request_time_ns"]
    assert isinstance(requests, Counter)
    assert isinstance(size_counter, Counter)
    assert isinstance(times, Histogram)
    assert (requests.value, size_counter.value, times.count, times.total) == (2, 150, 2, 40_000)
