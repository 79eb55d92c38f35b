"""Sink, batch and stream: at least once, or exactly once (exactlyOnce=true).

Strategy: each task passes its Arrow batches to a producer of the client (`produce_arrow`), which encodes rows in place.
At least once: an idempotent producer, cached in the worker process; a task writes its rows once and in order, and a task that
Spark retries writes them again. Exactly once: a transaction per task, see `publication.py`.

    value      string or binary, required
    key        string or binary; determines the partition as in Kafka's Java producer (murmur2)
    headers    array<struct<key string, value binary>>
    topic      string; the option `topic` takes precedence
    partition  int; takes precedence over the key
    timestamp  timestamp; the time of writing by default

Other columns are ignored, as in Spark's own Kafka sink.
"""

import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from ottla.spark.connections import cluster_of, producing
from ottla.spark.exactly_once import TaskResult, TaskWriter, abort_batch, prepare, publish, transactional_id
from ottla.spark.offsets import InvalidOption
from ottla.spark.options import SinkOptions
from ottla.spark.publication import TaskTransaction
from ottla.spark.releases import HAS_ADAPTIVE_STREAMS, HAS_ARROW_STREAM_SINK
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
    """Check the columns to write. Raises InvalidOption for a missing column or a wrong type."""
    names = schema.fieldNames()
    if "value" not in names:
        raise InvalidOption(
            f"the column value (string or binary) is missing; the columns are {', '.join(names) or 'none'}"
        )
    if topic is None and "topic" not in names:
        raise InvalidOption("no topic to write to: set the option topic, or add a column topic")
    for name, kinds in _KINDS.items():
        if name in names and not isinstance(schema[name].dataType, kinds):
            expected = " or ".join(kind.typeName() for kind in kinds)
            raise InvalidOption(f"column {name} is {schema[name].dataType.simpleString()}, must be {expected}")
    if "headers" in names and schema["headers"].dataType.simpleString() != _HEADERS:
        raise InvalidOption(f"column headers is {schema['headers'].dataType.simpleString()}, must be {_HEADERS}")


class SinkWriter:
    """Shared base of the batch and the stream sink.

    sink    id of an exactly-once sink; "" for the id of the query
    stream  stream write: batches are numbered, and repeated after a crash
    """

    def __init__(self, options: SinkOptions, schema: StructType, sink: str, *, stream: bool) -> None:
        check_schema(schema, options.topic)
        self.options = options
        self.sink = sink
        self._stream = stream
        cluster = cluster_of(options.config)
        if options.topic is not None:
            # Fail while planning if brokers cannot be reached or the topic cannot be created.
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
            # Checked in tasks: Spark does not pass the session's settings to the driver side of a Python sink.
            error = self._adaptive_execution_error()
            if error is not None:
                for _ in batches:  # Spark requires that all rows are consumed
                    pass
                return TaskResult(refusal=error)
            return self._task_writer().write(batches)
        with producing(options.config) as producer:
            report = producer.produce_arrow(batches, options.topic)
            producer.flush()
            report.result()
        return TaskResult()

    def _adaptive_execution_error(self) -> str | None:
        """Return an error message if adaptive execution rules out exactly-once streams in this session. Called in a task."""
        if not HAS_ADAPTIVE_STREAMS:
            return None
        context = TaskContext.get()
        assert context is not None, "only called in a Spark task"
        settings = (context.getLocalProperty(_ADAPTIVE), context.getLocalProperty("spark.sql.adaptive.enabled"))
        if not self._stream or "false" in settings:
            return None
        return (
            f"exactlyOnce=true needs {_ADAPTIVE}=false (in ottla.spark.SESSION_CONFS): adaptive execution may split a "
            "batch that is run again into other tasks"
        )

    def _task_writer(self) -> TaskWriter:
        context = TaskContext.get()
        assert context is not None, "only called in a Spark task"
        options, sink, task = self.options, self.sink, context.partitionId()
        batch = None
        if self._stream:
            # Ignored for a batch write: within foreachBatch these properties belong to the outer query.
            number, query = (
                context.getLocalProperty("streaming.sql.batchId"),
                context.getLocalProperty("sql.streaming.queryId"),
            )
            assert number, "Spark sets the batch id for the tasks of a stream"
            assert query, "Spark sets the query id for the tasks of a stream"
            batch, sink = int(number), sink or query
        config = options.transactional_config(transactional_id(sink, task))
        named = bool(options.sink_id)
        return TaskWriter(cluster_of(options.config), config, options.topic, sink, batch, task, named=named)

    def publish(self, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
        """Publish the rows of all tasks. Raises InvalidOption if the tasks refused to write."""
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
        """Abort the open transactions after a task or `publish` has failed."""
        sink, transactions = _transactions_of(messages)
        if transactions:
            abort_batch(cluster_of(self.options.config), sink, batch, transactions)


def _transactions_of(messages: Sequence[WriterCommitMessage | None]) -> tuple[str, list[TaskTransaction]]:
    """Return the sink's id and the transactions of its tasks."""
    results = [message for message in messages if isinstance(message, TaskResult)]
    sink = next((result.sink for result in results if result.transaction is not None), "")
    return sink, [result.transaction for result in results if result.transaction is not None]


class OttlaWriter(SinkWriter, DataSourceArrowWriter):
    """Batch write."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema, options.sink_id or uuid.uuid4().hex, stream=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.write_all(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what the tasks wrote."""
        self.publish(messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Discard the rows of the tasks (exactly once only)."""
        self.abort_batch(messages, None)


class StreamSinkWriter(SinkWriter, DataSourceStreamWriter):
    """Stream write: the rows of a batch are acknowledged by the brokers before Spark commits the batch."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema, options.sink_id or "", stream=True)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Publish what the tasks wrote."""
        self.publish(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Discard the rows of the tasks (exactly once only). Spark also calls it after `commit` has raised."""
        self.abort_batch(messages, batchId)


if TYPE_CHECKING or HAS_ARROW_STREAM_SINK:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    class OttlaStreamWriter(StreamSinkWriter, DataSourceStreamArrowWriter):
        """Stream write of Arrow batches."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            return self.write_all(iterator)
