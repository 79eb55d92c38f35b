"""Data source format("ottla"): topics as a source and sink of rows, batch and stream.

Strategy: the driver plans offset ranges, an executor reads one range of one partition, whole record batches at a time, as Arrow
record batches over column buffers: no work is done per row.

    schema.py      columns                          options.py        parsing of options
    offsets.py     decisions about offsets          reading.py        partitions and ranges
    batch.py       batch reads and their filters    stream.py         streams: triggers, checkpoints, groups
    sharing.py     streams of a share group         stream_offset.py  offsets in checkpoints
    sink.py        writing of rows                  releases.py       releases of PySpark
    unlimited.py, row_sink.py                       streams on releases before 4.2 and 4.1

Spark starts several Python processes for a query. Imports are local to functions, so each process loads only its own modules.
"""

from ottla.spark.releases import (
    HAS_ADMISSION_CONTROL,
    HAS_ARROW_STREAM_SINK,
    require,
)  # first: it refuses a PySpark without data sources

from pyspark.sql.datasource import (  # isort: skip
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ottla.spark.offsets import InvalidOption
from ottla.spark.options import SourceOptions, has_headers, sink_options, source_options
from ottla.spark.schema import COLUMNS, HEADERS, arrow_schema


def _refuse_limits(options: SourceOptions) -> None:
    """Raise UnsupportedPySpark for options that need admission control."""
    used = {
        "shareGroup": options.share_group,
        "maxOffsetsPerTrigger": options.max_offsets,
        "maxBytesPerTrigger": options.max_bytes,
        "minOffsetsPerTrigger": options.min_offsets,
    }
    for name, value in used.items():
        if value is not None:
            require((4, 2), name)


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
        if not HAS_ADMISSION_CONTROL:
            from ottla.spark.unlimited import UnlimitedStreamReader

            _refuse_limits(options)
            return UnlimitedStreamReader(options, arrow_schema(schema))
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
        if not HAS_ARROW_STREAM_SINK:
            from ottla.spark.row_sink import RowStreamWriter

            return RowStreamWriter(sink_options(self.options, stream=True), schema)
        from ottla.spark.sink import OttlaStreamWriter

        return OttlaStreamWriter(sink_options(self.options, stream=True), schema)
