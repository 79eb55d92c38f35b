"""Serializer of messages with a schema registry, on Ottla's serializers of Avro."""

from typing import Any

from ottla.compat.confluent_kafka.avro.error import ClientError
from ottla.compat.confluent_kafka.avro.serializer import KeySerializerError, SerializerError, ValueSerializerError
from ottla.compat.missing import stand_ins
from ottla.schemas.context import VALUE, SerializationContext
from ottla.schemas.framing import HEAD, BadRecord
from ottla.schemas.registry import AVRO, Schema, SchemaNotFound, SchemaRegistry
from ottla.schemas.serializers import AvroDeserializer, AvroSerializer

_ANYWHERE = SerializationContext("", VALUE)


class _ClientSchemas(SchemaRegistry):
    """Schemas by id of a client of the application, for Ottla's serializers."""

    def __init__(self, client: Any) -> None:
        super().__init__(location="")
        vars(self).update(client=client, known={})

    client: Any
    known: dict[int, Any]

    def by_id(self, number: int) -> Schema:
        """Return the schema of an id. Raises SchemaNotFound, ClientError."""
        schema = self.known.get(number) or self.client.get_by_id(number)
        if not schema:
            raise SchemaNotFound(f"unable to fetch schema with id {number}")
        return Schema(AVRO, str(schema))


def _text(schema: Any) -> Schema | None:
    return None if schema is None else Schema(AVRO, str(schema))


class MessageSerializer:
    """Serializer of keys and values.

    registry_client                         client with `register`, `check_registration` and `get_by_id`
    reader_key_schema, reader_value_schema  schemas of the reader; those of the writer by default
    """

    def __init__(self, registry_client: Any, reader_key_schema: Any = None, reader_value_schema: Any = None) -> None:
        self.registry_client = registry_client
        self.reader_key_schema = reader_key_schema
        self.reader_value_schema = reader_value_schema
        self._schemas = _ClientSchemas(registry_client)
        self._writers: dict[int, AvroSerializer] = {}
        self._readers = [
            AvroDeserializer(self._schemas, _text(schema)) for schema in (reader_value_schema, reader_key_schema)
        ]

    def encode_record_with_schema(self, topic: str, schema: Any, record: Any, is_key: bool = False) -> bytes:
        """Register a schema for a topic; return the bytes of a value. Raises SerializerError, ClientError."""
        subject, client = f"{topic}-{'key' if is_key else 'value'}", self.registry_client
        register = client.register if client.auto_register_schemas else client.check_registration
        schema_id = register(subject, schema)
        if not schema_id:
            kind = KeySerializerError if is_key else ValueSerializerError
            raise kind(f"Unable to retrieve schema id for subject {subject}")
        self._schemas.known.setdefault(schema_id, schema)
        return self.encode_record_with_schema_id(schema_id, record, is_key=is_key)

    def encode_record_with_schema_id(self, schema_id: int, record: Any, is_key: bool = False) -> bytes:
        """Return the bytes of a value with a registered schema. Raises SerializerError, BadRecord."""
        kind = KeySerializerError if is_key else ValueSerializerError
        if schema_id not in self._writers:
            self._writers[schema_id] = AvroSerializer(self._schemas, use_schema_id=schema_id)
        try:
            encoded = self._writers[schema_id](record, _ANYWHERE)
        except (SchemaNotFound, ClientError) as error:
            raise kind("Schema does not exist" if isinstance(error, SchemaNotFound) else str(error)) from error
        return encoded or b""

    def decode_message(self, message: bytes | None, is_key: bool = False) -> Any:
        """Return the value of bytes, None for None. Raises SerializerError."""
        if message is None:
            return None
        if len(message) <= HEAD:
            raise SerializerError("message is too small to decode")
        if message[0] != 0:
            raise SerializerError("message does not start with magic byte")
        try:
            return self._readers[is_key](message, _ANYWHERE)
        except ClientError as error:
            number = int.from_bytes(message[1:HEAD], "big")
            raise SerializerError(f"unable to fetch schema with id {number}: {error}") from error
        except (SchemaNotFound, BadRecord) as error:
            raise SerializerError(str(error)) from error


globals().update(stand_ins(__name__))
