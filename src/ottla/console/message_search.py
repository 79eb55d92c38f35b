"""Search for messages: reads ranges of partitions within a limit of time, and keeps the records that pass the filters.

Forwards from an offset or time, partition by partition positions are returned to continue from. Backwards from the end, in
windows that grow, as the newest messages are needed first and their number is not known when there is a filter.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.client.aio import Consumer
from ottla.client.topics import TopicPartition
from ottla.console.record_filter import RecordFilter
from ottla.environment import Clock
from ottla.records.record import Record

_CHUNK: Final = 500
_FIRST_WINDOW: Final = 500
_LARGEST_WINDOW: Final = 100_000
"""Most records of a window, over all partitions: one that takes longer than the limit of time makes no progress."""
_POLL_S: Final = 0.5
MOST_BYTES: Final = 64 << 20
"""Bytes of keys, values and headers that a search keeps."""

Offsets = Mapping[TopicPartition, int]


class SearchResult(NamedTuple):
    """Result of a search.

    records    in order of time
    scanned    number of records that were read
    next       forwards: offsets to continue from, empty at the end; backwards: offsets of the oldest records read
    timed_out  the limit of time ended the search
    is_full    the limit of bytes ended the search
    """

    records: list[Record]
    scanned: int
    next: dict[TopicPartition, int]
    timed_out: bool
    is_full: bool = False


class MessageSearch:
    """A search on a consumer that it has to itself.

    limit        most records to return
    deadline_ms  on the clock's monotonic time
    """

    def __init__(self, consumer: Consumer, matches: RecordFilter, limit: int, clock: Clock, deadline_ms: int) -> None:
        self._consumer = consumer
        self._most_bytes = MOST_BYTES
        self._matches = matches
        self._limit = limit
        self._clock = clock
        self._deadline_ms = deadline_ms
        self._scanned = 0

    @property
    def _left_s(self) -> float:
        return (self._deadline_ms - self._clock.now_ms()) / 1000

    async def forwards(self, starts: Offsets, ends: Offsets) -> SearchResult:
        """Return the first records from `starts` on."""
        kept = _Kept(self._most_bytes)
        positions = await self._read(starts, ends, kept, self._limit)
        rest = {partition: offset for partition, offset in positions.items() if offset < ends[partition]}
        records = kept.in_order()
        next_positions = dict(positions) if rest else {}
        return SearchResult(
            records, self._scanned, next_positions, self._left_s <= 0 and bool(rest), kept.is_full and bool(rest)
        )

    async def backwards(self, starts: Offsets, ends: Offsets) -> SearchResult:
        """Return the last records before `ends`."""
        kept = _Kept(self._most_bytes)
        highs = dict(ends)
        largest = max(self._limit, _LARGEST_WINDOW // max(1, len(highs)))
        window = self._limit if not self._matches else max(_FIRST_WINDOW, self._limit)
        while len(kept.records) < self._limit and not kept.is_full and self._left_s > 0:
            lows = {partition: max(starts[partition], high - window) for partition, high in highs.items()}
            if all(lows[partition] >= high for partition, high in highs.items()):
                break
            newer = kept.records
            kept.records = deque()  # what does not fit any more is dropped from the beginning of this window
            positions = await self._read(lows, highs, kept, None)
            kept.records += newer
            if any(positions[partition] < high for partition, high in highs.items()):
                break  # out of time within a window
            highs, window = lows, min(window * 4, largest)
        records = kept.in_order()
        oldest = dict(highs)
        for partition, offset in kept.dropped.items():
            oldest[partition] = max(oldest[partition], offset + 1)
        for record in records[: -self._limit]:  # left out here: the next page must have them
            partition = TopicPartition(record.topic, record.partition)
            oldest[partition] = max(oldest[partition], record.offset + 1)
        records = records[-self._limit :]
        remaining = any(oldest[partition] > starts[partition] for partition in oldest)
        timed_out, is_full = self._left_s <= 0 and remaining, kept.is_full and remaining
        return SearchResult(records, self._scanned, oldest if remaining else {}, timed_out, is_full)

    async def _read(
        self, starts: Offsets, ends: Offsets, kept: "_Kept", limit: int | None
    ) -> dict[TopicPartition, int]:
        """Add matching records between these offsets to `kept`, and return the positions after them.

        limit  the first records until there are so many, or no more bytes fit; None: all, of which the last ones are kept
        """
        positions = dict(starts)
        open_partitions = [partition for partition in starts if starts[partition] < ends[partition]]
        self._consumer.assign(open_partitions)
        for partition in open_partitions:
            self._consumer.seek(partition, starts[partition])
        while open_partitions and self._left_s > 0 and not kept.has(limit):
            for record in await self._consumer.consume(_CHUNK, timeout=min(_POLL_S, max(self._left_s, 0.001))):
                partition = TopicPartition(record.topic, record.partition)
                if record.offset >= ends[partition]:
                    continue
                if self._left_s <= 0 or kept.has(limit):
                    return positions  # what was not examined is after the positions
                positions[partition] = record.offset + 1
                self._scanned += 1
                if self._matches(record):
                    kept.add(record)
                    if limit is None:
                        kept.drop_first()
            for partition in open_partitions:
                # The position moves past transaction markers and compacted offsets, where no record comes.
                positions[partition] = max(positions[partition], await self._consumer.position(partition, self._left_s))
            ended = [partition for partition in open_partitions if positions[partition] >= ends[partition]]
            if ended:
                self._consumer.pause(ended)
                open_partitions = [partition for partition in open_partitions if partition not in ended]
        return positions


class _Kept:
    """Records of a search, within a limit of bytes.

    dropped  offset of the last record of a partition that was dropped
    """

    def __init__(self, most_bytes: int) -> None:
        self.records: deque[Record] = deque()
        self.dropped: dict[TopicPartition, int] = {}
        self._most_bytes = most_bytes
        self._bytes = 0
        self.is_full = False

    def has(self, limit: int | None) -> bool:
        """Return whether there are `limit` records, or no more bytes fit; never without a limit."""
        return limit is not None and (len(self.records) >= limit or self.is_full)

    def add(self, record: Record) -> None:
        """Add a record, whatever its size."""
        self.records.append(record)
        self._bytes += _size(record)
        self.is_full = self.is_full or self._bytes >= self._most_bytes

    def drop_first(self) -> None:
        """Drop the first records until the rest fits; one is kept."""
        while self._bytes > self._most_bytes and len(self.records) > 1:
            record = self.records.popleft()
            self._bytes -= _size(record)
            self.dropped[TopicPartition(record.topic, record.partition)] = record.offset

    def in_order(self) -> list[Record]:
        """Return the records in order of time."""
        return sorted(self.records, key=lambda record: (record.timestamp, record.partition, record.offset))


def _size(record: Record) -> int:
    """Return the bytes of key, value and headers."""
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(value or b"") for name, value in record.headers)
