"""Source and sink over a cluster of three brokers: partitions, and so tasks, go to each of them."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from ottla.testing import KafkaCluster

from .conftest import Cluster


def test_spark_reads_and_writes_over_all_brokers(
    spark: SparkSession, kafka_cluster: Callable[..., KafkaCluster], tmp_path: Path
) -> None:
    brokers = kafka_cluster(3)
    servers = Cluster(brokers.bootstrap_servers)
    source, target = servers.topic(partitions=6), servers.topic(partitions=6)
    assert {brokers.leader_of(source, index) for index in range(6)} == {1, 2, 3}
    options = {"kafka.bootstrap.servers": brokers.bootstrap_servers}
    rows = spark.range(600).selectExpr("CAST(id AS STRING) AS key", "CAST(id * 2 AS STRING) AS value")
    rows.write.format("ottla").mode("append").options(**options, topic=source).save()
    read = spark.read.format("ottla").options(**options, subscribe=source).load()
    assert read.count() == 600
    assert {row.partition for row in read.select("partition").distinct().collect()} == set(range(6))
    stream = spark.readStream.format("ottla").options(**options, subscribe=source, startingOffsets="earliest").load()
    query = (
        stream.select("key", "value")
        .writeStream.format("ottla")
        .options(**options, topic=target, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    copied = spark.read.format("ottla").options(**options, subscribe=target).load()
    values = sorted(int(row.value) for row in copied.selectExpr("CAST(value AS STRING) AS value").collect())
    assert values == [number * 2 for number in range(600)]
