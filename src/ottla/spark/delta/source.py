"""Data source behind format("ottla-delta"): a sink only. Imports are local to functions, as in `ottla.spark.source`."""

from ottla.spark.releases import require  # first: it refuses a PySpark without data sources

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter  # isort: skip
from pyspark.sql.types import StructType

from ottla.extras import install_command, is_installed
from ottla.spark.offsets import InvalidOption

NAME = "ottla-delta"


class DeltaDataSource(DataSource):
    """Data source behind format("ottla-delta")."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        raise InvalidOption(
            f"{NAME} writes tables only: read this one with deltalake, DuckDB's delta_scan, or Delta's own format(\"delta\")"
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise InvalidOption(f'{NAME} only appends: use mode("append")')
        _check_installed()
        from ottla.spark.delta.options import table_options
        from ottla.spark.delta.sink import BatchTableWriter

        return BatchTableWriter(table_options(self.options, stream=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  (Spark's name)
        if overwrite:
            raise InvalidOption(f'{NAME} only appends: use outputMode("append")')
        require((4, 1), f'writeStream.format("{NAME}")')
        _check_installed()
        from ottla.spark.delta.options import table_options
        from ottla.spark.delta.sink import StreamTableWriter

        return StreamTableWriter(table_options(self.options, stream=True), schema)


def _check_installed() -> None:
    """Raise ModuleNotFoundError with the command that installs deltalake."""
    if not is_installed("deltalake"):
        raise ModuleNotFoundError(f'format("{NAME}") needs deltalake: {install_command("delta")}')
