"""A flow into the Delta table flights, which any tool reads that knows Delta: each flight once, as in the topic departures."""

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ottla.extras import is_installed

spark = SparkSession.active()

if is_installed("deltalake"):  # the extra delta
    # Absolute, because Spark's workers have working directories of their own.
    location = str(Path(spark.conf.get("flights.tables")).absolute() / "flights")
    dp.create_sink("flights_table", "ottla-delta", {"path": location, "partitionBy": "origin"})

    @dp.append_flow(target="flights_table", name="to_table")
    def to_table() -> DataFrame:
        flights = spark.readStream.option("maxFilesPerTrigger", 4).table("silver")
        return flights.select(
            "id", "hour", F.to_date("hour").alias("day"), "carrier", "origin", "dep_delay", "arr_delay"
        )
