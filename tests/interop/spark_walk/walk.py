"""Random walk of queries: Spark's own Kafka connector and Ottla's format read the same rows, in the same batches of a stream,
write the same records, or both refuse.
"""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from ottla import LATEST, Admin, TopicPartition
from tests.spark.conftest import Cluster, Sent

from .queries import STEP_MS, T0, Read, Step, Write, draw_read, draw_stream, draw_write

TOPICS: Final = ("t1", "t2", "t3", "t4")
CONNECTOR: Final = "kafka"
OTTLA: Final = "ottla"
_ORDER: Final = ("topic", "partition", "offset")
Row = tuple[Any, ...]


class Outcome(NamedTuple):
    """Result of a query: rows, those of each batch of a stream, or records; or the error, which is compared by being one."""

    result: Any
    error: str | None


class Walk:
    """Topics with known records on one broker, and queries on them with either format.

    folder  checkpoints, which are deleted
    """

    def __init__(self, spark: SparkSession, cluster: Cluster, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self._cluster = cluster
        self._next_ms = T0

    # -- topics --

    def _records(self, count: int, partition: int) -> list[Sent]:
        records = []
        for number in range(count):
            key = None if number % 3 == 0 else b"k%d" % (number % 5)
            value = None if number % 7 == 3 else b"%d-%d" % (partition, number)
            headers: list[tuple[str, bytes | None]] = [("h", b"%d" % number), ("none", None)]
            records.append(Sent(value, key, headers if number % 2 else None, self._next_ms, partition))
            self._next_ms += STEP_MS
        return records

    def fill(self) -> None:
        """Create the topics."""
        cluster = self._cluster
        cluster.topic([*self._records(20, 0), *self._records(9, 1)], partitions=3, name="t1")
        cluster.topic(self._records(5, 0), partitions=1, name="t2")
        producer = Producer({"bootstrap.servers": cluster.servers, "transactional.id": "walk", "log_level": 0})
        producer.init_transactions()
        for turn in range(3):
            producer.begin_transaction()
            for record in self._records(4, 0):
                producer.produce("t2", record.value, partition=0, timestamp=record.timestamp)
            producer.flush()
            (producer.abort_transaction if turn == 1 else producer.commit_transaction)()
        cluster.topic([*self._records(12, 0), *self._records(3, 1)], partitions=2, name="t3")
        cluster.topic(partitions=1, name="t4")
        self.delete_records("t3", 5)

    def delete_records(self, topic: str, offset: int | None = None) -> None:
        """Delete the records of partition 0 before an offset, or all."""
        with Admin(bootstrap_servers=self._cluster.servers) as admin:
            admin.delete_records({TopicPartition(topic, 0): -1 if offset is None else offset}).check()

    def sizes(self) -> dict[str, list[int]]:
        """End offsets of the partitions."""
        with Admin(bootstrap_servers=self._cluster.servers) as admin:
            offsets = admin.list_offsets(
                {
                    TopicPartition(name, number): LATEST
                    for name in TOPICS
                    for number in range(self._cluster.partitions(name))
                }
            ).check()
        sizes: dict[str, list[int]] = {name: [] for name in TOPICS}
        for partition in sorted(offsets):
            sizes[partition.topic].append(offsets[partition].offset)
        return sizes

    # -- queries --

    def _source(self, reader: Any, kind: str, options: dict[str, str]) -> DataFrame:
        frame: DataFrame = (
            reader.format(kind).options(**{"kafka.bootstrap.servers": self._cluster.servers, **options}).load()
        )
        return frame

    def read(self, kind: str, query: Read) -> Outcome:
        """Read a batch."""
        try:
            frame = self._source(self.spark.read, kind, query.options)
            if query.condition is not None:
                frame = frame.where(query.condition)
            return Outcome(_rows(frame), None)
        except Exception as error:  # noqa: BLE001  (what fails is compared)
            return Outcome(None, _text(error))

    def run_step(self, kind: str, step: Step, checkpoint: Path) -> Outcome:
        """Run a stream until it has read what there is; the result is the rows of each batch that has some."""
        batches: list[list[Row]] = []

        def take(frame: DataFrame, _: int) -> None:
            rows = _rows(frame)
            if rows:
                batches.append(rows)

        query = None
        try:
            frame = self._source(self.spark.readStream, kind, step.options)
            writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(take)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
        except Exception as error:  # noqa: BLE001  (what fails is compared)
            return Outcome(None, _text(error))
        finally:
            if query is not None:
                query.stop()
        return Outcome(batches, None)

    def write(self, kind: str, query: Write) -> Outcome:
        """Write a batch to a new topic; the result is its records, without times, and without partitions that chance gave."""
        topic = self._cluster.topic(partitions=3)
        places = any(column.endswith(" AS partition") for column in query.columns)
        try:
            columns = [column.replace("{topic}", topic) for column in query.columns]
            frame = self.spark.range(query.rows).selectExpr(*columns)
            options = {name: value.replace("{topic}", topic) for name, value in query.options.items()}
            writer = frame.write.format(kind).option("kafka.bootstrap.servers", self._cluster.servers)
            writer.options(**options).mode("append").save()
        except Exception as error:  # noqa: BLE001  (what fails is compared)
            return Outcome(None, _text(error))
        records = self._cluster.records(topic)
        return Outcome(
            Counter(
                (
                    record.partition
                    if record.key is not None or (places and "NULL" not in str(query.columns))
                    else None,
                    record.key,
                    record.value,
                    None if record.headers is None else tuple(record.headers),
                )
                for record in records
            ),
            None,
        )

    # -- comparison --

    def compare_read(self, dice: random.Random) -> tuple[str, list[str]]:
        """Draw and compare a read; returns the query, and what differs."""
        query = draw_read(dice, self.sizes())
        return str(query), difference(self.read(CONNECTOR, query), self.read(OTTLA, query))

    def compare_write(self, dice: random.Random) -> tuple[str, list[str]]:
        """Draw and compare a write."""
        query = draw_write(dice)
        return str(query), difference(self.write(CONNECTOR, query), self.write(OTTLA, query))

    def compare_stream(self, dice: random.Random) -> tuple[str, list[str]]:
        """Draw and compare the runs of a stream; it ends with a run that fails or differs."""
        steps = draw_stream(dice, self.sizes())
        descriptions = []
        for kind in (CONNECTOR, OTTLA):
            shutil.rmtree(self.folder / kind, ignore_errors=True)
        for step in steps:
            descriptions.append(str(step))
            for topic, count in step.sent.items():
                for partition in range(self._cluster.partitions(topic)):
                    self._cluster.send(topic, self._records(count, partition))
            if step.grown and self._cluster.partitions(step.grown) < 5:
                self._cluster.grow(step.grown, self._cluster.partitions(step.grown) + 1)
            if step.deleted:
                self.delete_records(step.deleted)
            theirs, ours = (self.run_step(kind, step, self.folder / kind) for kind in (CONNECTOR, OTTLA))
            differences = difference(theirs, ours)
            if differences or theirs.error is not None:
                return "\n  ".join(descriptions), differences
        return "\n  ".join(descriptions), []


def _rows(frame: DataFrame) -> list[Row]:
    return [_comparable(row) for row in frame.orderBy(*_ORDER).collect()]


def _comparable(row: Any) -> Row:
    return tuple(bytes(value) if isinstance(value, bytearray) else value for value in row)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def difference(connector: Outcome, ottla: Outcome) -> list[str]:
    """Return what differs, in lines."""
    if (connector.error is None) != (ottla.error is None):
        return [
            f"kafka: {connector.error or _summary(connector.result)}"[:800],
            f"ottla: {ottla.error or _summary(ottla.result)}"[:800],
        ]
    if connector.result == ottla.result:
        return []
    return [f"kafka: {_summary(connector.result)}", f"ottla: {_summary(ottla.result)}"]


def _summary(result: Any) -> str:
    if isinstance(result, Counter):
        return str(sorted(result.items(), key=str))[:800]
    if result and isinstance(result[0], list):
        return str([_places(batch) for batch in result])[:800]
    return f"{len(result)} rows {_places(result)}".strip()[:800]


def _places(rows: list[Row]) -> str:
    """Topics, partitions and offsets of rows."""
    return " ".join(f"{row[2]}-{row[3]}:{row[4]}" for row in rows)


KINDS: Final[dict[str, Callable[[Walk, random.Random], tuple[str, list[str]]]]] = {
    "read": Walk.compare_read,
    "stream": Walk.compare_stream,
    "write": Walk.compare_write,
}


def run(walk: Walk, seed: int, count: int, tell: Callable[[str], None], kinds: Sequence[str] = tuple(KINDS)) -> int:
    """Compare `count` queries; return how many differed."""
    dice = random.Random(seed)
    differed = 0
    for number in range(1, count + 1):
        query, differences = KINDS[dice.choice(kinds)](walk, dice)
        if differences:
            differed += 1
            tell("\n    ".join([f"{number}: {query}", *differences]))
    return differed
