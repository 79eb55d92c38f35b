"""Writing, batch and stream, seen by a client that is not ours."""

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark import since
from tests.spark.conftest import T0, Cluster, Reading, Sent

ALL_COLUMNS = (
    "key binary, value binary, headers array<struct<key string, value binary>>, topic string, partition int, "
    "timestamp timestamp, unused double"
)


def write(frame: DataFrame, servers: str, **options: str) -> None:
    writer = frame.write.format("ottla").option("kafka.bootstrap.servers", servers)
    writer.options(**options).mode("append").save()


def test_every_column(spark: SparkSession, cluster: Cluster) -> None:
    one, two = cluster.topic(partitions=3), cluster.topic(partitions=3)
    frame = spark.createDataFrame(
        [
            (b"k", b"v", [("h", b"1"), ("h", None)], one, 2, T0 / 1000, 0.5),
            (None, b"no key", None, one, 1, T0 / 1000 + 1, 0.5),
            (b"tombstone", None, [], two, 0, T0 / 1000 + 2, 0.5),
        ],
        ALL_COLUMNS.replace("timestamp timestamp", "timestamp double"),
    ).selectExpr("*", "timestamp_millis(cast(timestamp * 1000 as bigint)) AS at")
    write(frame.drop("timestamp").withColumnRenamed("at", "timestamp"), cluster.servers)
    assert cluster.records(one) == [
        Sent(b"no key", None, None, T0 + 1000, 1),
        Sent(b"v", b"k", [("h", b"1"), ("h", None)], T0, 2),
    ]
    assert cluster.records(two) == [Sent(None, b"tombstone", None, T0 + 2000, 0)]


def test_the_option_topic_comes_before_the_column(spark: SparkSession, cluster: Cluster) -> None:
    topic = cluster.topic()
    write(spark.createDataFrame([("v", "elsewhere")], "value string, topic string"), cluster.servers, topic=topic)
    assert [record.value for record in cluster.records(topic)] == [b"v"]


def test_keys_go_where_kafka_s_java_producer_sends_them(spark: SparkSession, cluster: Cluster) -> None:
    theirs, ours = cluster.topic(partitions=5), cluster.topic(partitions=5)
    keys = [f"key {number}" for number in range(200)] + [""]
    producer = Producer({"bootstrap.servers": cluster.servers, "partitioner": "murmur2_random", "log_level": 0})
    for key in keys:
        producer.produce(theirs, b"v", key)
    assert producer.flush(30) == 0
    frame = spark.createDataFrame([(key, "v") for key in keys], "key string, value string")
    write(frame, cluster.servers, topic=ours)
    # librdkafka takes an empty key for none; its place is the Java producer's by the formula.
    expected = {record.key: record.partition for record in cluster.records(theirs) if record.key}
    partitions = {record.key: record.partition for record in cluster.records(ours)}
    assert len(partitions) == len(keys)
    assert {key: partitions[key] for key in expected} == expected
    assert partitions[b""] == (0x106E08D9 & 0x7FFFFFFF) % 5


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression(codec: str, spark: SparkSession, cluster: Cluster) -> None:
    topic = cluster.topic()
    frame = spark.range(300).selectExpr("concat('value ', id) AS value").coalesce(1)
    write(frame, cluster.servers, topic=topic, **{"kafka.compression.type": codec})
    assert [record.value for record in cluster.records(topic)] == [b"value %d" % i for i in range(300)]


def test_a_topic_that_is_not_there_is_made_if_the_broker_does_so(spark: SparkSession, cluster: Cluster) -> None:
    topic = cluster.name()
    write(spark.createDataFrame([("v",)], "value string"), cluster.servers, topic=topic)
    assert [record.value for record in cluster.records(topic)] == [b"v"]


def test_more_than_one_request_holds(spark: SparkSession, cluster: Cluster, reading: Reading) -> None:
    topic = cluster.topic(partitions=2)
    frame = spark.range(60_000).selectExpr("cast(id AS string) AS key", "repeat('x', 200) AS value")
    write(frame, cluster.servers, topic=topic)
    row = reading.batch(subscribe=topic).selectExpr("count(*)", "count(DISTINCT key)", "sum(length(value))").first()
    assert row is not None
    assert tuple(row) == (60_000, 60_000, 12_000_000)


