"""Writers of the sink `ottla-delta`, batch and stream.

Spark makes a writer in the planner, which passes it to the tasks, and another one in the driver, which commits; the second one
gets nothing but the messages of the tasks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake.transaction import AddAction
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.spark.delta.columns import fields_of
from ottla.spark.delta.files import FileWriter
from ottla.spark.delta.options import TableOptions
from ottla.spark.delta.table import BatchId, append, open_target
from ottla.spark.releases import HAS_ARROW_STREAM_SINK
from ottla.spark.worker import begin_task


@dataclass
class TaskFiles(WriterCommitMessage):
    """Message of a task: the files that it has written.

    planned  version of the table when the batch was planned
    query    id of the query; "" for a batch write
    """

    files: list[AddAction]
    planned: int
    query: str


class TableWriter:
    """Base of both writers. Raises InvalidOption while planning if the rows cannot be appended to the table."""

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        self.options = options
        self.fields = fields_of(schema)
        target = open_target(options, self.fields)
        # Not the target itself: this object is pickled, and a table is a handle of this process.
        self._names, self._partition_by, self._required = target.names, target.partition_by, target.required
        self._planned = target.version

    def write_all(self, batches: Iterator[pa.RecordBatch]) -> TaskFiles:
        """Write the rows of a task. Raises InvalidOption for a null where the table has none."""
        begin_task()
        writer = FileWriter(self.options, names=self._names, partition_by=self._partition_by, required=self._required)
        for batch in batches:
            writer.append(batch)
        context = TaskContext.get()
        assert context is not None, "only called in a Spark task"
        query = context.getLocalProperty("sql.streaming.queryId") or ""
        return TaskFiles(writer.finish(), self._planned, query)


def _messages(messages: Sequence[WriterCommitMessage | None]) -> list[TaskFiles]:
    return [message for message in messages if isinstance(message, TaskFiles)]


class BatchTableWriter(TableWriter, DataSourceArrowWriter):
    """Batch write: one commit, when all tasks are done."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.write_all(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append the files of all tasks."""
        tasks = _messages(messages)
        files = [file for task in tasks for file in task.files]
        batch = None
        if self.options.transaction is not None:
            planned = min((task.planned for task in tasks), default=self._planned)
            batch = BatchId(*self.options.transaction, planned)
        append(self.options, self.fields, files, batch)


if TYPE_CHECKING or HAS_ARROW_STREAM_SINK:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    class StreamTableWriter(TableWriter, DataSourceStreamArrowWriter):
        """Stream write: one commit for each micro-batch, which a repeated one does not make again."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            return self.write_all(iterator)

        def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
            """Append the files of all tasks, once."""
            tasks = _messages(messages)
            if not tasks:
                return
            # A batch without rows is committed too: its number says how far the table is behind the source.
            files = [file for task in tasks for file in task.files]
            append(self.options, self.fields, files, BatchId(tasks[0].query, batchId, tasks[0].planned))
