"""Search for messages: reads ranges of partitions within a limit of time, and keeps the records that pass the filters.

Forwards from an offset or time, partition by partition positions are returned to continue from. Backwards from the end, in
windows that grow, as the newest messages are needed first and their number is not known when there is a filter.
"""

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

Offsets = Mapping[TopicPartition, int]


class SearchResult(NamedTuple):
    """Result of a search.

    records    in order of time
    scanned    number of records that were read
    next       forwards: offsets to continue from, empty at the end; backwards: offsets of the oldest records read
    timed_out  the limit of time ended the search
    """

    records: list[Record]
    scanned: int
    next: dict[TopicPartition, int]
    timed_out: bool


class MessageSearch:
    """A search on a consumer that it has to itself.

    limit        most records to return
    deadline_ms  on the clock's monotonic time
    """

    def __init__(self, consumer: Consumer, matches: RecordFilter, limit: int, clock: Clock, deadline_ms: int) -> None:
        self._consumer = consumer
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
        records, positions = await self._read(starts, ends, self._limit)
        rest = {partition: offset for partition, offset in positions.items() if offset < ends[partition]}
        records.sort(key=lambda record: (record.timestamp, record.partition, record.offset))
        return SearchResult(records, self._scanned, dict(positions) if rest else {}, self._left_s <= 0 and bool(rest))

    async def backwards(self, starts: Offsets, ends: Offsets) -> SearchResult:
        """Return the last records before `ends`."""
        records: list[Record] = []
        highs = dict(ends)
        largest = max(self._limit, _LARGEST_WINDOW // max(1, len(highs)))
        window = self._limit if not self._matches else max(_FIRST_WINDOW, self._limit)
        while len(records) < self._limit and self._left_s > 0:
            lows = {partition: max(starts[partition], high - window) for partition, high in highs.items()}
            if all(lows[partition] >= high for partition, high in highs.items()):
                break
            matching, positions = await self._read(lows, highs, None)
            records += matching
            if any(positions[partition] < high for partition, high in highs.items()):
                break  # out of time within a window
            highs, window = lows, min(window * 4, largest)
        records.sort(key=lambda record: (record.timestamp, record.partition, record.offset))
        oldest = dict(highs)
        for record in records[: -self._limit]:  # left out here: the next page must have them
            partition = TopicPartition(record.topic, record.partition)
            oldest[partition] = max(oldest[partition], record.offset + 1)
        records = records[-self._limit :]
        remaining = any(oldest[partition] > starts[partition] for partition in oldest)
        return SearchResult(records, self._scanned, oldest if remaining else {}, self._left_s <= 0 and remaining)

    async def _read(
        self, starts: Offsets, ends: Offsets, limit: int | None
    ) -> tuple[list[Record], dict[TopicPartition, int]]:
        """Read up to `limit` matching records between these offsets; return them and the positions after them."""
        records: list[Record] = []
        positions = dict(starts)
        open_partitions = [partition for partition in starts if starts[partition] < ends[partition]]
        self._consumer.assign(open_partitions)
        for partition in open_partitions:
            self._consumer.seek(partition, starts[partition])
        while open_partitions and self._left_s > 0 and (limit is None or len(records) < limit):
            for record in await self._consumer.consume(_CHUNK, timeout=min(_POLL_S, max(self._left_s, 0.001))):
                partition = TopicPartition(record.topic, record.partition)
                if record.offset >= ends[partition]:
                    continue
                if self._left_s <= 0 or (limit is not None and len(records) >= limit):
                    return records, positions  # what was not examined is after the positions
                positions[partition] = record.offset + 1
                self._scanned += 1
                if self._matches(record):
                    records.append(record)
            for partition in open_partitions:
                # The position moves past transaction markers and compacted offsets, where no record comes.
                positions[partition] = max(positions[partition], await self._consumer.position(partition, self._left_s))
            ended = [partition for partition in open_partitions if positions[partition] >= ends[partition]]
            if ended:
                self._consumer.pause(ended)
                open_partitions = [partition for partition in open_partitions if partition not in ended]
        return records, positions
