"""Metrics over HTTP in Prometheus' text format, or in its protobuf format if the request prefers it.

Exports the metrics of a broker and those that clients have pushed to it (KIP-714). Names of the latter are converted to those
of Prometheus, with a prefix of their own, as clients choose them freely: "org.apache.kafka.producer.request.rate" becomes
`client_org_apache_kafka_producer_request_rate`. Attributes become labels, besides `client_id`, `client_instance_id` and
`principal`. A sum with delta temporality, the default of clients, is exported as a gauge with the value of the last push.

The libraries (prometheus-client, opentelemetry-proto) come with the extra `metrics`; nothing else imports this file.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, MetricsData, NumberDataPoint
from prometheus_client import GCCollector, ProcessCollector, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from ottla.environment.http_server import HttpResponse, serve_pages
from ottla.observability import protobuf_format
from ottla.observability.client_metrics import ClientMetrics
from ottla.observability.families import CONTENT_TYPE, COUNTER, GAUGE, Family, single, text_of

PREFIX: Final = "client_"
"""Begin of the names of pushed metrics: no metric of a broker or its process begins so."""
MOST_SERIES: Final = 20_000
"""Maximum number of exported series of clients."""
MOST_TEXT: Final = 8 << 20
"""Maximum number of characters of their labels together."""
_LONGEST_NAME: Final = 200
_LONGEST_TEXT: Final = 256
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]")
_OWN_LABELS: Final = ("client_id", "client_instance_id", "principal")
_Labels = tuple[tuple[str, str], ...]


class _Series(NamedTuple):
    """Exported samples of one name: the kind and help of the first metric with that name, and values by labels."""

    kind: str
    help: str
    values: dict[_Labels, float]


def client_families(clients: Mapping[bytes, ClientMetrics]) -> Iterator[Family]:
    """Iterate over the families of the newest push of every client instance, and of the numbers of pushes.

    Names begin with PREFIX. Attributes never replace the labels of the broker, nor those that Prometheus reserves. Above
    MOST_SERIES series, or MOST_TEXT characters, the rest is left out, and counted.
    """
    pushes = Family(
        "ottla_client_metrics_pushes_total", COUNTER, "Pushes that a client instance has made.", _OWN_LABELS
    )
    by_name: dict[str, _Series] = {}
    count = left_out = text_size = 0
    for instance, pushed in clients.items():
        own = (pushed.client_id, str(uuid.UUID(bytes=instance)), pushed.principal)
        pushes.add(pushed.pushes, *own)
        if pushed.terminated:
            continue
        if count >= MOST_SERIES or text_size >= MOST_TEXT:
            left_out += pushed.series  # without a look at them
            continue
        for metric in _metrics(pushed.otlp):
            for labels, value in _points(metric):
                if count >= MOST_SERIES or text_size >= MOST_TEXT:
                    left_out += 1
                    continue
                text_size += sum(len(label) + len(text) for label, text in labels)
                name, kind = _family_of(metric)
                series = by_name.setdefault(
                    name, _Series(kind, (metric.description or metric.name)[:_LONGEST_TEXT], {})
                )
                before = len(series.values)
                series.values[*zip(_OWN_LABELS, own, strict=True), *labels] = value
                count += len(series.values) - before
    yield pushes
    text = "Series of clients that are not exported, as they are too many."
    yield single("ottla_client_metrics_left_out_series", GAUGE, text, left_out)
    for name, series in by_name.items():
        for names, rows in _by_label_names(series.values).items():
            family = Family(name, series.kind, series.help, names)
            for texts, value in rows:
                family.add(value, *texts)
            yield family


def _by_label_names(values: Mapping[_Labels, float]) -> dict[tuple[str, ...], list[tuple[tuple[str, ...], float]]]:
    rows: dict[tuple[str, ...], list[tuple[tuple[str, ...], float]]] = {}
    for labels, value in values.items():
        names = tuple(name for name, _ in labels)
        rows.setdefault(names, []).append((tuple(text for _, text in labels), value))
    return rows


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


def _family_of(metric: Metric) -> tuple[str, str]:
    """Return the name and kind of the family of a metric."""
    grows = metric.sum.is_monotonic and (
        metric.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    )
    name = PREFIX + _NOT_IN_NAMES.sub("_", metric.name[:_LONGEST_NAME])
    return (f"{name}_total", COUNTER) if grows else (name, GAUGE)


def _points(metric: Metric) -> Iterator[tuple[_Labels, float]]:
    """Iterate over the points of a metric: labels from its attributes, sorted by name, and the value."""
    for point in (*metric.gauge.data_points, *metric.sum.data_points):
        labels = {_label(attribute.key): _text(attribute.value) for attribute in point.attributes}
        yield tuple(sorted(labels.items())), _value(point)


def _value(point: NumberDataPoint) -> float:
    return point.as_double if point.WhichOneof("value") == "as_double" else float(point.as_int)


def _text(value: Any) -> str:
    kind = value.WhichOneof("value")
    return "" if kind is None else str(getattr(value, kind))[:_LONGEST_TEXT]


def _label(key: str) -> str:
    """Return the label of an attribute: neither one of the broker's own, nor one that Prometheus reserves ("__name__")."""
    name = _NOT_IN_NAMES.sub("_", key[:_LONGEST_NAME])
    is_taken = name in _OWN_LABELS or name.startswith("__") or not name
    return f"attribute_{name}" if is_taken else f"_{name}" if name[0].isdigit() else name


def metrics_page(*collectors: Collector) -> HttpResponse:
    """Return the metrics of collectors in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE)


def broker_page(families: Iterable[Family], clients: Mapping[bytes, ClientMetrics], accept: str = "") -> HttpResponse:
    """Return the metrics of a broker, those of its process, and those that clients have pushed.

    accept  header Accept of the request: protobuf with native histograms if it is preferred there, else text
    """
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    everything = chain(families, client_families(clients))
    if protobuf_format.is_wanted(accept):
        body = b"".join(protobuf_format.protobuf_of(chain(everything, _convert(registry))))
        return HttpResponse(body, content_type=protobuf_format.CONTENT_TYPE)
    text = "".join(text_of(everything)).encode("utf-8", "replace")
    return HttpResponse(text + generate_latest(registry), content_type=CONTENT_TYPE)


def _convert(registry: CollectorRegistry) -> Iterator[Family]:
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


def serve_collectors(host: str, port: int, *collectors: Collector) -> tuple[int, Callable[[], None]]:
    """Serve GET /metrics in a thread; returns the port (a free one for 0) and a function that stops it. Raises OSError."""
    return serve_pages(host, port, {"/metrics": lambda _: metrics_page(*collectors)})
