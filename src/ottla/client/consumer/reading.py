"""Reader of fetched chunks: the application's thread takes records from chunks that the core's thread has fetched.

Two threads share a `ChunkReader`: that of the application and that of the core. With `ottla.aio` they are the same thread.

    application's thread    take, take_many, peek_many, advance, take_batches and their callees. They own the open chunk
                            (`_chunk`, `_records`, `_next`) and take chunks from the left of `Fetcher.chunks`.
    core's thread           all methods of ConsumerCore. Those that replace or drop the open chunk, or reorder `Fetcher.chunks`,
                            run only while the application's thread waits for them to return: inside `wait` (changes of the
                            assignment, listeners, automatic commits) or inside another call (seek, pause, assign, close).

There are no locks. Each value that both threads use concurrently is safe by itself: the core sets `attention`, which `wait`
clears; the application increments `polls`; the core appends to the right of `Fetcher.chunks`; a stale chunk stays stale, so
`_next_chunk` can skip it at any time. A finished chunk is returned through `more_room`, which the blocking consumer posts to
the core's thread, because `Fetcher.release_chunk` sends requests.
"""

from collections.abc import Callable

from ottla.client.consumer.chunks import Batches, Chunk
from ottla.client.consumer.fetcher import Fetcher
from ottla.client.consumer.positions import UNKNOWN, ConsumerPositions
from ottla.client.errors import IllegalState, KafkaError
from ottla.client.topics import TopicPartition
from ottla.records.record import Record


class ChunkReader:
    """Part of a consumer that runs on the application's thread.

    attention  True if the application must call `wait` before it gets more records: for a listener, an error, a rebalance
    polls      number of calls by which the application requested records
    more_room  returns a finished chunk to the fetcher; the blocking consumer replaces it to reach the core's thread
    """

    def __init__(self, positions: ConsumerPositions, fetcher: Fetcher) -> None:
        self.attention = False
        self.polls = 0
        self.more_room: Callable[[Chunk], None] = fetcher.release_chunk
        self._positions = positions
        self._fetcher = fetcher
        self._chunk: Chunk | None = None
        self._records: list[Record] = []
        self._next = 0

    def take(self) -> Record | None:
        """Return the next fetched record; None if there is no record, or if `attention` is set. Raises CorruptBatch."""
        self.polls += 1
        if self.attention:
            return None
        while True:
            if self._next < len(self._records):
                record = self._records[self._next]
                self._next += 1
                return record
            if not self._open_chunk():
                return None

    def take_many(self, most: int) -> list[Record]:
        """Return up to `most` fetched records. Raises CorruptBatch; if records come before it, `wait` raises it later."""
        self.polls += 1
        records: list[Record] = []
        while len(records) < most and not self.attention:
            part = self._records[self._next : self._next + most - len(records)]
            self._next += len(part)
            records += part
            try:
                if len(records) < most and not self._open_chunk():
                    break
            except KafkaError as error:
                if not records:
                    raise
                self._fetcher.failure = error
                self.attention = True
        return records

    def peek_many(self, most: int) -> list[Record]:
        """Return up to `most` records of one chunk without moving the position; see `advance`. Raises CorruptBatch."""
        self.polls += 1
        if self.attention:
            return []
        while self._next >= len(self._records):
            if not self._open_chunk():
                return []
        return self._records[self._next : self._next + most]

    def advance(self, records: list[Record], count: int) -> bool:
        """Move the position past the first `count` records of `peek_many`. Return False if they are no longer the next ones,
        because of a seek, a pause or a rebalance."""
        if self._next >= len(self._records) or self._records[self._next] is not records[0]:
            return False
        self._next += count
        return True

    def take_batches(self) -> tuple[TopicPartition, Batches, int, int] | None:
        """Return a whole chunk: partition, batches, first requested offset, next offset. Raises CorruptBatch."""
        self.polls += 1
        if self.attention:
            return None
        if self._next < len(self._records):
            raise IllegalState(
                "records of a chunk are being read one by one: read them all before asking for whole ones"
            )
        chunk = self._next_chunk()
        if chunk is None:
            return None
        self._records, self._next = [], 0
        return chunk.state.partition, chunk.batches(), chunk.position, chunk.next_offset

    def _open_chunk(self) -> bool:
        """Open the next chunk. Return False if no chunk is fetched."""
        chunk = self._next_chunk()
        if chunk is None:
            return False
        try:
            self._records, self._next = chunk.records(), 0
        except KafkaError:
            self._drop_chunk()
            chunk.state.fetch_position = UNKNOWN
            raise
        return True

    def _next_chunk(self) -> Chunk | None:
        self._finish_chunk()
        chunks = self._fetcher.chunks
        while chunks:
            chunk = chunks.popleft()
            state = chunk.state
            if chunk.stale or self._positions.states.get(state.partition) is not state:
                continue
            if state.paused:
                # The chunk is dropped; its records are fetched again after a resume.
                state.seek(chunk.position, state.epoch_before(chunk.position))
                continue
            self._chunk = chunk
            return chunk
        return None

    def _finish_chunk(self) -> None:
        """Close the open chunk at its end, and return it to the fetcher."""
        chunk, self._chunk = self._chunk, None
        self._records, self._next = [], 0
        if chunk is not None:
            if not chunk.stale:
                chunk.state.position = chunk.next_offset
            self.more_room(chunk)

    def _drop_chunk(self) -> None:
        self._chunk = None
        self._records, self._next = [], 0

    def _note_positions(self) -> None:
        """Update the position of the partition from the open chunk."""
        chunk = self._chunk
        if chunk is not None and not chunk.stale:
            left = self._next < len(self._records)
            chunk.state.position = self._records[self._next].offset if left else chunk.next_offset
