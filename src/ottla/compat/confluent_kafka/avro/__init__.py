"""Producer and consumer of Avro with the names of confluent-kafka's old module (extra `schema`)."""

import warnings
from collections.abc import Mapping
from typing import Any

from ottla.compat.confluent_kafka.avro.cached_schema_registry_client import CachedSchemaRegistryClient
from ottla.compat.confluent_kafka.avro.error import ClientError
from ottla.compat.confluent_kafka.avro.load import load, loads
from ottla.compat.confluent_kafka.avro.serializer import KeySerializerError, SerializerError, ValueSerializerError
from ottla.compat.confluent_kafka.avro.serializer.message_serializer import MessageSerializer
from ottla.compat.librdkafka.consumer import Consumer
from ottla.compat.librdkafka.producer import Producer
from ottla.compat.librdkafka.values import Message

__all__ = [
    "AvroConsumer",
    "AvroProducer",
    "CachedSchemaRegistryClient",
    "ClientError",
    "KeySerializerError",
    "MessageSerializer",
    "SerializerError",
    "ValueSerializerError",
    "load",
    "loads",
]
_PREFIX = "schema.registry."


def _split(config: Mapping[str, Any], registry: Any, *, registers: bool) -> tuple[dict[str, Any], Any]:
    """Return the configs of a client, and the client of the registry. Raises ValueError."""
    own = {name: value for name, value in config.items() if not name.startswith("schema.registry")}
    theirs = {name.replace(_PREFIX, ""): value for name, value in config.items() if name.startswith("schema.registry")}
    if theirs.get("basic.auth.credentials.source") == "SASL_INHERIT":
        theirs["sasl.mechanism"] = config.get("sasl.mechanism", config.get("sasl.mechanisms", ""))
        theirs["sasl.username"] = config.get("sasl.username", "")
        theirs["sasl.password"] = config.get("sasl.password", "")
        if registers:
            theirs["auto.register.schemas"] = config.get("auto.register.schemas", True)
    if registry is not None and theirs.get("url") is not None:
        raise ValueError("Cannot pass schema_registry along with schema.registry.url config")
    return own, CachedSchemaRegistryClient(theirs) if registry is None else registry


class AvroProducer(Producer):
    """Producer that serializes keys and values; configs of the registry begin with `schema.registry.`.

    default_key_schema, default_value_schema  schemas of records that are produced without one
    """

    def __init__(
        self,
        config: dict[str, Any],
        default_key_schema: Any = None,
        default_value_schema: Any = None,
        schema_registry: Any = None,
        **kwargs: Any,
    ) -> None:
        reason = "AvroProducer has been deprecated. Use AvroSerializer instead."
        warnings.warn(reason, DeprecationWarning, stacklevel=2)
        own, registry = _split(config, schema_registry, registers=True)
        super().__init__(own, **kwargs)
        self._serializer = MessageSerializer(registry)
        self._key_schema = default_key_schema
        self._value_schema = default_value_schema

    def produce(self, **kwargs: Any) -> None:  # type: ignore[override]  # the old module takes names only
        """Produce `value` and `key` with `value_schema` and `key_schema` to `topic`; other arguments are those of `produce`.

        Raises ClientError, SerializerError, and as `produce`.
        """
        key_schema = kwargs.pop("key_schema", self._key_schema)
        value_schema = kwargs.pop("value_schema", self._value_schema)
        topic, value, key = (kwargs.pop(name, None) for name in ("topic", "value", "key"))
        if not topic:
            raise ClientError("Topic name not specified.")
        if value is not None:
            if not value_schema:
                raise ValueSerializerError("Avro schema required for values")
            value = self._serializer.encode_record_with_schema(topic, value_schema, value)
        if key is not None:
            if not key_schema:
                raise KeySerializerError("Avro schema required for key")
            key = self._serializer.encode_record_with_schema(topic, key_schema, key, True)
        super().produce(topic, value, key, **kwargs)


class AvroConsumer(Consumer):
    """Consumer that deserializes keys and values; configs of the registry begin with `schema.registry.`."""

    def __init__(
        self,
        config: dict[str, Any],
        schema_registry: Any = None,
        reader_key_schema: Any = None,
        reader_value_schema: Any = None,
        **kwargs: Any,
    ) -> None:
        reason = "AvroConsumer has been deprecated. Use AvroDeserializer instead."
        warnings.warn(reason, DeprecationWarning, stacklevel=2)
        own, registry = _split(config, schema_registry, registers=False)
        super().__init__(own, **kwargs)
        self._serializer = MessageSerializer(registry, reader_key_schema, reader_value_schema)

    def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next message with deserialized key and value, as `poll` does. Raises SerializerError."""
        message = super().poll(-1 if timeout is None else timeout)
        if message is None or message.error() is not None:
            return message
        try:
            message.set_value(self._serializer.decode_message(message.value()))
            message.set_key(self._serializer.decode_message(message.key(), is_key=True))
        except SerializerError as error:
            place = f"{message.topic()} [{message.partition()}] offset {message.offset()}"
            raise SerializerError(f"Message deserialization failed for message at {place}: {error}") from error
        return message
