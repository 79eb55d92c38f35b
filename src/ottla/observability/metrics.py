"""Metrics over HTTP in Prometheus' text format, or in its protobuf format if the request prefers it.

Exports the metrics of a broker and those that clients have pushed to it (KIP-714). Names of the latter are converted to those
of Prometheus ("org.apache.kafka.producer.request.rate" becomes `org_apache_kafka_producer_request_rate`); attributes become
labels, besides `client_id`, `client_instance_id` and `principal`. A sum with delta temporality, the default of clients, is
exported as a gauge with the value of the last push.

The libraries (prometheus-client, opentelemetry-proto) come with the extra `metrics`; nothing else imports this file.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, MetricsData, NumberDataPoint
from prometheus_client import GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from ottla.environment.http_serving import Page, serve_pages
from ottla.observability import protobuf_format
from ottla.observability.client_metrics import ClientMetrics
from ottla.observability.families import CONTENT_TYPE, COUNTER, GAUGE, Family, text_of

Instances = Callable[[], Mapping[bytes, ClientMetrics]]
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]")
_Family = GaugeMetricFamily | CounterMetricFamily


class ClientMetricsCollector(Collector):
    """Collector of the newest push of every client instance; `instances` is called on the thread of the HTTP request."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances

    def collect(self) -> Iterator[_Family]:
        """Iterate over the metric families: one for each metric and set of labels."""
        pushes = CounterMetricFamily(
            "ottla_client_metrics_pushes", "Pushes that a client instance has made.", labels=_OWN_LABELS
        )
        families: dict[tuple[str, tuple[str, ...]], _Family] = {}
        for instance, pushed in self._instances().items():
            own = (pushed.client_id, str(uuid.UUID(bytes=instance)), pushed.principal)
            pushes.add_metric(own, pushed.pushes)
            if not pushed.terminated:
                for metric in _metrics(pushed.otlp):
                    _add(families, metric, own)
        yield pushes
        yield from families.values()


_OWN_LABELS: Final = ("client_id", "client_instance_id", "principal")


def _metrics(otlp: bytes) -> Iterator[Metric]:
    """Decode the metrics of a push; empty if it is not valid OTLP, which is an error of the client."""
    data = MetricsData()
    try:
        data.ParseFromString(otlp)
    except DecodeError:
        return
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            yield from scope.metrics


def _add(families: dict[tuple[str, tuple[str, ...]], _Family], metric: Metric, own: tuple[str, ...]) -> None:
    grows = metric.sum.is_monotonic and (
        metric.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    )
    name = _name(metric.name)
    for point in (*metric.gauge.data_points, *metric.sum.data_points):
        labels = {_name(attribute.key): _text(attribute.value) for attribute in point.attributes}
        key = name, tuple(labels)
        if key not in families:
            family = CounterMetricFamily if grows else GaugeMetricFamily
            families[key] = family(name, metric.description or metric.name, labels=(*_OWN_LABELS, *labels))
        families[key].add_metric((*own, *labels.values()), _value(point))


def _value(point: NumberDataPoint) -> float:
    return point.as_double if point.WhichOneof("value") == "as_double" else float(point.as_int)


def _text(value: Any) -> str:
    kind = value.WhichOneof("value")
    return "" if kind is None else str(getattr(value, kind))


def _name(text: str) -> str:
    name = _NOT_IN_NAMES.sub("_", text)
    return f"_{name}" if name[:1].isdigit() else name


def metrics_page(collector: Collector) -> Page:
    """Return the metrics of a collector in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return Page(generate_latest(registry), content_type=CONTENT_TYPE)


def broker_page(families: Iterable[Family], clients: Mapping[bytes, ClientMetrics], accept: str = "") -> Page:
    """Return the metrics of a broker, those of its process, and those that clients have pushed.

    accept  header Accept of the request: protobuf with native histograms if it is preferred there, else text
    """
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(ClientMetricsCollector(lambda: clients))
    if protobuf_format.is_wanted(accept):
        everything = chain(families, _converted(registry))
        return Page(b"".join(protobuf_format.protobuf_of(everything)), content_type=protobuf_format.CONTENT_TYPE)
    text = "".join(text_of(families)).encode()
    return Page(text + generate_latest(registry), content_type=CONTENT_TYPE)


def _converted(registry: CollectorRegistry) -> Iterator[Family]:
    """Convert the families of a registry, which are counters and gauges. Families of one name follow each other."""
    by_name: dict[str, list[Family]] = {}
    for metric in registry.collect():
        for sample in metric.samples:
            if sample.name.endswith("_created"):
                continue
            kind = COUNTER if metric.type == "counter" else GAUGE
            family = Family(sample.name, kind, metric.documentation, tuple(sample.labels))
            family.add(sample.value, *sample.labels.values())
            by_name.setdefault(sample.name, []).append(family)
    return chain.from_iterable(by_name.values())


def serve_collector(host: str, port: int, collector: Collector) -> tuple[int, Callable[[], None]]:
    """Serve GET /metrics in a thread; returns the port (a free one for 0) and a function that stops it. Raises OSError."""
    return serve_pages(host, port, {"/metrics": lambda _: metrics_page(collector)})
