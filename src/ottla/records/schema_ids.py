"""Schema ids that the serializers of a schema registry write with keys and values, and which of them a topic accepts.

    in the payload   magic byte 0, id (int32), message indexes (Protobuf only), then the payload proper
    in a header      __key_schema_id, __value_schema_id: magic byte 1 and a GUID (16 bytes), or magic byte 0 and an id; then the
                     message indexes. The header comes first, as in deserializers

A topic learns from a registry which ids it accepts (`FieldSchemas.learn`), and keeps that: a record then costs a comparison
with the id of the one before. A batch with ids that it has not learned yet is validated again when it has. Null is always
accepted: tombstones have no schema.
"""

import uuid
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, final

from mypy_extensions import i64

from ottla.records.varints import read_varint

SchemaKey: TypeAlias = int | bytes
"""Id, or GUID."""
UnknownSchema: TypeAlias = tuple[str, SchemaKey]
"""Field ("key" or "value") and schema."""
MOST_UNKNOWN: Final = 100
"""Number of schemas of one batch that are looked up; a record with a further one is refused."""
TOPIC_NAME: Final = 0
RECORD_NAME: Final = 1
TOPIC_RECORD_NAME: Final = 2
"""Names of subjects: of topic and field, of the record, or of both."""
_ID_SIZE: Final = 5
_GUID_SIZE: Final = 17
_ANY: Final = (b"",)
_REFUSED_MS: Final = 1_000
"""Time after which a schema that was refused is looked up again."""
_MOST_REFUSED: Final = 10_000


