"""Ceiling of a Python data source on Spark without a Kafka behind it: ready-made Arrow batches, and a sink that drops all.

The columns are those of `format("ottla")`, and so is the number of rows of a batch. Options: `records` in four partitions, and
`size` of a value in bytes.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

NAME: Final = "ceiling"
PARTITIONS: Final = 4
_ROWS: Final = 50_000


class Share(InputPartition):
    """The records of one partition."""

    def __init__(self, count: int) -> None:
        super().__init__(None)
        self.count = count


def batches(schema: pa.Schema, size: int, count: int) -> Iterator[pa.RecordBatch]:
    """Yield `count` rows; the batch is made once."""
    columns = {
        "key": pa.nulls(_ROWS, pa.binary()),
        "value": pa.array([b"v" * size] * _ROWS, pa.binary()),
        "topic": pa.array(["topic"] * _ROWS, pa.string()),
        "partition": pa.array([0] * _ROWS, pa.int32()),
        "offset": pa.array(range(_ROWS), pa.int64()),
        "timestamp": pa.array([1_700_000_000_000_000] * _ROWS, pa.timestamp("us", tz="UTC")),
        "timestampType": pa.array([0] * _ROWS, pa.int32()),
    }
    batch = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
    for _ in range(count // _ROWS):
        yield batch
    if count % _ROWS:
        yield batch.slice(0, count % _ROWS)


class _Reader(DataSourceReader):
    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = schema
        self._size, self._records = int(options["size"]), int(options["records"])

    def partitions(self) -> list[InputPartition]:
        return [Share(self._records // PARTITIONS) for _ in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from ottla.spark.schema import arrow_schema

        assert isinstance(partition, Share)
        return batches(arrow_schema(self._schema), self._size, partition.count)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = schema
        self._size, self._records = int(options["size"]), int(options["records"])
        self._at_once = int(options["maxOffsetsPerTrigger"])

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's name)
        """Nothing to prepare: the number of records is fixed."""

    def getDefaultReadLimit(self) -> Any:  # noqa: N802  (Spark's name)
        return ReadMaxRows(self._at_once)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  (Spark's name)
        return {"records": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802  (Spark's name)
        most = self._records if isinstance(limit, ReadAllAvailable) else start["records"] + self._at_once
        return {"records": min(self._records, most)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [Share((end["records"] - start["records"]) // PARTITIONS) for _ in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from ottla.spark.schema import arrow_schema

        assert isinstance(partition, Share)
        return batches(arrow_schema(self._schema), self._size, partition.count)


class _Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class Ceiling(DataSource):
    """Source of ready-made batches, and sink that drops them."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        from ottla.spark.schema import COLUMNS

        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        return _StreamReader(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        del schema, overwrite
        return _Writer()
