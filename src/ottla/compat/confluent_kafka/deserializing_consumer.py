"""Consumer that deserializes keys and values."""

from types import GenericAlias
from typing import Any

from ottla.compat.confluent_kafka.error import ConsumeError, KeyDeserializationError, ValueDeserializationError
from ottla.compat.confluent_kafka.serialization import MessageField, SerializationContext, pop_serdes
from ottla.compat.librdkafka.consumer import Consumer
from ottla.compat.librdkafka.values import Message


class DeserializingConsumer(Consumer):
    """Consumer with the configs key.deserializer and value.deserializer: functions `(bytes, context) -> object`."""

    def __class_getitem__(cls, types: Any) -> GenericAlias:
        return GenericAlias(cls, types)

    def __init__(self, conf: dict[str, Any]) -> None:
        self._key_deserializer, self._value_deserializer, left = pop_serdes(conf, "deserializer")
        super().__init__(left)

    def poll(self, timeout: float = -1) -> Message | None:
        """Return the next message with deserialized key and value, as `poll` does.

        Raises ConsumeError for a message that is an error, KeyDeserializationError, ValueDeserializationError.
        """
        message = super().poll(timeout)
        if message is None:
            return None
        failure = message.error()
        if failure is not None:
            raise ConsumeError(failure, kafka_message=message)
        context = SerializationContext(str(message.topic()), MessageField.KEY, message.headers())
        key, value = message.key(), message.value()
        if self._key_deserializer is not None:
            try:
                key = self._key_deserializer(key, context)
            except Exception as error:
                raise KeyDeserializationError(error, message) from error
        context.field = MessageField.VALUE
        if self._value_deserializer is not None:
            try:
                value = self._value_deserializer(value, context)
            except Exception as error:
                raise ValueDeserializationError(error, message) from error
        message.set_key(key)
        message.set_value(value)
        return message

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Raise NotImplementedError, as in confluent-kafka."""
        raise NotImplementedError
