"""Columns of a topic, as in Spark's own Kafka source. A user schema with a subset of them is a projection.

key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int
[, headers array<struct<key string, value binary>>]        with includeHeaders
"""

from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.records.arrow import TYPES
from ottla.spark.offsets import InvalidOption

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
COLUMNS: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
HEADERS: Final = StructField("headers", ArrayType(_HEADER))
_ALL: Final = {field.name: field.dataType for field in (*COLUMNS.fields, HEADERS)}


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the requested columns. Raises InvalidOption."""
    return pa.schema([_arrow_field(field) for field in schema.fields])


def _arrow_field(field: StructField) -> pa.Field:
    ours = _ALL.get(field.name)
    if ours is None:
        raise InvalidOption(f"{field.name} is not a column of a topic: choose from {', '.join(_ALL)}")
    if field.dataType != ours:
        raise InvalidOption(f"column {field.name} is {ours.simpleString()}, not {field.dataType.simpleString()}")
    if not field.nullable and field.name in ("key", "value"):
        raise InvalidOption(f"column {field.name} can have nulls: it cannot be NOT NULL")
    return pa.field(field.name, TYPES[field.name], nullable=field.nullable)
