"""Source and sink over a cluster of three brokers: partitions, and so tasks, go to each of them."""

import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from ottla import Admin, ConfigChange, ConfigResource, Producer, ResourceType
from ottla.testing import KafkaCluster

from . import since
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


@since("4.2")  # limits its batches
def test_a_query_is_exact_while_brokers_die(
    spark: SparkSession, kafka_cluster: Callable[..., KafkaCluster], tmp_path: Path
) -> None:
    """The sink publishes each record once, although the leader of every partition and coordinator dies in turn."""
    brokers = kafka_cluster(3, {"default.replication.factor": 3, "min.insync.replicas": 2})
    for topic in ("in", "out"):
        brokers.create_topic(topic, 6)
    options = {"kafka.bootstrap.servers": brokers.bootstrap_servers}
    stream = spark.readStream.format("ottla").options(
        **options, subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger="100"
    )
    query = (
        stream.load()
        .select("key", "value")
        .writeStream.format("ottla")
        .options(**options, topic="out", exactlyOnce="true", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        produced = 0
        for node_id in brokers.brokers:
            for _ in range(2):
                produce(brokers, range(produced, produced + 150))
                produced += 150
                brokers.kill(node_id) if brokers[node_id].is_running else brokers.restart(node_id)
            until_in_sync(brokers)
        query.processAllAvailable()
    finally:
        query.stop()
    copied = spark.read.format("ottla").options(**options, subscribe="out").load()
    values = sorted(int(row.value) for row in copied.selectExpr("CAST(value AS STRING) AS value").collect())
    assert values == list(range(produced))


@since("4.2")
def test_a_share_group_is_read_while_brokers_die(
    spark: SparkSession, kafka_cluster: Callable[..., KafkaCluster], tmp_path: Path
) -> None:
    """Each record is delivered at least once, and acknowledged ones are not delivered to a later query."""
    configs = {"default.replication.factor": 3, "min.insync.replicas": 2, "group.share.assignment.interval.ms": 0}
    brokers = kafka_cluster(3, configs)
    for topic in ("in", "out"):
        brokers.create_topic(topic, 3)
    with Admin(bootstrap_servers=brokers.bootstrap_servers) as admin:
        change = ConfigChange("share.auto.offset.reset", "earliest")
        admin.incremental_alter_configs({ConfigResource(ResourceType.GROUP, "spark-share"): [change]}).check()
    options = {"kafka.bootstrap.servers": brokers.bootstrap_servers}
    produce(brokers, range(300))
    query = (
        spark.readStream.format("ottla")
        .options(**options, subscribe="in", shareGroup="spark-share")
        .load()
        .select("key", "value")
        .writeStream.format("ottla")
        .options(**options, topic="out", checkpointLocation=str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        for node_id in brokers.brokers:
            brokers.kill(node_id)
            produce(brokers, range(300 * node_id, 300 * (node_id + 1)))
            brokers.restart(node_id)
            until_in_sync(brokers)
        until(lambda: set(range(1200)) <= set(values_of(spark, options)))
    finally:
        query.stop()


def values_of(spark: SparkSession, options: dict[str, str]) -> list[int]:
    rows = spark.read.format("ottla").options(**options, subscribe="out").load()
    return [int(row.value) for row in rows.selectExpr("CAST(value AS STRING) AS value").collect()]


def produce(brokers: KafkaCluster, numbers: range) -> None:
    with Producer(bootstrap_servers=brokers.bootstrap_servers) as producer:
        for number in numbers:
            producer.produce("in", b"%d" % number, partition=number % 3)
        assert producer.flush(60) == 0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def until_in_sync(brokers: KafkaCluster) -> None:
    until(lambda: all(len(part.isr) == 3 for topic in brokers.image.topics.values() for part in topic.partitions))
