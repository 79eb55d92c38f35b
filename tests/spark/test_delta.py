"""format("ottla-delta") in a session: batch and stream writes, read back with deltalake, and kills of its processes."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.extras import install_command
from tests.spark import since, skip_module_before
from tests.spark.conftest import Cluster, Reading, Sent
from tests.spark.test_errors import message_of

skip_module_before("4.1")
pytest.importorskip("deltalake", reason="the extra delta")

from deltalake import DeltaTable  # noqa: E402

from tests.spark.dying_delta import STEPS, DyingSource, start_query, topic  # noqa: E402


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(DeltaTable(str(folder)).to_pyarrow_table()).to_pylist()
    return rows


def append(frame: DataFrame, folder: Path, **options: str) -> None:
    frame.write.format("ottla-delta").options(**options).mode("append").save(str(folder))


def stream(frame: DataFrame, folder: Path, **options: str) -> StreamingQuery:
    writer = frame.writeStream.format("ottla-delta").options(**options)
    writer = writer.option("checkpointLocation", f"{folder}-checkpoint").trigger(availableNow=True)
    query = writer.start(str(folder))
    query.awaitTermination()
    return query


def test_a_batch_is_one_commit(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 100, 1, 4).selectExpr("id", "id % 2 AS half", "timestamp_millis(id) AS at")
    append(rows, tmp_path / "t", partitionBy="half")
    append(rows.selectExpr("AT", "id + 100 AS id", "half"), tmp_path / "t")
    table = DeltaTable(str(tmp_path / "t"))
    assert (table.version(), table.metadata().partition_columns) == (2, ["half"])
    read = rows_of(tmp_path / "t")
    assert sorted(row["id"] for row in read) == list(range(200))
    assert {(row["id"] % 2, row["id"] % 100 == row["at"].timestamp() * 1000) for row in read} == {(0, True), (1, True)}


def test_a_batch_with_a_transaction_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(10)
    for version in ("1", "1", "2", "0"):
        append(rows, tmp_path / "t", txnAppId="nightly", txnVersion=version)
    assert len(rows_of(tmp_path / "t")) == 20


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (
            lambda rows, t: rows.write.format("ottla-delta").mode("overwrite").save(str(t)),
            'only appends: use mode("append")',
        ),
        (lambda rows, t: append(rows, Path("orders")), "path must be absolute"),
        (lambda rows, t: append(rows, t, partitonBy="id"), "did you mean partitionBy?"),
        (
            lambda rows, t: append(rows.selectExpr("id", "NULL AS v"), t),
            "column v has the type void, which Delta lacks",
        ),
        (
            lambda rows, t: append(rows.selectExpr("CAST(id AS STRING) AS id"), t),
            "column id is string, in the table long",
        ),
        (lambda rows, t: append(rows.selectExpr("id", "1 AS n"), t), "set mergeSchema=true"),
        (lambda rows, t: append(rows, t, partitionBy="id"), "the table has no partitions"),
        (lambda rows, t: append(rows, t, txnVersion="1"), "txnAppId and txnVersion must be set together"),
    ],
    ids=["overwrite", "relative", "option", "type", "other type", "new column", "partitions", "transaction"],
)
def test_a_refused_write_is_an_error_in_one_line(
    write: Callable[[DataFrame, Path], None], sentence: str, spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.range(1)
    append(rows, tmp_path / "t")
    with pytest.raises(PySparkException) as raised:
        write(rows, tmp_path / "t")
    assert sentence in message_of(raised.value)
    assert len(rows_of(tmp_path / "t")) == 1


def test_reading_is_refused_and_names_deltalake(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException) as raised:
        spark.read.format("ottla-delta").load(str(tmp_path))
    assert "read this one with deltalake" in message_of(raised.value)


def test_a_stream_without_deltalake_names_the_extra(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['deltalake'] = None\n"
        "from ottla.spark.delta.source import DeltaDataSource\n"
        "DeltaDataSource({'path': '/t'}).streamWriter(None, False)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    last = done.stderr.splitlines()[-1]
    assert last == f'ModuleNotFoundError: format("ottla-delta") needs deltalake: {install_command("delta")}'


def test_a_complete_output_is_refused(spark: SparkSession, reading: Reading, cluster: Cluster, tmp_path: Path) -> None:
    counts = reading.stream(subscribe=cluster.topic([Sent(b"v")])).groupBy("partition").count()
    query = (
        counts.writeStream.format("ottla-delta")
        .outputMode("complete")
        .option("checkpointLocation", str(tmp_path / "c"))
        .start(str(tmp_path / "t"))
    )
    with pytest.raises(PySparkException) as raised:
        query.awaitTermination()
    assert 'ottla-delta only appends: use outputMode("append")' in str(raised.value)


@since("4.2")
def test_a_stream_goes_on_after_its_checkpoint(reading: Reading, cluster: Cluster, tmp_path: Path) -> None:
    source = cluster.topic([Sent(b"%d" % n, partition=n % 2) for n in range(50)], 2)
    frame = reading.stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    plain = frame.selectExpr("CAST(value AS STRING) AS value")
    first = stream(plain, tmp_path / "t")
    cluster.send(source, [Sent(b"%d" % n) for n in range(50, 60)])
    second = stream(frame.selectExpr("CAST(value AS STRING) AS value", "partition"), tmp_path / "t", mergeSchema="true")
    read = rows_of(tmp_path / "t")
    assert sorted(int(row["value"]) for row in read) == list(range(60))
    assert {row["partition"] for row in read} == {None, 0}
    assert first.id == second.id
    assert DeltaTable(str(tmp_path / "t")).transaction_version(first.id) == 3


@since("4.2")
def test_a_batch_that_spark_has_not_noted_is_skipped(reading: Reading, cluster: Cluster, tmp_path: Path) -> None:
    source = cluster.topic([Sent(b"%d" % n) for n in range(30)])
    frame = reading.stream(subscribe=source, startingOffsets="earliest").selectExpr("CAST(value AS STRING) AS value")
    stream(frame, tmp_path / "t")
    version = DeltaTable(str(tmp_path / "t")).version()
    for name in ("0", ".0.crc"):
        (tmp_path / "t-checkpoint" / "commits" / name).unlink(missing_ok=True)
    cluster.send(source, [Sent(b"30")])
    stream(frame, tmp_path / "t")
    assert sorted(int(row["value"]) for row in rows_of(tmp_path / "t")) == list(range(31))
    assert DeltaTable(str(tmp_path / "t")).version() == version + 1


@since("4.2")
def test_a_process_that_is_killed_at_any_step_loses_and_repeats_nothing(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """The worker of a task, or the process in which the driver commits; test_delta_kills.py kills all of them."""
    spark.dataSource.register(DyingSource)
    source = cluster.topic(partitions=2)
    frame = topic(spark, cluster.servers, source)
    sent = 0
    for kill, step in enumerate(STEPS):
        cluster.send(source, [Sent(b"%d" % n, partition=n % 2) for n in range(sent, sent + 30)])
        sent += 30
        flag = tmp_path / f"killed-{kill}"
        batch = str(2 * kill)
        dying = start_query(
            frame, str(tmp_path / "t"), str(tmp_path / "c"), step=step, batch=batch, flag=str(flag), waits="false"
        )
        with pytest.raises(PySparkException):
            dying.awaitTermination()
        assert flag.exists(), step
    start_query(frame, str(tmp_path / "t"), str(tmp_path / "c")).awaitTermination()
    read = rows_of(tmp_path / "t")
    assert sorted(int(row["value"]) for row in read) == list(range(sent))
    numbers = [
        json.loads(action["add"]["stats"])["numRecords"]
        for log in (tmp_path / "t" / "_delta_log").glob("*.json")
        for action in map(json.loads, log.read_text().splitlines())
        if "add" in action
    ]
    assert sum(numbers) == sent
