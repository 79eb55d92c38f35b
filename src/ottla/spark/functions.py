"""Column functions: values in the Confluent wire format, from and to Spark's types.

    from ottla.spark.functions import from_wire, to_wire

Both talk to the registry in the driver when they are called, to know the schema and so the column's type; `from_wire` also in
the executors, once for each schema id that a worker process meets.
"""

from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # its stubs do not know it
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
_MODES: Final = ("PERMISSIVE", "FAILFAST")

__all__ = ["RegistryError", "SchemaNotFound", "SchemaRegistry", "UnsupportedSchema", "from_wire", "to_wire"]


def from_wire(
    column: Column | str,
    schema: str | bytes | int | None = None,
    *,
    subject: str | None = None,
    registry: SchemaRegistry | str | None = None,
    format: str | None = None,  # noqa: A002  (what Spark calls it)
    message: str | None = None,
    mode: str = "PERMISSIVE",
    validate: bool = False,
) -> Column:
    """Values of a binary column in the wire format, as the reader's schema has them; null stays null.

    The reader's schema is `schema`: its text, the bytes of a Protobuf FileDescriptorSet, or an id; or, without it, the
    latest version of `subject`. `format` is avro, json or protobuf; a text is taken for avro unless it is given.
    `message` is the Protobuf message (the first of its file). `registry` is an address, a directory or a
    `SchemaRegistry`; Avro needs it, to know what a value was written with; without it, json and protobuf do not look at
    the id.

    A value that cannot be read, or whose id the registry does not know, is null with `mode` PERMISSIVE and ends the query
    with FAILFAST; `validate` holds JSON against all its schema says. Raises UnsupportedSchema, SchemaNotFound,
    RegistryError, ValueError.
    """
    if mode.upper() not in _MODES:
        raise ValueError(f"mode {mode}: it is one of {', '.join(_MODES)}")
    schema_registry = _registry(registry)
    _, plan = _plan(schema, subject, schema_registry, format, message, validate)
    if schema_registry is None and plan.kind == AVRO:
        raise ValueError("Avro needs a registry: a value cannot be read without the schema it was written with")
    reading = DecodingPlan(plan=plan, registry=schema_registry, permissive=mode.upper() == "PERMISSIVE")
    kind = from_arrow_type(plan.format().shape.column, prefer_timestamp_ntz=True)

    def read(frames: pa.Array) -> pa.Array:
        return reading.column(frames)

    return _applied(arrow_udf(read, kind), "from_wire", column)


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
    """A column in the wire format, as `from_wire` reads it; null stays null (a tombstone).

    Arguments are those of `from_wire`. A text or a FileDescriptorSet must be a version of `subject`, or becomes one with
    `register=True`. A value that does not fit the schema ends the query.
    """
    schema_registry = _registry(registry)
    assert schema_registry is not None
    number, plan = _plan(schema, subject, schema_registry, format, message, validate)
    if number is None:
        if subject is None:
            raise ValueError("to_wire needs the subject that its schema is a version of")
        unregistered = Schema(plan.kind, plan.text)
        if plan.referred:
            raise ValueError("a schema that refers to others is registered by other means: give its subject or id")
        number = (
            schema_registry.register(subject, unregistered)
            if register
            else _registered_id(schema_registry, subject, unregistered)
        )
    writing = EncodingPlan(plan=plan, id=number)
    plan.format()

    def write(values: pa.Array) -> pa.Array:
        return writing.column(values)

    return _applied(arrow_udf(write, BinaryType()), "to_wire", column)


def _applied(function: Any, name: str, column: Column | str) -> Column:
    """A UDF of a column, under a name of its own in plans and in names of columns."""
    function._name = name
    result: Column = function(column)
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
    """The schema that is meant, and its id where the registry gave it."""
    expected_kind = None if format is None else _KINDS.get(format.lower())
    if format is not None and expected_kind is None:
        raise ValueError(f"format {format}: it is one of {', '.join(_KINDS)}")
    number: int | None = None
    if isinstance(schema, bytes):
        kind = PROTOBUF
        text, referred = files_of(schema)
    elif isinstance(schema, str):
        kind, text, referred = expected_kind or AVRO, schema, {}
    else:
        if registry is None or (schema is None and subject is None):
            raise ValueError("a schema is needed: its text, or its id or subject together with a registry")
        if schema is None:
            number, registered = registry.latest(str(subject))
        else:
            number, registered = schema, registry.by_id(schema)
        kind, text, referred = registered.kind, registered.text, dict(texts(registry, registered))
    if expected_kind not in (None, kind):
        raise ValueError(f"the schema is {kind}, not {expected_kind}")
    if message is not None and kind != PROTOBUF:
        raise ValueError(f"message {message}: only Protobuf has messages")
    plan = SchemaPlan(kind=kind, text=text, referred=tuple(referred.items()), message=message, validate=validate)
    return number, plan


def _registered_id(registry: SchemaRegistry, subject: str, schema: Schema) -> int:
    try:
        return registry.look_up(subject, schema)
    except SchemaNotFound as missing:
        raise SchemaNotFound(f"{missing} (register=True makes the schema its latest version)") from None
