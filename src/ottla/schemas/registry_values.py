"""Values in the wire format of a schema registry as JSON: those with an Avro, JSON or Protobuf schema (extra `schema`)."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.schemas.context import VALUE, SerializationContext
from ottla.schemas.framing import HEAD, BadRecord, message_indexes
from ottla.schemas.registry import AVRO, JSON, RegistryError, Schema, SchemaNotFound, SchemaRegistry, UnsupportedSchema
from ottla.schemas.serializers import AvroDeserializer

_FAILED_MS: Final = 60_000


class RegistryValues:
    """Decoder of values; it asks the registry in the calling thread.

    now_ms  clock, in ms, for the time after which a schema that was not available is asked for again
    """

    def __init__(self, registry: SchemaRegistry, now_ms: Callable[[], int]) -> None:
        self._registry = registry
        self._avro = AvroDeserializer(registry)
        self._plain_avro = AvroDeserializer(registry, logical_types=False)
        self._messages: dict[int, Mapping[tuple[int, ...], Any]] = {}
        self._now_ms = now_ms
        self._failed: dict[int, int] = {}

    def __call__(self, topic: str, data: bytes) -> str | None:
        """Return a key or value as JSON, None if it is not of this format or its schema is not available."""
        if len(data) <= HEAD or data[0] != 0:
            return None
        number = int.from_bytes(data[1:HEAD], "big")
        if self._now_ms() < self._failed.get(number, 0):
            return None  # bytes that only look like this format must not ask the registry for each record
        try:
            schema = self._registry.by_id(number)
            if schema.kind == AVRO:
                return self._avro_json(data, SerializationContext(topic, VALUE))
            if schema.kind == JSON:
                return data[HEAD:].decode()
            classes = self._message_classes(number, schema)
        except BadRecord:
            return None  # this value alone is not of its schema
        except (SchemaNotFound, RegistryError, UnsupportedSchema, ImportError, ValueError):
            self._failed[number] = self._now_ms() + _FAILED_MS
            return None
        return _protobuf_json(classes, data)

    def _avro_json(self, data: bytes, context: SerializationContext) -> str:
        """Return an Avro value as JSON. Raises BadRecord."""
        try:
            value = self._avro(data, context)
        except BadRecord:
            # A date that Python does not have, for example in the year 10000, is shown as the number that it is stored as.
            value = self._plain_avro(data, context)
        return json.dumps(value, default=_avro_text, ensure_ascii=False)

    def _message_classes(self, number: int, schema: Schema) -> Mapping[tuple[int, ...], Any]:
        """Return the classes of the messages of a schema by their indexes. Raises UnsupportedSchema, ImportError."""
        classes = self._messages.get(number)
        if classes is None:
            from google.protobuf.message_factory import GetMessageClass

            from ottla.schemas.protobuf import file_of, messages_of

            texts = {name: other.text for name, other in self._registry.referred(schema).items()}
            file = file_of(schema.text, texts)
            classes = {
                indexes: GetMessageClass(file.pool.FindMessageTypeByName(name))
                for indexes, name in messages_of(file).items()
            }
            self._messages[number] = classes
        return classes


def _avro_text(value: object) -> str:
    """Return what JSON has no type for as text: bytes as in Avro's JSON, a character for each."""
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _protobuf_json(classes: Mapping[tuple[int, ...], Any], data: bytes) -> str | None:
    """Return a Protobuf message as JSON, None if it is malformed."""
    from google.protobuf.message import DecodeError

    try:
        indexes, at = message_indexes(data)
        message = classes[indexes].FromString(data[at:])
    except (KeyError, ValueError, DecodeError):
        return None
    return json.dumps(_document(message), ensure_ascii=False)


def _document(message: Any) -> Any:
    """Return a Protobuf message as a document for JSON. What its JSON does not have is shown by its fields: an Any of a message
    that the schema lacks, a time beyond the year 9999.
    """
    from google.protobuf.json_format import MessageToDict, SerializeToJsonError

    try:
        return MessageToDict(message, always_print_fields_with_no_presence=True, preserving_proto_field_name=True)
    except (SerializeToJsonError, ValueError, TypeError):  # TypeError: an Any whose message is not known
        pass
    fields: dict[str, Any] = {}
    for field, value in message.ListFields():
        is_message = field.message_type is not None
        if is_message and field.message_type.GetOptions().map_entry:
            fields[field.name] = {str(key): _plain(content) for key, content in value.items()}
        elif hasattr(value, "extend"):
            fields[field.name] = [_plain(item) for item in value]
        else:
            fields[field.name] = _plain(value)
    return fields


def _plain(value: Any) -> Any:
    """Return the value of a field for JSON: bytes as Base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return _document(value) if hasattr(value, "ListFields") else value
