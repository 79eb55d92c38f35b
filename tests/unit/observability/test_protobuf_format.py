"""Families in Prometheus' protobuf format, read back by google.protobuf, and the choice of the format."""

from itertools import accumulate

import pytest

from ottla.observability.families import COUNTER, GAUGE, HISTOGRAM, Buckets, Family, single
from ottla.observability.native_histogram import NativeHistogram, merge_histograms
from ottla.observability.protobuf_format import is_wanted, protobuf_of
from tests.unit.observability.metric_family import read_families

PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"


def test_families_of_one_name_are_one_message() -> None:
    first, second = Family("size", GAUGE, "Size.", ("topic",)), Family("size", GAUGE, "Size.", ("topic", "partition"))
    first.add(7, "ä")
    second.add(-2.5, "b", "1")
    families = list(read_families(b"".join(protobuf_of([first, second, single("n_total", COUNTER, "N.", 3)]))))
    assert [(family.name, family.help, family.type) for family in families] == [
        ("size", "Size.", 1),
        ("n_total", "N.", 0),
    ]
    rows = [([(label.name, label.value) for label in row.label], row.gauge.value) for row in families[0].metric]
    assert rows == [([("topic", "ä")], 7.0), ([("topic", "b"), ("partition", "1")], -2.5)]
    assert families[1].metric[0].counter.value == 3.0


def test_a_histogram_has_classic_and_native_buckets() -> None:
    native = NativeHistogram()
    for value in (0.75, 1.0, 1.0, 4.0, 0.0):
        native.record(value)
    native.record(1e-6, 300)
    family = Family("seconds", HISTOGRAM, "Time.")
    family.add(Buckets([0.5, 1.0], [301, 3, 1], 6.7503, native))
    (read,) = read_families(b"".join(protobuf_of([family])))
    histogram = read.metric[0].histogram
    assert (histogram.sample_count, histogram.sample_sum, histogram.zero_count) == (305, 6.7503, 1)
    classic = [(bucket.upper_bound, bucket.cumulative_count) for bucket in histogram.bucket]
    assert classic == [(0.5, 301), (1.0, 304), (float("inf"), 305)]
    counts = accumulate(histogram.positive_delta)
    buckets, at = {}, 0
    for span in histogram.positive_span:
        at += span.offset
        for _ in range(span.length):
            buckets[at] = next(counts)
            at += 1
    assert buckets == {-159: 300, -3: 1, 0: 2, 16: 1}  # bucket i has values up to 2**(i / 8)


def test_values_are_in_the_bucket_below_their_bound() -> None:
    for bucket in range(-80, 80):
        histogram = NativeHistogram()
        histogram.record(2 ** (bucket / 8) * 0.999)
        (span,) = histogram.spans()
        assert span == (bucket, [1])


def test_histograms_are_added() -> None:
    first, second = NativeHistogram(), NativeHistogram()
    first.record(1.0, 3)
    second.record(1.0)
    second.record(0.0)
    assert merge_histograms([first, second]).spans() == [(0, [4])]
    assert merge_histograms([first, second]).count == 5


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", False),
        (PROTOBUF, True),
        (f"{PROTOBUF},application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        (f"text/plain;version=0.0.4;q=0.5,{PROTOBUF};q=0.2", False),
        ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text", False),
        ("application/vnd.google.protobuf;proto=other;encoding=delimited", False),
        (f"{PROTOBUF};q=x", False),
    ],
)
def test_the_format_is_what_the_request_prefers(accept: str, expected: bool) -> None:
    assert is_wanted(accept) is expected
