"""The records of a topic as Arrow batches: a data set that DuckDB scans as often as it needs.

DuckDB pushes the columns and the filters of a query into a scan of a data set (pyarrow.dataset.Dataset), which it does not for
a plain reader of batches. It calls `scanner` for each scan, and relies on it to apply the filter exactly:

    columns  decide what is decoded of a record; `count(*)` decodes nothing
    filter   1. the ranges of offsets that can pass are computed (pruning.py), nothing else is fetched
             2. Arrow applies it to each batch that was read

Batches are made one by one as DuckDB takes them, so a scan holds two fetches and a batch in memory.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ottla.client.config import ClientConfig
from ottla.client.errors import UnsupportedVersion
from ottla.query.pruning import Pruning
from ottla.query.reader import ROWS, QueryReader
from ottla.query.texts import Texts
from ottla.query.topic import Range, Topic
from ottla.records import arrow
from ottla.records.columns import ColumnReader

SCHEMA: Final = pa.schema(
    [
        ("partition", arrow.TYPES["partition"]),
        ("offset", arrow.TYPES["offset"]),
        ("timestamp", arrow.TYPES["timestamp"]),
        ("key", pa.string()),
        ("value", pa.string()),
        ("headers", arrow.TYPES["headers"]),
        ("raw_key", pa.binary()),
        ("raw_value", pa.binary()),
    ]
)
_DECODED: Final = {"raw_key": "key", "raw_value": "value"}
"""Columns by the name that they have in ottla.records.arrow, where it is another one."""


class TopicScan(ds.Dataset):  # type: ignore[misc]
    """Records of a topic, always the same ones.

    failure      error that ended the last scan; DuckDB replaces it by one of its own
    ranges_read  offsets that the last scan has read, or was to read
    """

    def __init__(self, config: ClientConfig, topic: Topic, keys: Texts, values: Texts) -> None:
        self.failure: Exception | None = None
        self.ranges_read: list[Range] = []
        self._config = config
        self._topic = topic
        self._texts = {"key": keys, "value": values}

    @property
    def schema(self) -> pa.Schema:
        """Columns of every topic."""
        return SCHEMA

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002  (the name that DuckDB passes it by)
        **_: Any,
    ) -> "_Scanner":
        """Return a scan of some columns of the rows that pass a filter."""
        names = SCHEMA.names if columns is None else list(columns)
        result = pa.schema([SCHEMA.field(name) for name in names])
        return _Scanner(pa.RecordBatchReader.from_batches(result, self._batches(result, filter)))

    def _batches(self, result: pa.Schema, predicate: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows that pass a filter."""
        # An expression does not list its columns, but its text names all of them, and perhaps some more.
        text = "" if predicate is None else str(predicate)
        needed = pa.schema([field for field in SCHEMA if field.name in result.names or field.name in text])
        decoded = arrow.schema(sorted({_DECODED.get(name, name) for name in needed.names}))
        columns = ColumnReader(arrow.column_flags(decoded.names), max_rows=ROWS)
        self.failure = None
        try:
            with QueryReader(self._config, {}) as reader:
                self.ranges_read = self._ranges(reader, predicate)
                for place, start, end in self.ranges_read:
                    for read in reader.read(place, start, end, self._topic.id, columns):
                        raw = arrow.record_batch(read, place.topic, place.partition, decoded)
                        batch = pa.RecordBatch.from_arrays(
                            [self._column(raw, name) for name in needed.names], schema=needed
                        )
                        if predicate is not None:
                            batch = batch.filter(predicate)
                        if batch.num_rows:
                            yield batch.select(result.names)
        except Exception as failure:
            self.failure = failure
            raise

    def _ranges(self, reader: QueryReader, predicate: Any) -> list[Range]:
        """Return the ranges of offsets that can pass a filter."""
        if predicate is None:
            return [piece for piece in self._topic.ranges if piece.start < piece.end]
        pruning = Pruning(predicate, SCHEMA)
        left = []
        for place, start, end in self._topic.ranges:
            first, last = pruning.offsets(place.partition, start, end)
            if first < last:
                left.append(Range(place, first, last))
        since = pruning.since_ms() if left else None
        if since is None:
            return left
        # All records before the first one that is as new are older. There may be older ones behind it, too.
        try:
            begins = reader.offsets(dict.fromkeys((piece.partition for piece in left), since))
        except UnsupportedVersion:  # Kafka 0.10.0 has no look-up by time: the filter is applied to everything
            return left
        newer = [piece._replace(start=max(piece.start, begins[piece.partition])) for piece in left]
        return [piece for piece in newer if begins[piece.partition] >= 0 and piece.start < piece.end]

    def _column(self, raw: pa.RecordBatch, name: str) -> Any:
        column = raw.column(_DECODED.get(name, name))
        if name in self._texts:
            return self._texts[name].column(column)
        if name == "timestamp":
            # -1 ms is a record without a timestamp.
            is_set = pc.greater_equal(column, pa.scalar(0, column.type))
            return column if is_set.true_count == len(column) else pc.if_else(is_set, column, None)
        return column


class _Scanner:
    """Scanner with the attributes that DuckDB uses.

    projected_schema  schema of the batches
    """

    def __init__(self, batches: pa.RecordBatchReader) -> None:
        self.projected_schema = batches.schema
        self._batches = batches

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the batches."""
        return self._batches
