"""Serializers of a producer and deserializers of a consumer: convert keys and values between objects and bytes.

Any function (object, context) -> bytes serializes, any function (bytes, context) -> object deserializes; `ottla.schemas` has
those for Avro, JSON Schema and Protobuf. Without serializers the cost is one comparison for each record.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, cast

from ottla.records.record import Header, Record
from ottla.schemas.context import KEY, VALUE, Deserializer, SerializationContext, Serializer


class UnreadableRecord(ValueError):
    """A deserializer failed on the key or value of a record. The position is past the record: the next poll continues. A share
    consumer has released it.

    record  the fetched record, with key and value as bytes
    """

    def __init__(self, record: Record, field: str, reason: Exception | str) -> None:
        super().__init__(f"{record.topic}-{record.partition}, offset {record.offset}: {field} cannot be read: {reason}")
        self.record = record
        self._field = field
        self._reason = str(reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return UnreadableRecord, (self.record, self._field, self._reason)


class DeserializedRecord:
    """Record with deserialized key and value; all other attributes are those of the fetched record.

    record  the fetched record, with key and value as bytes
    """

    __slots__ = ("key", "record", "value")

    def __init__(self, record: Record, key: Any, value: Any) -> None:
        self.record = record
        self.key = key
        self.value = value

    def __getattr__(self, name: str) -> Any:
        # Special methods that copy and pickle look up are not forwarded; these modules also do so before `record` is set.
        if name == "record" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(f"DeserializedRecord has no attribute {name!r}")
        return getattr(self.record, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return DeserializedRecord, (self.record, self.key, self.value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeserializedRecord):
            return NotImplemented
        return (self.record, self.key, self.value) == (other.record, other.key, other.value)

    def __hash__(self) -> int:
        return hash(self.record)

    def __repr__(self) -> str:
        place = f"topic={self.record.topic!r}, partition={self.record.partition}, offset={self.record.offset}"
        return f"DeserializedRecord({place}, key={self.key!r}, value={self.value!r})"


class Serializers:
    """Serializers of a producer; None leaves the key or value unchanged."""

    def __init__(self, key: Serializer | None, value: Serializer | None) -> None:
        self._key = key
        self._value = value

    def key_and_value(self, topic: str, key: Any, value: Any, headers: list[Header] | None) -> tuple[Any, Any]:
        """Serialize key and value. Raises the error of the serializer."""
        if self._key is not None:
            key = self._key(key, SerializationContext(topic, KEY, headers))
        if self._value is not None:
            value = self._value(value, SerializationContext(topic, VALUE, headers))
        return key, value


class Deserializers:
    """Deserializers of a consumer; None leaves the key or value as bytes."""

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        self._key = key
        self._value = value

    def record(self, record: Record) -> Record:
        """Return the record with deserialized key and value. Raises UnreadableRecord."""
        key = self._read(self._key, KEY, record.key, record)
        value = self._read(self._value, VALUE, record.value, record)
        # Annotated as Record, which is compiled and holds bytes only: callers that use deserializers know their types.
        return cast(Record, DeserializedRecord(record, key, value))

    def records(self, records: Iterable[Record]) -> tuple[list[Record], UnreadableRecord | None]:
        """Deserialize records up to the first unreadable one; return them and its error."""
        deserialized: list[Record] = []
        for record in records:
            try:
                deserialized.append(self.record(record))
            except UnreadableRecord as unreadable:
                return deserialized, unreadable
        return deserialized, None

    def readable(self, records: Iterable[Record]) -> tuple[list[Record], list[UnreadableRecord]]:
        """Deserialize all records that can be read; return them, and the errors of the others."""
        deserialized: list[Record] = []
        unreadable: list[UnreadableRecord] = []
        for record in records:
            try:
                deserialized.append(self.record(record))
            except UnreadableRecord as error:
                unreadable.append(error)
        return deserialized, unreadable

    def _read(self, deserializer: Deserializer | None, field: str, data: bytes | None, record: Record) -> Any:
        if deserializer is None:
            return data
        try:
            return deserializer(data, SerializationContext(record.topic, field, record.headers))
        except Exception as reason:
            # Any exception is wrapped: the caller needs the record to continue after it, or to seek back.
            raise UnreadableRecord(record, field, reason) from reason


def serializers_of(key: Serializer | None, value: Serializer | None) -> Serializers | None:
    """Return the serializers of a producer; None if it has none."""
    return None if key is None and value is None else Serializers(key, value)


class ShareDeserializers:
    """Deserializers of a share consumer, with the errors that its next polls raise.

    What can be read is returned first. A record that cannot be read is released, and its error is raised by the poll after
    that; by the same poll if it has nothing to return.
    """

    def __init__(self, deserializers: Deserializers) -> None:
        self.read = deserializers.readable
        self._unreadable: deque[UnreadableRecord] = deque()

    def raise_earlier(self) -> None:
        """Raise the oldest error of an earlier poll. Raises UnreadableRecord."""
        if self._unreadable:
            raise self._unreadable.popleft()

    def finish_poll(
        self, records: list[Record], unreadable: list[UnreadableRecord], release: Callable[[Iterable[Record]], None]
    ) -> list[Record]:
        """Return what could be read of a poll, and release the rest. Raises UnreadableRecord."""
        release(error.record for error in unreadable)
        self._unreadable += unreadable
        if not records:
            self.raise_earlier()
        return records


def fetched_record(record: Any) -> Any:
    """Return the fetched record of a deserialized one; anything else as it is."""
    return record.record if type(record) is DeserializedRecord else record


def deserializers_of(key: Deserializer | None, value: Deserializer | None) -> Deserializers | None:
    """Return the deserializers of a consumer; None if it has none."""
    return None if key is None and value is None else Deserializers(key, value)


def share_deserializers_of(key: Deserializer | None, value: Deserializer | None) -> ShareDeserializers | None:
    """Return what deserializes the polls of a share consumer; None if it has no deserializers."""
    return None if key is None and value is None else ShareDeserializers(Deserializers(key, value))
