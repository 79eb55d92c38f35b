"""Produces Arrow tables: columns are checked once, rows are encoded from the table's buffers (records/columns.py).

    table, batch or batches --portions()--> Portion --Accumulator.append_rows--> open batches of the partitions
                                                                                       |
                       TableReport <-- number of records appended, or their error -----+

Typical use, as in a Spark task: each Arrow batch is produced as it arrives, and buffer.memory bounds the waiting records.

    report = producer.produce_arrow(batches, "topic")   # in a transaction: between begin_transaction and commit_transaction
    producer.flush()                                    # or commit_transaction, which flushes
    report.result()                                     # raises the first error: not all records are in the log

`produce_arrow` stops reading batches as soon as a record of the table has failed; in a transaction `commit_transaction` then
raises as well, and only abort_transaction is possible. Errors of a row that are known at once (missing partition, larger than
max.request.size, memory stays full) are raised by `produce_arrow` itself; the rows before it are sent all the same.

Requires pyarrow; imported only when tables are produced.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from ottla.client.arrow import pa, pc
from ottla.client.errors import KafkaError
from ottla.client.producer.accumulator import ANY, APPENDED, NO_ROOM, UNKNOWN_TOPIC
from ottla.client.producer.core import ProducerCore
from ottla.client.topics import TopicPartition
from ottla.records import arrow
from ottla.records.batch import NO_TIMESTAMP
from ottla.records.columns import RowEncoder
from ottla.records.errors import CorruptRecords
from ottla.tasks.deferred import Deferred, completed

_MOST_BYTES: Final = 64 << 20
"""Size of an Arrow batch that is encoded as a whole, in bytes; larger ones are sliced."""


class TableDelivered(NamedTuple):
    """Result of a table whose records are all acknowledged.

    records  number of appended records
    offsets  lowest and highest offset (inclusive) of each partition; records of other producers may lie between them. Empty
             with acks=0
    """

    records: int
    offsets: dict[TopicPartition, tuple[int, int]]


class TableReport:
    """Counts the outcomes of a table's records. Used on the core's thread only, except for `error`.

    error    error of the first records that failed
    settle   called once with the error or the TableDelivered, when all rows are appended and every record has an outcome
    """

    def __init__(self, settle: Callable[[KafkaError | None, TableDelivered | None], object]) -> None:
        self.error: KafkaError | None = None
        self._settle = settle
        self._expected = -1
        self._appended = self._failed = 0
        self._offsets: dict[TopicPartition, tuple[int, int]] = {}

    def count_outcome(self, partition: TopicPartition, count: int, error: KafkaError | None, base_offset: int) -> None:
        """Count the outcome of records; see `closed.Counter`."""
        if error is not None:
            self._failed += count
            self.error = self.error or error
        else:
            self._appended += count
            if base_offset >= 0:
                low, high = self._offsets.get(partition, (base_offset, base_offset))
                self._offsets[partition] = min(low, base_offset), max(high, base_offset + count - 1)
        self._look()

    def complete(self, taken: int) -> None:
        """Set the number of records, at the end of the table."""
        self._expected = taken
        self._look()

    def _look(self) -> None:
        if self._appended + self._failed != self._expected:
            return
        error = self.error
        if error is None:
            self._settle(None, TableDelivered(self._appended, self._offsets))
        else:
            lost = f"{error} ({self._failed} of the {self._expected} records that were taken are not in the log)"
            self._settle(type(error)(lost, error.code), None)


class Portion(NamedTuple):
    """Rows of an Arrow batch for one topic, as arguments of `Accumulator.append_rows`."""

    topic: str
    rows: RowEncoder
    selection: bytes | None
    row_partitions: bytes | None
    total: int


class TableWriting:
    """Appends the rows of a table to a producer, step by step.

    data       a pyarrow Table, RecordBatch, RecordBatchReader, an iterable of batches, or an object with `__arrow_c_stream__`
    topic      topic of all rows; None: that in the column `topic`
    partition  partition of rows without one in the column `partition`; ANY: chosen by the partitioner

        while writing.advance():
            await writing.ready()
        report.complete(writing.taken)

    Raises ValueError for missing columns or unsuitable types, and the KafkaErrors of ProducerCore.append.
    """

    def __init__(
        self, producer: ProducerCore, report: TableReport, data: Any, topic: str | None, partition: int = ANY
    ) -> None:
        self.taken = 0
        self._producer = producer
        self._report = report
        self._portions = portions(data, topic, producer.core.clock.wall_ms)
        self._portion: Portion | None = None
        self._place = 0
        self._partition = partition
        self._lacks = APPENDED
        self._deadline = -1
        self._room: Deferred[None] = completed(None, producer.core.scheduler)

    def advance(self, most: int = 1 << 62) -> bool:
        """Append rows until the caller has to wait or `most` rows are appended. Return False at the end. Any thread.

        Ends early as soon as a record of the table has failed.
        """
        stop = self.taken + most
        while self.taken < stop and self._lacks not in (NO_ROOM, UNKNOWN_TOPIC):
            if self._portion is None or self._place == self._portion.total:
                self._portion = next(self._portions, None)
                self._place = 0
            if self._portion is None or self._report.error is not None:
                return False
            self._take(self._portion)
        return True

    def _take(self, portion: Portion) -> None:
        self._room = self._producer.sender.room.wait()  # before the append: memory released during it counts
        try:
            taken, self._lacks = self._producer.append_rows(
                portion.topic,
                portion.rows,
                portion.selection,
                self._place,
                self._partition,
                portion.row_partitions,
                self._report,
            )
        except CorruptRecords as damage:
            raise ValueError(f"the Arrow buffers make no sense: {damage}") from None
        self._place += taken
        self.taken += taken
        if taken:
            self._deadline = -1

    async def ready(self) -> None:
        """Wait for the topic or the memory that `advance` needs. Raises UnknownTopic, BufferExhausted after max.block.ms."""
        if self._deadline < 0:
            self._deadline = self._producer.block_deadline()
        lacks, self._lacks = self._lacks, APPENDED
        if lacks == UNKNOWN_TOPIC and self._portion is not None:
            await self._producer.learn(self._portion.topic, self._deadline)
        elif lacks == NO_ROOM:
            await self._producer.wait_for_room(self._deadline, self._room)


def portions(data: Any, topic: str | None, wall_ms: Callable[[], int]) -> Iterator[Portion]:
    """Iterate over the rows of tables, in order, topic by topic within a batch. Raises ValueError, TypeError for other data."""
    for batch in _batches(data):
        step = max(batch.num_rows * _MOST_BYTES // max(batch.nbytes, 1), 1)
        for begin in range(0, batch.num_rows, step):
            yield from _portions_of(batch.slice(begin, step), topic, wall_ms())


def _batches(data: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(data, pa.RecordBatch):
        yield data
    elif isinstance(data, pa.Table):
        yield from data.to_batches()
    elif hasattr(data, "__arrow_c_stream__"):
        yield from pa.RecordBatchReader.from_stream(data)
    elif isinstance(data, Iterable) and not isinstance(data, str | bytes):
        for part in data:
            if not isinstance(part, pa.RecordBatch | pa.Table):
                raise TypeError(f"{type(part).__name__} is no Arrow table")
            yield from _batches(part)
    else:
        raise TypeError(f"{type(data).__name__} is no Arrow table")


def _portions_of(batch: pa.RecordBatch, topic: str | None, now: int) -> Iterator[Portion]:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    if "value" not in columns:
        raise ValueError(f"the column value is missing; there are {', '.join(columns) or 'none'}")
    count = batch.num_rows
    value = _check_column("value", columns, _is_content)
    rows = RowEncoder(
        arrow.rows_of(
            pa.nulls(count, pa.binary()) if value is None else value,
            _check_column("key", columns, _is_content),
            _check_column("headers", columns, _is_list),
            _timestamps(columns, now),
        )
    )
    row_partitions = None
    if "partition" in columns:
        named = _check_column("partition", columns, pa.types.is_integer)
        if named is not None:
            _check_at_least("partition", named, 0)
            row_partitions = arrow.int32_values(pc.fill_null(named.cast(pa.int32()), ANY))
    if topic is not None:
        yield Portion(topic, rows, None, row_partitions, count)
        return
    if "topic" not in columns:
        raise ValueError("where to write is not said: name a topic, or add a column topic")
    topics = _check_column("topic", columns, _is_content)
    if topics is None or topics.null_count:
        raise ValueError("a row has no topic: the column is null and no topic is named")
    codes = topics if pa.types.is_dictionary(topics.type) else topics.dictionary_encode()
    for code, name in enumerate(codes.dictionary.cast(pa.string()).to_pylist()):
        chosen = pc.indices_nonzero(pc.equal(codes.indices, code)).cast(pa.int32())
        if len(chosen):
            selection = None if len(chosen) == count else arrow.int32_values(chosen)
            yield Portion(name, rows, selection, row_partitions, len(chosen))


def _timestamps(columns: dict[str, pa.Array], now: int) -> pa.Array | int:
    """Return the timestamps of the rows in ms, as a column or one value for all; rows without a timestamp get `now`."""
    array = _check_column("timestamp", columns, lambda kind: pa.types.is_timestamp(kind) or pa.types.is_integer(kind))
    if array is None:
        return now
    moments = arrow.milliseconds(array)
    _check_at_least("timestamp", moments, NO_TIMESTAMP)
    return pc.fill_null(moments, now)


def _check_at_least(name: str, array: pa.Array, least: int) -> None:
    """Check that no value of a column is below `least`. Raises ValueError."""
    smallest = pc.min(array).as_py()
    if smallest is not None and smallest < least:
        raise ValueError(f"column {name} has the value {smallest}: it must not be negative (null for none)")


def _check_column(name: str, columns: dict[str, pa.Array], fits: Callable[[pa.DataType], bool]) -> pa.Array | None:
    """Return a column, None if it is missing or all null. Raises ValueError for a wrong type."""
    array = columns.get(name)
    if array is None or pa.types.is_null(array.type):
        return None
    if not fits(array.type):
        raise ValueError(f"column {name} is {array.type}, it must be {_WANTED[name]}")
    return array


def _is_content(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        return bool(_is_content(kind.value_type))
    return any(
        fits(kind)
        for fits in (
            types.is_binary,
            types.is_string,
            types.is_large_binary,
            types.is_large_string,
            types.is_binary_view,
            types.is_string_view,
            types.is_fixed_size_binary,
        )
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind))


_WANTED: Final = {
    "key": "string or binary",
    "value": "string or binary",
    "topic": "string",
    "headers": "list<struct<key: string, value: binary>>",
    "partition": "a column of integers",
    "timestamp": "a timestamp, or integers (ms)",
}
