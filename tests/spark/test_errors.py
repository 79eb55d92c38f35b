"""Errors: one line, the last of Spark's message, raised before anything runs where possible."""

import json
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ottla.testing import EmbeddedBroker
from tests.spark.conftest import T0, Cluster, Reading, Sent
from tests.spark.test_sink import write


def message_of(error: BaseException) -> str:
    """Our line in Spark's message, without the class; there must be exactly one: no chain of them."""
    lines = [line.strip() for line in str(error).splitlines()]
    ours = [line for line in lines if line.startswith("ottla.")]
    assert len(ours) == 1, error
    return ours[0].partition(": ")[2]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "set exactly one of assign, subscribe and subscribePattern"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "exactly one of assign, subscribe and subscribePattern"),
        (
            {"subscribe": "a", "maxOffsetPerTrigger": "5"},
            "maxOffsetPerTrigger is not an option of the ottla source; did you",
        ),
        ({"subscribe": "a", "kafka.fetch.max.byte": "5"}, "did you mean kafka.fetch.max.bytes?"),
        ({"subscribe": "a", "kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "startingOffsets=latest makes a batch read empty"),
    ],
    ids=["nothing to read", "two things to read", "unknown option", "unknown config", "no servers", "latest"],
)
def test_options_of_a_batch(options: dict[str, str], sentence: str, reading: Reading) -> None:
    with pytest.raises(PySparkException) as raised:
        reading.batch(**options).count()
    assert sentence in message_of(raised.value)


def test_no_servers(spark: SparkSession) -> None:
    with pytest.raises(PySparkException) as raised:
        spark.read.format("ottla").option("subscribe", "a").load().count()
    assert message_of(raised.value) == "kafka.bootstrap.servers is missing: HOST:PORT of one broker or more"


def test_a_stream_has_no_end(reading: Reading) -> None:
    frame = reading.stream(subscribe="a", endingOffsets="latest")
    with pytest.raises(PySparkException) as raised:
        frame.writeStream.format("noop").start().awaitTermination()
    assert message_of(raised.value) == "endingOffsets is for batch reads only: a stream has no end"


def test_topics_and_partitions_that_do_not_exist(reading: Reading, cluster: Cluster) -> None:
    topic, missing = cluster.topic([Sent(b"v")]), cluster.name()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"subscribe": missing}, f"topic {missing} does not exist"),
        ({"assign": json.dumps({topic: [0, 3]})}, f"topic {topic} has no partition 3"),
        ({"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 0, "1": 0}})}, f"{topic}-1"),
        (
            {"subscribe": topic, "startingOffsets": json.dumps({missing: {"0": 0}})},
            f"startingOffsets names topic {missing}, which this query does not read",
        ),
        ({"subscribe": topic, "startingTimestamp": T0 + 100}, "has no record at or after that time"),
    ]
    for options, sentence in cases:
        with pytest.raises(PySparkException) as raised:
            reading.batch(**options).count()
        assert sentence in message_of(raised.value)


def test_a_stream_of_a_topic_that_does_not_exist(reading: Reading, cluster: Cluster) -> None:
    missing = cluster.name()
    query = reading.stream(subscribe=missing).writeStream.format("noop").trigger(availableNow=True).start()
    with pytest.raises(PySparkException) as raised:
        query.awaitTermination()
    assert message_of(raised.value) == f"topic {missing} does not exist"


def test_a_broker_that_is_not_there(spark: SparkSession) -> None:
    with EmbeddedBroker() as broker:
        gone = broker.bootstrap_servers
    options = {"kafka.bootstrap.servers": gone, "kafka.default.api.timeout.ms": "500", "kafka.max.block.ms": "500"}
    with pytest.raises(PySparkException) as raised:
        spark.read.format("ottla").options(**options, subscribe="a").load().count()
    assert gone in message_of(raised.value)
    with pytest.raises(PySparkException) as raised:
        spark.range(1).selectExpr("'v' AS value").write.format("ottla").options(**options, topic="a").mode(
            "append"
        ).save()
    assert gone in message_of(raised.value)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("value string", "value is string"),
        ("value binary, size int", "size"),
        ("value binary NOT NULL", "NOT NULL"),
    ],
    ids=["wrong type", "unknown column", "null forbidden"],
)
def test_a_schema_that_topics_do_not_have(schema: str, sentence: str, reading: Reading, cluster: Cluster) -> None:
    with pytest.raises(PySparkException) as raised:
        reading.batch(schema, subscribe=cluster.topic()).count()
    assert "binary" in message_of(raised.value) or sentence in message_of(raised.value)


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        (["'k' AS key"], {"topic": "a"}, "the column value (string or binary) is missing; the columns are key"),
        (["'v' AS value"], {}, "no topic to write to: set the option topic, or add a column topic"),
        (["1 AS value"], {"topic": "a"}, "column value is int, must be string or binary"),
        (["'v' AS value", "1L AS partition"], {"topic": "a"}, "column partition is bigint, must be integer"),
        (["'v' AS value", "array('h') AS headers"], {"topic": "a"}, "column headers is array<string>, must be"),
        (
            ["'v' AS value"],
            {"topic": "a", "topics": "b"},
            "topics is not an option of the ottla sink; did you mean topic?",
        ),
        (["'v' AS value"], {"topic": "a", "kafka.acks": "2"}, "kafka.acks=2: must be all, -1, 0 or 1"),
    ],
    ids=["no value", "no topic", "value", "partition", "headers", "unknown option", "bad config"],
)
def test_invalid_columns_and_options_of_a_sink_are_refused(
    columns: list[str], options: dict[str, str], sentence: str, spark: SparkSession, cluster: Cluster
) -> None:
    with pytest.raises(PySparkException) as raised:
        write(spark.range(1).selectExpr(*columns), cluster.servers, **options)
    assert sentence in message_of(raised.value)


def test_invalid_rows_of_a_sink_are_refused(spark: SparkSession, cluster: Cluster) -> None:
    topic = cluster.topic(partitions=2)
    rows = spark.range(1)
    cases: list[tuple[DataFrame, dict[str, str], str]] = [
        (
            rows.selectExpr("'v' AS value", "2 AS partition"),
            {"topic": topic},
            f"names a partition that topic {topic} does not have",
        ),
        (rows.selectExpr("'v' AS value", "-1 AS partition"), {"topic": topic}, "column partition has the value -1"),
        (
            rows.selectExpr(
                "'v' AS value", "array(named_struct('key', CAST(NULL AS string), 'value', x'00')) AS headers"
            ),
            {"topic": topic},
            "a header without a key",
        ),
        (rows.selectExpr("'v' AS value", "cast(NULL AS string) AS topic"), {}, "a row has no topic"),
        (rows.selectExpr("'v' AS value", "'no topic!' AS topic"), {}, "no topic!"),
        (rows.selectExpr("repeat('x', 2000000) AS value"), {"topic": topic}, "above max.request.size (1048576)"),
    ]
    for frame, options, sentence in cases:
        with pytest.raises(PySparkException) as raised:
            write(frame, cluster.servers, **options)
        assert sentence in message_of(raised.value)
    assert cluster.records(topic) == []


def test_a_topic_cannot_be_overwritten(spark: SparkSession, cluster: Cluster) -> None:
    writer = spark.createDataFrame([("v",)], "value string").write.format("ottla").mode("overwrite")
    with pytest.raises(PySparkException) as raised:
        writer.option("kafka.bootstrap.servers", cluster.servers).option("topic", cluster.topic()).save()
    assert message_of(raised.value) == 'a topic cannot be overwritten: use mode("append")'
