"""Serializer and deserializer of Protobuf messages."""

from typing import Any, ClassVar

from ottla.compat.confluent_kafka.schema_registry.builders import asynchronous, asynchronous_builder, builder
from ottla.compat.confluent_kafka.schema_registry.schema_ids import reference_subject_name_strategy
from ottla.compat.confluent_kafka.schema_registry.serde import BaseDeserializer, BaseSerializer, switch
from ottla.compat.missing import stand_ins
from ottla.schemas import serializers
from ottla.schemas.registry import PROTOBUF

__all__ = [
    "AsyncProtobufDeserializer",
    "AsyncProtobufDeserializerBuilder",
    "AsyncProtobufSerializer",
    "AsyncProtobufSerializerBuilder",
    "ProtobufDeserializer",
    "ProtobufDeserializerBuilder",
    "ProtobufSerializer",
    "ProtobufSerializerBuilder",
]


def _check_format(values: dict[str, Any]) -> None:
    if values["use.deprecated.format"]:
        raise ValueError("use.deprecated.format is no longer supported")


class ProtobufSerializer(BaseSerializer):
    """Serializer of the messages of a class that protoc has generated.

    msg_type                the class
    schema_registry_client  client of a registry
    conf                    auto.register.schemas, reference.subject.name.strategy and others
    """

    kind = PROTOBUF
    configs: ClassVar = {"skip.known.types": switch(True), "use.deprecated.format": switch(False)}
    functions: ClassVar = {"reference.subject.name.strategy": reference_subject_name_strategy}

    def __init__(
        self,
        msg_type: Any,
        schema_registry_client: Any,
        conf: dict[str, Any] | None = None,
        rule_conf: dict[str, Any] | None = None,
        rule_registry: Any = None,
    ) -> None:
        del rule_conf
        super().__init__(schema_registry_client, msg_type, None, conf, rule_registry)

    def _make(self, schema: Any, values: dict[str, Any], **options: Any) -> Any:
        _check_format(values)
        if not values["skip.known.types"]:
            raise ValueError("skip.known.types=False cannot be honoured by ottla.compat")
        strategy = values["reference.subject.name.strategy"]
        return serializers.ProtobufSerializer(
            schema, self._schemas, reference_subject=lambda file: str(strategy(None, file)), **options
        )


class ProtobufDeserializer(BaseDeserializer):
    """Deserializer of messages of one class, which the schema of the writer is not compared with.

    message_type            the class
    schema_registry_client  without effect: messages need no schema
    """

    kind = PROTOBUF
    configs: ClassVar = {"use.deprecated.format": switch(False)}
    checks_names = False  # as confluent-kafka

    def __init__(
        self,
        message_type: Any,
        conf: dict[str, Any] | None = None,
        schema_registry_client: Any = None,
        rule_conf: dict[str, Any] | None = None,
        rule_registry: Any = None,
    ) -> None:
        del rule_conf, schema_registry_client
        super().__init__(None, None, conf, rule_registry)
        _check_format(self._values)
        self._own = serializers.ProtobufDeserializer(message_type)


ProtobufSerializerBuilder = builder(
    ProtobufSerializer,
    message_type="msg_type",
    serializer_config="conf",
    rule_config="rule_conf",
    rule_registry="rule_registry",
)
ProtobufDeserializerBuilder = builder(
    ProtobufDeserializer,
    message_type="message_type",
    deserializer_config="conf",
    rule_config="rule_conf",
    rule_registry="rule_registry",
)
AsyncProtobufSerializer = asynchronous(ProtobufSerializer)
AsyncProtobufDeserializer = asynchronous(ProtobufDeserializer)
AsyncProtobufSerializerBuilder = asynchronous_builder(ProtobufSerializerBuilder, AsyncProtobufSerializer)
AsyncProtobufDeserializerBuilder = asynchronous_builder(ProtobufDeserializerBuilder, AsyncProtobufDeserializer)

globals().update(stand_ins(__name__))
