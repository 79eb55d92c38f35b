"""Rows into topics, batch and stream: at least once.

Strategy: each task turns Arrow batches into record batches column by column and gives them to an idempotent producer; within a
task nothing is written twice or out of order. A task that Spark repeats writes its rows again.

    value      string or binary, required
    key        string or binary; chooses the partition as Kafka's own producers do (murmur2)
    headers    array<struct<key string, value binary>>
    topic      string; the option `topic` comes before it
    partition  int; chooses the partition itself
    timestamp  timestamp; the time of writing where there is none

Other columns are left aside, as Spark's own Kafka sink does. Rows without key and partition go to one partition per Arrow
batch, the next one each time (KIP-480).
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from ottla.client.producer.batches import BatchProducer
from ottla.client.topics import TopicPartition
from ottla.records import arrow
from ottla.records.columns import encode_columns
from ottla.records.compression import CODEC_NAMES
from ottla.spark.connections import older_cluster_of as cluster_of
from ottla.spark.offsets import InvalidOption
from ottla.spark.options import SinkOptions

_TEXT: Final = (StringType, BinaryType)
_KINDS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "key": _TEXT,
    "value": _TEXT,
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType,),
}
_HEADERS: Final = "array<struct<key:string,value:binary>>"


class Written(WriterCommitMessage):
    """What a task acknowledged."""

    def __init__(self, records: int, size: int) -> None:
        self.records = records
        self.size = size


def check_schema(schema: StructType, topic: str | None) -> None:
    """Raises InvalidOption that says what is missing or of a wrong type."""
    names = schema.fieldNames()
    if "value" not in names:
        raise InvalidOption(f"the column value is missing (string or binary); there are {', '.join(names) or 'none'}")
    if topic is None and "topic" not in names:
        raise InvalidOption("where to write is not said: set the option topic, or add a column topic")
    for name, kinds in _KINDS.items():
        if name in names and not isinstance(schema[name].dataType, kinds):
            wanted = " or ".join(kind.typeName() for kind in kinds)
            raise InvalidOption(f"column {name} is {schema[name].dataType.simpleString()}, it must be {wanted}")
    if "headers" in names and schema["headers"].dataType.simpleString() != _HEADERS:
        raise InvalidOption(f"column headers is {schema['headers'].dataType.simpleString()}, it must be {_HEADERS}")


class _Sink:
    """What batch and stream share."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(schema, options.topic)
        self.options = options
        self.names = schema.fieldNames()
        if options.topic is not None:
            # Once, while planning: brokers that cannot be reached and topics that cannot be made are told from here.
            config = options.config
            cluster_of(config).topic(options.topic, create=config["allow.auto.create.topics"])

    def write_all(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Write and wait for acknowledgement."""
        context = TaskContext.get()
        writing = _Writing(self.options, context.partitionId() if context else 0)
        for batch in batches:
            if batch.num_rows:
                writing.add(batch)
        return writing.finish()


class _Writing:
    """One task's writing."""

    def __init__(self, options: SinkOptions, task: int) -> None:
        config = options.config
        self._topic = options.topic
        self._cluster = cluster_of(config)
        self._create = bool(config["allow.auto.create.topics"])
        self._producer = BatchProducer(self._cluster)
        self._codec = CODEC_NAMES.index(config["compression.type"])
        self._size = int(config["batch.size"])
        self._turn = task

    def add(self, batch: pa.RecordBatch) -> None:
        if self._topic is not None:
            self._add_to(self._topic, batch)
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise InvalidOption("a row has no topic: the column is null and the option topic is not set")
        for topic in topics.unique().to_pylist():
            chosen = pc.equal(topics, topic)
            self._add_to(topic, batch if pc.all(chosen).as_py() else batch.filter(chosen))

    def _add_to(self, topic: str, batch: pa.RecordBatch) -> None:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        count = len(self._cluster.topic(topic, create=self._create).leaders)
        timestamp: pa.Array | int = self._cluster.clock.wall_ms()
        if "timestamp" in columns:
            timestamp = columns["timestamp"]
            if timestamp.null_count:
                moment = pa.scalar(self._cluster.clock.wall_ms(), pa.timestamp("ms", tz="UTC"))
                timestamp = pc.fill_null(timestamp, moment.cast(timestamp.type))
        rows = arrow.rows_of(columns["value"], columns.get("key"), columns.get("headers"), timestamp)
        wanted = self._partitions(topic, columns, batch.num_rows, count)
        for number in range(count) if isinstance(wanted, pa.Array) else (wanted,):
            selection = None
            if isinstance(wanted, pa.Array):
                chosen = pc.indices_nonzero(pc.equal(wanted, number)).cast(pa.int32())
                if not len(chosen):
                    continue
                if len(chosen) < batch.num_rows:
                    selection = bytes(memoryview(chosen.buffers()[1])[: 4 * len(chosen)])
            for encoded in encode_columns(rows, selection=selection, max_batch_bytes=self._size, codec=self._codec):
                self._producer.send(TopicPartition(topic, number), encoded)

    def _partitions(self, topic: str, columns: dict[str, pa.Array], rows: int, count: int) -> pa.Array | int:
        """The partition of each row, or the one of all."""
        turn = self._turn % count
        self._turn += 1
        key = columns.get("key")
        if count == 1 or key is None or key.null_count == rows:
            chosen: pa.Array | int = turn
        else:
            chosen = arrow.partitions(key, count, turn)
        given = columns.get("partition")
        if given is None or given.null_count == rows:
            return chosen
        highest, lowest = pc.max(given).as_py(), pc.min(given).as_py()
        if lowest < 0 or highest >= count:
            wrong = lowest if lowest < 0 else highest
            raise InvalidOption(f"column partition names partition {wrong}, topic {topic} has {count}")
        if given.null_count == 0:
            return given
        return pc.coalesce(given, chosen if isinstance(chosen, pa.Array) else pa.scalar(chosen, pa.int32()))

    def finish(self) -> Written:
        self._producer.flush()
        return Written(self._producer.records, self._producer.bytes)


class OttlaWriter(_Sink, DataSourceArrowWriter):
    """A batch write."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.write_all(iterator)


class OttlaStreamWriter(_Sink, DataSourceStreamArrowWriter):
    """A stream's write: rows of a batch are in the topic, acknowledged, before Spark commits the batch."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.write_all(iterator)
