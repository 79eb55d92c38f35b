"""Accumulator: collects the records of a producer in one open batch for each partition.

Strategy. A record is encoded once, directly into the bytes of its partition's open batch, in the wire format
(records/batch.py draws it); no object is kept for it. A batch is closed when the next record would make it larger than
batch.size, when linger.ms has passed, or by a flush; the header is written then. Producing and sending usually run on
different threads: one lock guards their shared state, and is held for a few hundred nanoseconds a record.

    append(record) --> open batch of the partition --full, late or flushed--> closed, for the sender to take
                         |
                         +--> memory: `buffered` counts open, closed and in-flight batches (buffer.memory)

Rows of Arrow tables take the same path (`append_rows`): a RowEncoder measures a row in the table's buffers and writes it into
the batch, without creating an object for it.

Compiled with mypyc where there is a compiler.
"""

from collections.abc import Callable
from typing import Any, Final, final

from librt.strings import BytesWriter, read_i32_le
from mypy_extensions import i64

from ottla.records.batch import NO_TIMESTAMP, wrapping_add
from ottla.records.columns import RowEncoder
from ottla.records.partitioner import partition_of
from ottla.records.record import Header
from ottla.records.varints import varint_size, write_varint

APPENDED: Final = 0
WAKE: Final = 1
"""Result of an append: appended, and the sender must run, as a batch is full or a first record began to linger."""
NO_ROOM: Final = -1
UNKNOWN_TOPIC: Final = -2
NO_PARTITION: Final = -3
TOO_LARGE: Final = -4
CLOSED: Final = -5
NEGATIVE_TIMESTAMP: Final = -6
ANY: Final = -1
"""Partition number of a record for which the partitioner chooses the partition."""

_OVERHEAD: Final = 61
"""Size of the header of a batch, in bytes."""
_RECORD_OVERHEAD: Final = 100
"""Upper bound, in bytes, of the length fields of a record plus the header of a batch."""
_TURN: Final = 1024
"""Number of rows that are appended under one hold of the lock, which the sender needs too."""


@final
class OpenBatch:
    """Batch to which records are appended.

    opened_ms  time of its first record, by the monotonic clock
    listeners  (index of the record, its timestamp, listener for its outcome)
    is_named   whether the partition of some record was given by the caller
    """

    def __init__(self, partition: i64, opened_ms: i64, base_timestamp: i64) -> None:
        self.partition: i64 = partition
        self.opened_ms: i64 = opened_ms
        self.base_timestamp: i64 = base_timestamp
        self.max_timestamp: i64 = base_timestamp
        self.count: i64 = 0
        self.size: i64 = _OVERHEAD
        self.is_named = False
        self.listeners: list[tuple[int, int, Any]] | None = None
        self._spans: list[tuple[int, int, Any]] = []
        self._counter: Any = None
        self._begin: i64 = 0
        self._end: i64 = 0
        self.out = BytesWriter()

    def payload(self) -> bytes:
        """Return the encoded records."""
        return self.out.getvalue()

    def add(self, timestamp: i64, key: bytes | None, value: bytes | None, headers: list[Header]) -> None:
        """Append a record without a check of the batch size."""
        delta: i64 = wrapping_add(timestamp, -self.base_timestamp)
        names = None if not headers else [name.encode() for name, _ in headers]
        body: i64 = content_size(key, value, headers, names) + varint_size(delta) + varint_size(self.count)
        self.write(body, delta, self.count, key, value, headers, names)
        self.count += 1
        self.size += body + varint_size(body)
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp

    def listen(self, index: int, timestamp: int, listener: Any) -> None:
        """Add a listener for the outcome of a record."""
        if self.listeners is None:
            self.listeners = []
        self.listeners.append((index, timestamp, listener))

    def count_for(self, index: i64, counter: Any) -> None:
        """Add a counter for the outcome of the next record."""
        if counter is not self._counter or index != self._end:
            self._spans = self.spans()
            self._counter = counter
            self._begin = index
        self._end = index + 1

    def spans(self) -> list[tuple[int, int, Any]]:
        """Return (index of the first record, index behind the last, counter of their outcomes) tuples."""
        if self._counter is None:
            return self._spans
        return [*self._spans, (self._begin, self._end, self._counter)]

    def write(
        self,
        body: i64,
        delta: i64,
        index: i64,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header] | None,
        names: list[bytes] | None,
    ) -> None:
        """Write a record: its length `body`, then its content. `delta` and `index` are the timestamp and offset deltas, `names`
        the encoded names of its headers."""
        out = self.out
        write_varint(out, body)
        out.append(0)
        write_varint(out, delta)
        write_varint(out, index)
        if key is None:
            write_varint(out, -1)
        else:
            write_varint(out, len(key))
            out.write(key)
        if value is None:
            write_varint(out, -1)
        else:
            write_varint(out, len(value))
            out.write(value)
        if headers and names is not None:
            write_varint(out, len(headers))
            for position, (_, content) in enumerate(headers):
                write_varint(out, len(names[position]))
                out.write(names[position])
                if content is None:
                    write_varint(out, -1)
                else:
                    write_varint(out, len(content))
                    out.write(content)
        else:
            out.append(0)


