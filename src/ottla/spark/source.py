"""format("ottla"): topics as a batch or a stream of rows, and where rows are written.

Strategy: the driver's side decides which offsets are read, an executor reads one range of one partition, whole batches at a
time, as Arrow record batches over column buffers: nothing is done per row.

    schema.py      the columns                      options.py        what a user may say
    offsets.py     decisions about offsets          reading.py        partitions found, ranges read
    batch.py       a batch read, its filters        stream.py         a stream: triggers, checkpoints, groups
    sharing.py     a stream of a share group        stream_offset.py  what a checkpoint keeps of a stream
    sink.py        rows into topics

Spark starts a Python process for each of its purposes, with each query; each imports what it needs of these, when it needs it.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ottla.spark.offsets import InvalidOption
from ottla.spark.options import has_headers, sink_options, source_options
from ottla.spark.schema import COLUMNS, HEADERS, arrow_schema


class OttlaDataSource(DataSource):
    """Data source behind format("ottla")."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        return StructType([*COLUMNS.fields, HEADERS]) if has_headers(self.options) else COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        from ottla.spark.batch import OttlaReader

        return OttlaReader(source_options(self.options, stream=False), arrow_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        options = source_options(self.options, stream=True)
        if options.share_group is not None:
            from ottla.spark.sharing import OttlaShareReader

            return OttlaShareReader(options, arrow_schema(schema))
        from ottla.spark.stream import OttlaStreamReader

        return OttlaStreamReader(options, arrow_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise InvalidOption('a topic cannot be overwritten: use mode("append")')
        from ottla.spark.sink import OttlaWriter

        return OttlaWriter(sink_options(self.options, stream=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        if overwrite:
            raise InvalidOption('a topic cannot be overwritten: use outputMode("append") or "update"')
        from ottla.spark.sink import OttlaStreamWriter

        return OttlaStreamWriter(sink_options(self.options, stream=True), schema)
