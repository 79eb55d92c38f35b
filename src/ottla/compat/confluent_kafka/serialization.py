"""Serializers of single values, and what they are called with."""

import struct
from collections.abc import Callable
from enum import Enum
from typing import Any

from ottla.compat.librdkafka.errors import KafkaException


class MessageField(str, Enum):  # noqa: UP042  (as in confluent-kafka)
    """Part of a message that is serialized."""

    NONE = "none"
    KEY = "key"
    VALUE = "value"

    def __str__(self) -> str:
        return str(self.value)


class SerializationContext:
    """Topic, field and headers of a value.

    ctx  object of the application, None without one
    """

    def __init__(self, topic: str, field: MessageField, headers: Any = None, ctx: Any = None) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers
        self.ctx = ctx


class SerializationError(KafkaException):
    """A value cannot be serialized or deserialized."""


class Serializer:
    """Interface of serializers."""

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """Return the bytes of an object."""
        raise NotImplementedError


class Deserializer:
    """Interface of deserializers."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """Return the object in bytes."""
        raise NotImplementedError


class SerializerBuilder:
    """Interface of builders of serializers."""

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Any, dict[str, Any]]:
        """Return a serializer for keys or values, and the configs that it leaves to the client."""
        raise NotImplementedError


class DeserializerBuilder:
    """Interface of builders of deserializers."""

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Any, dict[str, Any]]:
        """Return a deserializer for keys or values, and the configs that it leaves to the client."""
        raise NotImplementedError


Choice = Callable[[dict[str, Any]], Any]
"""Function from the configs of a client to a serializer and the configs that are left."""


def choose_serdes(conf: dict[str, Any], kind: str) -> tuple[list[Choice], dict[str, Any]]:
    """Return the choices of the serializers of keys and values, and the other configs. Raises ValueError.

    kind  "serializer" or "deserializer"
    """
    left, choices = dict(conf), []
    for field in ("key", "value"):
        name = f"{field}.{kind}"
        serde, builder = left.pop(name, None), left.pop(f"{name}.builder", None)
        if serde is not None and builder is not None:
            raise ValueError(f"Cannot configure both {name} and {name}.builder; use one or the other")
        choices.append(_choice_of(serde) if builder is None else _choice_from_builder(builder, field == "key"))
    return choices, left


def _choice_of(serde: Any) -> Choice:
    return lambda conf: (serde, conf)


def _choice_from_builder(builder: Any, is_key: bool) -> Choice:
    return lambda conf: builder.build(dict(conf), is_key)


def pop_serdes(conf: dict[str, Any], kind: str) -> tuple[Any, Any, dict[str, Any]]:
    """Return the serializers of keys and values that are configured or built, and the other configs. Raises ValueError."""
    choices, left = choose_serdes(conf, kind)
    serdes = []
    for choice in choices:
        serde, left = choice(left)
        serdes.append(serde)
    return serdes[0], serdes[1], left


def _pack(form: str, obj: Any) -> bytes | None:
    try:
        return None if obj is None else struct.pack(form, obj)
    except struct.error as error:
        raise SerializationError(str(error)) from None


def _unpack(form: str, value: bytes | None) -> Any:
    try:
        return None if value is None else struct.unpack(form, value)[0]
    except struct.error as error:
        raise SerializationError(str(error)) from None


class DoubleSerializer(Serializer):
    """Serializer of floats as IEEE 754 doubles, big-endian."""

    def __call__(self, obj: float | None, ctx: SerializationContext | None = None) -> bytes | None:  # noqa: ARG002  (the interface)
        """Return 8 bytes; None for None. Raises SerializationError."""
        return _pack(">d", obj)


class DoubleDeserializer(Deserializer):
    """Deserializer of IEEE 754 doubles, big-endian."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:  # noqa: ARG002  (the interface)
        """Return a float; None for None. Raises SerializationError."""
        return _unpack(">d", value)


class IntegerSerializer(Serializer):
    """Serializer of integers of 32 bits, big-endian."""

    def __call__(self, obj: int | None, ctx: SerializationContext | None = None) -> bytes | None:  # noqa: ARG002  (the interface)
        """Return 4 bytes; None for None. Raises SerializationError."""
        return _pack(">i", obj)


class IntegerDeserializer(Deserializer):
    """Deserializer of integers of 32 bits, big-endian."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:  # noqa: ARG002  (the interface)
        """Return an integer; None for None. Raises SerializationError."""
        return _unpack(">i", value)


class StringSerializer(Serializer):
    """Serializer of texts.

    codec  encoding
    """

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, obj: str | None, ctx: SerializationContext | None = None) -> bytes | None:  # noqa: ARG002  (the interface)
        """Return the encoded text; None for None. Raises SerializationError."""
        try:
            return None if obj is None else obj.encode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from None


class StringDeserializer(Deserializer):
    """Deserializer of texts.

    codec  encoding
    """

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:  # noqa: ARG002  (the interface)
        """Return the text; None for None. Raises SerializationError."""
        try:
            return None if value is None else value.decode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from None
