"""The pipeline: flights and weather as streams, joined, averaged per carrier, airport and hour.

Exact counts rest on three things. Records carry the scheduled hour as their timestamp and were replayed in that order. The
watermark of three days is longer than any two partitions can drift apart when a trigger takes a share of each. And it is the
older of both streams that sets the watermark, so weather is never late for its flights. What is still open at the end is
closed by one event of each stream that lies far beyond the watermark: it moves time on, and its own hour is never closed.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from ottla.spark.session import session_builder

WATERMARK = "3 days"
CLOSING_AFTER_MS = 30 * 86_400_000

# A trigger takes a share of every partition, rounded down: a few more, so that none is left for a trigger of its own.
_SLACK = 10

_FLIGHT = "carrier string, origin string, dep_delay double, arr_delay double"
_WEATHER = "origin string, temp double, wind_speed double, precip double, visib double"
RESULT = (
    "hour timestamp, origin string, carrier string, airline string, flights bigint, cancelled bigint, "
    "without_weather bigint, dep_delay double, arr_delay double, wind_speed double, visib double"
)


def session() -> SparkSession:
    """A small local session: two cores, no web page. Raises JavaMissing."""
    return (
        session_builder("Ottla demo")
        .master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        # A run of a minute is over before the JVM's second compiler pays for itself.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )


def _stream(spark: SparkSession, servers: str, topic: str, rows_per_trigger: int) -> DataFrame:
    return (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", rows_per_trigger)
        .load()
    )


def delays(spark: SparkSession, servers: str, flights: int, observations: int, triggers: int) -> DataFrame:
    """The result as a stream: one row per hour, airport and carrier.

    flights, observations  records in the two topics
    triggers               in how many steps they are taken
    """
    flight = (
        _stream(spark, servers, "flights", flights // triggers + _SLACK)
        .withColumn("flight", F.from_json(F.col("value").cast("string"), _FLIGHT))
        .select(F.col("timestamp").alias("scheduled"), "flight.*")
        .withWatermark("scheduled", WATERMARK)
    )
    observation = (
        _stream(spark, servers, "weather", observations // triggers + _SLACK)
        .withColumn("weather", F.from_json(F.col("value").cast("string"), _WEATHER))
        .select(F.col("timestamp").alias("observed"), "weather.*")
        .withColumnRenamed("origin", "airport")
        .withWatermark("observed", WATERMARK)
    )
    airline = (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "airlines")
        .load()
        .select(F.from_json(F.col("value").cast("string"), "carrier string, airline string").alias("row"))
        .select("row.*")
        .cache()
    )
    return (
        flight.join(
            observation,
            (F.col("origin") == F.col("airport")) & (F.col("scheduled") == F.col("observed")),
            "leftOuter",
        )
        .groupBy(F.window("scheduled", "1 hour").alias("window"), "origin", "carrier")
        .agg(
            F.count("*").alias("flights"),
            F.count_if(F.col("dep_delay").isNull()).alias("cancelled"),
            F.count_if(F.col("observed").isNull()).alias("without_weather"),
            F.avg("dep_delay").alias("dep_delay"),
            F.avg("arr_delay").alias("arr_delay"),
            F.avg("wind_speed").alias("wind_speed"),
            F.avg("visib").alias("visib"),
        )
        .join(F.broadcast(airline), "carrier", "left")
        .withColumn("hour", F.col("window.start"))
        .drop("window")
    )


def to_topic(result: DataFrame, servers: str, topic: str, checkpoint: str) -> StreamingQuery:
    """Start writing the result as JSON records."""
    return (
        result.select(
            F.concat_ws("-", "origin", "carrier").alias("key"),
            F.to_json(F.struct("*")).alias("value"),
            F.array(F.struct(F.lit("type").alias("key"), F.lit("delay").cast("binary").alias("value"))).alias(
                "headers"
            ),
            F.col("hour").alias("timestamp"),
        )
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic)
        .option("checkpointLocation", checkpoint)
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )


def to_parquet(spark: SparkSession, servers: str, topic: str, path: str, checkpoint: str) -> StreamingQuery:
    """Start writing the result topic as Parquet files."""
    return (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .select(F.from_json(F.col("value").cast("string"), RESULT).alias("row"))
        .select("row.*")
        .writeStream.format("parquet")
        .option("path", path)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
