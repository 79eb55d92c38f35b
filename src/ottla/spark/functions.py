"""Column functions that convert between the Confluent wire format and Spark types.

    from ottla.spark.functions import from_wire, to_wire

Both query the registry in the driver when they are called, because the schema determines the column type; `from_wire` also
queries it in the executors, once per schema id and worker process.
"""

# ruff: noqa: E402 - the release is checked before names are imported that older ones lack

from typing import Any, Final

import pyarrow as pa

from ottla.spark.releases import require

require((4, 1), "ottla.spark.functions (arrow_udf)")

from pyspark.sql import Column
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # missing in its stubs
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BinaryType

from ottla.schemas.protobuf import files_of
from ottla.schemas.registry import (
    AVRO,
    JSON,
    PROTOBUF,
    RegistryError,
    Schema,
    SchemaNotFound,
    SchemaRegistry,
    UnsupportedSchema,
)
from ottla.spark.wire.codec import DecodingPlan, EncodingPlan, SchemaPlan, texts

_KINDS: Final = {"avro": AVRO, "json": JSON, "protobuf": PROTOBUF}
_FIELDS: Final = ("key", "value")
_MODES: Final = ("PERMISSIVE", "FAILFAST")

__all__ = ["RegistryError", "SchemaNotFound", "SchemaRegistry", "UnsupportedSchema", "from_wire", "to_wire"]


def from_wire(
    column: Column | str,
    schema: str | bytes | int | None = None,
    *,
    subject: str | None = None,
    registry: SchemaRegistry | str | None = None,
    format: str | None = None,  # noqa: A002  (Spark's name)
    message: str | None = None,
    mode: str = "PERMISSIVE",
    validate: bool = False,
    headers: Column | str | None = None,
    field: str = "value",
) -> Column:
    """Decode a binary column in the wire format into values of the reader's schema; null stays null.

    The reader's schema is `schema`: its text, the bytes of a Protobuf FileDescriptorSet, or an id; or, without it, the
    latest version of `subject`. `format` is the format of a text: avro (default), json or protobuf.
    `message` is the Protobuf message (default: the first of its file). `registry` is an address, a directory or a
    `SchemaRegistry`; Avro requires it to look up the writer's schema; without it, json and protobuf ignore the id.

    `headers` is the column with the headers of the records (option includeHeaders): serializers may write the GUID of a schema
    into one of them in place of the id in the value. `field` is "key" for a column of keys.

    A value that cannot be decoded, or has an unknown schema id, becomes null with `mode` PERMISSIVE and fails the query with
    FAILFAST; `validate` checks JSON against the whole schema, not only its types. Raises UnsupportedSchema, SchemaNotFound,
    RegistryError, ValueError.
    """
    if mode.upper() not in _MODES:
        raise ValueError(f"mode {mode}: must be one of {', '.join(_MODES)}")
    if field not in _FIELDS:
        raise ValueError(f"field {field}: must be one of {', '.join(_FIELDS)}")
    schema_registry = _registry(registry)
    _, plan = _plan(schema, subject, schema_registry, format, message, validate)
    if schema_registry is None and plan.kind == AVRO:
        raise ValueError("Avro needs a registry: a value cannot be decoded without its writer's schema")
    reading = DecodingPlan(plan=plan, registry=schema_registry, permissive=mode.upper() == "PERMISSIVE", field=field)
    kind = from_arrow_type(plan.format().shape.column, prefer_timestamp_ntz=True)

    def read(frames: pa.Array) -> pa.Array:
        return reading.column(frames)

    def read_with_headers(frames: pa.Array, own: pa.Array) -> pa.Array:
        return reading.column(frames, own)

    if headers is None:
        return _apply(arrow_udf(read, kind), "from_wire", column)
    return _apply(arrow_udf(read_with_headers, kind), "from_wire", column, headers)


def to_wire(
    column: Column | str,
    schema: str | bytes | int | None = None,
    *,
    subject: str | None = None,
    registry: SchemaRegistry | str,
    format: str | None = None,  # noqa: A002
    message: str | None = None,
    register: bool = False,
    validate: bool = False,
) -> Column:
    """Encode a column into the wire format that `from_wire` reads; null stays null (a tombstone).

    The arguments are those of `from_wire`. A text or a FileDescriptorSet must be a registered version of `subject`;
    `register=True` registers it. A value that does not fit the schema fails the query.
    """
    schema_registry = _registry(registry)
    assert schema_registry is not None
    number, plan = _plan(schema, subject, schema_registry, format, message, validate)
    if number is None:
        if subject is None:
            raise ValueError("to_wire needs a subject: the one that the schema is a version of")
        unregistered = Schema(plan.kind, plan.text)
        if plan.referred:
            raise ValueError(
                "a schema with references cannot be registered here: register it first and pass its subject or id"
            )
        number = (
            schema_registry.register(subject, unregistered)
            if register
            else _look_up_id(schema_registry, subject, unregistered)
        )
    writing = EncodingPlan(plan=plan, id=number)
    plan.format()

    def write(values: pa.Array) -> pa.Array:
        return writing.column(values)

    return _apply(arrow_udf(write, BinaryType()), "to_wire", column)


def _apply(function: Any, name: str, *columns: Column | str) -> Column:
    """Apply a UDF to columns, with the given name in plans and column names."""
    function._name = name
    result: Column = function(*columns)
    return result


def _registry(registry: SchemaRegistry | str | None) -> SchemaRegistry | None:
    return SchemaRegistry(location=registry) if isinstance(registry, str) else registry


def _plan(
    schema: str | bytes | int | None,
    subject: str | None,
    registry: SchemaRegistry | None,
    format: str | None,  # noqa: A002
    message: str | None,
    validate: bool,
) -> tuple[int | None, SchemaPlan]:
    """Resolve the arguments to a schema; its id is None unless it came from the registry."""
    expected_kind = None if format is None else _KINDS.get(format.lower())
    if format is not None and expected_kind is None:
        raise ValueError(f"format {format}: must be one of {', '.join(_KINDS)}")
    number: int | None = None
    if isinstance(schema, bytes):
        kind = PROTOBUF
        text, referred = files_of(schema)
    elif isinstance(schema, str):
        kind, text, referred = expected_kind or AVRO, schema, {}
    else:
        if registry is None or (schema is None and subject is None):
            raise ValueError("no schema: pass its text, or its id or subject together with a registry")
        if schema is None:
            number, registered = registry.latest(str(subject))
        else:
            number, registered = schema, registry.by_id(schema)
        kind, text, referred = registered.kind, registered.text, dict(texts(registry, registered))
    if expected_kind not in (None, kind):
        raise ValueError(f"the schema is {kind}, not {expected_kind}")
    if message is not None and kind != PROTOBUF:
        raise ValueError(f"message {message}: only for Protobuf schemas")
    plan = SchemaPlan(kind=kind, text=text, referred=tuple(referred.items()), message=message, validate=validate)
    return number, plan


def _look_up_id(registry: SchemaRegistry, subject: str, schema: Schema) -> int:
    try:
        return registry.look_up(subject, schema)
    except SchemaNotFound as missing:
        raise SchemaNotFound(f"{missing} (register=True makes the schema its latest version)") from None
