"""Producer that serializes keys and values."""

from types import GenericAlias
from typing import Any

from ottla.compat.confluent_kafka.error import KeySerializationError, ValueSerializationError
from ottla.compat.confluent_kafka.serialization import MessageField, SerializationContext, pop_serdes
from ottla.compat.librdkafka.producer import Callback, Producer


class SerializingProducer(Producer):
    """Producer with the configs key.serializer and value.serializer: functions `(object, context) -> bytes`, or builders."""

    def __class_getitem__(cls, types: Any) -> GenericAlias:
        return GenericAlias(cls, types)

    def __init__(self, conf: dict[str, Any]) -> None:
        self._key_serializer, self._value_serializer, left = pop_serdes(conf, "serializer")
        super().__init__(left)

    def produce(  # type: ignore[override]  # confluent-kafka's order of the arguments
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        partition: int = -1,
        on_delivery: Callback | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Serialize key and value, and produce. Raises KeySerializationError, ValueSerializationError, and as `produce`."""
        context = SerializationContext(topic, MessageField.KEY, headers)
        if self._key_serializer is not None:
            try:
                key = self._key_serializer(key, context)
            except Exception as error:
                raise KeySerializationError(error) from error
        context.field = MessageField.VALUE
        if self._value_serializer is not None:
            try:
                value = self._value_serializer(value, context)
            except Exception as error:
                raise ValueSerializationError(error) from error
        super().produce(
            topic, value, key, headers=headers, partition=partition, timestamp=timestamp, on_delivery=on_delivery
        )
