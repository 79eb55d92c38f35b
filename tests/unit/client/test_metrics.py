"""Statistics behind `metrics()` of clients."""

from math import isnan

import pytest

from ottla.client.metrics import MetricName, MetricValues, ProducerSensors, Sensor


def test_rates_and_averages_are_those_of_the_last_minute() -> None:
    sensor = Sensor()
    for second in range(100):
        sensor.record(2 if second < 30 else 4, second * 1000)
    assert (sensor.count, sensor.total) == (100, 2 * 30 + 4 * 70)
    assert sensor.average(100_000) == 4
    assert sensor.rate(100_000) == pytest.approx(4, rel=0.05)
    assert sensor.event_rate(100_000) == pytest.approx(1, rel=0.05)


def test_a_sensor_without_recent_values_has_no_average() -> None:
    sensor = Sensor()
    sensor.record(7, 0)
    assert sensor.maximum(1000) == 7
    assert isnan(sensor.maximum(200_000))
    assert isnan(sensor.average(200_000))
    assert sensor.rate(200_000) == 0
    assert sensor.total == 7


def test_a_short_burst_is_no_high_rate() -> None:
    sensor = Sensor()
    sensor.record(300, 10)
    assert sensor.rate(20) == pytest.approx(10)


def test_values_are_found_by_name_and_tags() -> None:
    sensors = ProducerSensors()
    sensors.record_acknowledged("a", 3, 100, 0)
    sensors.record_acknowledged("b", 5, 200, 0)
    values = sensors.values("writer", 1000)
    assert values.value("record-send-total") == 8
    assert values.value("record-send-total", topic="b") == 5
    assert values.value("byte-total", "producer-topic-metrics", topic="a") == 100
    tags = (("client-id", "writer"), ("topic", "a"))
    assert values[MetricName("producer-topic-metrics", "record-send-total", tags)] == 3
    with pytest.raises(KeyError):
        values.value("record-send-total", topic="c")


def test_latencies_are_kept_by_node() -> None:
    sensors = ProducerSensors()
    sensors.nodes.record(1, 10, 0)
    sensors.nodes.record(1, 20, 0)
    sensors.nodes.record(2, 5, 0)
    values = sensors.values("writer", 1000)
    assert values.value("request-latency-avg", "producer-node-metrics", node_id="node-1") == 15
    assert values.value("request-latency-max", "producer-node-metrics", node_id="node-2") == 5


def test_metrics_of_a_client_leave_out_topics_and_missing_values() -> None:
    values = MetricValues()
    client = (("client-id", "x"),)
    values.put("g", client, [("a", 1.0), ("b", float("nan"))])
    values.put("g", (*client, ("topic", "t")), [("a", 5.0)])
    assert values.of_client() == {"a": 1.0}
    assert str(MetricName("g", "a", client)) == "g:a:{client-id=x}"
