"""Conversion of fetched batches to Arrow tables, in one pass and without an object for each record.

Requires pyarrow; imported only when tables are requested.
"""

from collections.abc import Sequence
from typing import Final

from ottla.client.arrow import pa
from ottla.client.consumer.chunks import Batches
from ottla.client.errors import CorruptBatch
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import CORRUPT_MESSAGE
from ottla.records.arrow import column_flags, record_batch, schema
from ottla.records.columns import ColumnReader
from ottla.records.errors import CorruptRecords

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""Default columns of a table."""


def table_of(
    partition: TopicPartition,
    batches: Batches,
    position: int,
    next_offset: int,
    *,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Convert the records of whole batches from `position` (inclusive) to `next_offset` (exclusive) to a table.

    Raises KeyError for an unknown column, CorruptBatch.
    """
    arrow_schema = schema(COLUMNS if columns is None else columns)
    reader = ColumnReader(column_flags(arrow_schema.names))
    parts = []
    complete = False
    while not complete:
        try:
            rows = reader.read(batches.data, position, next_offset, start=batches.start, end=batches.end)
        except CorruptRecords as damage:
            raise CorruptBatch(f"{partition}: {damage}", CORRUPT_MESSAGE) from None
        complete, position = rows.complete, rows.next_offset
        parts.append(record_batch(rows, partition.topic, partition.partition, arrow_schema))
    return pa.Table.from_batches(parts, schema=arrow_schema)
