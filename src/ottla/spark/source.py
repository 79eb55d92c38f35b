"""format("ottla"): topics as a batch or a stream of rows.

Strategy: the driver's side decides which offsets are read, an executor reads one range of one partition, whole batches at a
time, as Arrow record batches over column buffers: nothing is done per row. `offsets.py` holds the decisions, `options.py` what
a user may say. Columns are those of Spark's own Kafka source; a user schema with fewer of them is a projection, and what is not
in it is never decoded (Spark does not prune columns of Python sources itself).

    key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int
    [, headers array<struct<key string, value binary>>]        with includeHeaders

A stream long-polls in latestOffset for a moment when there is nothing new: Spark asks again every 10 ms otherwise.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.client.cluster import Cluster
from ottla.client.consumer.fetching import fetch_batches, wait_for_records
from ottla.client.errors import OffsetOutOfRange, UnknownTopic
from ottla.client.topics import EARLIEST, LATEST, TopicPartition
from ottla.records.arrow import TYPES, column_flags, record_batch
from ottla.records.columns import ColumnReader
from ottla.spark.connections import cluster_of
from ottla.spark.offsets import (
    Boundary,
    DataLoss,
    InvalidOption,
    Positions,
    Range,
    check_order,
    from_json,
    limited,
    questions,
    ranges,
    resolved,
    split,
    to_json,
)
from ottla.spark.options import SourceOptions, has_headers, sink_options, source_options
from ottla.spark.sink import OttlaStreamWriter, OttlaWriter

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
COLUMNS: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
HEADERS: Final = StructField("headers", ArrayType(_HEADER))
_ALL: Final = {field.name: field.dataType for field in (*COLUMNS.fields, HEADERS)}

# Rows of one Arrow batch at most: beyond some ten thousand Spark gains nothing, and memory grows.
_ROWS: Final = 50_000
# How long latestOffset waits for something new. Another source of the same query waits as long, so it is not long.
_WAIT_MS: Final = 100
# A leader that was just elected may for a moment name an end below the one that was seen before.
_LOOKS: Final = 3


class OttlaDataSource(DataSource):
    """What Spark makes of format("ottla")."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        return StructType([*COLUMNS.fields, HEADERS]) if has_headers(self.options) else COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return OttlaReader(source_options(self.options, stream=False), arrow_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        return OttlaStreamReader(source_options(self.options, stream=True), arrow_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise InvalidOption('a topic cannot be overwritten: use mode("append")')
        return OttlaWriter(sink_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        if overwrite:
            raise InvalidOption('a topic cannot be overwritten: use outputMode("append") or "update"')
        return OttlaStreamWriter(sink_options(self.options), schema)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of what Spark wants: all columns, or those of the user's schema. Raises InvalidOption."""
    return pa.schema([_arrow_field(field) for field in schema.fields])


def _arrow_field(field: StructField) -> pa.Field:
    ours = _ALL.get(field.name)
    if ours is None:
        raise InvalidOption(f"{field.name} is no column of a topic; there are {', '.join(_ALL)}")
    if field.dataType != ours:
        raise InvalidOption(f"column {field.name} is {ours.simpleString()}, not {field.dataType.simpleString()}")
    if not field.nullable and field.name in ("key", "value"):
        raise InvalidOption(f"column {field.name} may be null, so it cannot be NOT NULL")
    return pa.field(field.name, TYPES[field.name], nullable=field.nullable)


class OffsetRange(InputPartition):
    """What one task reads."""

    def __init__(self, piece: Range) -> None:
        super().__init__(tuple(piece))
        self.range = piece


class _Source:
    """What batch and stream share: which partitions, from where, and how one range is read."""

    readers: ClassVar[dict[int, ColumnReader]] = {}

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self.options = options
        self.schema = schema

    @property
    def cluster(self) -> Cluster:
        return cluster_of(self.options.config)

    def found_partitions(self, *, what_is_left: bool = False) -> list[TopicPartition]:
        """Every partition the query reads now. Raises UnknownTopic unless `what_is_left` will do, BrokersUnreachable."""
        options, cluster = self.options, self.cluster
        if options.assign is not None:
            there = {part for name in {name for name, _ in options.assign} for part in self._of(name, what_is_left)}
            missing = [partition for partition in options.assign if partition not in there]
            if missing and not what_is_left:
                raise UnknownTopic(f"topic {missing[0].topic} has no partition {missing[0].partition}")
            return [partition for partition in options.assign if partition in there]
        if options.topics is not None:
            names = options.topics
        else:
            pattern = re.compile(options.pattern or "")
            names = [name for name in cluster.topic_names() if pattern.fullmatch(name)]
        return [partition for name in names for partition in self._of(name, what_is_left)]

    def _of(self, topic: str, may_be_gone: bool) -> list[TopicPartition]:
        try:
            return self.cluster.partitions(topic)
        except UnknownTopic:
            if may_be_gone:
                return []
            raise

    def positions(self, boundary: Boundary, partitions: list[TopicPartition]) -> Positions:
        """A boundary as offsets. Raises InvalidOption."""
        found = self.cluster.list_offsets(questions(boundary, partitions))
        unreached = [partition for partition, answer in found.items() if answer.offset < 0]
        latest = self.cluster.list_offsets(dict.fromkeys(unreached, LATEST)) if boundary.or_latest else {}
        return resolved(boundary, partitions, found, latest)

    def ends(self, partitions: list[TopicPartition], time: int = LATEST) -> Positions:
        """Where partitions end (last stable offset under read_committed) or, with EARLIEST, begin."""
        found = self.cluster.list_offsets(dict.fromkeys(partitions, time))
        return {partition: found[partition].offset for partition in partitions}

    def read_range(self, piece: Range) -> Iterator[pa.RecordBatch]:
        """The records of a range. Raises DataLoss when some are gone, unless failOnDataLoss is false."""
        start = piece.start
        while start < piece.end:
            try:
                for batch, reached in self._batches(piece, start):
                    start = reached
                    if batch.num_rows:
                        yield batch
                return
            except (OffsetOutOfRange, UnknownTopic) as error:
                start = self._after_loss(piece, start, error)

    def _batches(self, piece: Range, start: int) -> Iterator[tuple[pa.RecordBatch, int]]:
        flags = column_flags(self.schema.names)
        reader = self.readers.get(flags)
        if reader is None:
            reader = self.readers[flags] = ColumnReader(flags, max_rows=_ROWS)
        topic, number = piece.partition
        position = start
        timeout = self.options.poll_timeout_ms
        for fetched in fetch_batches(self.cluster, piece.partition, start, piece.end, timeout_ms=timeout):
            complete = not fetched.data
            while not complete:
                columns = reader.read(fetched.data, position, piece.end)
                complete = columns.complete
                position = columns.next_offset
                yield record_batch(columns, topic, number, self.schema), position
            position = fetched.next_offset

    def _after_loss(self, piece: Range, start: int, error: OffsetOutOfRange | UnknownTopic) -> int:
        """Where reading goes on when failOnDataLoss is false: at the beginning of what is left, or not at all."""
        partition = piece.partition
        if isinstance(error, UnknownTopic):
            gone = f"{error}: offsets {start} to {piece.end} of {partition} are gone"
            earliest = piece.end
        else:
            earliest = self.cluster.list_offsets({partition: EARLIEST})[partition].offset
            gone = f"offsets {start} to {piece.end} of {partition} are gone: the log begins at {earliest}"
        if self.options.fail_on_data_loss:
            raise DataLoss(f"{gone}. failOnDataLoss=false goes on with what is left") from None
        return min(earliest, piece.end) if earliest > start else piece.end


class OttlaReader(_Source, DataSourceReader):
    """A batch read: the offsets are fixed when it is planned."""

    def partitions(self) -> Sequence[InputPartition]:
        found = self.found_partitions()
        start = self.positions(self.options.start, found)
        end = self._ending(found)
        check_order(start, end, self.options.start.option, self.options.end.option)
        pieces, _ = ranges(start, end)
        return [OffsetRange(piece) for piece in split(pieces, self.options.min_partitions or 1)]

    def _ending(self, found: list[TopicPartition]) -> Positions:
        """Where the read ends. Raises DataLoss for offsets that were named and are not there (yet), unless allowed."""
        end = self.positions(self.options.end, found)
        if self.options.end.offsets is None:
            return end
        latest = self.ends(found)
        beyond = [partition for partition in found if end[partition] > latest[partition]]
        if beyond and self.options.fail_on_data_loss:
            first = beyond[0]
            raise DataLoss(
                f"endingOffsets names offset {end[first]} of {first}, which ends at {latest[first]}. "
                "failOnDataLoss=false reads what is there"
            )
        return {partition: min(end[partition], latest[partition]) for partition in found}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes one empty partition of none.
        return self.read_range(partition.range) if isinstance(partition, OffsetRange) else iter(())


class OttlaStreamReader(_Source, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. Spark keeps one of these on the driver for offsets; copies of another read on the executors."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._initial: Positions | None = None
        self._target: Positions | None = None
        self._highest: Positions = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        # Asked twice for batch 0: a second look at the end would lose what came in between.
        if self._initial is None:
            self._initial = self.positions(self.options.start, self.found_partitions())
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows = self.options.max_offsets
        return ReadMaxRows(rows) if rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.cluster.forget()
        try:
            self._target = self.ends(self.found_partitions())
        except UnknownTopic:
            # Whether that is a loss, or a name that was never there, is said by who is asked for offsets next.
            self._target = None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        known = from_json(start)
        if self._target is not None:
            if any(offset < known.get(partition, 0) for partition, offset in self._target.items()):
                self._target = self._latest(known)
            latest = self._target
        else:
            latest = self._latest(known)
            if latest == known and latest and self._something_came(latest):
                latest = self._latest(known)
        self._highest = latest
        if isinstance(limit, ReadMaxRows):
            latest = limited(self._with_new(known, latest), latest, limit.max_rows)
        return to_json(latest)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return to_json(self._highest)

    def _something_came(self, positions: Positions) -> bool:
        """Whether there may be something new, after a moment's wait."""
        try:
            return wait_for_records(self.cluster, positions, _WAIT_MS)
        except UnknownTopic:
            return True

    def _latest(self, known: Positions) -> Positions:
        """The ends now. One that went back is looked at again; if it stays, `partitions` calls it data loss."""
        try:
            found = self.found_partitions()
        except UnknownTopic as error:
            if self.options.fail_on_data_loss:
                raise DataLoss(f"{error}. failOnDataLoss=false goes on without it") from None
            found = self.found_partitions(what_is_left=True)
        latest = self.ends(found)
        for look in range(1, _LOOKS):
            if all(latest[partition] >= known.get(partition, 0) for partition in latest):
                break
            self.cluster.forget()
            self.cluster.pause(self.cluster.backoff_ms(look))
            latest = self.ends(found)
        return latest

    def _with_new(self, start: Positions, end: Positions) -> Positions:
        """`start` with partitions that came since: they are read from their beginning."""
        new = [partition for partition in end if partition not in start]
        return {**start, **self.ends(new, EARLIEST)} if new else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        until = from_json(end)
        pieces, lost = ranges(self._with_new(from_json(start), until), until)
        if lost and self.options.fail_on_data_loss:
            raise DataLoss(f"{'; '.join(lost)}. failOnDataLoss=false goes on with what is left")
        return [OffsetRange(piece) for piece in split(pieces, self.options.min_partitions or 1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.read_range(partition.range) if isinstance(partition, OffsetRange) else iter(())
