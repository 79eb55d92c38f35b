"""Ids of schemas in records, and names of subjects: the functions that serializers are configured with."""

import io
import uuid
from collections.abc import Callable
from typing import Any

from ottla.compat.confluent_kafka.serialization import SerializationContext, SerializationError
from ottla.schemas.framing import (
    HEAD,
    BadRecord,
    guid_head,
    head,
    header_name,
    header_of,
    indexes_written,
    message_indexes,
    split_header,
)
from ottla.schemas.registry import PROTOBUF

SubjectStrategy = Callable[[Any, str | None], str | None]
"""(context, name of the record) -> subject."""


class SchemaId:
    """Schema in a record: an id or a GUID, and the indexes of a Protobuf message."""

    __slots__ = ("guid", "id", "message_indexes", "schema_type")

    def __init__(
        self,
        schema_type: str,
        schema_id: int | None = None,
        guid: str | None = None,
        message_indexes: list[int] | None = None,
    ) -> None:
        self.schema_type = schema_type
        self.id = schema_id
        self.guid = None if guid is None else uuid.UUID(guid)
        self.message_indexes = message_indexes

    def from_bytes(self, payload: io.BytesIO) -> io.BytesIO:
        """Read the id from the begin of a payload; return what is left. Raises SerializationError."""
        data = payload.read()
        try:
            number, rest = split_header(data)
        except BadRecord:
            raise SerializationError("Invalid magic byte") from None
        if isinstance(number, int):
            self.id = number
        else:
            self.guid = uuid.UUID(number)
        if self.schema_type == PROTOBUF:
            try:
                indexes, start = message_indexes(bytes(HEAD) + rest)
            except BadRecord as error:
                raise SerializationError(str(error)) from None
            self.message_indexes, rest = list(indexes), rest[start - HEAD :]
        return io.BytesIO(rest)

    def _indexes(self) -> bytes:
        return b"" if self.message_indexes is None else indexes_written(tuple(self.message_indexes))

    def id_to_bytes(self) -> bytes:
        """Return the bytes before a payload. Raises SerializationError without an id."""
        if self.id is None:
            raise SerializationError("Schema ID is not set")
        return head(self.id) + self._indexes()

    def guid_to_bytes(self) -> bytes:
        """Return the value of the header of a record. Raises SerializationError without a GUID."""
        if self.guid is None:
            raise SerializationError("Schema GUID is not set")
        return guid_head(str(self.guid)) + self._indexes()


def prefix_schema_id_serializer(payload: bytes, ctx: Any, schema_id: SchemaId) -> bytes:
    """Return a payload with the id of its schema before it."""
    del ctx
    return schema_id.id_to_bytes() + payload


def header_schema_id_serializer(payload: bytes, ctx: SerializationContext | None, schema_id: SchemaId) -> bytes:
    """Add the GUID of a schema to the headers of the context; return the payload. Raises SerializationError."""
    if ctx is None:
        raise SerializationError("SerializationContext is required for header_schema_id_serializer")
    name = header_name(ctx.field)
    if ctx.headers is None:
        raise SerializationError("Missing headers")
    if isinstance(ctx.headers, list):
        ctx.headers.append((name, schema_id.guid_to_bytes()))
    elif isinstance(ctx.headers, dict):
        ctx.headers[name] = schema_id.guid_to_bytes()
    else:
        raise SerializationError("Invalid headers type")
    return payload


def prefix_schema_id_deserializer(payload: bytes, ctx: Any, schema_id: SchemaId) -> io.BytesIO:
    """Read the id of a schema from the begin of a payload; return what is left. Raises SerializationError."""
    del ctx
    return schema_id.from_bytes(io.BytesIO(payload))


def dual_schema_id_deserializer(payload: bytes, ctx: SerializationContext | None, schema_id: SchemaId) -> io.BytesIO:
    """Read the schema from the headers of the context, or else from the begin of a payload; return the payload.

    Raises SerializationError.
    """
    header = None if ctx is None else header_of(pairs(ctx.headers), ctx.field)
    if header is None:
        return prefix_schema_id_deserializer(payload, ctx, schema_id)
    schema_id.from_bytes(io.BytesIO(header))
    return io.BytesIO(payload)


def pairs(headers: Any) -> Any:
    """Return headers, a list of pairs or a dictionary, as pairs."""
    return list(headers.items()) if isinstance(headers, dict) else headers


def topic_subject_name_strategy(ctx: SerializationContext | None, record_name: str | None) -> str | None:
    """Return a subject such as "orders-value". Raises ValueError without a context."""
    del record_name
    return f"{_context(ctx, 'topic_subject_name_strategy').topic}-{_context(ctx, '').field}"


def topic_record_subject_name_strategy(ctx: SerializationContext | None, record_name: str | None) -> str | None:
    """Return a subject such as "orders-shop.Order", None without a name. Raises ValueError without a context."""
    topic = _context(ctx, "topic_record_subject_name_strategy").topic
    return None if record_name is None else f"{topic}-{record_name}"


def record_subject_name_strategy(ctx: SerializationContext | None, record_name: str | None) -> str | None:
    """Return the name of the record as the subject."""
    del ctx
    return record_name


def reference_subject_name_strategy(ctx: SerializationContext | None, schema_ref: Any) -> str | None:
    """Return the name of a reference as its subject."""
    del ctx
    return None if schema_ref is None else str(schema_ref.name)


def _context(ctx: SerializationContext | None, strategy: str) -> SerializationContext:
    if ctx is None:
        raise ValueError(
            f"SerializationContext is required for {strategy}. Either provide a SerializationContext or use "
            "record_subject_name_strategy."
        )
    return ctx
