"""Spark reads and writes with a login over TLS; passwords are in no plan, no progress and no error."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ottla.testing import Kafka, Security

PASSWORD = "hidden-1"


@pytest.fixture(scope="module")
def secured() -> Iterator[Kafka]:
    with Kafka({"security": Security("SASL_SSL", "SCRAM-SHA-512", password=PASSWORD)}) as kafka:
        yield kafka


def options(kafka: Kafka, **more: str) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in kafka.client_config.items()} | more


def explained(frame: DataFrame) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        frame.explain(extended=True)
    java: Any = frame
    return f"{printed.getvalue()}{java._jdf.queryExecution().toString()}{frame!r}"


def shown_in_the_ui(spark: SparkSession) -> list[str]:
    """Plans and descriptions of all executions, as the UI shows them."""
    session: Any = spark
    executions = session._jsparkSession.sharedState().statusStore().executionsList()
    shown = [executions.apply(number) for number in range(executions.size())]
    return [
        f"{execution.description()} {execution.details()} {execution.physicalPlanDescription()}" for execution in shown
    ]


def write(spark: SparkSession, kafka: Kafka, values: list[str], topic: str) -> None:
    rows = spark.createDataFrame([(value,) for value in values], "value string")
    rows.write.format("ottla").mode("append").options(**options(kafka, topic=topic)).save()


def test_batches(spark: SparkSession, secured: Kafka) -> None:
    write(spark, secured, ["a", "b"], "batches")
    frame = spark.read.format("ottla").options(**options(secured, subscribe="batches")).load()
    assert sorted(bytes(row.value) for row in frame.select("value").collect()) == [b"a", b"b"]
    assert PASSWORD not in explained(frame)
    plans = shown_in_the_ui(spark)
    assert any("AppendData" in plan or "OverwriteByExpression" in plan for plan in plans), plans
    assert not any(PASSWORD in plan for plan in plans)


def test_a_stream(spark: SparkSession, secured: Kafka, tmp_path: Path) -> None:
    secured.create_topic("stream", 1)
    secured.produce("stream", "a")
    frame = (
        spark.readStream.format("ottla")
        .options(**options(secured, subscribe="stream", startingOffsets="earliest"))
        .load()
    )
    query = (
        frame.select("value")
        .writeStream.format("ottla")
        .options(**options(secured, topic="copies", checkpointLocation=str(tmp_path / "checkpoint")))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(60)
        texts = [str(query.lastProgress), str(query.status), str(query.exception())]
        java: Any = query
        texts.append(java._jsq.lastProgress().json())
        texts.append(java._jsq.explainInternal(True))
    finally:
        query.stop()
    assert [record.value for record in secured.records("copies")] == [b"a"]
    assert not any(PASSWORD in text for text in texts)
    written = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(PASSWORD in text for text in written)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kafka.sasl.jaas.config": f'x.ScramLoginModule required username="alice" password="{PASSWORD}-2";'},
        {"kafka.sasl.jaas.config": f'x.ScramLoginModule required username="alice" password="{PASSWORD}-2"'},
        {"kafka.sasl.mechanism": "GSSAPI"},
    ],
)
def test_errors(spark: SparkSession, secured: Kafka, wrong: dict[str, str]) -> None:
    frame_options = options(secured, subscribe="batches") | wrong
    with pytest.raises(PySparkException) as caught:
        spark.read.format("ottla").options(**frame_options).load().collect()
    assert PASSWORD not in str(caught.value)
    assert (
        "sasl.jaas.config" in str(caught.value)
        or "Authentication failed" in str(caught.value)
        or "GSSAPI" in str(caught.value)
    )
