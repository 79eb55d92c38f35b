"""Conversion between columns of frames (magic byte, schema id, payload) and columns of values.

Executors receive a picklable plan: schema texts and the registry's address. Each worker process builds its codec from it once
(`_decoder_of`, `_encoder_of`), and caches it with one decoder per schema id.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from typing import Any, Final

import pyarrow as pa

from ottla.schemas.framing import HEAD, BadRecord, head, header_of, schema_id, split_header
from ottla.schemas.registry import AVRO, JSON, SchemaNotFound, SchemaRegistry, UnsupportedSchema
from ottla.spark.wire.avro import Avro
from ottla.spark.wire.json_schema import JsonSchema
from ottla.spark.wire.protobuf import Protobuf
from ottla.spark.wire.shape import column_of, values_of

_WRONG_TYPE: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)
DecodeFrame = Callable[[bytes, int], Any]


@dataclass(frozen=True, kw_only=True)
class SchemaPlan:
    """Schema of a reader or writer: kind, text, references (name and text), and the Protobuf message."""

    kind: str
    text: str
    referred: tuple[tuple[str, str], ...] = ()
    message: str | None = None
    validate: bool = False

    def format(self) -> Avro | JsonSchema | Protobuf:
        """Parse the schema. Raises UnsupportedSchema."""
        if self.kind == AVRO:
            return Avro(self.text, dict(self.referred))
        if self.kind == JSON:
            return JsonSchema(self.text, dict(self.referred), validate=self.validate)
        return Protobuf(self.text, dict(self.referred), self.message)


@dataclass(frozen=True, kw_only=True)
class DecodingPlan:
    """Plan to decode frames: `registry` has the writers' schemas; `permissive` decodes a bad record as null.

    field  "value" or "key": whose schemas are in headers
    """

    plan: SchemaPlan
    registry: SchemaRegistry | None
    permissive: bool
    field: str = "value"

    def column(self, frames: Any, headers: Any = None) -> Any:
        """Decode a column of frames to the type `shape.column` of the plan's format.

        headers  column with the headers of the records, which may name the schema in place of the frame

        Raises RegistryError, and BadRecord unless permissive.
        """
        return _decoder_of(self).column(frames, headers)


class _FrameDecoder:
    def __init__(self, reading: DecodingPlan) -> None:
        self._reading = reading
        self._format = reading.plan.format()
        self._decoders: dict[int | str, DecodeFrame] = {}

    def column(self, frames: Any, headers: Any) -> Any:
        own = repeat(None, len(frames)) if headers is None else headers.to_pylist()
        rows = zip(frames.to_pylist(), own, strict=True)
        values = [None if frame is None else self._value(frame, named) for frame, named in rows]
        try:
            return column_of(values, self._format.shape)
        except (BadRecord, *_WRONG_TYPE):
            checked = [self._fitting(value) for value in values]
        return column_of(checked, self._format.shape)

    def _value(self, frame: bytes, headers: Sequence[Mapping[str, Any]] | None) -> Any:
        number: int | str
        try:
            named = headers and header_of(((row["key"], row["value"]) for row in headers), self._reading.field)
            if named:
                number, indexes = split_header(named)
                frame = bytes(HEAD) + indexes + frame
            else:
                number = schema_id(frame)
        except BadRecord as wrong:
            return self._bad(str(wrong))
        decode = self._decoders.get(number)
        try:
            if decode is None:
                decode = self._decoders[number] = self._decoder(number)
            return decode(frame, HEAD)
        except (BadRecord, SchemaNotFound, UnsupportedSchema) as wrong:
            return self._bad(f"schema id {number}: {wrong}")

    def _fitting(self, value: Any) -> Any:
        """Return a value that fits the reader's types; otherwise None, or raises BadRecord."""
        try:
            column_of([value], self._format.shape)
        except (BadRecord, *_WRONG_TYPE) as wrong:
            return self._bad(f"does not fit its schema: {wrong}")
        return value

    def _bad(self, reason: str) -> None:
        if not self._reading.permissive:
            raise BadRecord(f"cannot decode a value, {' '.join(reason.split())}")

    def _decoder(self, number: int | str) -> DecodeFrame:
        kind, registry = self._reading.plan.kind, self._reading.registry
        text: str | None = None
        referred: Mapping[str, str] = {}
        if registry is not None:
            schema = registry.by_id(number) if isinstance(number, int) else registry.by_guid(number)
            if schema.kind != kind:
                raise BadRecord(f"written as {schema.kind}, not {kind}")
            text, referred = schema.text, {} if kind == JSON else texts(registry, schema)
        if isinstance(self._format, JsonSchema):
            return self._format.decoder()
        if isinstance(self._format, Protobuf):
            return self._format.decoder(text, referred)
        assert text is not None
        return self._format.decoder(text, referred)


def texts(registry: SchemaRegistry, schema: Any) -> Mapping[str, str]:
    """Return the texts of the schemas referenced by a schema, by name."""
    return {name: referred.text for name, referred in registry.referred(schema).items()}


@dataclass(frozen=True, kw_only=True)
class EncodingPlan:
    """Plan to encode values as frames, all with one schema and its id."""

    plan: SchemaPlan
    id: int

    def column(self, values: Any) -> Any:
        """Encode a column of values as frames. Raises BadRecord for a value that does not fit the schema."""
        return _encoder_of(self).column(values)


class _FrameEncoder:
    def __init__(self, writing: EncodingPlan) -> None:
        self._format = writing.plan.format()
        self._head = head(writing.id)

    def column(self, values: Any) -> Any:
        shape = self._format.shape
        _check_fields(values.type, shape.column, "")
        try:
            plain = values_of(values, shape)
        except _WRONG_TYPE as wrong:
            raise BadRecord(f"a column of type {values.type} does not fit the schema: {wrong}") from None
        own, encode = self._head, self._format.encode
        return pa.array([None if value is None else own + encode(value) for value in plain], type=pa.binary())


def _check_fields(actual: Any, expected: Any, path: str) -> None:
    """Check that structs have exactly the fields of the schema: a cast would drop or add fields. Raises BadRecord."""
    if pa.types.is_struct(expected) and pa.types.is_struct(actual):
        names, own = [field.name for field in actual], [field.name for field in expected]
        for name in names:
            if name not in own:
                raise BadRecord(f"the schema has no field {path}{name}: it has {', '.join(own)}")
        for name in own:
            if name not in names:
                raise BadRecord(f"the struct has no field {path}{name}, which the schema has")
            _check_fields(actual.field(name).type, expected.field(name).type, f"{path}{name}.")
    elif pa.types.is_list(expected) and pa.types.is_list(actual):
        _check_fields(actual.value_type, expected.value_type, path)
    elif pa.types.is_map(expected) and pa.types.is_map(actual):
        _check_fields(actual.item_type, expected.item_type, path)


@lru_cache(maxsize=100)
def _decoder_of(reading: DecodingPlan) -> _FrameDecoder:
    return _FrameDecoder(reading)


@lru_cache(maxsize=100)
def _encoder_of(writing: EncodingPlan) -> _FrameEncoder:
    return _FrameEncoder(writing)
