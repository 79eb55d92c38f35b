"""Shared base of batch and stream reads: partitions, their start and end offsets, and the reading of a range."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ottla.client.errors import OffsetOutOfRange, UnknownTopic
from ottla.client.topics import EARLIEST, LATEST, TopicPartition
from ottla.protocol.schema import ZERO_UUID
from ottla.records.arrow import column_flags, record_batch
from ottla.records.columns import ColumnReader
from ottla.spark.cluster import ClusterClient
from ottla.spark.connections import cluster_of
from ottla.spark.offsets import Boundary, DataLoss, OffsetRange, Positions, offset_lookups, resolve, split
from ottla.spark.options import SourceOptions
from ottla.spark.worker import begin_task

# Maximum rows per Arrow batch: beyond some ten thousand only memory use grows, not throughput.
_ROWS: Final = 50_000


class RangeInputPartition(InputPartition):
    """Range read by one task; `topic_id` is the topic's id at the time of planning, ZERO_UUID without topic ids."""

    def __init__(self, piece: OffsetRange, topic_id: bytes = ZERO_UUID) -> None:
        super().__init__((*piece, topic_id))
        self.range = piece
        self.topic_id = topic_id


class TopicReader:
    """Shared base of the readers: offsets on the driver, records on the executors."""

    readers: ClassVar[dict[int, ColumnReader]] = {}

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self.options = options
        self.schema = schema

    @property
    def cluster(self) -> ClusterClient:
        return cluster_of(self.options.config)

    # -- partitions and offsets, on the driver --

    def current_partitions(self, *, allow_missing: bool = False) -> list[TopicPartition]:
        """Return the partitions that the query reads now. Raises UnknownTopic unless `allow_missing`, BrokersUnreachable."""
        options, cluster = self.options, self.cluster
        if options.assign is not None:
            existing = {
                part
                for name in {name for name, _ in options.assign}
                for part in self._partitions_of(name, allow_missing)
            }
            missing = [partition for partition in options.assign if partition not in existing]
            if missing and not allow_missing:
                raise UnknownTopic(f"topic {missing[0].topic} has no partition {missing[0].partition}")
            return [partition for partition in options.assign if partition in existing]
        if options.topics is not None:
            names = options.topics
        else:
            pattern = re.compile(options.pattern or "")
            # Anywhere in a name, as Spark's own source does (Kafka's consumers, and that source with
            # spark.sql.streaming.kafka.useDeprecatedOffsetFetching=true, match whole names).
            names = [name for name in cluster.topic_names() if pattern.search(name)]
        return [partition for name in names for partition in self._partitions_of(name, allow_missing)]

    def _partitions_of(self, topic: str, allow_missing: bool) -> list[TopicPartition]:
        try:
            return self.cluster.partitions(topic)
        except UnknownTopic:
            if allow_missing:
                return []
            raise

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, bytes]:
        """Return topic ids by name, without topics that have none (before Kafka 2.8)."""
        ids = {name: self.cluster.topic(name).id for name in {partition.topic for partition in partitions}}
        return {name: topic_id for name, topic_id in ids.items() if topic_id != ZERO_UUID}

    def positions(self, boundary: Boundary, partitions: list[TopicPartition]) -> Positions:
        """Resolve a boundary to offsets. Raises InvalidOption."""
        answers = self.cluster.list_offsets(offset_lookups(boundary, partitions))
        unreached = [partition for partition, answer in answers.items() if answer.offset < 0]
        latest = self.cluster.list_offsets(dict.fromkeys(unreached, LATEST)) if boundary.or_latest else {}
        return resolve(boundary, partitions, answers, latest)

    def ends(self, partitions: Iterable[TopicPartition], time: int = LATEST) -> Positions:
        """Return the end offsets of partitions (last stable offsets with read_committed), or their offsets at `time`."""
        answers = self.cluster.list_offsets(dict.fromkeys(partitions, time))
        return {partition: answer.offset for partition, answer in answers.items()}

    def tasks(self, ranges: list[OffsetRange], ids: Mapping[str, bytes]) -> list[RangeInputPartition]:
        """Split ranges among tasks (minPartitions, maxRecordsPerPartition); `ids` are topic ids by name."""
        pieces = split(ranges, self.options.min_partitions or 1, self.options.max_records)
        return [RangeInputPartition(piece, ids.get(piece.partition.topic, ZERO_UUID)) for piece in pieces]

    # -- records, on an executor --

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task; for a batch without tasks Spark creates an empty one."""
        begin_task()
        return (
            self.read_range(partition.range, partition.topic_id)
            if isinstance(partition, RangeInputPartition)
            else iter(())
        )

    def read_range(self, piece: OffsetRange, topic_id: bytes) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range. Raises DataLoss if some were deleted, unless failOnDataLoss=false."""
        start = piece.start
        while start < piece.end:
            try:
                for batch, reached in self._batches(piece, start, topic_id):
                    start = reached
                    if batch.num_rows:
                        yield batch
                return
            except (OffsetOutOfRange, UnknownTopic) as error:
                start = self._after_loss(piece, start, error)

    def _batches(self, piece: OffsetRange, start: int, topic_id: bytes) -> Iterator[tuple[pa.RecordBatch, int]]:
        flags = column_flags(self.schema.names)
        reader = self.readers.get(flags)
        if reader is None:
            reader = self.readers[flags] = ColumnReader(flags, max_rows=_ROWS)
        topic, number = piece.partition
        position = start
        timeout = self.options.poll_timeout_ms
        for chunk in self.cluster.read(piece.partition, start, piece.end, topic_id=topic_id, timeout_ms=timeout):
            data, begin, end = chunk.batches()
            complete = begin == end
            while not complete:
                columns = reader.read(data, position, piece.end, start=begin, end=end)
                complete = columns.complete
                position = columns.next_offset
                yield record_batch(columns, topic, number, self.schema), position
            position = chunk.next_offset

    def _after_loss(self, piece: OffsetRange, start: int, error: OffsetOutOfRange | UnknownTopic) -> int:
        """Return the next offset that exists in the range, or its end. Raises DataLoss unless failOnDataLoss=false."""
        partition = piece.partition
        if isinstance(error, UnknownTopic):
            # onTopicRecreated=restart: the driver waits for the topic and reads the new one from its beginning.
            if self.options.restarts_recreated:
                return piece.end
            loss = f"{error}: offsets {start} to {piece.end} of {partition} are lost"
            earliest = piece.end
        else:
            earliest = self.cluster.list_offsets({partition: EARLIEST})[partition].offset
            loss = f"offsets {start} to {piece.end} of {partition} were deleted: the log begins at {earliest}"
        if self.options.fail_on_data_loss:
            raise DataLoss(f"{loss}. Set failOnDataLoss=false to continue with the remaining records") from None
        return min(earliest, piece.end) if earliest > start else piece.end
