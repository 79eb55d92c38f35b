"""Metrics that clients have pushed, as they are exported to Prometheus."""

import re
import time
from collections.abc import Mapping
from concurrent.futures import Future

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from ottla.broker.metrics.collection import BrokerMetrics, Reading
from ottla.broker.metrics.selection import TopicSelection
from ottla.observability.client_metrics import MOST_ATTRIBUTES, ClientMetrics
from ottla.observability.metrics import MOST_SERIES, MOST_TEXT, PREFIX, broker_page
from ottla.testing import Kafka

DELTA, CUMULATIVE = 1, 2
INSTANCE = bytes(range(16))
OWN = 'client_id="c",client_instance_id="00010203-0405-0607-0809-0a0b0c0d0e0f"'
PRINCIPAL = 'principal="User:a"'
LABELS = f"{OWN},{PRINCIPAL}"


def shown(otlp: bytes, *, terminated: bool = False) -> list[str]:
    """The samples of one push, without comments and without the number of series that are left out."""
    clients = {INSTANCE: ClientMetrics("c", "User:a", 3, len(otlp), 5, otlp, terminated, 1)}
    text = broker_page((), clients).body.decode()
    lines = [line for line in text.splitlines() if not line.startswith(("#", "process_", "python_"))]
    assert lines.pop(1) == "ottla_client_metrics_left_out_series 0"
    return lines


def pushed() -> MetricsData:
    data = MetricsData()
    metrics = data.resource_metrics.add().scope_metrics.add().metrics
    gauge = metrics.add(name="org.apache.kafka.consumer.fetch-rate")
    for node, value in (("1", 0.5), ("2", 1.5)):
        point = gauge.gauge.data_points.add(as_double=value)
        point.attributes.add(key="node.id").value.string_value = node
    for name, temporality in (("delta", DELTA), ("2all", CUMULATIVE)):
        metric = metrics.add(name=name)
        metric.sum.is_monotonic = True
        metric.sum.aggregation_temporality = temporality
        metric.sum.data_points.add(as_int=7)
    return data


def one(name: str, **attributes: str) -> bytes:
    data = MetricsData()
    add(data, name, attributes)
    return bytes(data.SerializeToString())


def add(data: MetricsData, name: str, attributes: Mapping[str, str], value: float = 1) -> None:
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name=name)
    point = metric.gauge.data_points.add(as_double=value)
    for key, text in attributes.items():
        point.attributes.add(key=key).value.string_value = text


def test_names_labels_and_kinds() -> None:
    assert shown(pushed().SerializeToString()) == [
        f"ottla_client_metrics_pushes_total{{{LABELS}}} 3",
        f'client_org_apache_kafka_consumer_fetch_rate{{{LABELS},node_id="1"}} 0.5',
        f'client_org_apache_kafka_consumer_fetch_rate{{{LABELS},node_id="2"}} 1.5',
        f"client_delta{{{LABELS}}} 7.0",
        f"client_2all_total{{{LABELS}}} 7.0",
    ]


def test_clients_that_left_or_pushed_invalid_metrics_are_only_counted() -> None:
    counted = [f"ottla_client_metrics_pushes_total{{{LABELS}}} 3"]
    assert shown(pushed().SerializeToString(), terminated=True) == counted
    assert shown(b"no OTLP") == counted


def test_no_client_pushes_a_metric_of_the_broker() -> None:
    """Under any name of a family of the broker, whatever characters a client uses for it."""
    with Kafka() as kafka:
        server = kafka.server
        metrics = BrokerMetrics(server, lambda: 0, TopicSelection())
        read: Future[Reading] = Future()
        kafka._call(lambda: metrics.read(read.set_result, lambda: None))
        families = read.result(10).families
        kafka._call(metrics.close)
    names = {family.name for family in families}
    assert "kafka_controller_kafkacontroller_offlinepartitionscount" in names
    assert not [name for name in names if name.startswith(PREFIX)]
    for name in names:
        for own in (name, name.replace("_", "."), name.removesuffix("_total")):
            (sample,) = shown(one(own))[1:]
            assert sample.startswith(PREFIX)
    text = broker_page((), {}).body.decode()
    assert not [line for line in text.splitlines() if line.startswith(PREFIX)]


@pytest.mark.parametrize(
    "key", ["__name__", "client_id", "client.id", "principal", "client_instance_id", "", "\u2028", "9"]
)
def test_no_attribute_replaces_a_label_of_the_broker(key: str) -> None:
    (sample,) = shown(one("m", **{key: "forged"}))[1:]
    name, labels, _ = re.fullmatch(r"([a-zA-Z0-9_]+)\{(.*)\} (\S+)", sample).groups()  # type: ignore[union-attr]
    assert name == "client_m"
    assert labels.startswith(f"{LABELS},")
    names = re.findall(r'([a-zA-Z_][a-zA-Z0-9_]*)="', labels)
    assert len(names) == len(set(names)) == 4
    assert not names[3].startswith("__")


def test_text_of_a_client_stays_in_its_place() -> None:
    """Line breaks and quotes in names, descriptions and attributes make no further samples."""
    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name='a\n"} 1\nb', description="x\nforged 1\r")
    point = metric.gauge.data_points.add(as_int=1)
    point.attributes.add(key='k"\n').value.string_value = 'v"} 1\nforged 1\n'
    assert len(shown(data.SerializeToString())) == 2


def test_series_are_bounded_and_a_scrape_stays_fast() -> None:
    """Half a megabyte of series, each with another name and label, made a scrape last 13 s."""
    clients = {}
    for number in range(30):
        data = MetricsData()
        for index in range(1000):
            add(data, f"m{number}-{index}", {f"k{index}": "v"})
        otlp = data.SerializeToString()
        clients[number.to_bytes(16, "big")] = ClientMetrics("c", "User:a", 1, 1, 1, otlp, False, 1000)
    begin = time.process_time()
    lines = broker_page((), clients).body.decode().splitlines()
    spent = time.process_time() - begin
    assert sum(line.startswith(PREFIX) for line in lines) == MOST_SERIES
    assert f"ottla_client_metrics_left_out_series {30_000 - MOST_SERIES}" in lines
    assert spent < 5, f"{spent:.1f} s of CPU"


def test_the_labels_of_all_series_are_bounded() -> None:
    """Series with long labels, of 1,024 clients: 20,000 of them would be a page of 150 MB."""
    data = MetricsData()
    for index in range(50):
        add(data, f"m{index}", {f"{number}{'k' * 190}": "v" * 256 for number in range(MOST_ATTRIBUTES)})
    otlp = data.SerializeToString()
    clients = {
        number.to_bytes(16, "big"): ClientMetrics("c", "User:a", 1, 1, 1, otlp, False, 50) for number in range(1024)
    }
    begin = time.process_time()
    page = broker_page((), clients).body
    spent = time.process_time() - begin
    lines = page.decode().splitlines()
    shown = sum(line.startswith(PREFIX) for line in lines)
    assert 1000 < shown < 2000
    assert f"ottla_client_metrics_left_out_series {1024 * 50 - shown}" in lines
    assert len(page) < 2 * MOST_TEXT
    assert spent < 2, f"{spent:.1f} s of CPU"
