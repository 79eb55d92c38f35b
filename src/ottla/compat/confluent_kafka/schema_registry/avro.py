"""Serializer and deserializer of Avro."""

import json
from collections.abc import Callable
from typing import Any, ClassVar

from ottla.compat.confluent_kafka.schema_registry.builders import asynchronous, asynchronous_builder, builder
from ottla.compat.confluent_kafka.schema_registry.documents import Schema
from ottla.compat.confluent_kafka.schema_registry.serde import BaseDeserializer, BaseSerializer, switch
from ottla.compat.confluent_kafka.serialization import SerializationContext
from ottla.compat.missing import stand_ins
from ottla.schemas import serializers
from ottla.schemas.registry import AVRO

__all__ = [
    "AsyncAvroDeserializer",
    "AsyncAvroDeserializerBuilder",
    "AsyncAvroSerializer",
    "AsyncAvroSerializerBuilder",
    "AvroDeserializer",
    "AvroDeserializerBuilder",
    "AvroSerializer",
    "AvroSerializerBuilder",
]


class AvroSerializer(BaseSerializer):
    """Serializer to Avro.

    schema_registry_client  client of a registry
    schema_str              text of the schema, or a Schema with references; None with use.latest.version or use.schema.id
    to_dict                 (object, context) -> dictionary
    conf                    auto.register.schemas, use.latest.version and others
    """

    kind = AVRO
    configs: ClassVar = {"validate.strict": switch(False), "validate.strict.allow.default": switch(False)}

    def __init__(
        self,
        schema_registry_client: Any,
        schema_str: str | Schema | None = None,
        to_dict: Callable[[Any, SerializationContext], Any] | None = None,
        conf: dict[str, Any] | None = None,
        rule_conf: dict[str, Any] | None = None,
        rule_registry: Any = None,
    ) -> None:
        del rule_conf
        super().__init__(schema_registry_client, schema_str, to_dict, conf, rule_registry)

    def _make(self, schema: Any, values: dict[str, Any], **options: Any) -> Any:
        strict, allows = values["validate.strict"], values["validate.strict.allow.default"]
        return serializers.AvroSerializer(self._schemas, schema, strict=strict, strict_allow_default=allows, **options)

    def _record_name(self) -> str | None:
        """Return the name of the record; a schema without a name has that of its type."""
        name, schema = super()._record_name(), self._inner._schema
        if name is not None or schema is None:
            return name
        document = json.loads(schema.text)
        kind = document.get("type") if isinstance(document, dict) else document
        return kind if isinstance(kind, str) else None


class AvroDeserializer(BaseDeserializer):
    """Deserializer of Avro.

    schema_registry_client  client of a registry
    schema_str              schema of the reader; that of the writer by default
    from_dict               (dictionary, context) -> object
    return_record_name      whether a record of a union is a pair of its name and the record
    """

    kind = AVRO

    def __init__(
        self,
        schema_registry_client: Any,
        schema_str: str | Schema | None = None,
        from_dict: Callable[[Any, SerializationContext], Any] | None = None,
        return_record_name: bool = False,
        conf: dict[str, Any] | None = None,
        rule_conf: dict[str, Any] | None = None,
        rule_registry: Any = None,
    ) -> None:
        del rule_conf
        super().__init__(schema_registry_client, from_dict, conf, rule_registry)
        if not isinstance(return_record_name, bool):
            raise ValueError("return_record_name must be a boolean value")
        self._return_record_name = return_record_name
        self._own = self._make(self._convert_schema(schema_str))

    def _make(self, schema: Any) -> Any:
        assert self._schemas is not None
        return serializers.AvroDeserializer(self._schemas, schema, return_record_name=self._return_record_name)


AvroSerializerBuilder = builder(
    AvroSerializer,
    schema="schema_str",
    to_dict="to_dict",
    serializer_config="conf",
    rule_config="rule_conf",
    rule_registry="rule_registry",
)
AvroDeserializerBuilder = builder(
    AvroDeserializer,
    schema="schema_str",
    from_dict="from_dict",
    return_record_name="return_record_name",
    deserializer_config="conf",
    rule_config="rule_conf",
    rule_registry="rule_registry",
)
AsyncAvroSerializer = asynchronous(AvroSerializer)
AsyncAvroDeserializer = asynchronous(AvroDeserializer)
AsyncAvroSerializerBuilder = asynchronous_builder(AvroSerializerBuilder, AsyncAvroSerializer)
AsyncAvroDeserializerBuilder = asynchronous_builder(AvroDeserializerBuilder, AsyncAvroDeserializer)

globals().update(stand_ins(__name__))
