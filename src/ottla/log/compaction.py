"""Compaction: of every key only its newest record stays; offsets never change (cleanup.policy=compact).

A pass over one log, in small steps between the broker's other work:

    1  map      key -> newest offset, from the records since the last pass up to the segment that is written to
    2  copy     every segment before that end, batch by batch, without records whose key has a newer one; neighbours that have
                become small go into one file together. What is written ends in .cleaned
    3  swap     .cleaned becomes .swap, the old files .deleted, .swap the segment. The .log file's turn comes last, so that
                a start knows by its name how far a crash let us come (`recovery.load_segments`): .cleaned is thrown away,
                .swap is carried through

What stays beside the newest records:

    tombstones       for delete.retention.ms after the first pass that saw them. That pass writes the end of this time, the
                     delete horizon, in place of the batch's base timestamp (KIP-534)
    empty batches    where a batch was the last of its producer: it carries the producer's sequence
    markers          as long as a batch of their transaction is there, even an empty one, and for delete.retention.ms after
                     the first pass that saw none: a reader that is in the middle of the transaction must learn its end

Records of aborted transactions go at once, and never count as the newest of their key. Records without a key, which a
compacted topic does not take but may have had before, go. A step reads about 256 KiB.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from librt.strings import BytesWriter

from ottla.environment.files import Store
from ottla.log.flush import Flush
from ottla.log.index import Aborted
from ottla.log.segment import CLEANED, DamagedLog, Segment
from ottla.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    build,
    crc_ok,
    read_header,
    records_of,
    seal,
    sections,
    wrapped,
)
from ottla.records.compression import compress_in_steps
from ottla.records.control import ABORT, COMMIT, read_marker
from ottla.records.errors import BeyondLimit, CorruptRecords
from ottla.records.keys import Kept, NewestOffsets, Selection, append_rebased, note_keys
from ottla.records.record import Record

_STEP_BYTES: Final = 256 << 10
_RECORDS_A_STEP: Final = 5_000
"""Records written again at once: some milliseconds."""
_MOST_KEYS: Final = 1_000_000
"""Keys of one pass: the map of a million small keys takes about 150 MB. What comes after them waits for the next pass."""


class CompactionRules(NamedTuple):
    """The topic's configuration as a pass needs it.

    largest_record  bytes that one record may decompress to; a batch that holds a larger one stays whole, its keys unknown
    """

    segment_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    largest_record: int


class Pass:
    """One compaction of `segments`, the oldest of a log, none of which is written to any more.

    first_dirty   offset (inclusive) from which on nothing was ever compacted
    last_batches  where each producer stands that the broker remembers, by producer id: `ProducerStates.last_batches`
    aborted       all aborted transactions of the log: one that began here may have ended behind `segments`

    `steps` does the work; afterwards `replaced` says what to swap and `end` (exclusive) up to where the log is clean.
    """

    def __init__(
        self,
        store: Store,
        directory: Path,
        segments: Sequence[Segment],
        first_dirty: int,
        rules: CompactionRules,
        last_batches: Mapping[int, tuple[int, int]],
        aborted: Sequence[Aborted],
        now_ms: int,
    ) -> None:
        self._store = store
        self._directory = directory
        self._segments = segments
        self._first_dirty = first_dirty
        self._rules = rules
        self._last_batches = last_batches
        self._aborted = aborted
        self._now_ms = now_ms
        self._newest = NewestOffsets()
        self.end = first_dirty
        self.replaced: list[tuple[list[Segment], Segment]] = []

    def steps(self) -> Iterator[Flush | None]:
        """Do the work, and stop after each step; a flush must be run before the next one. Raises DamagedLog and OSError;
        `abandon` then removes what was written.
        """
        yield from self._map_keys()
        transactions = _AbortedTransactions(self._aborted)
        for group in self._groups():
            fresh = Segment(self._store, self._directory, group[0].base_offset, CLEANED)
            fresh.start_empty()
            self.replaced.append((group, fresh))
            fresh.log.fileno()  # a segment that ends up empty is a file too
            yield from self._copy(group, fresh, transactions)
            fresh.next_offset = group[-1].next_offset
            fresh.seal()
            yield Flush(self._store, [fresh.log], fresh.files()[1:], fresh.next_offset)

    def abandon(self) -> None:
        """Remove what was written so far."""
        for _, fresh in self.replaced:
            fresh.remove()
        self.replaced.clear()

    def _map_keys(self) -> Iterator[None]:
        newest = self._newest
        transactions = _AbortedTransactions(self._aborted)
        done = 0
        for segment in self._segments:
            if segment.next_offset <= self._first_dirty:
                continue
            for header, data in _batches(segment, self._first_dirty):
                if header.is_control:
                    transactions.end(header, _records(segment, header, data))
                elif not transactions.is_aborted(header) and header.count:
                    try:
                        for part in sections(data, header, self._rules.largest_record):
                            note_keys(*part, header, newest, self._first_dirty)
                            if part[0] is not data:  # a compressed batch, which may go on for long
                                yield
                    except BeyondLimit:
                        pass  # records of the same keys before it stay
                    except CorruptRecords as cause:
                        raise _damage(segment, header, cause) from None
                self.end = header.next_offset
                if len(newest) >= _MOST_KEYS:
                    return
                done += len(data)
                if done >= _STEP_BYTES:
                    done = 0
                    yield
            self.end = segment.next_offset

    def _groups(self) -> Iterator[list[Segment]]:
        """Neighbours that fit one segment together, all of what lies before `end`."""
        group: list[Segment] = []
        size = 0
        for segment in self._segments:
            if segment.base_offset >= self.end:
                break
            fits = size + segment.size <= self._rules.segment_bytes
            if group and not (fits and segment.next_offset - group[0].base_offset <= 0x7FFFFFFF):
                yield group
                group, size = [], 0
            group.append(segment)
            size += segment.size
        if group:
            yield group

    def _copy(self, group: list[Segment], fresh: Segment, transactions: "_AbortedTransactions") -> Iterator[None]:
        done = 0
        for segment in group:
            for header, data in _batches(segment, segment.base_offset):
                if header.is_control:
                    records = _records(segment, header, data)
                    aborted, left = transactions.end(header, records)
                    if aborted is not None and left:
                        fresh.transaction_index.append(aborted)
                    kept = data if left else self._cleaned_marker(header, data, records)
                else:
                    aborted_batch = transactions.is_aborted(header)
                    kept = yield from self._cleaned(segment, header, data, aborted=aborted_batch)
                if kept is not None:
                    fresh.append(read_header(kept, 0), header.base_offset, (kept,), self._rules.index_interval_bytes)
                done += len(data)
                if done >= _STEP_BYTES:
                    done = 0
                    yield

    def _cleaned(
        self, segment: Segment, header: BatchHeader, data: bytes, *, aborted: bool
    ) -> Generator[None, None, bytes | None]:
        """Return what remains of a batch: the batch unchanged, a smaller one, an empty one, or None."""
        if aborted or not header.count:
            keeps_place = self._carries_sequence(header)
            return None if not keeps_place else data if not header.count else _emptied(header)
        horizon = header.base_timestamp if header.attributes & DELETE_HORIZON else None
        over = horizon is not None and self._now_ms >= horizon
        selection = Selection(header, self._newest, self.end, self._rules.largest_record, without_tombstones=over)
        try:
            for part in sections(data, header, self._rules.largest_record):
                selection.take(*part)
                if part[0] is not data:
                    yield
            if selection.is_too_large:
                return data
            kept = selection.kept()
            if horizon is None and kept.tombstones:
                return (yield from _with_horizon(data, kept, self._now_ms + self._rules.delete_retention_ms))
        except BeyondLimit:
            return data
        except CorruptRecords as cause:
            raise _damage(segment, header, cause) from None
        if kept.count == header.count:
            return data
        if kept.count:
            return (yield from _with_records(data, kept))
        return _emptied(header) if self._carries_sequence(header) else None

    def _cleaned_marker(self, header: BatchHeader, data: bytes, records: list[Record]) -> bytes | None:
        """Return what remains of a marker whose transaction has no batch left, or None."""
        if not records:
            return data if self._carries_sequence(header) else None
        if not header.attributes & DELETE_HORIZON:
            return _rebuilt(header, records, self._now_ms + self._rules.delete_retention_ms)
        if self._now_ms < header.base_timestamp:
            return data
        return _emptied(header) if self._carries_sequence(header) else None

    def _carries_sequence(self, header: BatchHeader) -> bool:
        """Return True if a start rebuilds the producer's state from this batch: it holds the last sequence or the epoch."""
        last_offset, epoch = self._last_batches.get(header.producer_id, (-1, -1))
        if header.producer_id < 0 or epoch < 0:
            return False
        if last_offset >= 0:
            return last_offset == header.last_offset
        return header.is_control and header.producer_epoch == epoch


