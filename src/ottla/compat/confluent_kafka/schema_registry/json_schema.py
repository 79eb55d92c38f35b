"""Serializer and deserializer of JSON with a JSON Schema."""

import json
from collections.abc import Callable
from typing import Any, ClassVar

from ottla.compat.confluent_kafka.schema_registry.builders import asynchronous, asynchronous_builder, builder
from ottla.compat.confluent_kafka.schema_registry.documents import Schema
from ottla.compat.confluent_kafka.schema_registry.serde import BaseDeserializer, BaseSerializer, switch
from ottla.compat.confluent_kafka.serialization import SerializationContext
from ottla.compat.missing import stand_ins
from ottla.schemas import serializers
from ottla.schemas.registry import JSON

__all__ = [
    "AsyncJSONDeserializer",
    "AsyncJSONDeserializerBuilder",
    "AsyncJSONSerializer",
    "AsyncJSONSerializerBuilder",
    "JSONDeserializer",
    "JSONDeserializerBuilder",
    "JSONSerializer",
    "JSONSerializerBuilder",
]


class JSONSerializer(BaseSerializer):
    """Serializer to JSON.

    schema_str              text of the schema, or a Schema with references; None with use.latest.version or use.schema.id
    schema_registry_client  client of a registry
    to_dict                 (object, context) -> dictionary
    conf                    auto.register.schemas, validate and others
    json_encode             function that returns the text of a dictionary
    """

    kind = JSON
    configs: ClassVar = {"validate": switch(True)}

    def __init__(
        self,
        schema_str: str | Schema | None,
        schema_registry_client: Any,
        to_dict: Callable[[Any, SerializationContext], Any] | None = None,
        conf: dict[str, Any] | None = None,
        rule_conf: dict[str, Any] | None = None,
        rule_registry: Any = None,
        json_encode: Callable[[Any], str | bytes] | None = None,
    ) -> None:
        del rule_conf
        self._encode = json_encode
        super().__init__(schema_registry_client, schema_str, to_dict, conf, rule_registry)

    def _make(self, schema: Any, values: dict[str, Any], **options: Any) -> Any:
        return serializers.JSONSerializer(
            self._schemas, schema, validate=values["validate"], encode=self._encode, **options
        )


class JSONDeserializer(BaseDeserializer):
    """Deserializer of JSON.

    schema_str              schema that values are validated against; that of the writer by default
    from_dict               (dictionary, context) -> object
    schema_registry_client  client of a registry; None with a schema without references
    json_decode             function that parses the text
    """

    kind = JSON
    configs: ClassVar = {"validate": switch(True)}

    def __init__(
        self,
        schema_str: str | Schema | None,
        from_dict: Callable[[Any, SerializationContext], Any] | None = None,
        schema_registry_client: Any = None,
        conf: dict[str, Any] | None = None,
        rule_conf: dict[str, Any] | None = None,
        rule_registry: Any = None,
        json_decode: Callable[[bytes], Any] | None = None,
    ) -> None:
        del rule_conf
        if schema_registry_client is None and schema_str is None:
            raise ValueError('schema_registry_client must be provided if "schema_str" is not provided')
        if schema_registry_client is None and isinstance(schema_str, Schema) and schema_str.references:
            raise ValueError(
                'schema_registry_client must be provided if "schema_str" is a Schema instance with references'
            )
        super().__init__(schema_registry_client, from_dict, conf, rule_registry)
        self._decode = json_decode or json.loads
        self._own = self._make(self._convert_schema(schema_str))

    def _make(self, schema: Any) -> Any:
        return serializers.JSONDeserializer(
            schema, registry=self._schemas, validate=self._values["validate"], decode=self._decode
        )


JSONSerializerBuilder = builder(
    JSONSerializer,
    schema="schema_str",
    to_dict="to_dict",
    serializer_config="conf",
    rule_config="rule_conf",
    rule_registry="rule_registry",
    json_encode="json_encode",
)
JSONDeserializerBuilder = builder(
    JSONDeserializer,
    schema="schema_str",
    from_dict="from_dict",
    deserializer_config="conf",
    rule_config="rule_conf",
    rule_registry="rule_registry",
    json_decode="json_decode",
)
AsyncJSONSerializer = asynchronous(JSONSerializer)
AsyncJSONDeserializer = asynchronous(JSONDeserializer)
AsyncJSONSerializerBuilder = asynchronous_builder(JSONSerializerBuilder, AsyncJSONSerializer)
AsyncJSONDeserializerBuilder = asynchronous_builder(JSONDeserializerBuilder, AsyncJSONDeserializer)

globals().update(stand_ins(__name__))