@final
class FieldSchemas:
    """Schemas that the keys, or the values, of a topic may have.

    topic     name of the topic
    field     "key" or "value"
    strategy  TOPIC_NAME, RECORD_NAME or TOPIC_RECORD_NAME
    """

    def __init__(self, topic: str, field: str, strategy: int) -> None:
        self.topic = topic
        self.field = field
        self.strategy = strategy
        self._header = f"__{field}_schema_id".encode()
        self._accepted: dict[SchemaKey, tuple[bytes, ...]] = {}
        """Accepted beginnings of the bytes after a schema: message indexes, or b"" for any."""
        self._refused: dict[SchemaKey, str] = {}
        self._reasons: dict[int, str] = {}
        self._refused_at_ms: i64 = 0
        """Time of the oldest refusal."""
        self._last: i64 = -1
        """Id in payloads that was accepted last, whatever follows it."""
        self._last_guid = b""
        """GUID in headers that was accepted last, whatever follows it; b"" before the first."""

    def forget(self) -> None:
        """Forget all that was learned."""
        self._accepted.clear()
        self._refused.clear()
        self._last = -1
        self._last_guid = b""

    def expire(self, now_ms: i64) -> None:
        """Forget refusals that are old. Times are those of a clock that never goes back."""
        if self._refused and now_ms - self._refused_at_ms >= _REFUSED_MS:
            self._refused.clear()

    def learn(
        self,
        schema: SchemaKey,
        subjects: frozenset[str],
        names: Iterable[tuple[str, tuple[bytes, ...]]],
        now_ms: int,
    ) -> None:
        """Accept a schema, or refuse it, by what a registry says of it.

        subjects  those that have it as a version
        names     full names of its records, each with its encoded message indexes, (b"",) for other kinds than Protobuf; unused
                  with TOPIC_NAME
        """
        if self.strategy == TOPIC_NAME:
            subject = f"{self.topic}-{self.field}"
            if subject in subjects:
                self._accepted[schema] = _ANY
            else:
                self.refuse(schema, f"{self._text_of(schema)} is not registered under subject {subject}", now_ms)
            return
        before = "" if self.strategy == RECORD_NAME else f"{self.topic}-"
        named = [(f"{before}{name}", indexes) for name, indexes in names]
        accepted = [encoded for subject, indexes in named if subject in subjects for encoded in indexes]
        if accepted:
            self._accepted[schema] = tuple(accepted)
        elif named:
            self.refuse(schema, f"{self._text_of(schema)} is not registered under subject {named[0][0]}", now_ms)
        else:
            self.refuse(schema, f"{self._text_of(schema)} has no record name, by which its subject is called", now_ms)

    def refuse(self, schema: SchemaKey, reason: str, now_ms: int) -> None:
        """Refuse a schema for a second."""
        if not self._refused or len(self._refused) >= _MOST_REFUSED:
            self._refused.clear()
            self._refused_at_ms = now_ms
        self._refused[schema] = reason

    def refuse_missing(self, schema: SchemaKey, now_ms: int) -> None:
        """Refuse a schema that the registry does not have."""
        self.refuse(schema, f"{self._text_of(schema)} is not in the schema registry", now_ms)

    def refuse_unchecked(self, schema: SchemaKey, why: str, now_ms: int) -> None:
        """Refuse a schema that cannot be looked up."""
        self.refuse(schema, f"{self._text_of(schema)} cannot be checked: {why}", now_ms)

    def _text_of(self, schema: SchemaKey) -> str:
        if isinstance(schema, bytes):
            return f"Schema {uuid.UUID(bytes=schema)} of the {self.field}"
        return f"Schema id {schema} of the {self.field}"

    def refusal(
        self, data: bytes, at: i64, size: i64, headers: i64, stop: i64, unknown: dict[UnknownSchema, None]
    ) -> str | None:
        """Return why a key or value is refused, None if it is accepted, or its schema is now among the unknown ones.

        at, size  of the key or value
        headers   position of the headers of the record, which end at `stop` and are well-formed
        """
        if size < 0:
            return None
        if data[headers] != 0:
            begin, end = _header_value(data, headers, stop, self._header)
            if begin >= 0:
                return self._refusal_by_header(data, begin, end, unknown)
        if size < _ID_SIZE or data[at] != 0:
            return self._reason_of(size if size < _ID_SIZE else _ID_SIZE + data[at])
        number = _read_uint32(data, at + 1)
        if number == self._last:
            return None
        return self._check_schema(number, data, at + _ID_SIZE, at + size, unknown, is_last=True)

    def _refusal_by_header(self, data: bytes, begin: i64, end: i64, unknown: dict[UnknownSchema, None]) -> str | None:
        """Judge a record by the value of its header."""
        if end - begin >= _GUID_SIZE and data[begin] == 1:
            if _is_at(data, begin + 1, self._last_guid):
                return None
            guid = data[begin + 1 : begin + _GUID_SIZE]
            return self._check_schema(guid, data, begin + _GUID_SIZE, end, unknown, is_last=True)
        if end - begin >= _ID_SIZE and data[begin] == 0:
            return self._check_schema(_read_uint32(data, begin + 1), data, begin + _ID_SIZE, end, unknown)
        return f"The header {self._header.decode()} has neither a GUID nor a schema id"

    def _reason_of(self, kind: int) -> str:
        """Return why a payload has no schema id; each text is made once, as a batch may have 100,000 such records.

        kind  size of a short one, or _ID_SIZE and its first byte
        """
        reason = self._reasons.get(kind)
        if reason is None:
            reason = f"The {self.field} has {kind} bytes: too few for magic byte and schema id"
            if kind > _ID_SIZE:
                first = kind - _ID_SIZE
                reason = f"The {self.field} begins with byte {first}, not with magic byte 0 and a schema id"
            self._reasons[kind] = reason
        return reason

    def _remember(self, schema: SchemaKey) -> None:
        if isinstance(schema, bytes):
            self._last_guid = schema
        else:
            self._last = schema

    def _check_schema(
        self,
        schema: SchemaKey,
        data: bytes,
        begin: i64,
        end: i64,
        unknown: dict[UnknownSchema, None],
        is_last: bool = False,
    ) -> str | None:
        """Return why a schema is refused, with what follows it; see `refusal`."""
        accepted = self._accepted.get(schema)
        if accepted is not None:
            if accepted is _ANY or b"" in accepted:
                if is_last:
                    self._remember(schema)
                return None
            if data.startswith(accepted, begin, end):
                return None
            return f"The message in {self._text_of(schema)} is not registered under the subject of its name"
        reason = self._refused.get(schema)
        if reason is None:
            if len(unknown) >= MOST_UNKNOWN and (self.field, schema) not in unknown:
                return f"{self._text_of(schema)} follows {MOST_UNKNOWN} others of the batch that are not known yet"
            unknown[self.field, schema] = None
        return reason


