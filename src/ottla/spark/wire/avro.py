"""Avro: fastavro resolves the writer's schema to the reader's (Avro specification, "Schema Resolution").

Strategy: dates and timestamps are removed from the schemas passed to fastavro. It would create an object for each, which
pyarrow would convert back; numbers pass through both, and a cast restores the type. Decimals are kept.

Spark types are those of Spark's own from_avro, all nullable: a union with null is its other branch; int and long are long,
float and double are double; any other union is a struct of member0, member1, ... of which one is not null.
"""

import io
import struct
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import fastavro
import pyarrow as pa
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException, UnknownType

from ottla.schemas.avro import whole
from ottla.schemas.avro_payload import payload_check
from ottla.schemas.framing import BadRecord
from ottla.schemas.registry import UnsupportedSchema
from ottla.spark.wire.shape import Convert, Shape, array, mapping, plain, record

_PRIMITIVES: Final[dict[str, Any]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_UTC: Final = pa.timestamp("us", tz="UTC")
_LOCAL: Final = pa.timestamp("us")
# By Avro type: the type in which pyarrow reads the number, Spark's type, and the type that is encoded.
_TIMES: Final[dict[tuple[str, str], Shape]] = {
    ("int", "date"): Shape(pa.date32(), pa.date32(), stored=pa.int32()),
    ("long", "timestamp-millis"): Shape(pa.timestamp("ms", tz="UTC"), _UTC, stored=pa.int64()),
    ("long", "timestamp-micros"): Shape(_UTC, _UTC, stored=pa.int64()),
    ("long", "timestamp-nanos"): Shape(pa.timestamp("ns", tz="UTC"), _UTC, stored=pa.int64()),
    ("long", "local-timestamp-millis"): Shape(pa.timestamp("ms"), _LOCAL, stored=pa.int64()),
    ("long", "local-timestamp-micros"): Shape(_LOCAL, _LOCAL, stored=pa.int64()),
    ("long", "local-timestamp-nanos"): Shape(pa.timestamp("ns"), _LOCAL, stored=pa.int64()),
}
_BAD_BYTES: Final = (
    *(ArithmeticError, EOFError, LookupError, TypeError, ValueError, struct.error, MemoryError),
    SchemaResolutionError,  # a record of another type, or a branch of a union that the reader's schema lacks
)
_MERGED: Final = ({"int", "long"}, {"float", "double"})


class Avro:
    """Avro schema of a reader or writer; `shape` has its column types. Raises UnsupportedSchema."""

    def __init__(self, text: str, referred: Mapping[str, str]) -> None:
        self._schema = whole(text, referred)
        self._tagged = _has_members(self._schema)
        self.shape = _shape(self._schema, {}, ())
        self._plain, self._parsed = _parse(self._schema)

    def decoder(self, text: str, referred: Mapping[str, str]) -> Callable[[bytes, int], Any]:
        """Return a function that decodes the payload at an index of a frame written with this schema; it raises BadRecord."""
        written = whole(text, referred)
        other, writer = _parse(written)
        check = payload_check(written)
        reader = None if other == self._plain else self._parsed
        tagged, read = self._tagged, fastavro.schemaless_reader

        def decode(frame: bytes, at: int) -> Any:
            if check is not None:
                check(frame, at)
            payload = io.BytesIO(frame)
            payload.seek(at)
            try:
                return read(payload, writer, reader, return_named_type=tagged)
            except _BAD_BYTES as wrong:
                raise BadRecord(f"malformed Avro payload: {wrong or type(wrong).__name__}") from None

        return decode

    def encode(self, value: Any) -> bytes:
        """Return the payload of a value. Raises BadRecord if it does not fit the schema."""
        payload = io.BytesIO()
        try:
            fastavro.schemaless_writer(payload, self._parsed, value)
        except _BAD_BYTES as wrong:
            raise BadRecord(f"does not fit its Avro schema: {wrong or type(wrong).__name__}") from None
        return payload.getvalue()


def _parse(schema: Any) -> tuple[Any, Any]:
    """Return a schema without dates and timestamps, plain and as parsed by fastavro."""
    bare = _bare(schema)
    try:
        return bare, fastavro.parse_schema(bare)
    except (SchemaParseException, UnknownType, LookupError, TypeError, ValueError) as wrong:
        raise UnsupportedSchema(f"not an Avro schema: {wrong}") from None


def _bare(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_bare(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema["type"]
    if kind in ("record", "error"):
        fields = [_bare_field(field) for field in schema["fields"]]
        return {"type": "record", "name": schema["name"], "fields": fields} | _pick(schema, "aliases")
    if kind in ("enum", "fixed"):
        kept = _pick(schema, "aliases", "symbols", "size", "default")
        return {"type": kind, "name": schema["name"], **kept, **_decimal(schema)}
    if kind == "array":
        return {"type": "array", "items": _bare(schema["items"])}
    if kind == "map":
        return {"type": "map", "values": _bare(schema["values"])}
    if not isinstance(kind, str):
        return _bare(kind)
    return {"type": kind, **_decimal(schema)} if kind == "bytes" and _decimal(schema) else kind


def _pick(schema: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: schema[name] for name in names if name in schema}


def _decimal(schema: Mapping[str, Any]) -> dict[str, Any]:
    if schema.get("logicalType") != "decimal":
        return {}
    return {"logicalType": "decimal", "precision": schema["precision"], "scale": schema.get("scale", 0)}


def _bare_field(field: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": field["name"], "type": _bare(field["type"]), **_pick(field, "aliases", "default")}


def _from_default(field: Mapping[str, Any], shape: Shape) -> Shape:
    """Return the shape of a record's field. A default of type bytes is text in the schema, one character per byte."""
    kind = _bare(field["type"])
    first = kind[0] if isinstance(kind, list) and kind else kind
    described = first if isinstance(first, dict) else {"type": first}
    if described["type"] not in ("bytes", "fixed") or not isinstance(field.get("default"), str):
        return shape
    up, scale = shape.up, described.get("scale", 0)

    def convert(value: Any) -> Any:
        if isinstance(value, str):
            value = value.encode("latin-1")
            if "logicalType" in described:
                return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale)
        return up(value) if up else value

    return shape._replace(up=convert)


def _branches(union: list[Any]) -> list[Any]:
    """Return the branches of a union without null; a single one if Spark has one type for all of them."""
    branches = [branch for branch in union if branch != "null"]
    names = {branch if isinstance(branch, str) else "" for branch in branches}
    for merged in _MERGED:
        if len(branches) > 1 and names <= merged:
            return [max(names & merged, key=("int", "long", "float", "double").index)]
    return branches


def _has_members(schema: Any) -> bool:
    """Return whether the schema has a union that becomes a struct."""
    if isinstance(schema, list):
        return len(_branches(schema)) > 1 or any(_has_members(branch) for branch in schema)
    if not isinstance(schema, dict):
        return False
    inner = [field["type"] for field in schema.get("fields", ())]
    inner += [schema[part] for part in ("items", "values") if part in schema]
    return any(_has_members(part) for part in inner) or _has_members(schema["type"])


def _shape(schema: Any, named: dict[str, Any], around: tuple[str, ...]) -> Shape:
    if isinstance(schema, list):
        return _union(schema, named, around)
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return plain(_PRIMITIVES[schema])
        if schema in around:
            raise UnsupportedSchema(f"{schema} is recursive, which Spark types do not support")
        if schema not in named:
            raise UnsupportedSchema(f"{schema} is not defined, or has no Spark type")
        return _shape(named[schema], named, around)
    kind, logical = schema["type"], schema.get("logicalType")
    if kind in ("record", "error"):
        named[schema["name"]] = schema
        inside = (*around, schema["name"])
        fields = schema["fields"]
        return record((field["name"], _from_default(field, _shape(field["type"], named, inside))) for field in fields)
    if kind == "array":
        return array(_shape(schema["items"], named, around))
    if kind == "map":
        return mapping(_shape(schema["values"], named, around))
    if kind in ("enum", "fixed"):
        named[schema["name"]] = schema
    if kind in ("bytes", "fixed") and logical == "decimal":
        if schema["precision"] > 38:
            raise UnsupportedSchema(f"a decimal of {schema['precision']} digits: Spark supports up to 38")
        return plain(pa.decimal128(schema["precision"], schema.get("scale", 0)))
    if kind == "enum":
        return plain(pa.string())
    if kind == "fixed":
        if logical == "uuid":
            return Shape(pa.string(), pa.string(), _uuid_text, _uuid_bytes)
        return plain(pa.binary())
    if not isinstance(kind, str):
        return _shape(kind, named, around)
    return _TIMES.get((kind, logical)) or _shape(kind, named, around)


def _uuid_text(value: bytes) -> str:
    return str(uuid.UUID(bytes=value))


def _uuid_bytes(value: str) -> bytes:
    return uuid.UUID(value).bytes


def _union(schema: list[Any], named: dict[str, Any], around: tuple[str, ...]) -> Shape:
    branches = _branches(schema)
    if not branches:
        raise UnsupportedSchema("a value that is always null has no Spark type")
    shapes = [_shape(branch, named, around) for branch in branches]
    tags = [_tag(branch, named) for branch in branches]
    if len(branches) == 1:
        # With return_named_type (a union elsewhere in the schema), fastavro adds the branch name to values of named types.
        up = shapes[0].up
        untagged: Convert = (lambda value: up(_value(value))) if up else _value
        is_named = tags[0] not in _KINDS.values() and tags[0] != ""
        return shapes[0]._replace(up=untagged) if is_named else shapes[0]
    names = [f"member{number}" for number in range(len(branches))]
    inner = record(zip(names, (shape._replace(up=None, down=None) for shape in shapes), strict=True))

    def up_member(value: Any) -> dict[str, Any]:
        tag = value[0] if isinstance(value, tuple) else _KINDS.get(type(value), "")
        for name, shape, own in zip(names, shapes, tags, strict=True):
            if own == tag or (own, tag) in _WIDER:
                value = _value(value)
                return {name: shape.up(value) if shape.up else value}
        raise BadRecord(f"a {tag} is in no branch of its union")

    def down_member(value: dict[str, Any]) -> Any:
        for name, shape, own, branch in zip(names, shapes, tags, branches, strict=True):
            if value[name] is not None:
                converted = shape.down(value[name]) if shape.down else value[name]
                bare = _bare(branch)
                is_record = isinstance(bare, dict) and bare["type"] == "record"
                return (own, converted) if is_record or isinstance(bare, str) else converted
        return None

    return inner._replace(up=up_member, down=down_member)


_KINDS: Final[dict[type, str]] = {
    bool: "boolean",
    int: "int",
    float: "float",
    str: "string",
    bytes: "bytes",
    Decimal: "bytes",
    list: "array",
    dict: "map",
}
_WIDER: Final = {("long", "int"), ("double", "float")}


def _tag(branch: Any, named: Mapping[str, Any]) -> str:
    """Return the tag of the values of a branch: the name of a record, enum or fixed; the kind of anything else."""
    if isinstance(branch, str):
        return branch
    kind = branch["type"]
    if kind in ("record", "error", "enum", "fixed"):
        return str(branch["name"])
    return kind if isinstance(kind, str) else _tag(kind, named)


def _value(value: Any) -> Any:
    """Return a value without the name of its branch."""
    return value[1] if isinstance(value, tuple) else value
