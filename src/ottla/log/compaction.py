"""Compaction: keeps only the newest record of each key; offsets never change (cleanup.policy=compact).

A pass over one log, in small steps between the broker's other work:

    1  map      key -> newest offset, for the records since the last pass up to the active segment
    2  copy     all segments before that end, batch by batch, without records whose key has a newer one; small neighbours are
                merged to one file. New files have the suffix .cleaned
    3  swap     .cleaned is renamed to .swap, the old files to .deleted, .swap to the segment. The .log file is renamed last,
                so that a start after a crash knows the progress by its name (`recovery.load_segments`): .cleaned is
                discarded, .swap is completed

Besides the newest records these stay:

    tombstones       for delete.retention.ms after the first pass that saw them. That pass writes the end of this time, the
                     delete horizon, in place of the batch's base timestamp (KIP-534)
    empty batches    where a batch was the last of its producer: it carries the producer's sequence
    markers          while a batch of their transaction exists, even an empty one, and for delete.retention.ms after the
                     first pass that saw none: a reader in the middle of the transaction must see its end

Records of aborted transactions are removed at once, and never count as the newest of their key. Records without a key, which
the topic may have from the time before it was compacted, are removed. A step reads about 256 KiB.
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
    wrapping_add,
)
from ottla.records.compression import compress_in_steps
from ottla.records.control import ABORT, COMMIT, read_marker
from ottla.records.errors import BeyondLimit, CorruptRecords
from ottla.records.keys import SHARDS, Kept, NewestOffsets, Selection, append_rebased, note_keys
from ottla.records.record import Record

_STEP_BYTES: Final = 256 << 10
_RECORDS_A_STEP: Final = 5_000
"""Number of records rewritten in one step of a few milliseconds."""
_MOST_KEYS: Final = 1_000_000
"""Maximum number of keys in one pass: the map of a million small keys takes about 150 MB. Later records wait for the next."""


class CompactionRules(NamedTuple):
    """Topic configs that a pass uses.

    largest_record  maximum decompressed size of a record; a batch with a larger one stays unchanged, its keys unknown
    """

    segment_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    largest_record: int


class Pass:
    """One compaction pass over `segments`, the oldest of a log, without the active segment.

    first_dirty   offset (inclusive) from which on nothing is compacted yet
    last_batches  last offset and epoch of each known producer, by producer id: `ProducerStates.last_batches`
    aborted       all aborted transactions of the log: one that began in `segments` may have ended after them

    `steps` does the work; afterwards `replaced` has the segments to swap, and the log is clean up to `end` (exclusive).
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
        self.segments = segments
        self._first_dirty = first_dirty
        self._rules = rules
        self._last_batches = last_batches
        self._aborted = aborted
        self._now_ms = now_ms
        self._newest = NewestOffsets(first_dirty)
        self._unscanned: set[int] = set()
        """Base offsets of batches after `first_dirty` whose keys the map does not have, apart from empty ones."""
        self.end = first_dirty
        self.replaced: list[tuple[list[Segment], Segment]] = []

    def steps(self) -> Iterator[Flush | None]:
        """Run the pass; yields after each step. A yielded flush must be run before the next step. Raises DamagedLog and
        OSError; `abandon` then removes the files written so far.
        """
        yield from self._map_keys()
        for number in range(SHARDS):
            self._newest.mark(number)
            yield None
        transactions = _AbortedTransactions(self._aborted)
        for group in self._groups():
            fresh = Segment(self._store, self._directory, group[0].base_offset, CLEANED)
            fresh.start_empty()
            self.replaced.append((group, fresh))
            fresh.log.fileno()  # create the file also if the segment ends up empty
            yield from self._copy(group, fresh, transactions)
            fresh.has_gaps = True
            fresh.next_offset = group[-1].next_offset
            fresh.seal()
            yield Flush(self._store, [fresh.log], fresh.files()[1:], fresh.next_offset)

    def abandon(self) -> None:
        """Remove the files written so far."""
        for _, fresh in self.replaced:
            fresh.remove()
        self.replaced.clear()

    def _map_keys(self) -> Iterator[None]:
        newest = self._newest
        # a transaction that ended before would count as open here, where its marker is not read
        transactions = _AbortedTransactions(
            [aborted for aborted in self._aborted if aborted.last_offset >= self._first_dirty]
        )
        done = 0
        for segment in self.segments:
            if segment.next_offset <= self._first_dirty:
                continue
            for header, data in _batches(segment, self._first_dirty):
                if header.is_control:
                    transactions.end(header, _records(segment, header, data))
                elif transactions.is_aborted(header):
                    self._unscanned.add(header.base_offset)
                elif header.count:
                    try:
                        for part in sections(data, header, self._rules.largest_record):
                            note_keys(*part, header, newest)
                            if part[0] is not data:  # a compressed batch, which may have many parts
                                yield
                    except BeyondLimit:
                        self._unscanned.add(header.base_offset)  # older records of the same keys stay
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
        """Group adjacent segments before `end` that fit into one segment together."""
        group: list[Segment] = []
        size = 0
        for segment in self.segments:
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
        if header.base_offset in self._unscanned:
            return data
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
            kept = selection.build()
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
    """Detects batches of aborted transactions, and markers without a batch of their transaction; called in log order.

    Source: CleanedTransactionMetadata of Kafka's LogCleaner.
    """

    def __init__(self, aborted: Sequence[Aborted]) -> None:
        self._not_begun = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._open: dict[int, Aborted] = {}
        self._seen: set[int] = set()
        """Producer ids with an open aborted transaction of which a batch was seen."""
        self._committed: set[int] = set()
        """Producer ids with an open transaction, not an aborted one, of which a batch was seen."""

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
        """Handle a marker. Return the aborted transaction that it ends, if any, and whether a batch of the transaction was
        seen. Raises DamagedLog.
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
    """Iterate over header (positions in `data`) and bytes of the batches from `from_offset` on. Raises DamagedLog."""
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
    """Rebuild a batch with its kept records, which are unchanged."""
    fresh = read_header(data, 0)
    fresh.count = kept.count
    fresh.max_timestamp = kept.max_timestamp
    return seal(fresh, (yield from compress_in_steps(fresh.compression, kept.payload)))


def _with_horizon(data: bytes, kept: Kept, horizon: int) -> Generator[None, None, bytes]:
    """Rebuild a batch with its kept records, and `horizon` in place of its base timestamp. Raises CorruptRecords."""
    fresh = read_header(data, 0)
    shift = wrapping_add(fresh.base_timestamp, -horizon)
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
    """Rebuild a batch with these records only; its offsets, producer and sequence stay."""
    made = build(kept, base_offset=header.base_offset, codec=header.compression, base_timestamp=horizon)
    fresh = read_header(made, 0)
    fresh.attributes = header.attributes | (DELETE_HORIZON if horizon is not None else 0)
    if header.timestamp_type:
        fresh.max_timestamp = header.max_timestamp
    return seal(_with_origin(fresh, header), made[HEADER_SIZE:])


def _emptied(header: BatchHeader) -> bytes:
    """Rebuild a batch without records, which keeps the sequence of its producer."""
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
