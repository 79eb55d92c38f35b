"""Output of consumed records: Kafka's message formatters, by their class names.

A formatter is named by its class, with or without package, and configured by properties (print.key=true). The same holds for
deserializers; the default is StringDeserializer.
"""

import json
import logging
import struct
import uuid
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, BinaryIO, Final, Protocol

import click

from ottla.cli.properties import properties
from ottla.records.record import Record

_logger = logging.getLogger("ottla.console")
TextDeserializer = Callable[[bytes], bytes]
DEFAULT_FORMATTER: Final = "DefaultMessageFormatter"


class Formatter(Protocol):
    """Formatter of records."""

    def write(self, record: Record, out: BinaryIO) -> None:
        """Write one record. Raises ValueError if its bytes do not fit the deserializer."""


def _number(layout: str) -> TextDeserializer:
    size = struct.calcsize(layout)

    def deserialize(data: bytes) -> bytes:
        if len(data) != size:
            raise ValueError(f"{len(data)} bytes are not a number of {size} bytes")
        return str(struct.unpack(layout, data)[0]).encode()

    return deserialize


def _string(data: bytes) -> bytes:
    return data


def _escape(data: bytes) -> bytes:
    """Return bytes as Kafka's class Bytes prints them: what is not printable ASCII, and a backslash, as hexadecimal number."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02X}" for byte in data).encode()


def _uuid(data: bytes) -> bytes:
    return str(uuid.UUID(data.decode())).encode()


def _void(data: bytes) -> bytes:
    raise ValueError(f"{len(data)} bytes, but VoidDeserializer expects none")


_DESERIALIZERS: Final[dict[str, TextDeserializer]] = {
    "ByteArrayDeserializer": _string,
    "ByteBufferDeserializer": _string,
    "BytesDeserializer": _escape,
    "DoubleDeserializer": _number(">d"),
    "FloatDeserializer": _number(">f"),
    "IntegerDeserializer": _number(">i"),
    "LongDeserializer": _number(">q"),
    "ShortDeserializer": _number(">h"),
    "StringDeserializer": _string,
    "UUIDDeserializer": _uuid,
    "VoidDeserializer": _void,
}


def deserializer(name: str) -> TextDeserializer:
    """Return a deserializer by class name, with or without package. Raises BadParameter."""
    chosen = _DESERIALIZERS.get(name.rpartition(".")[2])
    if chosen is None:
        raise click.BadParameter(f"{name} is not a deserializer; choose from {', '.join(_DESERIALIZERS)}")
    return chosen


class DefaultMessageFormatter:
    """Formatter of values, one per line; print.* properties add other fields."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._parts = {
            part: properties.get(f"print.{part}", "true" if part == "value" else "false").strip().lower() == "true"
            for part in ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
        }
        self._separator = properties.get("key.separator", "\t").encode()
        self._line = properties.get("line.separator", "\n").encode()
        self._between_headers = properties.get("headers.separator", ",").encode()
        self._null = properties.get("null.literal", "null").encode()
        self._key = deserializer(properties.get("key.deserializer", "StringDeserializer"))
        self._value = deserializer(properties.get("value.deserializer", "StringDeserializer"))
        self._header = deserializer(properties.get("headers.deserializer", "StringDeserializer"))

    def write(self, record: Record, out: BinaryIO) -> None:
        """Write one record as Kafka's formatter of this name does."""
        parts = self._parts
        cells: list[bytes] = []
        if parts["timestamp"]:
            kind = "LogAppendTime" if record.timestamp_type else "CreateTime"
            cells.append(b"NO_TIMESTAMP" if record.timestamp < 0 else f"{kind}:{record.timestamp}".encode())
        if parts["partition"]:
            cells.append(b"Partition:%d" % record.partition)
        if parts["offset"]:
            cells.append(b"Offset:%d" % record.offset)
        if parts["delivery"]:
            cells.append(b"Delivery:%d" % record.delivery_count if record.delivery_count else b"Delivery:NOT_PRESENT")
        if parts["epoch"]:
            cells.append(b"Epoch:%d" % record.leader_epoch if record.leader_epoch >= 0 else b"Epoch:NOT_PRESENT")
        if parts["headers"]:
            cells.append(self._headers(record))
        if parts["key"]:
            cells.append(self._null if record.key is None else self._key(record.key))
        if parts["value"]:
            cells.append(self._null if record.value is None else self._value(record.value))
        if cells:
            out.write(self._separator.join(cells) + self._line)

    def _headers(self, record: Record) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        return self._between_headers.join(
            name.encode() + b":" + (self._null if value is None else self._header(value))
            for name, value in record.headers
        )


