"""A flow into the topic departures: each flight exactly once, through the crash of whatever runs this."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

spark = SparkSession.active()

dp.create_sink(
    "departures",
    "ottla",
    {
        "kafka.bootstrap.servers": spark.conf.get("flights.bootstrap.servers"),
        "topic": "departures",
        "exactlyOnce": "true",
        "sinkId": "flights-demo",
    },
)


@dp.append_flow(target="departures", name="to_topic")
def to_topic() -> DataFrame:
    # A few files at a time: several batches, so that there is a middle to crash in.
    return (
        spark.readStream.option("maxFilesPerTrigger", 4)
        .table("silver")
        .select(
            F.concat_ws("-", "origin", "carrier").alias("key"),
            F.to_json(F.struct("id", "carrier", "origin", "dep_delay")).alias("value"),
            F.array(F.struct(F.lit("type").alias("key"), F.lit("flight").cast("binary").alias("value"))).alias(
                "headers"
            ),
            F.col("hour").alias("timestamp"),
        )
    )
