"""What clients have pushed, as Prometheus is told it."""

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from prometheus_client import generate_latest
from prometheus_client.registry import CollectorRegistry

from ottla.observability.client_metrics import ClientMetrics
from ottla.observability.metrics import ClientMetricsCollector

DELTA, CUMULATIVE = 1, 2
INSTANCE = bytes(range(16))
OWN = 'client_id="c",client_instance_id="00010203-0405-0607-0809-0a0b0c0d0e0f"'
PRINCIPAL = 'principal="User:a"'
LABELS = f"{OWN},{PRINCIPAL}"


def shown(otlp: bytes, *, terminated: bool = False) -> list[str]:
    """The samples, without comments."""
    registry = CollectorRegistry(auto_describe=False)
    pushed = {INSTANCE: ClientMetrics("c", "User:a", 3, len(otlp), 5, otlp, terminated)}
    registry.register(ClientMetricsCollector(lambda: pushed))
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


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


def test_names_labels_and_kinds() -> None:
    assert shown(pushed().SerializeToString()) == [
        f"ottla_client_metrics_pushes_total{{{LABELS}}} 3.0",
        f'org_apache_kafka_consumer_fetch_rate{{{OWN},node_id="1",{PRINCIPAL}}} 0.5',
        f'org_apache_kafka_consumer_fetch_rate{{{OWN},node_id="2",{PRINCIPAL}}} 1.5',
        f"delta{{{LABELS}}} 7.0",
        f"_2all_total{{{LABELS}}} 7.0",
    ]


def test_who_has_left_and_who_pushed_nonsense_counts_only() -> None:
    counted = [f"ottla_client_metrics_pushes_total{{{LABELS}}} 3.0"]
    assert shown(pushed().SerializeToString(), terminated=True) == counted
    assert shown(b"no OTLP") == counted
