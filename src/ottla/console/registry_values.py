"""Values in the wire format of a schema registry as JSON: those with an Avro, JSON or Protobuf schema (extra `schema`)."""

import json
from collections.abc import Mapping
from typing import Any, Final

from ottla.environment import Clock
from ottla.schemas.context import VALUE, SerializationContext
from ottla.schemas.framing import HEAD, BadRecord, message_indexes
from ottla.schemas.registry import AVRO, JSON, RegistryError, Schema, SchemaNotFound, SchemaRegistry, UnsupportedSchema
from ottla.schemas.serializers import AvroDeserializer

_FAILED_MS: Final = 60_000


class RegistryValues:
    """Decoder of values; it asks the registry in the calling thread."""

    def __init__(self, registry: SchemaRegistry, clock: Clock) -> None:
        self._registry = registry
        self._avro = AvroDeserializer(registry)
        self._messages: dict[int, Mapping[tuple[int, ...], Any]] = {}
        self._clock = clock
        self._failed: dict[int, int] = {}

    def __call__(self, topic: str, data: bytes) -> str | None:
        """Return a key or value as JSON, None if it is not of this format or its schema is not available."""
        if len(data) <= HEAD or data[0] != 0:
            return None
        number = int.from_bytes(data[1:HEAD], "big")
        if self._clock.now_ms() < self._failed.get(number, 0):
            return None  # bytes that only look like this format must not ask the registry for each record
        try:
            schema = self._registry.by_id(number)
            if schema.kind == AVRO:
                return json.dumps(self._avro(data, SerializationContext(topic, VALUE)), default=str, ensure_ascii=False)
            if schema.kind == JSON:
                return data[HEAD:].decode()
            classes = self._message_classes(number, schema)
        except BadRecord:
            return None  # this value alone is not of its schema
        except (SchemaNotFound, RegistryError, UnsupportedSchema, ImportError, ValueError):
            self._failed[number] = self._clock.now_ms() + _FAILED_MS
            return None
        return _protobuf_json(classes, data)

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


def _protobuf_json(classes: Mapping[tuple[int, ...], Any], data: bytes) -> str | None:
    """Return a Protobuf message as JSON, None if it is malformed."""
    from google.protobuf.json_format import MessageToJson, SerializeToJsonError
    from google.protobuf.message import DecodeError

    try:
        indexes, at = message_indexes(data)
        message = classes[indexes].FromString(data[at:])
        text: str = MessageToJson(
            message,
            always_print_fields_with_no_presence=True,
            preserving_proto_field_name=True,
            ensure_ascii=False,
        )
    except (KeyError, ValueError, TypeError, DecodeError, SerializeToJsonError):
        return None  # TypeError: an Any of a type that the schema does not have
    return text
