"""Batch reads: columns, which records, which partitions."""

import json
from datetime import UTC, datetime

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tests.spark import since
from tests.spark.conftest import T0, Cluster, Reading, Sent

# As Spark's own Kafka source has them.
COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
HEADERS = StructField(
    "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
)


def time(milliseconds: int) -> datetime:
    """As collect() gives it: without a zone, in the machine's own."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone().replace(tzinfo=None)


def numbered(count: int, partitions: int = 1) -> list[Sent]:
    """Values v0.. in turn over the partitions, one ms apart."""
    return [Sent(b"v%d" % i, b"k%d" % i, timestamp=T0 + i, partition=i % partitions) for i in range(count)]


def values(rows: list[Row]) -> list[str]:
    return sorted(bytes(row[0]).decode() for row in rows)


def test_columns_are_those_of_spark_s_own_source(reading: Reading, cluster: Cluster) -> None:
    topic = cluster.topic()
    assert reading.batch(subscribe=topic).schema == COLUMNS
    assert reading.batch(subscribe=topic, includeHeaders="true").schema == StructType([*COLUMNS.fields, HEADERS])


def test_every_field_of_a_record(reading: Reading, cluster: Cluster) -> None:
    topic = cluster.topic(
        [
            Sent(b"value", b"key", timestamp=T0 + 1),
            Sent(None, b"no value", timestamp=T0 + 2),
            Sent(b"no key", None, timestamp=T0 + 3),
            Sent(b"", b"", timestamp=T0 + 4),
            Sent(bytes(range(256)), "naïve ☃".encode(), partition=1),
        ],
        partitions=2,
    )
    rows = [tuple(row) for row in reading.batch(subscribe=topic).orderBy("partition", "offset").collect()]
    assert rows == [
        (b"key", b"value", topic, 0, 0, time(T0 + 1), 0),
        (b"no value", None, topic, 0, 1, time(T0 + 2), 0),
        (None, b"no key", topic, 0, 2, time(T0 + 3), 0),
        (b"", b"", topic, 0, 3, time(T0 + 4), 0),
        ("naïve ☃".encode(), bytes(range(256)), topic, 1, 0, time(T0), 0),
    ]


def test_headers(reading: Reading, cluster: Cluster) -> None:
    topic = cluster.topic(
        [
            Sent(b"two", headers=[("a", b"1"), ("b", b"\x00\xff")]),
            Sent(b"none"),
            Sent(b"same name, null and empty", headers=[("a", None), ("a", b"")]),
        ]
    )
    rows = reading.batch(subscribe=topic, includeHeaders="true").orderBy("offset").select("headers").collect()
    headers = [None if row[0] is None else [tuple(header) for header in row[0]] for row in rows]
    assert headers == [[("a", b"1"), ("b", b"\x00\xff")], None, [("a", None), ("a", b"")]]


def test_a_schema_is_a_projection(reading: Reading, cluster: Cluster) -> None:
    topic = cluster.topic(numbered(3))
    rows = reading.batch("offset bigint, value binary", subscribe=topic).orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [(0, b"v0"), (1, b"v1"), (2, b"v2")]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression(codec: str, reading: Reading, cluster: Cluster) -> None:
    topic = cluster.topic(numbered(500), compression_type=codec)
    rows = reading.batch(subscribe=topic).orderBy("offset").select("key", "value").collect()
    assert [tuple(row) for row in rows] == [(b"k%d" % i, b"v%d" % i) for i in range(500)]


def test_more_rows_than_one_arrow_batch_holds(reading: Reading, cluster: Cluster) -> None:
    topic = cluster.topic(numbered(120_000))
    row = reading.batch(subscribe=topic).selectExpr("count(*)", "sum(offset)", "count(DISTINCT value)").first()
    assert row is not None
    assert tuple(row) == (120_000, 120_000 * 119_999 // 2, 120_000)


def test_topics_are_subscribed_by_list_pattern_and_assignment(reading: Reading, cluster: Cluster) -> None:
    stem = cluster.name()
    one, two, other = f"{stem}-1", f"{stem}-2", f"other-{stem}-1"
    for name in (one, two, other):
        cluster.topic([Sent(name.encode()), Sent(f"{name} b".encode(), partition=1)], partitions=2, name=name)
    both = sorted([one, f"{one} b", two, f"{two} b"])
    assert values(reading.batch("value binary", subscribe=f"{one}, {two}").collect()) == both
    assert values(reading.batch("value binary", subscribePattern=f"^{stem}-.*").collect()) == both
    assert reading.batch(subscribePattern=f"{stem}-").count() == 6  # found anywhere in the name
    assert reading.batch(subscribePattern=f"^{stem}-?$").count() == 0
    assert reading.batch(subscribePattern=f"no-{stem}").count() == 0
    assigned = json.dumps({one: [1], two: [0]})
    assert values(reading.batch("value binary", assign=assigned).collect()) == sorted([f"{one} b", two])


def test_between_offsets(reading: Reading, cluster: Cluster) -> None:
    topic = cluster.topic(numbered(20, partitions=2), partitions=2)
    start, end = json.dumps({topic: {"0": 3, "1": -2}}), json.dumps({topic: {"0": -1, "1": 4}})
    frame = reading.batch(subscribe=topic, startingOffsets=start, endingOffsets=end)
    positions = [tuple(row) for row in frame.select("partition", "offset").orderBy("partition", "offset").collect()]
    assert positions == [(0, offset) for offset in range(3, 10)] + [(1, offset) for offset in range(4)]
    assert reading.batch(subscribe=topic, startingOffsets="earliest", endingOffsets="latest").count() == 20


def test_between_times(reading: Reading, cluster: Cluster) -> None:
    topic = cluster.topic(numbered(20, partitions=2), partitions=2)
    frame = reading.batch("value binary", subscribe=topic, startingTimestamp=T0 + 5, endingTimestamp=T0 + 8)
    assert values(frame.collect()) == ["v5", "v6", "v7"]
    late = reading.batch(subscribe=topic, startingTimestamp=T0 + 100, startingOffsetsByTimestampStrategy="latest")
    assert late.count() == 0


def test_offsets_that_are_not_there(reading: Reading, cluster: Cluster) -> None:
    topic = cluster.topic(numbered(3))
    assert reading.batch(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 3}})).count() == 0
    beyond = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 7}})}
    with pytest.raises(AnalysisException, match=rf"{topic}-0 would be read from offset 7 .* to 3"):
        reading.batch(**beyond).count()
    not_yet = {"subscribe": topic, "endingOffsets": json.dumps({topic: {"0": 9}})}
    with pytest.raises(AnalysisException, match=f"names offset 9 of {topic}-0, which ends at 3"):
        reading.batch(**not_yet).count()
    assert reading.batch(**not_yet, failOnDataLoss="false").count() == 3


def test_an_empty_topic(reading: Reading, cluster: Cluster) -> None:
    assert reading.batch(subscribe=cluster.topic(partitions=3), includeHeaders="true").collect() == []


def test_many_partitions_and_tasks(reading: Reading, cluster: Cluster) -> None:
    topic = cluster.topic(numbered(120, partitions=40), partitions=40)
    frame = reading.batch(subscribe=topic)
    assert frame.rdd.getNumPartitions() == 40
    assert frame.selectExpr("count(DISTINCT partition, offset)").first() == (120,)
    few = cluster.topic(numbered(100))
    pieces = reading.batch(subscribe=few, minPartitions=4)
    assert pieces.rdd.getNumPartitions() == 4
    assert values(pieces.select("value").collect()) == sorted(f"v{i}" for i in range(100))


@since("4.1")
def test_filters_are_pushed_down(reading: Reading, cluster: Cluster) -> None:
    topic = cluster.topic(numbered(40, 2), partitions=2)
    frame = reading.batch(subscribe=topic)
    middle = time(T0 + 30).isoformat(sep=" ")
    for condition, tasks, rows in [
        ("partition = 1", 1, 20),
        ("offset >= 5 AND offset < 7", 2, 4),
        ("offset IN (3, 4) AND partition <> 0", 2, 2),
        (f"topic = '{topic}'", 2, 40),
        ("topic = 'another'", 0, 0),
        (f"timestamp >= timestamp'{middle}'", 2, 10),
        (f"timestamp > timestamp'{middle}' AND partition = 0", 1, 4),
        (f"timestamp <= timestamp'{middle}'", 2, 31),
        ("key = 'k7'", 2, 1),
    ]:
        chosen = frame.where(condition)
        assert (chosen.rdd.getNumPartitions(), chosen.count()) == (max(tasks, 1), rows), condition


def test_filters_work_without_the_setting(reading: Reading, cluster: Cluster, spark: SparkSession) -> None:
    topic = cluster.topic(numbered(10))
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "false")
    try:
        assert values(reading.batch(subscribe=topic).where("offset > 7").select("value").collect()) == ["v8", "v9"]
    finally:
        spark.conf.set(setting, "true")
