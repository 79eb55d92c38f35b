"""Errors of serializers."""


class SerializerError(Exception):
    """A message cannot be serialized or deserialized."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __repr__(self) -> str:
        return f"{type(self).__name__}(error={self.message})"

    def __str__(self) -> str:
        return self.message


class KeySerializerError(SerializerError):
    """The key of a message cannot be serialized."""


class ValueSerializerError(SerializerError):
    """The value of a message cannot be serialized."""
