"""Protobuf: a payload is one message of a .proto file.

A schema is the text of the file, which protoc compiles (package grpcio-tools, in a separate process), or its
FileDescriptorProto in base64, as Confluent's Python serializer registers it. The reader's message determines the columns; other
fields of the writer are dropped. The writer's schema is only used to identify the message.

Spark types are those of Spark's own from_protobuf with three differences: uint32 is bigint and uint64 decimal(20, 0), so no
value overflows; an unset field without presence has its default (0, "", false), as Protobuf specifies; the wrappers
(google.protobuf.Int64Value and so on) are the wrapped type, or null. google.protobuf.Timestamp is a timestamp in microseconds.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError

from ottla.schemas.framing import BadRecord, indexes_written, message_indexes
from ottla.schemas.protobuf import file_of, messages_of
from ottla.schemas.registry import UnsupportedSchema
from ottla.spark.wire.shape import Shape, array, mapping, plain, record

_UINT64: Final = pa.decimal128(20, 0)
_SCALARS: Final[dict[int, Any]] = {
    FieldDescriptor.TYPE_DOUBLE: pa.float64(),
    FieldDescriptor.TYPE_FLOAT: pa.float32(),
    FieldDescriptor.TYPE_INT64: pa.int64(),
    FieldDescriptor.TYPE_UINT64: _UINT64,
    FieldDescriptor.TYPE_INT32: pa.int32(),
    FieldDescriptor.TYPE_FIXED64: _UINT64,
    FieldDescriptor.TYPE_FIXED32: pa.int64(),
    FieldDescriptor.TYPE_BOOL: pa.bool_(),
    FieldDescriptor.TYPE_STRING: pa.string(),
    FieldDescriptor.TYPE_BYTES: pa.binary(),
    FieldDescriptor.TYPE_UINT32: pa.int64(),
    FieldDescriptor.TYPE_SFIXED32: pa.int32(),
    FieldDescriptor.TYPE_SFIXED64: pa.int64(),
    FieldDescriptor.TYPE_SINT32: pa.int32(),
    FieldDescriptor.TYPE_SINT64: pa.int64(),
}
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)

Take = Callable[[Any], Any]


class Protobuf:
    """Protobuf message of a reader or writer, by name with or without package; by default the first of the file."""

    def __init__(self, text: str, referred: Mapping[str, str], message: str | None) -> None:
        file = file_of(text, referred)
        indexes = {name: where for where, name in messages_of(file).items()}
        names = list(indexes)
        if not names:
            raise UnsupportedSchema("the .proto file has no message")
        package = f"{file.package}." if file.package else ""
        chosen = names[0] if message is None else message if message in names else f"{package}{message}"
        if chosen not in names:
            raise UnsupportedSchema(f"no message {message} in the .proto file: it has {', '.join(names)}")
        self._descriptor = file.pool.FindMessageTypeByName(chosen)
        self._class = message_factory.GetMessageClass(self._descriptor)
        self._head = indexes_written(indexes[chosen])
        self.shape, self._take = _message(self._descriptor, ())

    def decoder(self, text: str | None, referred: Mapping[str, str]) -> Callable[[bytes, int], Any]:
        """Return a function that decodes frames that were written with this schema; it raises BadRecord.

        text  writer's schema; None to decode every frame as the reader's message
        """
        messages = None if text is None else messages_of(file_of(text, referred))
        own, parse, take = self._descriptor.full_name, self._class.FromString, self._take

        def decode(frame: bytes, _: int) -> Any:
            indexes, at = message_indexes(frame)
            if messages is not None and messages.get(indexes) != own:
                raise BadRecord(f"holds {messages.get(indexes) or 'no message'} at indexes {list(indexes)}, not {own}")
            try:
                return take(parse(frame[at:]))
            except DecodeError as wrong:
                raise BadRecord(f"malformed Protobuf message {own}: {wrong}") from None

        return decode

    def encode(self, value: Any) -> bytes:
        """Return the message indexes and payload of a message that `down` created. Raises BadRecord."""
        try:
            return self._head + bytes(value.SerializeToString())
        except EncodeError as wrong:
            raise BadRecord(f"does not fit message {self._descriptor.full_name}: {wrong}") from None


def _message(descriptor: Any, around: tuple[str, ...]) -> tuple[Shape, Take]:
    """Return the shape of a message and a function that converts one to a dict."""
    name = descriptor.full_name
    if name in around:
        raise UnsupportedSchema(f"message {name} is recursive, which Spark types do not support")
    fields = [(field, *_field(field, (*around, name))) for field in descriptor.fields]
    if not fields:
        raise UnsupportedSchema(f"message {name} has no fields, which Spark types do not support")
    shape = record((field.name, inner) for field, inner, _ in fields)
    takes = [(field.name, take) for field, _, take in fields]
    kind = message_factory.GetMessageClass(descriptor)
    down = shape.down
    choices = [
        (oneof.name, [field.name for field in oneof.fields]) for oneof in descriptor.oneofs if len(oneof.fields) > 1
    ]

    def message(value: dict[str, Any]) -> Any:
        for choice, names in choices:
            chosen = [field for field in names if value[field] is not None]
            if len(chosen) > 1:
                raise BadRecord(f"{' and '.join(chosen)} are both set, of oneof {choice}")
        try:
            return kind(**(down(value) if down else value))
        except (TypeError, ValueError) as wrong:
            raise BadRecord(f"does not fit message {name}: {wrong}") from None

    return shape._replace(down=message), lambda value: {field: take(value) for field, take in takes}


def _field(field: Any, around: tuple[str, ...]) -> tuple[Shape, Take]:
    """Return the shape of a field and a function that reads it from a message."""
    name = field.name
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        key, item = inner.fields_by_name["key"], inner.fields_by_name["value"]
        shape, one = _single(item, around)
        shape = mapping(shape, _SCALARS[key.type])
        if one is None:
            return shape, lambda message: dict(getattr(message, name))
        return shape, lambda message: {key: one(value) for key, value in getattr(message, name).items()}
    shape, one = _single(field, around)
    if field.is_repeated:
        shape = array(shape)
        if one is None:
            return shape, lambda message: list(getattr(message, name))
        return shape, lambda message: [one(value) for value in getattr(message, name)]
    if field.has_presence:
        taken = one or (lambda value: value)
        return shape, lambda message: taken(getattr(message, name)) if message.HasField(name) else None
    if one is None:
        return shape, lambda message: getattr(message, name)
    return shape, lambda message: one(getattr(message, name))


def _single(field: Any, around: tuple[str, ...]) -> tuple[Shape, Take | None]:
    """Return the shape of a single value of a field, and a function that converts it to a plain value."""
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        numbers = {name: value.number for name, value in field.enum_type.values_by_name.items()}
        return Shape(pa.string(), pa.string(), down=_enum(field.enum_type.full_name, numbers)), (
            lambda number: names.get(number) or str(number)
        )
    if field.message_type is None:
        kind = _SCALARS[field.type]
        return (Shape(kind, kind, down=int), Decimal) if kind == _UINT64 else (plain(kind), None)
    name = field.message_type.full_name
    if name == _TIMESTAMP:
        kind = pa.timestamp("us", tz="UTC")
        down = _timestamp(message_factory.GetMessageClass(field.message_type))
        return Shape(
            kind, kind, down=down, stored=pa.int64()
        ), lambda value: value.seconds * 1_000_000 + value.nanos // 1000
    if name in _WRAPPERS:
        wrapped, take = _single(field.message_type.fields_by_name["value"], around)
        wrapper, inner = message_factory.GetMessageClass(field.message_type), wrapped.down or (lambda value: value)
        return wrapped._replace(down=lambda value: wrapper(value=inner(value))), (
            lambda value: take(value.value) if take else value.value
        )
    return _message(field.message_type, around)


def _enum(kind: str, numbers: Mapping[str, int]) -> Take:
    def number(name: str) -> int:
        known = numbers.get(name)
        if known is None and not name.lstrip("-").isdecimal():
            raise BadRecord(f"enum {kind} has no value {name}")
        return int(name) if known is None else known

    return number


def _timestamp(kind: Any) -> Take:
    return lambda micros: kind(seconds=micros // 1_000_000, nanos=micros % 1_000_000 * 1000)
