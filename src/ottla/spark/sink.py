"""Rows into topics, batch and stream: at least once, or exactly once (exactlyOnce=true).

Strategy: each task hands its Arrow batches to a producer of the client (`produce_arrow`), which encodes rows where they lie.
At least once: an idempotent producer that the worker process keeps; within a task nothing is written twice or out of order,
and a task that Spark repeats writes its rows again. Exactly once: a transaction per task, see `publication.py`.

    value      string or binary, required
    key        string or binary; chooses the partition as Kafka's own producers do (murmur2)
    headers    array<struct<key string, value binary>>
    topic      string; the option `topic` comes before it
    partition  int; chooses the partition itself
    timestamp  timestamp; the time of writing by default

Other columns are left aside, as Spark's own Kafka sink does.
"""

import uuid
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from ottla.spark.connections import cluster_of, producing
from ottla.spark.exactly_once import TaskResult, TaskWriter, abort_batch, prepare, publish, transactional_id
from ottla.spark.offsets import InvalidOption
from ottla.spark.options import SinkOptions
from ottla.spark.publication import TaskTransaction
from ottla.spark.worker import begin_task

_TEXT: Final = (StringType, BinaryType)
_KINDS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "key": _TEXT,
    "value": _TEXT,
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType,),
}
_HEADERS: Final = "array<struct<key:string,value:binary>>"
_ADAPTIVE: Final = "spark.sql.adaptive.streaming.stateless.enabled"


def check_schema(schema: StructType, topic: str | None) -> None:
    """Raises InvalidOption that says what is missing or of a wrong type."""
    names = schema.fieldNames()
    if "value" not in names:
        raise InvalidOption(f"the column value is missing (string or binary); there are {', '.join(names) or 'none'}")
    if topic is None and "topic" not in names:
        raise InvalidOption("where to write is not said: set the option topic, or add a column topic")
    for name, kinds in _KINDS.items():
        if name in names and not isinstance(schema[name].dataType, kinds):
            expected = " or ".join(kind.typeName() for kind in kinds)
            raise InvalidOption(f"column {name} is {schema[name].dataType.simpleString()}, it must be {expected}")
    if "headers" in names and schema["headers"].dataType.simpleString() != _HEADERS:
        raise InvalidOption(f"column headers is {schema['headers'].dataType.simpleString()}, it must be {_HEADERS}")


class _SinkWriter:
    """Shared base of the batch and the stream sink.

    sink    id of an exactly-once sink; "" for the id of the query
    stream  batches have numbers, and come again after a crash
    """

    def __init__(self, options: SinkOptions, schema: StructType, sink: str, *, stream: bool) -> None:
        check_schema(schema, options.topic)
        self.options = options
        self.sink = sink
        self._stream = stream
        cluster = cluster_of(options.config)
        if options.topic is not None:
            # While planning: brokers that cannot be reached and topics that cannot be made are told from here.
            cluster.topic(options.topic, create=options.config["allow.auto.create.topics"])
        if options.exactly_once:
            prepare(cluster)

    def write_all(self, batches: Iterator[pa.RecordBatch]) -> TaskResult:
        """Write the rows of a task and wait for acknowledgement. Raises InvalidOption for rows that cannot be records."""
        begin_task()
        try:
            return self._write(batches)
        except InvalidOption:
            raise
        except ValueError as error:
            raise InvalidOption(str(error)) from None

    def _write(self, batches: Iterator[pa.RecordBatch]) -> TaskResult:
        options = self.options
        if options.exactly_once:
            # Only tasks see the session's settings: the driver's side of a Python sink is not given them.
            error = self._adaptive_execution_error()
            if error is not None:
                for _ in batches:  # Spark wants its rows to be taken
                    pass
                return TaskResult(refusal=error)
            return self._task_writer().write(batches)
        with producing(options.config) as producer:
            report = producer.produce_arrow(batches, options.topic)
            producer.flush()
            report.result()
        return TaskResult()

    def _adaptive_execution_error(self) -> str | None:
        """Reason against writing a stream exactly once in this session, None without one. Called in a task."""
        context = TaskContext.get()
        assert context is not None, "rows are written in tasks"
        settings = (context.getLocalProperty(_ADAPTIVE), context.getLocalProperty("spark.sql.adaptive.enabled"))
        if not self._stream or "false" in settings:
            return None
        return (
            f"exactlyOnce=true needs {_ADAPTIVE}=false: adaptive execution may cut a batch that is run again into "
            "other tasks. ottla.spark.SESSION_CONFS has it"
        )

    def _task_writer(self) -> TaskWriter:
        context = TaskContext.get()
        assert context is not None, "rows are written in tasks"
        options, sink, task = self.options, self.sink, context.partitionId()
        batch = None
        if self._stream:
            # Within foreachBatch a batch write's tasks have these as well; they are not about its sink.
            number, query = (
                context.getLocalProperty("streaming.sql.batchId"),
                context.getLocalProperty("sql.streaming.queryId"),
            )
            assert number, "Spark tells the tasks of a stream their batch"
            assert query, "Spark tells the tasks of a stream their query"
            batch, sink = int(number), sink or query
        config = options.transactional_config(transactional_id(sink, task))
        named = bool(options.sink_id)
        return TaskWriter(cluster_of(options.config), config, options.topic, sink, batch, task, named=named)

    def publish(self, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
        """All tasks are done. Raises InvalidOption when they refused to write."""
        for message in messages:
            if isinstance(message, TaskResult) and message.refusal is not None:
                raise InvalidOption(message.refusal)
        sink, transactions = _transactions_of(messages)
        if transactions or (batch is not None and self.options.exactly_once and self.sink):
            sink = sink or self.sink
            config = self.options.config
            with producing(config) as producer:
                publish(cluster_of(config), producer, sink, batch, transactions)

    def abort_batch(self, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
        """A task has failed, or `publish` has."""
        sink, transactions = _transactions_of(messages)
        if transactions:
            abort_batch(cluster_of(self.options.config), sink, batch, transactions)


def _transactions_of(messages: Sequence[WriterCommitMessage | None]) -> tuple[str, list[TaskTransaction]]:
    """The sink's id and its transactions."""
    results = [message for message in messages if isinstance(message, TaskResult)]
    sink = next((result.sink for result in results if result.transaction is not None), "")
    return sink, [result.transaction for result in results if result.transaction is not None]


class OttlaWriter(_SinkWriter, DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema, options.sink_id or uuid.uuid4().hex, stream=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.write_all(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what the tasks wrote."""
        self.publish(messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish none of it."""
        self.abort_batch(messages, None)


class OttlaStreamWriter(_SinkWriter, DataSourceStreamArrowWriter):
    """A stream's write: rows of a batch are in the topic, acknowledged, before Spark commits the batch."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema, options.sink_id or "", stream=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.write_all(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Publish what the tasks wrote."""
        self.publish(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish none of it. Spark says so too when `commit` has raised."""
        self.abort_batch(messages, batchId)
