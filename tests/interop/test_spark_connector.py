"""Spark's own Kafka connector against Ottla: what it reads is what ours reads, and ours takes over its checkpoints.

With `--interop`, and the connector's jars (bench/reference/spark-connector-jars). `--broker HOST:PORT` takes another broker.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ottla.cli.main import main
from tests.interop.apache_kafka import connector_jars, skip_without
from tests.spark.conftest import T0, Cluster, Sent, broker_under_test, started_session


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    skip_without("spark-connector", request)
    with broker_under_test(request) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def spark(cluster: Cluster) -> Iterator[SparkSession]:
    with started_session("connector", spark_jars=connector_jars()) as session:
        yield session


FORMATS = ("kafka", "ottla")


class Both:
    """The two sources on the broker under test."""

    def __init__(self, spark: SparkSession, servers: str) -> None:
        self.spark = spark
        self.servers = servers

    def batch(self, kind: str, **options: Any) -> DataFrame:
        return self.spark.read.format(kind).options(**self._all(options)).load()

    def stream(self, kind: str, **options: Any) -> DataFrame:
        return self.spark.readStream.format(kind).options(**self._all(options)).load()

    def _all(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"kafka.bootstrap.servers": self.servers, **options}

    def same(self, **options: Any) -> list[tuple[Any, ...]]:
        """The rows that both read, in order."""
        theirs, ours = (
            [tuple(row) for row in self.batch(kind, **options).orderBy("topic", "partition", "offset").collect()]
            for kind in FORMATS
        )
        assert ours == theirs
        return ours


@pytest.fixture
def both(spark: SparkSession, cluster: Cluster) -> Both:
    return Both(spark, cluster.servers)


def numbered(first: int, count: int, partitions: int = 1) -> list[Sent]:
    return [
        Sent(
            b"v%03d" % i,
            b"k%d" % (i % 7) if i % 3 else None,
            [("h", b"%d" % i)] if i % 2 else None,
            T0 + i,
            i % partitions,
        )
        for i in range(first, first + count)
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_batch(codec: str, both: Both, cluster: Cluster) -> None:
    topic = cluster.topic([*numbered(0, 50, 3), Sent(None, b"tombstone")], partitions=3, compression_type=codec)
    assert len(both.same(subscribe=topic, includeHeaders="true")) == 51
    assert both.batch("kafka", subscribe=topic).schema == both.batch("ottla", subscribe=topic).schema


def test_offsets_and_times(both: Both, cluster: Cluster) -> None:
    topic = cluster.topic(numbered(0, 60, 2), partitions=2)
    cases: list[tuple[dict[str, Any], int]] = [
        ({"startingOffsets": json.dumps({topic: {"0": 10, "1": -2}})}, 50),
        ({"endingOffsets": json.dumps({topic: {"0": 10, "1": -1}})}, 40),
        ({"startingTimestamp": T0 + 20}, 40),
        ({"startingTimestamp": T0 + 20, "endingTimestamp": T0 + 30}, 10),
        ({"startingOffsetsByTimestamp": json.dumps({topic: {"0": T0 + 50, "1": T0}})}, 35),
        ({"startingTimestamp": T0 + 1000, "startingOffsetsByTimestampStrategy": "latest"}, 0),
        ({"minPartitions": 7}, 60),
    ]
    for options, rows in cases:
        assert len(both.same(subscribe=topic, **options)) == rows, options


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"minPartitions": 4},
        {"minPartitions": 5},
        {"minPartitions": 11},
        {"minPartitions": 200},
        {"maxRecordsPerPartition": 30, "minPartitions": 9},
        {"maxRecordsPerPartition": 1000, "minPartitions": 6},
    ],
)
def test_tasks_are_cut_alike(options: dict[str, int], both: Both, cluster: Cluster) -> None:
    """Without minPartitions the connector's batches pass over maxRecordsPerPartition, which its documentation does not mean."""
    sizes = {0: 97, 1: 31, 2: 3}
    records = [Sent(b"v", None, [], T0, partition) for partition, size in sizes.items() for _ in range(size)]
    topic = cluster.topic(records, partitions=3)

    def tasks(kind: str) -> list[tuple[Any, ...]]:
        rows = both.batch(kind, subscribe=topic, **options)
        task = rows.groupBy(F.spark_partition_id(), "partition").agg(F.min("offset"), F.max("offset"))
        return sorted(tuple(row)[1:] for row in task.collect())

    assert tasks("ottla") == tasks("kafka")


def test_patterns(both: Both, cluster: Cluster) -> None:
    stem = cluster.name()
    for name in ("a", "ab", "xa"):
        cluster.topic([Sent(b"v")], name=f"{stem}.{name}")
    for pattern, names in (
        (f"^{stem}.a$", "a"),
        (f"{stem}.a", "a ab"),
        (f"{stem}.(a|xa)$", "a xa"),
        (stem[3:], "a ab xa"),
    ):
        rows = both.same(subscribePattern=pattern)
        assert sorted(row[2] for row in rows) == [f"{stem}.{name}" for name in names.split()]


