"""A Spark program whose exactly-once query is killed at a step of its sink, and the sink that does it.

    python -m tests.spark.dying SERVERS SOURCE TARGET CHECKPOINT [STEP FLAG]

STEP is where something dies, once (FLAG is a file that says that it has): the program when `driver ...`, the worker of a task
when `task ...`; `broker ...` waits there until the FLAG is removed.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from ottla.spark import exactly_once
from ottla.spark.cluster import ClusterClient
from ottla.spark.options import sink_options
from ottla.spark.session import session_builder, stop_session
from ottla.spark.sink import OttlaStreamWriter
from ottla.spark.source import OttlaDataSource

STEPS = (
    "task before its rows",
    "task with its transaction open",
    "driver before the decision",
    "driver after the decision",
    "driver between two ends",
    "driver after the ends",
    "broker before the decision",
    "broker after the decision",
)
BATCH = 1


class Dying:
    """A step of the sink at which a process is killed, or waits for the broker.

    program  the process of the Spark program
    """

    def __init__(self, step: str, flag: str, program: int) -> None:
        self.step = step
        self._flag = Path(flag)
        self._program = program

    def here(self, step: str, batch: int) -> None:
        """Die, if this is the step and it has not happened yet."""
        if step != self.step or batch != BATCH or self._flag.exists():
            return
        self._flag.touch()
        if step.startswith("broker"):
            while self._flag.exists():
                time.sleep(0.02)
            self._flag.touch()
            return
        os.kill(self._program if step.startswith("driver") else os.getpid(), signal.SIGKILL)
        time.sleep(60)


class DyingWriter(OttlaStreamWriter):
    """The sink, with steps."""

    dying: Dying

    def write(self, iterator: Iterator[Any]) -> exactly_once.TaskResult:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        last = context.partitionId() == 1
        if last:
            self.dying.here("task before its rows", batch)
        written = self.write_all(iterator)
        if last:
            self.dying.here("task with its transaction open", batch)
        return written

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803  (Spark's name)
        here = self.dying.here
        here("driver before the decision", batchId)
        here("broker before the decision", batchId)
        ends = ClusterClient.end_transaction
        ended = 0

        def end(self: ClusterClient, *arguments: Any, **options: Any) -> None:
            nonlocal ended
            here("driver after the decision" if ended == 0 else "driver between two ends", batchId)
            if ended == 0:
                here("broker after the decision", batchId)
            ends(self, *arguments, **options)
            ended += 1

        ClusterClient.end_transaction = end  # type: ignore[method-assign]
        try:
            super().commit(messages, batchId)
        finally:
            ClusterClient.end_transaction = ends  # type: ignore[method-assign]
        here("driver after the ends", batchId)


class DyingSource(OttlaDataSource):
    """format("dying")"""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        del overwrite
        options = dict(self.options)
        dying = Dying(options.pop("step"), options.pop("flag"), int(options.pop("program")))
        writer = DyingWriter(sink_options(options, stream=True), schema)
        writer.dying = dying
        return writer


def main(servers: str, source: str, target: str, checkpoint: str, step: str = "", flag: str = "") -> None:
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
    frame = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 40)
        .load()
    )
    query = (
        frame.select("key", "value")
        .writeStream.format("dying")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("exactlyOnce", "true")
        .option("checkpointLocation", checkpoint)
        .option("step", step)
        .option("flag", flag)
        .option("program", os.getpid())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    stop_session(spark)


if __name__ == "__main__":
    main(*sys.argv[1:])
