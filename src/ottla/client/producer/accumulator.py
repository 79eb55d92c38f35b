"""Records on their way into batches: the part of a producer that every record passes.

Strategy. A record is written once, straight into the bytes of its partition's open batch, in the form in which it will travel
(records/batch.py draws it); no object is kept for it. A batch is closed when the next record would make it larger than
batch.size, when linger.ms is over, or by a flush; only then does it get a header. Whoever produces and whoever sends are
different threads as a rule: what both touch is guarded by one lock, held for a few hundred nanoseconds a record.

    append(record) --> open batch of the partition --full, late or flushed--> closed, for the sender to take
                         |
                         +--> memory: `buffered` counts what is open, closed or on its way (buffer.memory)

Compiled with mypyc where there is a compiler.
"""

from collections.abc import Callable
from typing import Any, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from ottla.records.batch import wrapped
from ottla.records.partitioner import partition_of
from ottla.records.record import Header
from ottla.records.varints import varint_size, write_varint

APPENDED: Final = 0
WAKE: Final = 1
"""Appended, and the sender should look: a batch is full, or the first record of one began to wait."""
NO_ROOM: Final = -1
UNKNOWN_TOPIC: Final = -2
NO_PARTITION: Final = -3
TOO_LARGE: Final = -4
CLOSED: Final = -5
ANY: Final = -1
"""A record that names no partition."""

_OVERHEAD: Final = 61
"""Bytes of a batch's header."""
_RECORD_OVERHEAD: Final = 100
"""More than what a record's lengths and a batch's header take."""


@final
class OpenBatch:
    """A batch that takes records.

    opened_ms  when its first record came, of the clock that never goes back
    listeners  (index of the record, its timestamp, who wants to hear of it)
    """

    def __init__(self, partition: i64, opened_ms: i64, base_timestamp: i64) -> None:
        self.partition: i64 = partition
        self.opened_ms: i64 = opened_ms
        self.base_timestamp: i64 = base_timestamp
        self.max_timestamp: i64 = base_timestamp
        self.count: i64 = 0
        self.size: i64 = _OVERHEAD
        self.listeners: list[tuple[int, int, Any]] | None = None
        self.out = BytesWriter()

    def payload(self) -> bytes:
        """The records, as they travel."""
        return self.out.getvalue()

    def add(self, timestamp: i64, key: bytes | None, value: bytes | None, headers: list[Header]) -> None:
        """Take a record, whatever the size of the batch becomes."""
        delta: i64 = wrapped(timestamp, -self.base_timestamp)
        names = None if not headers else [name.encode() for name, _ in headers]
        body: i64 = body_size(delta, self.count, key, value, headers, names)
        self.write(body, delta, self.count, key, value, headers, names)
        self.count += 1
        self.size += body + varint_size(body)
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp

    def listen(self, index: int, timestamp: int, listener: Any) -> None:
        """Somebody wants to hear what becomes of a record."""
        if self.listeners is None:
            self.listeners = []
        self.listeners.append((index, timestamp, listener))

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
        """Write a record of `body` bytes behind its length; `delta` and `index` are its distances from the batch's first
        timestamp and record, `names` the names of its headers."""
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


def body_size(
    delta: i64,
    index: i64,
    key: bytes | None,
    value: bytes | None,
    headers: list[Header] | None,
    names: list[bytes] | None,
) -> i64:
    """Bytes of a record behind its length."""
    key_size: i64 = -1 if key is None else len(key)
    value_size: i64 = -1 if value is None else len(value)
    body: i64 = 1 + varint_size(delta) + varint_size(index) + varint_size(key_size) + varint_size(value_size)
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
    """The open batches of one topic.

    partitions  how many the topic has
    sticky      where records without key and partition go for now, and how many bytes have gone there (KIP-794)
    """

    def __init__(self, name: str, partitions: i64) -> None:
        self.name = name
        self.partitions: i64 = partitions
        self.open: list[OpenBatch | None] = [None] * partitions
        self.sticky: i64 = -1
        self.sticky_bytes: i64 = 0

    def grow(self, partitions: i64) -> None:
        """The topic has more partitions now."""
        while self.partitions < partitions:
            self.open.append(None)
            self.partitions += 1


