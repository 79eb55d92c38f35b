"""Gold: delays by hour, airport and airline, with the weather. Computed again in each run, so late flights count as well."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

spark = SparkSession.active()


def _topic(name: str, columns: str) -> DataFrame:
    """All records of a small topic."""
    return (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", spark.conf.get("flights.bootstrap.servers"))
        .option("subscribe", name)
        .load()
        .select("timestamp", F.from_json(F.col("value").cast("string"), columns).alias("row"))
        .select("timestamp", "row.*")
    )


@dp.materialized_view(comment="Delays by hour, airport and airline.", format="parquet")
def delays() -> DataFrame:
    weather = _topic("weather", "origin string, wind_speed double, visib double").select(
        F.col("timestamp").alias("observed"), F.col("origin").alias("airport"), "wind_speed", "visib"
    )
    airlines = _topic("airlines", "carrier string, airline string").select(F.col("carrier").alias("code"), "airline")
    silver = spark.read.table("silver")
    return (
        silver.groupBy("hour", "origin", "carrier")
        .agg(
            F.count("*").alias("flights"),
            F.count_if(F.col("dep_delay").isNull()).alias("cancelled"),
            F.avg("dep_delay").alias("dep_delay"),
            F.avg("arr_delay").alias("arr_delay"),
        )
        .join(
            F.broadcast(weather), (F.col("origin") == F.col("airport")) & (F.col("hour") == F.col("observed")), "left"
        )
        .join(F.broadcast(airlines), F.col("carrier") == F.col("code"), "left")
        .select(
            "hour",
            "origin",
            "carrier",
            "airline",
            "flights",
            "cancelled",
            F.when(F.col("observed").isNull(), F.col("flights")).otherwise(0).alias("without_weather"),
            "dep_delay",
            "arr_delay",
            "wind_speed",
            "visib",
        )
    )