def content_size(
    key: bytes | None, value: bytes | None, headers: list[Header] | None, names: list[bytes] | None
) -> i64:
    """Return the encoded size of a record without its length field and its timestamp and offset deltas."""
    key_size: i64 = -1 if key is None else len(key)
    value_size: i64 = -1 if value is None else len(value)
    body: i64 = 1 + varint_size(key_size) + varint_size(value_size)
    if key_size > 0:
        body += key_size
    if value_size > 0:
        body += value_size
    if not headers or names is None:
        return body + 1
    body += varint_size(len(headers))
    for position, (_, content) in enumerate(headers):
        size: i64 = len(names[position])
        body += varint_size(size) + size
        size = -1 if content is None else len(content)
        body += varint_size(size)
        if size > 0:
            body += size
    return body


@final
class TopicBuffers:
    """Open batches of one topic.

    partitions  number of partitions of the topic
    sticky      current partition for records without key and partition, and the bytes appended to it (KIP-794)
    """

    def __init__(self, name: str, partitions: i64) -> None:
        self.name = name
        self.partitions: i64 = partitions
        self.open: list[OpenBatch | None] = [None] * partitions
        self.sticky: i64 = -1
        self.sticky_bytes: i64 = 0

    def resize(self, partitions: i64) -> list[OpenBatch]:
        """Change the number of partitions; return the open batches of partitions that no longer exist."""
        gone: list[OpenBatch] = []
        while self.partitions < partitions:
            self.open.append(None)
            self.partitions += 1
        while self.partitions > partitions:
            batch = self.open.pop()
            if batch is not None:
                gone.append(batch)
            self.partitions -= 1
        if self.sticky >= partitions:
            self.sticky = -1
        return gone


@final
class Sticky:
    """Kafka's default partitioner: murmur2 of the key; records without a key stick to a partition for a number of bytes
    (KIP-480, KIP-794).

    below  function that returns a random number below its argument
    """

    def __init__(self, below: Callable[[int], int], sticky_bytes: i64, ignore_keys: bool) -> None:
        self._below = below
        self._sticky_bytes: i64 = sticky_bytes if sticky_bytes > 0 else 1
        self._ignore_keys = ignore_keys

    def __call__(self, topic: TopicBuffers, key: bytes | None) -> int:
        """Return the partition of a record."""
        if key is not None and not self._ignore_keys:
            return partition_of(key, topic.partitions)
        return self._keyless(topic)

    def of_row(self, topic: TopicBuffers, rows: RowEncoder) -> i64:
        """Return the partition of the row that was measured last."""
        if not self._ignore_keys:
            chosen: i64 = rows.partition_by_key(topic.partitions)
            if chosen >= 0:
                return chosen
        return self._keyless(topic)

    def _keyless(self, topic: TopicBuffers) -> i64:
        if topic.sticky < 0 or topic.sticky_bytes >= self._sticky_bytes:
            chosen: i64 = self._below(topic.partitions)
            if chosen == topic.sticky and topic.partitions > 1:
                chosen = (chosen + 1) % topic.partitions
            topic.sticky = chosen
            topic.sticky_bytes = 0
        return topic.sticky