class LoggingMessageFormatter:
    """Default formatter that also logs every record."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._default = DefaultMessageFormatter(properties)

    def write(self, record: Record, out: BinaryIO) -> None:
        """Write one record as Kafka's formatter of this name does."""
        self._default.write(record, out)
        kind = "LogAppendTime" if record.timestamp_type else "CreateTime"
        stamp = f"{kind}:{record.timestamp}, " if record.timestamp >= 0 else ""
        key = "null" if record.key is None else record.key.decode("utf-8", "replace")
        value = "null" if record.value is None else record.value.decode("utf-8", "replace")
        _logger.info("%skey:%s, value:%s", stamp, key, value)


class JsonFormatter:
    """Ottla's formatter of records as JSON objects, one per line.

    Keys, values and headers are text as their deserializers write it; invalid UTF-8 is replaced.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._key = deserializer(properties.get("key.deserializer", "StringDeserializer"))
        self._value = deserializer(properties.get("value.deserializer", "StringDeserializer"))
        self._header = deserializer(properties.get("headers.deserializer", "StringDeserializer"))

    def write(self, record: Record, out: BinaryIO) -> None:
        """Write one record as a JSON object."""
        document: dict[str, Any] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp if record.timestamp >= 0 else None,
            "timestamp_type": "LogAppendTime" if record.timestamp_type else "CreateTime",
            "leader_epoch": record.leader_epoch if record.leader_epoch >= 0 else None,
            "headers": [[name, _text(value, self._header)] for name, value in record.headers],
            "key": _text(record.key, self._key),
            "value": _text(record.value, self._value),
        }
        if record.delivery_count:
            document["delivery_count"] = record.delivery_count
        out.write(json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode() + b"\n")


def _text(data: bytes | None, read: TextDeserializer) -> str | None:
    return None if data is None else read(data).decode("utf-8", "replace")


class NoOpMessageFormatter:
    """Formatter that writes nothing."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        del properties

    def write(self, record: Record, out: BinaryIO) -> None:
        """Write one record as Kafka's formatter of this name does."""


_FORMATTERS: Final[dict[str, Callable[[Mapping[str, str]], Formatter]]] = {
    "DefaultMessageFormatter": DefaultMessageFormatter,
    "LoggingMessageFormatter": LoggingMessageFormatter,
    "NoOpMessageFormatter": NoOpMessageFormatter,
}
_INTERNAL: Final = {
    "GroupMetadataMessageFormatter": "internal_formatters:group_metadata",
    "OffsetsMessageFormatter": "internal_formatters:offsets",
    "RemoteLogMetadataFormatter": "remote_log_metadata:RemoteLogMetadataFormatter",
    "ShareGroupMessageFormatter": "internal_formatters:share_groups",
    "ShareGroupStateMessageFormatter": "internal_formatters:share_state",
    "TransactionLogMessageFormatter": "internal_formatters:transactions",
}
"""Formatters of internal topics, imported on first use because they import the coordinators."""
_OLD: Final = frozenset(
    {
        "GroupMetadataManager$GroupMetadataMessageFormatter",
        "GroupMetadataManager$OffsetsMessageFormatter",
        "TransactionLog$TransactionLogMessageFormatter",
    }
)
"""Names before Kafka 4, which removed them."""


def formatter(name: str, properties: Mapping[str, str]) -> Formatter:
    """Return a formatter by class name, with or without package. Raises BadParameter."""
    whole = name.rpartition(".")[2]
    short = whole.rpartition("$")[2]
    if whole in _OLD:
        click.echo(f"{name} is deprecated. Use org.apache.kafka.tools.consumer.{short} instead.", err=True)
    if short in _FORMATTERS:
        return _FORMATTERS[short](properties)
    if short not in _INTERNAL:
        names = ", ".join(sorted([*_FORMATTERS, *_INTERNAL]))
        raise click.BadParameter(f"{name} is not a formatter; choose from {names}")
    module, _, attribute = _INTERNAL[short].partition(":")
    made: Formatter = getattr(import_module(f"ottla.cli.kafka.{module}"), attribute)(properties)
    return made


def formatter_of(options: Mapping[str, Any]) -> Formatter:
    """Return the formatter that the options of a console consumer select. Raises BadParameter, UsageError, CommandFailed."""
    if options["as_json"] and options["formatter_name"] != DEFAULT_FORMATTER:
        raise click.UsageError("--json and --formatter cannot be combined")
    texts = [*options["old_property"], *options["formatter_property"]]
    configs = properties(options["formatter_config"], texts, "--formatter-property")
    for part in ("key", "value"):
        if options[f"{part}_deserializer"]:
            configs[f"{part}.deserializer"] = options[f"{part}_deserializer"]
    return JsonFormatter(configs) if options["as_json"] else formatter(options["formatter_name"], configs)