@since("4.2")
def test_a_stream_writes_each_row_once_over_a_restart(reading: Reading, cluster: Cluster, tmp_path: Path) -> None:
    source = cluster.topic([Sent(b"v%d" % i, b"k%d" % i, [("h", b"%d" % i)], T0 + i) for i in range(6)])
    target = cluster.topic(partitions=2)

    def run() -> int:
        """Micro-batches that had rows."""
        query = (
            reading.stream(subscribe=source, startingOffsets="earliest", includeHeaders="true", maxOffsetsPerTrigger=4)
            .select("key", "value", "headers", "timestamp")
            .writeStream.format("ottla")
            .option("kafka.bootstrap.servers", cluster.servers)
            .option("topic", target)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sum(1 for progress in query.recentProgress if progress["numInputRows"])

    assert run() == 2
    cluster.send(source, [Sent(b"v%d" % i, b"k%d" % i, [("h", b"%d" % i)], T0 + i) for i in range(6, 9)])
    assert run() == 1
    records = sorted(record._replace(partition=0) for record in cluster.records(target))
    assert records == [Sent(b"v%d" % i, b"k%d" % i, [("h", b"%d" % i)], T0 + i) for i in range(9)]


def exactly_once(frame: DataFrame, servers: str, checkpoint: Path, **options: str) -> StreamingQuery:
    query = (
        frame.writeStream.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .option("exactlyOnce", "true")
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


@since("4.2")
def test_a_batch_that_spark_runs_again_is_published_once(
    reading: Reading, cluster: Cluster, tmp_path: Path, spark: SparkSession
) -> None:
    source = cluster.topic([Sent(b"v%02d" % i, partition=i % 2) for i in range(20)], partitions=2)
    target = cluster.topic(partitions=3)
    frame = reading.stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=8).select("key", "value")
    query = exactly_once(frame, cluster.servers, tmp_path, topic=target)
    assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [8, 8, 4]
    everything = [b"v%02d" % i for i in range(20)]
    assert sorted(record.value or b"" for record in cluster.records(target, committed=True)) == everything
    # As if Spark had died between the sink's commit and its own.
    newest = max((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    exactly_once(frame, cluster.servers, tmp_path, topic=target)
    assert sorted(record.value or b"" for record in cluster.records(target, committed=True)) == everything
    cluster.send(source, [Sent(b"v20")])
    exactly_once(frame, cluster.servers, tmp_path, topic=target)
    assert sorted(record.value or b"" for record in cluster.records(target, committed=True)) == [*everything, b"v20"]


@since("4.1")
def test_a_session_without_the_settings_is_refused_in_one_line_by_the_driver(
    reading: Reading, cluster: Cluster, tmp_path: Path, spark: SparkSession
) -> None:
    """It failed in a task, and again in each of its retries, with 60 lines of traceback."""
    setting = "spark.sql.adaptive.streaming.stateless.enabled"
    frame = reading.stream(subscribe=cluster.topic([Sent(b"v")]), startingOffsets="earliest").select("value")
    spark.conf.unset(setting)
    try:
        target = cluster.topic()
        with pytest.raises(StreamingQueryException) as raised:
            exactly_once(frame, cluster.servers, tmp_path, topic=target)
        text = str(raised.value)
        (line,) = [line for line in text.splitlines() if line.startswith("ottla.")]
        assert f"exactlyOnce=true needs {setting}=false" in line
        (run,) = set(re.findall(r"runId = ([0-9a-f-]+)", text))
        tracker = spark.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(run)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        assert [stage.numFailedTasks for stage in stages if stage is not None] == [0] * len(stages) != []
        assert cluster.records(target, committed=True) == []
        # The setting that was missing is all there is to mend: the same checkpoint goes on.
        spark.conf.set(setting, "false")
        exactly_once(frame, cluster.servers, tmp_path, topic=target)
        assert [record.value for record in cluster.records(target, committed=True)] == [b"v"]
    finally:
        spark.conf.set(setting, "false")


def test_a_batch_write_is_all_or_nothing_of_each_task(spark: SparkSession, cluster: Cluster) -> None:
    topic = cluster.topic(partitions=2)
    frame = spark.range(100).selectExpr("cast(id AS string) AS value").repartition(3)
    write(frame, cluster.servers, topic=topic, exactlyOnce="true")
    numbers = sorted(int(record.value or b"") for record in cluster.records(topic, committed=True))
    assert numbers == list(range(100))
    broken = frame.selectExpr("if(value = '70', repeat('x', 2000000), value) AS value")
    with pytest.raises(PySparkException, match=r"max\.request\.size"):
        write(broken, cluster.servers, topic=topic, exactlyOnce="true")
    assert len(cluster.records(topic, committed=True)) == 100


@since("4.2")
def test_a_batch_write_of_a_stream_s_batch_is_one_like_any_other(
    reading: Reading, cluster: Cluster, tmp_path: Path
) -> None:
    source, target = cluster.topic([Sent(b"v%d" % i) for i in range(6)]), cluster.topic()

    def hand_on(frame: DataFrame, number: int) -> None:
        write(frame, cluster.servers, topic=target, exactlyOnce="true", sinkId=target)

    frame = reading.stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=2).select("value")
    writer = frame.writeStream.foreachBatch(hand_on).option("checkpointLocation", str(tmp_path))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert [record.value for record in cluster.records(target, committed=True)] == [b"v%d" % i for i in range(6)]


def test_a_stream_s_rows_name_their_topic_and_partition(reading: Reading, cluster: Cluster, tmp_path: Path) -> None:
    one, two = cluster.topic(partitions=2), cluster.topic(partitions=2)
    source = cluster.topic([Sent(b"a", one.encode()), Sent(b"b", two.encode()), Sent(b"c", one.encode())])
    query = (
        reading.stream(subscribe=source, startingOffsets="earliest")
        .selectExpr("value", "cast(key AS string) AS topic", "cast(offset % 2 AS int) AS partition")
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", cluster.servers)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert [(record.partition, record.value) for record in cluster.records(one)] == [(0, b"a"), (0, b"c")]
    assert [(record.partition, record.value) for record in cluster.records(two)] == [(1, b"b")]