def test_read_committed(both: Both, cluster: Cluster) -> None:
    topic = cluster.topic()
    producer = Producer({"bootstrap.servers": cluster.servers, "transactional.id": cluster.name(), "log_level": 0})
    producer.init_transactions()
    for turn in range(6):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic, b"%d-%d" % (turn, number))
        producer.flush()
        (producer.abort_transaction if turn % 2 else producer.commit_transaction)()
    rows = both.same(subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    assert [bytes(row[1]) for row in rows] == [b"%d-%d" % (turn, number) for turn in (0, 2, 4) for number in range(5)]
    assert len(both.same(subscribe=topic, **{"kafka.isolation.level": "read_uncommitted"})) == 30


class Streaming:
    """Runs of one query with either source, and all that it has written."""

    def __init__(self, both: Both, folder: Path) -> None:
        self._both = both
        self._rows, self._checkpoint = str(folder / "rows"), str(folder / "checkpoint")

    def run(self, kind: str, **options: Any) -> list[str]:
        frame = self._both.stream(kind, **options).selectExpr("cast(value AS string) AS value")
        writer = frame.writeStream.format("json").option("path", self._rows)
        writer.option("checkpointLocation", self._checkpoint).trigger(availableNow=True).start().awaitTermination()
        rows = self._both.spark.read.schema("value string").json(self._rows).collect()
        return sorted(row[0] for row in rows)


@pytest.fixture
def streaming(both: Both, tmp_path: Path) -> Streaming:
    return Streaming(both, tmp_path)


def test_a_stream_goes_on_from_its_checkpoint(streaming: Streaming, cluster: Cluster) -> None:
    topic = cluster.topic(numbered(0, 20, 2), partitions=2)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 8}
    assert streaming.run("kafka", **options) == [f"v{i:03}" for i in range(20)]
    cluster.send(topic, numbered(20, 5, 2))
    assert streaming.run("kafka", **options) == [f"v{i:03}" for i in range(25)]


def test_ours_takes_over_a_checkpoint(streaming: Streaming, cluster: Cluster) -> None:
    topic = cluster.topic(numbered(0, 20, 2), partitions=2)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 8}
    streaming.run("kafka", **options)
    cluster.send(topic, numbered(20, 30, 2))
    assert streaming.run("ottla", **options) == [f"v{i:03}" for i in range(50)]
    cluster.send(topic, numbered(50, 3, 2))
    assert streaming.run("ottla", **options) == [f"v{i:03}" for i in range(53)]


@pytest.mark.parametrize("is_done", [True, False], ids=["after a batch", "in the first batch"])
def test_the_connector_takes_a_checkpoint_back(
    streaming: Streaming, cluster: Cluster, tmp_path: Path, is_done: bool
) -> None:
    """It failed with NumberFormatException: offsets of ours have topic ids."""
    topic = cluster.topic(numbered(0, 20, 2), partitions=2)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    assert streaming.run("ottla", **options) == [f"v{i:03}" for i in range(20)]
    if not is_done:
        for name in ("0", ".0.crc"):
            (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
        options["startingOffsets"] = "latest"  # the start is that of the first run all the same
    cluster.send(topic, numbered(20, 30, 2))
    result = CliRunner().invoke(main, ["spark-checkpoint", str(tmp_path / "checkpoint")])
    assert result.exit_code == 0, result.output
    assert streaming.run("kafka", **options) == [f"v{i:03}" for i in range(50)]
    cluster.send(topic, numbered(50, 3, 2))
    assert streaming.run("ottla", **options) == [f"v{i:03}" for i in range(53)]


def test_the_connector_s_sink(both: Both, cluster: Cluster, tmp_path: Path) -> None:
    source, target = cluster.topic(numbered(0, 30, 2), partitions=2), cluster.topic(partitions=3)
    columns = ["key", "value", "headers"]
    frame = both.batch("kafka", subscribe=source, includeHeaders="true").select(*columns)
    frame.write.format("kafka").option("kafka.bootstrap.servers", both.servers).option("topic", target).save()
    written = sorted((record.value, record.key, record.headers) for record in cluster.records(target))
    sent = sorted((record.value, record.key, record.headers) for record in cluster.records(source))
    assert written == sent
    query = (
        both.stream("kafka", subscribe=source, startingOffsets="earliest", includeHeaders="true")
        .select(*columns)
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", both.servers)
        .option("topic", target)
        .option("checkpointLocation", str(tmp_path / "sink"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert len(cluster.records(target)) == 60


def test_keys_go_to_the_same_partitions(both: Both, cluster: Cluster) -> None:
    rows = both.spark.range(500).selectExpr("cast(id AS string) AS key", "'v' AS value")
    places = []
    for kind in FORMATS:
        topic = cluster.topic(partitions=7)
        writer = rows.write.format(kind).option("kafka.bootstrap.servers", both.servers).option("topic", topic)
        writer.mode("append").save()
        places.append({record.key: record.partition for record in cluster.records(topic)})
    assert places[0] == places[1]