@final
class SchemaRules:
    """Schemas that the records of a topic may have.

    key, value  None where none is needed
    now_ms      clock that never goes back
    changes     returns a number that changes when the registry does; a constant for one that does not report its changes
    """

    def __init__(
        self,
        key: FieldSchemas | None,
        value: FieldSchemas | None,
        now_ms: Callable[[], int],
        changes: Callable[[], int] = lambda: 0,
    ) -> None:
        self.key = key
        self.value = value
        self._now_ms = now_ms
        self._changes = changes
        self._seen = changes()

    def begin(self) -> None:
        """Forget what is outdated, before a batch is validated."""
        now_ms, changes = self._now_ms(), self._changes()
        for schemas in (self.key, self.value):
            if schemas is not None:
                if changes != self._seen:
                    schemas.forget()
                schemas.expire(now_ms)
        self._seen = changes

    def field(self, name: str) -> FieldSchemas | None:
        """Return the rule of "key" or "value"."""
        return self.key if name == "key" else self.value

    def refusal(
        self,
        data: bytes,
        key_at: i64,
        key_size: i64,
        value_at: i64,
        value_size: i64,
        headers: i64,
        stop: i64,
        unknown: dict[UnknownSchema, None],
    ) -> str | None:
        """Return why a record is refused; see `FieldSchemas.refusal`."""
        key, value = self.key, self.value
        if key is not None:
            reason = key.refusal(data, key_at, key_size, headers, stop, unknown)
            if reason is not None:
                return reason
        return None if value is None else value.refusal(data, value_at, value_size, headers, stop, unknown)


def _read_uint32(data: bytes, at: i64) -> i64:
    first: i64 = data[at]
    return (first << 24) | (data[at + 1] << 16) | (data[at + 2] << 8) | data[at + 3]


def _is_at(data: bytes, at: i64, part: bytes) -> bool:
    """Return whether a part, which is not empty, is at a position of data that is long enough.

    A call of a method of bytes costs more than this loop, compiled.
    """
    index: i64 = 0
    length: i64 = len(part)
    while index < length:
        if data[at + index] != part[index]:
            return False
        index += 1
    return length > 0


def _header_value(data: bytes, pos: i64, stop: i64, name: bytes) -> tuple[i64, i64]:
    """Return begin and end of the value of the first header of this name that is not null, (-1, -1) without one."""
    b: i64
    c: i64
    count: i64
    size: i64
    length: i64 = len(name)
    # varint: begin count, pos = read_varint(data, pos, stop)
    b = data[pos]
    c = data[pos + 1] if b >= 0x80 and pos + 1 < stop else 0
    if b < 0x80:
        pos += 1
        count = (b >> 1) ^ -(b & 1)
    elif 0 < c < 0x80:
        pos += 2
        b = (b & 0x7F) | (c << 7)
        count = (b >> 1) ^ -(b & 1)
    else:
        count, pos = read_varint(data, pos, stop)
    # varint: end
    while count > 0:
        count -= 1
        # varint: begin size, pos = read_varint(data, pos, stop)
        b = data[pos]
        c = data[pos + 1] if b >= 0x80 and pos + 1 < stop else 0
        if b < 0x80:
            pos += 1
            size = (b >> 1) ^ -(b & 1)
        elif 0 < c < 0x80:
            pos += 2
            b = (b & 0x7F) | (c << 7)
            size = (b >> 1) ^ -(b & 1)
        else:
            size, pos = read_varint(data, pos, stop)
        # varint: end
        is_named = size == length and _is_at(data, pos, name)
        pos += size
        # varint: begin size, pos = read_varint(data, pos, stop)
        b = data[pos]
        c = data[pos + 1] if b >= 0x80 and pos + 1 < stop else 0
        if b < 0x80:
            pos += 1
            size = (b >> 1) ^ -(b & 1)
        elif 0 < c < 0x80:
            pos += 2
            b = (b & 0x7F) | (c << 7)
            size = (b >> 1) ^ -(b & 1)
        else:
            size, pos = read_varint(data, pos, stop)
        # varint: end
        if is_named and size >= 0:
            return pos, pos + size
        if size > 0:
            pos += size
    return -1, -1