@final
class Sticky:
    """Kafka's own partitioner: a key decides by murmur2; records without one stay with a partition until a batch's worth has
    gone there (KIP-480, KIP-794).

    below  a random number below another one
    """

    def __init__(self, below: Callable[[int], int], batch_size: i64, ignore_keys: bool) -> None:
        self._below = below
        self._batch_size: i64 = batch_size if batch_size > 0 else 1
        self._ignore_keys = ignore_keys

    def __call__(self, topic: TopicBuffers, key: bytes | None) -> int:
        """The partition of a record."""
        if key is not None and not self._ignore_keys:
            return partition_of(key, topic.partitions)
        if topic.sticky < 0 or topic.sticky_bytes >= self._batch_size:
            chosen: i64 = self._below(topic.partitions)
            if chosen == topic.sticky and topic.partitions > 1:
                chosen = (chosen + 1) % topic.partitions
            topic.sticky = chosen
            topic.sticky_bytes = 0
        return topic.sticky


@final
class Accumulator:
    """The open and closed batches of a producer.

    topics    what is known, by name
    closed    (topic, batch) in the order of closing, for the sender to take
    ended     nothing is taken any more
    buffered  bytes of memory in use
    records   that are not acknowledged
    """

    def __init__(
        self,
        batch_size: i64,
        buffer_memory: i64,
        largest: i64,
        lingers: bool,
        lock: Any,
        choose: Callable[[TopicBuffers, bytes | None], int],
        now_ms: Callable[[], int],
    ) -> None:
        self.topics: dict[str, TopicBuffers] = {}
        self.ended = False
        self.closed: list[tuple[str, OpenBatch]] = []
        self.buffered: i64 = 0
        self.records: i64 = 0
        self._batch_size: i64 = batch_size
        self._buffer_memory: i64 = buffer_memory
        self._largest: i64 = largest - _RECORD_OVERHEAD
        self._choose = choose
        self._sticky = choose if isinstance(choose, Sticky) else None
        self._now_ms = now_ms
        self._lingers: bool = lingers
        self._lock = lock

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
        """Write a record into its partition's batch: APPENDED or WAKE, or why not. Any thread."""
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
        if self.ended:
            return CLOSED
        with self._lock:
            if partition < 0:
                sticky = self._sticky
                partition = sticky(topic, key) if sticky is not None else self._choose(topic, key)
            if partition < 0 or partition >= topic.partitions:
                return NO_PARTITION
            return self._append(topic, partition, timestamp, key, value, headers, listener)

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
        batch = topic.open[partition]
        wake = False
        base: i64 = timestamp if batch is None else batch.base_timestamp
        index: i64 = 0 if batch is None else batch.count
        delta: i64 = wrapped(timestamp, -base)
        names = None if not headers else [name.encode() for name, _ in headers]
        body: i64 = body_size(delta, index, key, value, headers, names)
        total: i64 = body + varint_size(body)
        if self.buffered + total > self._buffer_memory and self.buffered > 0:
            return NO_ROOM
        if batch is not None and batch.size + total > self._batch_size:
            self.closed.append((topic.name, batch))
            topic.open[partition] = None
            batch = None
            wake = True
            body += varint_size(0) - varint_size(delta) + varint_size(0) - varint_size(index)
            total = body + varint_size(body)
            index = 0
            delta = 0
        if batch is None:
            batch = OpenBatch(partition, self._now_ms(), timestamp)
            topic.open[partition] = batch
            self.buffered += _OVERHEAD
            wake = True
        batch.write(body, delta, index, key, value, headers, names)
        if listener is not None:
            batch.listen(index, timestamp, listener)
        batch.count = index + 1
        batch.size += total
        if timestamp > batch.max_timestamp:
            batch.max_timestamp = timestamp
        self.buffered += total
        self.records += 1
        if topic.sticky == partition:
            topic.sticky_bytes += total
        if batch.size >= self._batch_size or not self._lingers:
            self.closed.append((topic.name, batch))
            topic.open[partition] = None
            wake = True
        return WAKE if wake else APPENDED

    def close_late(self, topics: list[TopicBuffers], opened_before_ms: i64) -> int:
        """Close the batches that were opened before a moment; the moment at which the oldest that is left was opened, -1
        when none is."""
        oldest: i64 = -1
        with self._lock:
            for topic in topics:
                for partition, batch in enumerate(topic.open):
                    if batch is None:
                        continue
                    if batch.opened_ms < opened_before_ms:
                        self.closed.append((topic.name, batch))
                        topic.open[partition] = None
                    elif oldest < 0 or batch.opened_ms < oldest:
                        oldest = batch.opened_ms
        return oldest

    def take_closed(self) -> list[tuple[str, OpenBatch]]:
        """What was closed, which is the caller's from now on."""
        with self._lock:
            taken = self.closed
            self.closed = []
            return taken

    def release(self, size: i64, records: i64) -> None:
        """A batch is done with."""
        with self._lock:
            self.buffered -= size
            self.records -= records

    def grow(self, topic: TopicBuffers, partitions: i64) -> None:
        """A topic has more partitions now."""
        with self._lock:
            topic.grow(partitions)