class _AbortedTransactions:
    """Finds the batches of aborted transactions, and markers whose transaction has no batch left; called in the log's order.

    Source: CleanedTransactionMetadata of Kafka's LogCleaner.
    """

    def __init__(self, aborted: Sequence[Aborted]) -> None:
        self._not_begun = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._open: dict[int, Aborted] = {}
        self._seen: set[int] = set()
        """Producers of whose aborted transaction a batch was seen."""
        self._committed: set[int] = set()
        """Producers of whose transaction, which was not aborted, a batch was seen."""

    def _begin_up_to(self, offset: int) -> None:
        while self._not_begun and self._not_begun[-1].first_offset <= offset:
            aborted = self._not_begun.pop()
            self._open[aborted.producer_id] = aborted

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return True if a data batch belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        aborted = header.producer_id in self._open
        (self._seen if aborted else self._committed).add(header.producer_id)
        return aborted

    def end(self, header: BatchHeader, records: list[Record]) -> tuple[Aborted | None, bool]:
        """A marker: the aborted transaction it ends, if it is one, and whether a batch of the transaction was seen. Raises
        DamagedLog.
        """
        self._begin_up_to(header.last_offset)
        if not records:
            return None, False
        try:
            kind = read_marker(records[0].key, records[0].value).type
        except CorruptRecords as cause:
            raise DamagedLog(f"the control batch at offset {header.base_offset}: {cause}") from None
        if kind == ABORT:
            seen = header.producer_id in self._seen
            self._seen.discard(header.producer_id)
            return self._open.pop(header.producer_id, None), seen
        if kind == COMMIT:
            seen = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return None, seen
        return None, True


