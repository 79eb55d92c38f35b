"""Prometheus' protobuf format: messages `io.prometheus.client.MetricFamily`, each after its length.

It is the only format with native histograms. A Prometheus asks for it if it ingests them (--enable-feature=native-histograms).
The few messages are encoded here: the library for them would have to be generated from a file of Prometheus.
"""

import struct
from collections.abc import Iterable, Iterator
from itertools import accumulate, groupby
from operator import attrgetter
from typing import Final

from ottla.observability.families import COUNTER, GAUGE, HISTOGRAM, Buckets, Family
from ottla.observability.native_histogram import SCHEMA, NativeHistogram
from ottla.observability.varints import write_varint

CONTENT_TYPE: Final = (
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited; charset=utf-8"
)
_ACCEPTED: Final = "application/vnd.google.protobuf"
_REQUIRED: Final = {"proto=io.prometheus.client.metricfamily", "encoding=delimited"}
_TYPES: Final = {COUNTER: 0, GAUGE: 1, HISTOGRAM: 4}
_DOUBLE: Final = struct.Struct("<d")
_SMALLEST: Final = 2.0**-128
"""Width of the bucket for 0, as in Prometheus' own libraries."""

# Field numbers of the messages, with their wire types: 0 for integers, 1 for doubles, 2 for messages and strings.
_VARINT, _FIXED, _BYTES = 0, 1, 2


def is_wanted(accept: str) -> bool:
    """Return True if a client prefers this format to text, by the header Accept of its request."""
    qualities = {"protobuf": 0.0, "text": 0.0}
    for alternative in accept.lower().split(","):
        media_type, *parameters = (part.strip() for part in alternative.split(";"))
        quality = 1.0
        for parameter in parameters:
            name, _, text = parameter.partition("=")
            if name == "q":
                try:
                    quality = float(text)
                except ValueError:
                    quality = 0.0
        if media_type == _ACCEPTED and set(parameters) >= _REQUIRED:
            qualities["protobuf"] = max(qualities["protobuf"], quality)
        elif media_type in ("text/plain", "*/*"):
            qualities["text"] = max(qualities["text"], quality)
    return qualities["protobuf"] > qualities["text"]


def protobuf_of(families: Iterable[Family]) -> Iterator[bytes]:
    """Encode families. Families of one name follow each other, and become one message; those without samples are left out."""
    for _, same in groupby(families, key=attrgetter("name")):
        alike = list(same)
        metrics = [metric for family in alike for metric in _metrics(family)]
        if metrics:
            yield _family(alike[0], metrics)


def _family(family: Family, metrics: list[bytes]) -> bytes:
    head = _string(1, family.name) + _string(2, family.help) + _integer(3, _TYPES[family.kind])
    message = head + b"".join(_message(4, metric) for metric in metrics)
    return write_varint(len(message)) + message


def _metrics(family: Family) -> Iterator[bytes]:
    for values, value in family.samples:
        labels = b"".join(
            _message(1, _string(1, name) + _string(2, text)) for name, text in zip(family.labels, values, strict=True)
        )
        if isinstance(value, Buckets):
            yield labels + _message(7, _histogram(value))
        else:
            yield labels + _message(3 if family.kind == COUNTER else 2, _double(1, value))


def _histogram(value: Buckets) -> bytes:
    count = sum(value.counts) if value.native is None else value.native.count
    parts = [_integer(1, count), _double(2, value.total)]
    for bound, below in zip((*value.bounds, float("inf")), accumulate(value.counts), strict=True):
        parts.append(_message(3, _integer(1, below) + _double(2, bound)))
    if value.native is not None:
        parts += _native(value.native)
    return b"".join(parts)


def _native(histogram: NativeHistogram) -> Iterator[bytes]:
    yield _integer(5, _zigzag(SCHEMA)) + _double(6, _SMALLEST) + _integer(7, histogram.zeros)
    before = 0
    spans = histogram.spans()
    for span in spans:
        yield _message(12, _integer(1, _zigzag(span.offset)) + _integer(2, len(span.counts)))
    for span in spans:
        for count in span.counts:
            yield _integer(13, _zigzag(count - before))
            before = count
    if not spans:
        yield _message(12, b"")  # tells that the histogram is a native one


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _integer(field: int, value: int) -> bytes:
    return write_varint(field << 3 | _VARINT) + write_varint(value)


def _double(field: int, value: float) -> bytes:
    return write_varint(field << 3 | _FIXED) + _DOUBLE.pack(value)


def _message(field: int, body: bytes) -> bytes:
    return write_varint(field << 3 | _BYTES) + write_varint(len(body)) + body


def _string(field: int, text: str) -> bytes:
    return _message(field, text.encode())
