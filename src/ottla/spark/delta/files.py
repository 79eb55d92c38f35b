"""Parquet files of a task: rows are collected by partition, and written a file at a time.

A file has its name before it is in the table: a task that dies leaves files that no reader sees, and VACUUM removes them.
They are all in the table's folder: partition values are in the table's log, and need no folders.
"""

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction

from ottla.spark.delta.options import TableOptions
from ottla.spark.delta.statistics import has_nan, statistics
from ottla.spark.offsets import InvalidOption

_MEMORY: Final = 128 << 20
"""Bytes of rows that a task collects; then the largest partition is written."""

Key = tuple[str | None, ...]


class FileWriter:
    """Files of one task.

    names         names of the columns, in their order in the batches
    partition_by  partition columns
    required      columns that must not be null
    """

    def __init__(
        self, options: TableOptions, *, names: Sequence[str], partition_by: Sequence[str], required: Sequence[str]
    ) -> None:
        self._filesystem = _filesystem(options)
        self._names = names
        self._partition_by = partition_by
        self._required = required
        self._rows: dict[Key, list[pa.RecordBatch]] = {}
        self._sizes: dict[Key, int] = {}
        self._files: list[AddAction] = []

    def append(self, batch: pa.RecordBatch) -> None:
        """Take the rows of a batch. Raises InvalidOption for a null where there must be none."""
        rows = pa.RecordBatch.from_arrays(batch.columns, names=list(self._names))
        for name in self._required:
            if name in self._names and rows.column(name).null_count:
                raise InvalidOption(f"column {name} of the table must not be null, and a row has null there")
        for key, part in _parts(rows, self._partition_by):
            self._rows.setdefault(key, []).append(part)
            self._sizes[key] = self._sizes.get(key, 0) + part.nbytes
        while sum(self._sizes.values()) > _MEMORY:
            self._write(max(self._sizes, key=lambda key: self._sizes[key]))

    def finish(self) -> list[AddAction]:
        """Write what is left, and return all files."""
        for key in list(self._rows):
            self._write(key)
        return self._files

    def _write(self, key: Key) -> None:
        rows = pa.Table.from_batches(self._rows.pop(key))
        del self._sizes[key]
        path = f"part-{uuid.uuid4()}.snappy.parquet"
        with self._filesystem.open_output_stream(path) as file:
            pq.write_table(
                rows,
                file,
                compression="snappy",
                coerce_timestamps="us",
                # Arrow leaves NaN out of the bounds in the file, and DuckDB skips rows by them that it orders above (2.0).
                write_statistics=not any(has_nan(column.combine_chunks()) for column in rows.columns),
                store_schema=False,  # Arrow's own
            )
        size = self._filesystem.get_file_info(path).size
        values = dict(zip(self._partition_by, key, strict=True))
        self._files.append(AddAction(path, size, values, int(time.time() * 1000), True, statistics(rows)))


def _filesystem(options: TableOptions) -> pafs.FileSystem:
    """Return the file system whose root is the table's folder."""
    if options.is_local:
        # Not by deltalake: it writes under a temporary name, which VACUUM would not see after a kill.
        return pafs.SubTreeFileSystem(options.location, pafs.LocalFileSystem())
    return pafs.PyFileSystem(DeltaStorageHandler(options.location, options.storage))


def _parts(rows: pa.RecordBatch, partition_by: Sequence[str]) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """Yield the rows of each partition, with its values as in the table's log and without these columns."""
    if not partition_by:
        if rows.num_rows:
            yield (), rows
        return
    # An empty string is null in the log, as with Delta's own writer.
    texts = [_text(rows.column(name)) for name in partition_by]
    codes: Any = np.zeros(rows.num_rows, np.int64)
    for text in texts:
        encoded = text.dictionary_encode(null_encoding="encode")
        codes = codes * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy()
        # Dense again, so that the next column cannot overflow them.
        codes = np.unique(codes, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    rest = rows.drop_columns(list(partition_by))
    for indices in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        if len(indices):
            yield tuple(text[int(indices[0])].as_py() for text in texts), rest.take(pa.array(indices))


def _text(column: pa.Array) -> pa.Array:
    text = pc.cast(column, pa.string())
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