@final
class Accumulator:
    """Open and closed batches of a producer.

    topics    buffers of the known topics, by name
    closed    (topic, batch) in the order of closing, for the sender
    held      (topic, partition) of batches past linger.ms that stay open, because others of their partition are waiting
    ended     True if the producer is closed: no further records are appended
    buffered  bytes of memory in use
    records   number of records without an acknowledgement
    """

    def __init__(
        self,
        batch_size: i64,
        buffer_memory: i64,
        largest: i64,
        lock: Any,
        choose: Callable[[TopicBuffers, bytes | None], int],
        now_ms: Callable[[], int],
    ) -> None:
        self.topics: dict[str, TopicBuffers] = {}
        self.ended = False
        self.closed: list[tuple[str, OpenBatch]] = []
        self.held: list[tuple[str, int]] = []
        self.buffered: i64 = 0
        self.records: i64 = 0
        self._batch_size: i64 = batch_size
        self._buffer_memory: i64 = buffer_memory
        self._largest: i64 = largest - _RECORD_OVERHEAD
        self._choose = choose
        self._sticky = choose if isinstance(choose, Sticky) else None
        self._now_ms = now_ms
        self._lock = lock
        self._wake: bool = False
        self._named: bool = False
        self._body: i64 = 0
        self._total: i64 = 0
        self._delta: i64 = 0

    def append(
        self,
        name: str,
        partition: i64,
        timestamp: i64,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header] | None,
        listener: Any,
    ) -> int:
        """Append a record to the batch of its partition; return APPENDED, WAKE, or the reason of a failure. Any thread."""
        topic = self.topics.get(name)
        if topic is None:
            return UNKNOWN_TOPIC
        size: i64 = 0
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        if size > self._largest:
            return TOO_LARGE
        if timestamp < NO_TIMESTAMP:  # records of old formats have none, and may be forwarded
            return NEGATIVE_TIMESTAMP
        if self.ended:
            return CLOSED
        with self._lock:
            self._named = partition >= 0
            if partition == ANY:
                sticky = self._sticky
                partition = sticky(topic, key) if sticky is not None else self._choose(topic, key)
            if partition < 0 or partition >= topic.partitions:
                return NO_PARTITION
            return self._append(topic, partition, timestamp, key, value, headers, listener)

    def partition_for(self, topic: TopicBuffers, key: bytes | None) -> int:
        """Return the partition that the partitioner chooses for a record."""
        with self._lock:
            return self._choose(topic, key)

    def _append(
        self,
        topic: TopicBuffers,
        partition: i64,
        timestamp: i64,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header] | None,
        listener: Any,
    ) -> int:
        names = None if not headers else [name.encode() for name, _ in headers]
        self._wake = False
        batch = self._batch_for(topic, partition, timestamp, content_size(key, value, headers, names))
        if batch is None:
            return NO_ROOM
        batch.write(self._body, self._delta, batch.count, key, value, headers, names)
        if listener is not None:
            batch.listen(batch.count, timestamp, listener)
        self._count_record(topic, batch, timestamp)
        return WAKE if self._wake else APPENDED

    def append_rows(
        self,
        name: str,
        rows: RowEncoder,
        selection: bytes | None,
        begin: i64,
        partition: i64,
        row_partitions: bytes | None,
        counter: Any,
    ) -> tuple[int, int]:
        """Append rows of a table to the batches of their partitions. Return the number of appended rows, and APPENDED or WAKE,
        or the reason why the next row was not appended. Any thread.

        selection       rows to append, in this order (int32 little-endian); None: all rows
        begin           index in the selection to begin at
        partition       partition of all rows; ANY: chosen by the partitioner
        row_partitions  partition of each row of the table (int32 little-endian), ANY for rows without one
        counter         counter of the rows' outcomes

        Raises CorruptRecords if the offsets of a column reach beyond its data buffer.
        """
        topic = self.topics.get(name)
        if topic is None:
            return 0, UNKNOWN_TOPIC
        if self.ended:
            return 0, CLOSED
        with self._lock:
            return self._append_rows(topic, rows, selection, begin, partition, row_partitions, counter)

    def _append_rows(
        self,
        topic: TopicBuffers,
        rows: RowEncoder,
        selection: bytes | None,
        begin: i64,
        partition: i64,
        row_partitions: bytes | None,
        counter: Any,
    ) -> tuple[int, int]:
        sticky = self._sticky
        total: i64 = rows.rows if selection is None else len(selection) >> 2
        end: i64 = min(begin + _TURN, total)
        at: i64 = begin
        number: int
        self._wake = False
        while at < end:
            row: i64 = at
            if selection is not None:
                number = read_i32_le(selection, at * 4)
                row = number
            content: i64 = rows.measure(row)
            if content > self._largest:
                return at - begin, TOO_LARGE
            target: i64 = partition
            if row_partitions is not None:
                number = read_i32_le(row_partitions, row * 4)
                if number != ANY:
                    target = number
                    if target < 0:
                        return at - begin, NO_PARTITION
            self._named = target >= 0
            if target < 0:
                target = sticky.of_row(topic, rows) if sticky is not None else self._choose(topic, rows.key())
            if target < 0 or target >= topic.partitions:
                return at - begin, NO_PARTITION
            batch = self._batch_for(topic, target, rows.timestamp, content)
            if batch is None:
                return at - begin, NO_ROOM
            rows.write(batch.out, self._body, self._delta, batch.count)
            batch.count_for(batch.count, counter)
            self._count_record(topic, batch, rows.timestamp)
            at += 1
        return at - begin, WAKE if self._wake else APPENDED

    def _batch_for(self, topic: TopicBuffers, partition: i64, timestamp: i64, content: i64) -> OpenBatch | None:
        """Return the batch for a record of this size, None if memory is full. Sets `_body`, `_total` and `_delta` to the
        sizes and the timestamp delta of the record in this batch."""
        batch = topic.open[partition]
        body: i64
        if batch is not None:
            delta: i64 = wrapping_add(timestamp, -batch.base_timestamp)
            body = content + varint_size(delta) + varint_size(batch.count)
            total: i64 = body + varint_size(body)
            if batch.size + total <= self._batch_size:
                if self.buffered + total > self._buffer_memory:
                    return None
                self._delta = delta
                self._body = body
                self._total = total
                return batch
        body = content + 2
        total = body + varint_size(body)
        if self.buffered + total > self._buffer_memory and self.buffered > 0:
            return None
        if batch is not None:
            self.closed.append((topic.name, batch))
        batch = OpenBatch(partition, self._now_ms(), timestamp)
        topic.open[partition] = batch
        self.buffered += _OVERHEAD
        self._wake = True
        self._delta = 0
        self._body = body
        self._total = total
        return batch

    def _count_record(self, topic: TopicBuffers, batch: OpenBatch, timestamp: i64) -> None:
        """Update the state after a record was written to a batch: memory, number of records, full batches."""
        total: i64 = self._total
        if self._named:
            batch.is_named = True
        batch.count += 1
        batch.size += total
        if timestamp > batch.max_timestamp:
            batch.max_timestamp = timestamp
        self.buffered += total
        self.records += 1
        if topic.sticky == batch.partition:
            topic.sticky_bytes += total
        if batch.size >= self._batch_size:
            self.closed.append((topic.name, batch))
            topic.open[batch.partition] = None
            self._wake = True

    def close_late(self, topics: list[TopicBuffers], opened_before_ms: i64, held_by: dict[Any, None]) -> int:
        """Close the batches that were opened before a time. Return the opening time of the oldest of the others, or -1.

        held_by  (topic, partition) with waiting batches: a batch behind them cannot be sent yet, so it stays open and fills up
        """
        oldest: i64 = -1
        held: list[tuple[str, int]] = []
        with self._lock:
            for topic in topics:
                for partition, batch in enumerate(topic.open):
                    if batch is None:
                        continue
                    if batch.opened_ms < opened_before_ms:
                        if held_by and (topic.name, partition) in held_by:
                            held.append((topic.name, partition))
                            continue
                        self.closed.append((topic.name, batch))
                        topic.open[partition] = None
                    elif oldest < 0 or batch.opened_ms < oldest:
                        oldest = batch.opened_ms
            self.held = held
        return oldest

    def take_closed(self) -> list[tuple[str, OpenBatch]]:
        """Return the closed batches and remove them from the accumulator."""
        with self._lock:
            taken = self.closed
            self.closed = []
            return taken

    def release(self, size: i64, records: i64) -> None:
        """Release the memory and records of a completed batch."""
        with self._lock:
            self.buffered -= size
            self.records -= records

    def resize(self, topic: TopicBuffers, partitions: i64) -> None:
        """Change the number of partitions of a topic; close the open batches of partitions that no longer exist."""
        with self._lock:
            for batch in topic.resize(partitions):
                self.closed.append((topic.name, batch))
