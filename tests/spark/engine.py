"""Spark's handling of a stream, without Spark: logs of offsets and commits, batches, tasks; and a crash at any step.

As MicroBatchExecution does it: the end of a batch is written down before the batch runs, that it is done after it; a run begins
with the batch that was written down and not done. Offsets go through JSON, readers through pickle.
"""

import json
import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from ottla.client.blocking import Producer
from ottla.spark.cluster import ClusterClient
from ottla.spark.exactly_once import TaskResult, TaskWriter, publish, transactional_id
from ottla.spark.options import SinkOptions, source_options
from ottla.spark.schema import arrow_schema
from ottla.spark.stream import OttlaStreamReader

SCHEMA = StructType(
    [StructField("value", BinaryType()), StructField("topic", StringType()), StructField("offset", LongType())]
)


class Killed(BaseException):
    """The program is dead."""


class Engine:
    """One query, over all its runs: from topics into files and, exactly once, into a topic.

    files  what a file sink has: the rows of each batch, whole or not at all
    """

    def __init__(
        self, brokers: ClusterClient, producer: Producer, source: dict[str, str], sink: SinkOptions, sink_id: str
    ) -> None:
        self.files: dict[int, list[str]] = {}
        self._brokers = brokers
        self._producer = producer
        self._source = source
        self._sink = sink
        self._sink_id = sink_id
        self._offsets: list[str] = []
        self._done: set[int] = set()
        self._left = 0

    def run(self, steps: int = 1 << 30) -> bool:
        """With availableNow, to the end of what is there; or dead after so many steps. Whether it got to the end."""
        self._left = steps
        reader = OttlaStreamReader(source_options(self._source, stream=True), arrow_schema(SCHEMA))
        try:
            reader.prepareForTriggerAvailableNow()
            newest = len(self._offsets) - 1
            if newest >= 0 and newest not in self._done:
                self._batch(reader, newest)
            while self._plan(reader):
                self._batch(reader, len(self._offsets) - 1)
        except Killed:
            return False
        finally:
            reader.stop()
        return True

    def _step(self) -> None:
        if self._left == 0:
            raise Killed
        self._left -= 1

    def _plan(self, reader: OttlaStreamReader) -> bool:
        """The next batch, if there is anything for one."""
        start = json.loads(self._offsets[-1]) if self._offsets else through_json(reader.initialOffset())
        end = json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit()))
        if self._offsets and end == self._offsets[-1]:
            return False
        self._step()
        self._offsets.append(end)
        if len(self._offsets) > 1:
            reader.commit(json.loads(self._offsets[-2]))
        return True

    def _batch(self, reader: OttlaStreamReader, number: int) -> None:
        start = json.loads(self._offsets[number - 1]) if number else through_json(reader.initialOffset())
        planned = reader.partitions(start, json.loads(self._offsets[number]))
        worker: OttlaStreamReader = pickle.loads(pickle.dumps(reader))
        rows: list[str] = []
        written = []
        for task, partition in enumerate(planned):
            self._step()
            batches = list(worker.read(pickle.loads(pickle.dumps(partition))))
            rows += [(value or b"").decode() for batch in batches for value in batch.column("value").to_pylist()]
            self._step()
            written.append(self._written(number, task, [batch.select(["value"]) for batch in batches]))
        self._step()
        ending = ClusterClient.end_transaction

        def end(cluster: ClusterClient, *arguments: Any, **options: Any) -> None:
            self._step()
            ending(cluster, *arguments, **options)

        with replaced(ClusterClient, "end_transaction", end):
            parts = [result.transaction for result in written if result.transaction is not None]
            if parts:
                publish(self._brokers, self._producer, self._sink_id, number, parts)
        self._step()
        self.files[number] = rows
        self._step()
        self._done.add(number)

    def _written(self, batch: int, task: int, batches: list[pa.RecordBatch]) -> TaskResult:
        config = self._sink.transactional_config(transactional_id(self._sink_id, task))
        writing = TaskWriter(self._brokers, config, self._sink.topic, self._sink_id, batch, task)
        return writing.write(iter(batches))


def through_json(offset: dict[str, Any]) -> dict[str, Any]:
    """As Spark hands it back."""
    back: dict[str, Any] = json.loads(json.dumps(offset))
    return back


class replaced:  # noqa: N801  (used like a function)
    """A method of a class, in place of another within a block."""

    def __init__(self, kind: type, name: str, method: Callable[..., Any]) -> None:
        self._kind, self._name, self._method = kind, name, method
        self._before = getattr(kind, name)

    def __enter__(self) -> None:
        setattr(self._kind, self._name, self._method)

    def __exit__(self, *_: object) -> None:
        setattr(self._kind, self._name, self._before)
