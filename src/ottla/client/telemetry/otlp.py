"""Metrics of a client as bytes: OTLP's `MetricsData`, without a protobuf library.

    MetricsData > ResourceMetrics > ScopeMetrics > Metric > Gauge or Sum > NumberDataPoint

A push has one resource, whose attributes identify the client, and one metric for each series. Names and attributes are those
of Apache Kafka's clients: `record-send-total` of the group `producer-metrics` is
`org.apache.kafka.producer.record.send.total`; in names of attributes `_` stands for `-`.
"""

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final

from ottla.client.metrics import Tags
from ottla.observability.varints import write_varint

_PREFIX: Final = "org.apache.kafka."
_NS_A_MS: Final = 1_000_000
_FIXED_64, _BYTES = 1, 2
_DELTA, _CUMULATIVE = 1, 2
_TIME: Final = Struct("<Q")
_DOUBLE: Final = Struct("<d")


def metric_name(group: str, name: str) -> str:
    """Return the name of a metric in pushes, and in OpenTelemetry."""
    return f"{_PREFIX}{group.removesuffix('-metrics')}.{name}".replace("-", ".").lower()


def gauge(name: str, tags: Tags, value: float, time_ms: int) -> bytes:
    """Encode a value of this moment."""
    return _message(2, _text(1, name) + _message(5, _message(1, _point(tags, value, time_ms))))


def total(name: str, tags: Tags, value: float, start_ms: int, time_ms: int, *, is_delta: bool) -> bytes:
    """Encode a sum since `start_ms`, which only increases: since the last push (`is_delta`), or since the start."""
    start = _fixed64(2, _TIME.pack(start_ms * _NS_A_MS))
    temporality = bytes((2 << 3, _DELTA if is_delta else _CUMULATIVE, 3 << 3, 1))
    points = _message(1, start + _point(tags, value, time_ms))
    return _message(2, _text(1, name) + _message(7, points + temporality))


def metrics_data(resource: Mapping[str, str], metrics: Iterable[bytes]) -> bytes:
    """Encode a push.

    resource  attributes of the client
    metrics   results of `gauge` and `total`
    """
    attributes = b"".join(_attribute(1, name, value) for name, value in resource.items())
    return _message(1, _message(1, attributes) + _message(2, b"".join(metrics)))


def _point(tags: Tags, value: float, time_ms: int) -> bytes:
    """Encode a data point; the client id is in the header of the request."""
    attributes = b"".join(_attribute(7, name.replace("-", "_"), text) for name, text in tags if name != "client-id")
    return attributes + _fixed64(3, _TIME.pack(time_ms * _NS_A_MS)) + _fixed64(4, _DOUBLE.pack(value))


def _attribute(number: int, name: str, value: str) -> bytes:
    return _message(number, _text(1, name) + _message(2, _text(1, value)))


def _text(number: int, text: str) -> bytes:
    return _message(number, text.encode())


def _message(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | _BYTES,)) + write_varint(len(content)) + content


def _fixed64(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | _FIXED_64,)) + content
