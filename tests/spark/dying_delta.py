"""A Spark program that appends a topic to a Delta table and stops at a step of its sink, and the sink that does it.

    python -m tests.spark.dying_delta SERVERS SOURCE TABLE CHECKPOINT [STEP BATCH FLAG]

At STEP of BATCH, or of the first one after it, the process creates FLAG, once. In the program it then waits until all
processes are killed; within a session of the tests it kills itself: the worker of a task, or
the process in which the driver commits.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from ottla.spark.delta import table
from ottla.spark.delta.options import table_options
from ottla.spark.delta.sink import StreamTableWriter, TaskFiles
from ottla.spark.delta.source import DeltaDataSource
from ottla.spark.session import session_builder, stop_session

STEPS = ("task before its rows", "task with its files written", "driver before the commit", "driver after the commit")


class Dying:
    """The step at which the process stops: it waits to be killed if `waits`, else it kills itself."""

    def __init__(self, step: str, batch: int, flag: str, *, waits: bool) -> None:
        self._step, self._batch, self._flag, self._waits = step, batch, Path(flag), waits

    def here(self, step: str, batch: int) -> None:
        """Stop, if this is the step and it has not happened yet."""
        if step != self._step or batch < self._batch:
            return
        try:
            self._flag.touch(exist_ok=False)
        except FileExistsError:
            return
        if self._waits:
            time.sleep(120)
        os.kill(os.getpid(), signal.SIGKILL)


class DyingWriter(StreamTableWriter):
    """The sink, with steps."""

    dying: Dying

    def write(self, iterator: Iterator[Any]) -> TaskFiles:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        self.dying.here("task before its rows", batch)
        written = self.write_all(iterator)
        self.dying.here("task with its files written", batch)
        return written

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803  (Spark's name)
        commit = table._append

        def stopping(*arguments: Any) -> None:
            self.dying.here("driver before the commit", batchId)
            commit(*arguments)
            self.dying.here("driver after the commit", batchId)

        table._append = stopping  # type: ignore[assignment]
        try:
            super().commit(messages, batchId)
        finally:
            table._append = commit


class DyingSource(DeltaDataSource):
    """format("dying-delta")"""

    @classmethod
    def name(cls) -> str:
        return "dying-delta"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        del overwrite
        options = dict(self.options)
        dying = Dying(
            options.pop("step"), int(options.pop("batch")), options.pop("flag"), waits=options.pop("waits") == "true"
        )
        writer = DyingWriter(table_options(options, stream=True), schema)
        writer.dying = dying
        return writer


def topic(spark: SparkSession, servers: str, source: str) -> DataFrame:
    """The records of a topic, 20 at a time, with a column to partition by."""
    records = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 20)
        .load()
    )
    return records.selectExpr("CAST(value AS STRING) AS value", "partition", "offset", "offset % 2 = 0 AS even")


def start_query(frame: DataFrame, path: str, checkpoint: str, **dying: str) -> StreamingQuery:
    """Append all that is available, with "step", "batch", "flag", "waits"."""
    return (
        frame.writeStream.format("dying-delta")
        .options(step="", batch="0", flag="", waits="true")
        .options(**dying)
        .option("partitionBy", "even")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(path)
    )


def main(
    servers: str, source: str, path: str, checkpoint: str, step: str = "", batch: str = "0", flag: str = ""
) -> None:
    spark = (
        session_builder("dying")
        .master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(DyingSource)
    query = start_query(topic(spark, servers, source), path, checkpoint, step=step, batch=batch, flag=flag)
    query.awaitTermination()
    stop_session(spark)


if __name__ == "__main__":
    main(*sys.argv[1:])
