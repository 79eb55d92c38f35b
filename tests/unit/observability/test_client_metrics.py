"""Metrics that clients have pushed, as they are stored: what the client is subscribed to, within bounds."""

import random
import time

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from ottla.observability.client_metrics import (
    MOST_ATTRIBUTES,
    MOST_BYTES,
    MOST_SERIES,
    ClientMetrics,
    ReceivedMetrics,
    select_metrics,
)


def push_of(*names: str, points: int = 1, text: str = "") -> bytes:
    """OTLP with gauges of these names."""
    data = MetricsData()
    for name in names:
        resource = data.resource_metrics.add(schema_url="u")
        metric = resource.scope_metrics.add().metrics.add(name=name, description=text)
        for number in range(points):
            metric.gauge.data_points.add(as_int=number)
    return bytes(data.SerializeToString())


def names_in(otlp: bytes) -> list[str]:
    data = MetricsData()
    data.ParseFromString(otlp)
    return [m.name for resource in data.resource_metrics for scope in resource.scope_metrics for m in scope.metrics]


ONE, OTHER, THREE = push_of("one"), push_of("other"), push_of("three")


def test_the_newest_push_of_each_instance_is_kept() -> None:
    received = ReceivedMetrics()
    received.receive(b"a" * 16, "c", "User:a", ONE, 5, terminated=False)
    received.receive(b"b" * 16, "", "User:b", OTHER, 6, terminated=False)
    received.receive(b"a" * 16, "c", "User:a", THREE, 7, terminated=False)
    received.receive(b"a" * 16, "c", "User:a", b"", 8, terminated=True)
    assert received.instances() == {
        b"b" * 16: ClientMetrics("", "User:b", 1, len(OTHER), 6, OTHER, terminated=False, series=1),
        b"a" * 16: ClientMetrics("c", "User:a", 3, len(ONE + THREE), 8, THREE, terminated=True, series=1),
    }
    assert (received.pushes, received.size) == (4, len(ONE + OTHER + THREE))


def test_those_that_pushed_long_ago_go_first() -> None:
    received = ReceivedMetrics()
    for number in range(1025):
        received.receive(number.to_bytes(16, "big"), "", "User:b", ONE, number, terminated=False)
    assert len(received.instances()) == 1024
    assert bytes(16) not in received.instances()
    assert received.stored == 1024 * len(ONE)


def test_only_subscribed_metrics_are_stored() -> None:
    otlp = push_of("a.x", "b.y", "a.z", "ab")
    assert select_metrics(otlp, ["*"]) == (otlp, 4)
    assert names_in(select_metrics(otlp, ["a."])[0]) == ["a.x", "a.z"]
    assert names_in(select_metrics(otlp, ["b", "a.z"])[0]) == ["b.y", "a.z"]
    assert select_metrics(otlp, ["c"]) == (b"", 0)


def test_nothing_is_stored_without_a_subscription() -> None:
    received = ReceivedMetrics()
    received.receive(b"a" * 16, "c", "User:a", ONE, 5, terminated=False, prefixes=())
    assert (received.instances(), received.pushes, received.stored) == ({}, 1, 0)


def test_the_sum_of_all_pushes_is_bounded() -> None:
    """120 pushes of 16 MB kept 1.9 GB."""
    received = ReceivedMetrics()
    large = push_of("m", text="x" * (16 << 20))
    for number in range(120):
        received.receive(number.to_bytes(16, "big"), "", "User:b", large, number, terminated=False)
        assert received.stored == sum(len(kept.otlp) for kept in received.instances().values()) <= MOST_BYTES
    assert list(received.instances()) == [number.to_bytes(16, "big") for number in (117, 118, 119)]


def test_the_series_of_one_push_are_bounded() -> None:
    names = [f"m{number}" for number in range(3 * MOST_SERIES)]
    kept, series = select_metrics(push_of(*names), ["*"])
    assert (names_in(kept), series) == (names[:MOST_SERIES], MOST_SERIES)
    assert select_metrics(push_of("m", points=MOST_SERIES + 1), ["*"]) == (b"", 0)
    assert select_metrics(push_of("m", points=100_000), ["*"]) == (b"", 0)


@pytest.mark.parametrize("count", [MOST_ATTRIBUTES, MOST_ATTRIBUTES + 1, 400_000])
def test_the_attributes_of_a_point_are_bounded(count: int) -> None:
    """400,000 of them in one point, 109 KB compressed, made a scrape last 8 s."""
    data = MetricsData()
    metrics = data.resource_metrics.add().scope_metrics.add().metrics
    point = metrics.add(name="many").gauge.data_points.add(as_int=1)
    for number in range(count):
        point.attributes.add(key=str(number))
    metrics.add(name="few").gauge.data_points.add(as_int=1)
    begin = time.process_time()
    kept, _ = select_metrics(data.SerializeToString(), ["*"])
    assert time.process_time() - begin < 0.2
    assert ("many" in names_in(kept)) == (count <= MOST_ATTRIBUTES)


@pytest.mark.parametrize(
    "unit", [b"\x0a\x00", b"\x0a\x02\x12\x00", b"\x0a\x04\x12\x02\x12\x00", b"\x10\x00", b"\x12\x00"]
)
def test_a_dense_push_takes_milliseconds(unit: bytes) -> None:
    """16 MB of the smallest fields, on the event loop."""
    otlp = unit * ((16 << 20) // len(unit))
    begin = time.process_time()
    select_metrics(otlp, ["*"])
    assert time.process_time() - begin < 0.2


def test_damaged_pushes_are_dropped(dice_seed: int) -> None:
    rng = random.Random(dice_seed)
    otlp = push_of("a.x", "b.y", points=3)
    for _ in range(3000):
        damaged = bytearray(otlp)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        kept, _ = select_metrics(bytes(damaged[: rng.randrange(len(damaged) + 1)]), ["a."])
        assert len(kept) <= len(otlp) + 10