def _batches(segment: Segment, from_offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """Header (positions in `data`) and bytes of every batch that reaches `from_offset`. Raises DamagedLog."""
    for place in segment.walk(segment.position_of(from_offset)):
        data = segment.log.read(place.start, place.end - place.start)
        header = read_header(data, 0)
        if not crc_ok(data, header):
            raise DamagedLog(f"{segment.path} at position {place.start}: the CRC of a batch is wrong")
        yield header, data


def _records(segment: Segment, header: BatchHeader, data: bytes) -> list[Record]:
    if header.count == 0:
        return []
    try:
        return records_of(data)
    except CorruptRecords as cause:
        raise _damage(segment, header, cause) from None


def _damage(segment: Segment, header: BatchHeader, cause: CorruptRecords) -> DamagedLog:
    return DamagedLog(f"{segment.path}, the batch at offset {header.base_offset}: {cause}")


def _with_records(data: bytes, kept: Kept) -> Generator[None, None, bytes]:
    """The batch with what was kept of its records, which stand there as they did."""
    fresh = read_header(data, 0)
    fresh.count = kept.count
    fresh.max_timestamp = kept.max_timestamp
    return seal(fresh, (yield from compress_in_steps(fresh.compression, kept.payload)))


def _with_horizon(data: bytes, kept: Kept, horizon: int) -> Generator[None, None, bytes]:
    """The batch with what was kept of its records, and `horizon` in place of its base timestamp. Raises CorruptRecords."""
    fresh = read_header(data, 0)
    shift = wrapped(fresh.base_timestamp, -horizon)
    out = BytesWriter()
    position = 0
    while position < len(kept.payload):
        if position:
            yield
        position = append_rebased(out, kept.payload, position, _RECORDS_A_STEP, shift)
    fresh.count = kept.count
    fresh.max_timestamp = kept.max_timestamp
    fresh.base_timestamp = horizon
    fresh.attributes |= DELETE_HORIZON
    return seal(fresh, (yield from compress_in_steps(fresh.compression, out.getvalue())))


def _rebuilt(header: BatchHeader, kept: list[Record], horizon: int | None) -> bytes:
    """The batch with these records only. Everything that says where it came from stays: offsets, producer, sequence."""
    made = build(kept, base_offset=header.base_offset, codec=header.compression, base_timestamp=horizon)
    fresh = read_header(made, 0)
    fresh.attributes = header.attributes | (DELETE_HORIZON if horizon is not None else 0)
    if header.timestamp_type:
        fresh.max_timestamp = header.max_timestamp
    return seal(_with_origin(fresh, header), made[HEADER_SIZE:])


def _emptied(header: BatchHeader) -> bytes:
    """The batch without a record, for its producer's sequence."""
    made = build([], base_offset=header.base_offset)
    fresh = read_header(made, 0)
    fresh.attributes = header.attributes & ~(DELETE_HORIZON | CODEC_MASK)
    fresh.base_timestamp = fresh.max_timestamp = max(header.max_timestamp, NO_TIMESTAMP)
    return seal(_with_origin(fresh, header), b"")


def _with_origin(fresh: BatchHeader, header: BatchHeader) -> BatchHeader:
    fresh.leader_epoch = header.leader_epoch
    fresh.last_offset_delta = header.last_offset_delta
    fresh.producer_id = header.producer_id
    fresh.producer_epoch = header.producer_epoch
    fresh.base_sequence = header.base_sequence
    return fresh
