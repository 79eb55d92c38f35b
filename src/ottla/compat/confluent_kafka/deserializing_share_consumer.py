"""Share consumer that deserializes keys and values."""

from typing import Any

from ottla.compat.confluent_kafka.serialization import MessageField, SerializationContext
from ottla.compat.librdkafka.errors import KafkaError
from ottla.compat.librdkafka.share import Messages, ShareConsumer
from ottla.compat.librdkafka.values import Message


class DeserializingShareConsumer(ShareConsumer):
    """Share consumer with the configs key.deserializer and value.deserializer: functions `(bytes, context) -> object`."""

    def __init__(self, conf: dict[str, Any]) -> None:
        left = dict(conf)
        self._key_deserializer = left.pop("key.deserializer", None)
        self._value_deserializer = left.pop("value.deserializer", None)
        super().__init__(left)

    def poll(self, timeout: float = -1) -> Messages:
        """Return messages as `poll`; one that cannot be deserialized has the error, and its bytes."""
        messages = super().poll(timeout)
        for message in messages:
            if message.error() is None:
                self._deserialize(message)
        return messages

    def _deserialize(self, message: Message) -> None:
        context = SerializationContext(str(message.topic()), MessageField.KEY, message.headers())
        key, value = message.key(), message.value()
        if self._key_deserializer is not None:
            try:
                key = self._key_deserializer(key, context)
            except Exception as error:  # noqa: BLE001  (the message has it)
                message.set_error(KafkaError(KafkaError._KEY_DESERIALIZATION, str(error)))
                return
        context.field = MessageField.VALUE
        if self._value_deserializer is not None:
            try:
                value = self._value_deserializer(value, context)
            except Exception as error:  # noqa: BLE001  (the message has it)
                message.set_error(KafkaError(KafkaError._VALUE_DESERIALIZATION, str(error)))
                return
        message.set_key(key)
        message.set_value(value)
