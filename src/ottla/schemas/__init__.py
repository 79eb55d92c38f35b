"""Schemas and the Confluent wire format: registries, and serializers for Avro, JSON Schema and Protobuf.

context.py     the interface of serializers            serializers.py  the six serializers and deserializers
registry.py    a Schema Registry, or a directory       framing.py      magic byte, schema id, message indexes
avro.py, json_schema.py, protobuf.py                   schemas and their references, in the three languages
avro_types.py, avro_text.py                            Avro schemas as Java's Avro sees and prints them
json_types.py, json_references.py, json_text.py        JSON Schemas as trees of types; JSON as Jackson prints it
canonical.py, protobuf_text.py                         the text that a registry stores
compatibility/                                         which schema reads what was written with another

The client's `key_serializer`, `value_serializer` and the deserializers use them, and so do Spark's `from_wire` and `to_wire`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.schemas.context import KEY, VALUE, Deserializer, SerializationContext, Serializer
    from ottla.schemas.framing import BadRecord
    from ottla.schemas.registry import (
        Reference,
        Registered,
        RegistryError,
        Schema,
        SchemaNotFound,
        SchemaRegistry,
        UnsupportedSchema,
    )
    from ottla.schemas.serializers import (
        AvroDeserializer,
        AvroSerializer,
        JSONDeserializer,
        JSONSerializer,
        ProtobufDeserializer,
        ProtobufSerializer,
        record_subject,
        topic_record_subject,
        topic_subject,
    )

_HOMES = {
    "AvroDeserializer": "ottla.schemas.serializers",
    "AvroSerializer": "ottla.schemas.serializers",
    "BadRecord": "ottla.schemas.framing",
    "Deserializer": "ottla.schemas.context",
    "JSONDeserializer": "ottla.schemas.serializers",
    "JSONSerializer": "ottla.schemas.serializers",
    "KEY": "ottla.schemas.context",
    "ProtobufDeserializer": "ottla.schemas.serializers",
    "ProtobufSerializer": "ottla.schemas.serializers",
    "Reference": "ottla.schemas.registry",
    "Registered": "ottla.schemas.registry",
    "RegistryError": "ottla.schemas.registry",
    "Schema": "ottla.schemas.registry",
    "SchemaNotFound": "ottla.schemas.registry",
    "SchemaRegistry": "ottla.schemas.registry",
    "SerializationContext": "ottla.schemas.context",
    "Serializer": "ottla.schemas.context",
    "UnsupportedSchema": "ottla.schemas.registry",
    "VALUE": "ottla.schemas.context",
    "record_subject": "ottla.schemas.serializers",
    "topic_record_subject": "ottla.schemas.serializers",
    "topic_subject": "ottla.schemas.serializers",
}

__all__ = [
    "KEY",
    "VALUE",
    "AvroDeserializer",
    "AvroSerializer",
    "BadRecord",
    "Deserializer",
    "JSONDeserializer",
    "JSONSerializer",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "Reference",
    "Registered",
    "RegistryError",
    "Schema",
    "SchemaNotFound",
    "SchemaRegistry",
    "SerializationContext",
    "Serializer",
    "UnsupportedSchema",
    "record_subject",
    "topic_record_subject",
    "topic_subject",
]


def __getattr__(name: str) -> Any:
    """Import a name of `__all__` on first use: most clients need only the interface of serializers."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
