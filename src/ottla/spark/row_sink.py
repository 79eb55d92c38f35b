"""Sink of a stream on PySpark 4.0, which passes rows: they become the Arrow batches of `sink.py`."""

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import Row, StructType

from ottla.spark.options import SinkOptions
from ottla.spark.sink import StreamSinkWriter

_ROWS: Final = 10_000
"""Rows of a batch, as many as Spark's own Arrow batches have."""


class RowStreamWriter(StreamSinkWriter):
    """Stream write of rows."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._schema = schema

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        return self.write_all(_batches(iterator, to_arrow_schema(self._schema)))


def _batches(rows: Iterator[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while chunk := list(islice(rows, _ROWS)):
        columns = zip(*chunk, strict=True)
        arrays = [pa.array(map(_plain, column), field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _plain(value: Any) -> Any:
    """Return a value of a row as Arrow takes it: rows of structs as dictionaries, times with their zone."""
    if isinstance(value, Row):
        return value.asDict(recursive=True)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.astimezone()  # Spark passes the local time of the worker
    return value
