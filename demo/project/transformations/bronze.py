"""Bronze: what came from the topics, as it came."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table(comment="Records of the topic flights.", format="parquet")
def bronze() -> DataFrame:
    return (
        spark.readStream.format("ottla")
        .schema("key binary, value binary, partition int, offset bigint, timestamp timestamp")
        .option("kafka.bootstrap.servers", spark.conf.get("flights.bootstrap.servers"))
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 60_000)
        .option("groupOffsets", "flights-pipeline")
        .load()
    )
