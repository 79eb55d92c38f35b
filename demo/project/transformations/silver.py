"""Silver: flights that keep the rules; what breaks one goes to the quarantine, with the rules' names."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ottla.spark.pipelines import expect, failed, passed

spark = SparkSession.active()

RULES = {
    "has a number": "id IS NOT NULL",
    "has a carrier": "carrier IS NOT NULL",
    "left New York": "origin IN ('EWR', 'JFK', 'LGA')",
}
_FLIGHT = "id bigint, carrier string, origin string, dep_delay double, arr_delay double"


def flights(records: DataFrame) -> DataFrame:
    """One row per record; the time of a record is the scheduled hour."""
    flight = F.from_json(F.col("value").cast("string"), _FLIGHT)
    return records.select(
        F.col("timestamp").alias("hour"), flight.alias("flight"), F.col("value").cast("string").alias("record")
    ).select("hour", "flight.*", "record")


@dp.table(comment="Flights that keep the rules.", format="parquet")
def silver() -> DataFrame:
    good = passed(expect(flights(spark.readStream.table("bronze")), RULES))
    return good.select("hour", "id", "carrier", "origin", "dep_delay", "arr_delay")


@dp.table(comment="Records that break a rule.", format="parquet")
def quarantine() -> DataFrame:
    return failed(expect(flights(spark.readStream.table("bronze")), RULES))
