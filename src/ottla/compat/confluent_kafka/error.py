"""Errors of serializing producers and deserializing consumers."""

from ottla.compat.confluent_kafka.serialization import SerializationError
from ottla.compat.librdkafka.errors import KafkaError, KafkaException
from ottla.compat.librdkafka.values import Message


class _KafkaClientError(KafkaException):
    """Error of a client, with what caused it.

    exception      cause
    kafka_message  message that the error is about
    """

    def __init__(
        self, kafka_error: KafkaError, exception: Exception | None = None, kafka_message: Message | None = None
    ) -> None:
        super().__init__(kafka_error)
        self.exception = exception
        self.kafka_message = kafka_message

    @property
    def code(self) -> int:
        """Return the code of the error."""
        return int(self.args[0].code())

    @property
    def name(self) -> str:
        """Return the name of the code."""
        return str(self.args[0].name())


class ConsumeError(_KafkaClientError):
    """Error of a consumed message."""


class KeyDeserializationError(ConsumeError, SerializationError):
    """The key of a message cannot be deserialized."""

    def __init__(self, exception: Exception | None = None, kafka_message: Message | None = None) -> None:
        super().__init__(KafkaError(KafkaError._KEY_DESERIALIZATION, str(exception)), exception, kafka_message)


class ValueDeserializationError(ConsumeError, SerializationError):
    """The value of a message cannot be deserialized."""

    def __init__(self, exception: Exception | None = None, kafka_message: Message | None = None) -> None:
        super().__init__(KafkaError(KafkaError._VALUE_DESERIALIZATION, str(exception)), exception, kafka_message)


class ProduceError(_KafkaClientError):
    """Error of a record to produce."""

    def __init__(self, kafka_error: KafkaError, exception: Exception | None = None) -> None:
        super().__init__(kafka_error, exception)


class KeySerializationError(ProduceError, SerializationError):
    """The key of a record cannot be serialized."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(KafkaError._KEY_SERIALIZATION, str(exception)), exception)


class ValueSerializationError(ProduceError, SerializationError):
    """The value of a record cannot be serialized."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(KafkaError._VALUE_SERIALIZATION, str(exception)), exception)
