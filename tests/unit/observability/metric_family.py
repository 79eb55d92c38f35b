"""Messages of Prometheus' metrics.proto, read by google.protobuf from the numbers and types of their fields."""

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE: Final = "io.prometheus.client"
_MESSAGES: Final = {
    "LabelPair": {"name": (1, "string"), "value": (2, "string")},
    "Gauge": {"value": (1, "double")},
    "Counter": {"value": (1, "double")},
    "BucketSpan": {"offset": (1, "sint32"), "length": (2, "uint32")},
    "Bucket": {"cumulative_count": (1, "uint64"), "upper_bound": (2, "double")},
    "Histogram": {
        "sample_count": (1, "uint64"),
        "sample_sum": (2, "double"),
        "bucket": (3, "*Bucket"),
        "schema": (5, "sint32"),
        "zero_threshold": (6, "double"),
        "zero_count": (7, "uint64"),
        "positive_span": (12, "*BucketSpan"),
        "positive_delta": (13, "*sint64"),
    },
    "Metric": {
        "label": (1, "*LabelPair"),
        "gauge": (2, "Gauge"),
        "counter": (3, "Counter"),
        "histogram": (7, "Histogram"),
    },
    "MetricFamily": {"name": (1, "string"), "help": (2, "string"), "type": (3, "int32"), "metric": (4, "*Metric")},
}


def _message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="metrics.proto", package=_PACKAGE)
    for message, fields in _MESSAGES.items():
        declared = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            added = declared.field.add(name=name, number=number)
            added.label = added.LABEL_REPEATED if kind.startswith("*") else added.LABEL_OPTIONAL
            plain = kind.removeprefix("*")
            if plain in _MESSAGES:
                added.type = added.TYPE_MESSAGE
                added.type_name = f".{_PACKAGE}.{plain}"
            else:
                added.type = getattr(added, f"TYPE_{plain.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.MetricFamily"))


_FAMILY: Final = _message_class()


def read_families(data: bytes) -> Iterator[Any]:
    """Read messages, each after its length."""
    at = 0
    while at < len(data):
        size = shift = 0
        while True:
            byte = data[at]
            at += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield _FAMILY.FromString(data[at : at + size])
        at += size
