"""Log of one partition: append at the end, read from any offset, never change acknowledged records.

Offsets of a log, from left to right:

    log start offset        first offset that may be read
    last stable offset      below it no transaction is open; consumers with read_committed stop here
    high watermark          below it all records are on all in-sync replicas; consumers stop here
    log end offset          offset of the next record

The log does not handle replication: the high watermark is set by its leader or follower.

Appending does not wait for the disk. If flush.messages or a full segment requires a flush, it is returned as a `Flush`, which
any thread may run; `flushed` records the result. Until then `settled_offset` bounds the high watermark, if the flush is
required by flush.messages.

One file, because append, flush, truncation, retention and compaction each change shared state (segments, producers, epochs,
offsets), which must be consistent whenever one of them ends or fails: this is reviewed in one place. Code that needs only one
part of the state is elsewhere: `segment.py`, `producers.py`, `checkpoints.py`, `compaction.py`; and lookups and conversions,
which change nothing, are in `reading.py`.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, TypeVar

from ottla.environment.files import Region, Store
from ottla.log import clean_stop, recovery
from ottla.log.clean_stop import CleanStop
from ottla.log.compaction import CompactionRules, Pass
from ottla.log.config import LogConfig
from ottla.log.flush import Flush
from ottla.log.index import OFFSET_ENTRY_SIZE, Aborted
from ottla.log.partition_metadata import PARTITION_METADATA
from ottla.log.producers import ProducerStates
from ottla.log.replicated import ReplicatedBatch, check_batches
from ottla.log.retention import Candidate, expired
from ottla.log.segment import DELETED, SWAP, DamagedLog, Segment
from ottla.protocol.errors import (
    CORRUPT_MESSAGE,
    INVALID_PRODUCER_EPOCH,
    KAFKA_STORAGE_ERROR,
    MESSAGE_TOO_LARGE,
    NONE,
    OFFSET_OUT_OF_RANGE,
    RECORD_LIST_TOO_LARGE,
)
from ottla.records import legacy
from ottla.records.batch import BatchHeader, build, number_records, read_header
from ottla.records.control import build_marker
from ottla.records.errors import CorruptRecords
from ottla.records.schema_ids import SchemaRules, UnknownSchema
from ottla.records.validation import Prepared, prepare

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
_MAX_RELATIVE_OFFSET: Final = 0x7FFFFFFF
_LAST_OFFSET: Final = (1 << 63) - 1
_TOO_LARGE: Final = frozenset((MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE))
_REMOVED_AT_ONCE: Final = 50
"""Number of segments that retention renames in one step of a few milliseconds."""
_logger = logging.getLogger("ottla.log")
R = TypeVar("R")


class Unfinished(NamedTuple):
    """Append of a batch whose validation is not complete yet: it is large when decompressed, or has unknown schemas.

    steps    remaining validation, in steps of about a millisecond
    append   function to call after all steps; raises StorageError
    unknown  schemas that `rules` must learn before; `append` then begins again
    rules    schemas that the topic accepts
    """

    steps: Iterator[None]
    append: Callable[[], "AppendResult"]
    unknown: Sequence[UnknownSchema] = ()
    rules: SchemaRules | None = None


class AppendResult:
    """Result of an append: `base_offset` is the batch's first offset (-1 if it was rejected, with the error's code and text).

    end_offset  offset behind the batch: of a duplicate, that of the batch which it repeats; -1 if it was rejected
    is_whole    False for a request that had no whole batch: Kafka rejects it before it looks at the log
    unfinished  remaining work, if the validation takes long; the other fields are not valid then
    """

    __slots__ = (
        "append_time",
        "base_offset",
        "end_offset",
        "error_code",
        "error_message",
        "is_whole",
        "record_errors",
        "unfinished",
    )

    def __init__(
        self,
        base_offset: int,
        append_time: int = -1,
        error_code: int = NONE,
        error_message: str | None = None,
        record_errors: list[tuple[int, str | None]] | None = None,
        end_offset: int = -1,
    ) -> None:
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.append_time = append_time
        self.error_code = error_code
        self.error_message = error_message
        self.record_errors = record_errors
        self.is_whole = True
        self.unfinished: Unfinished | None = None


class OffsetNotInLog(Exception):
    """The offset is below the log start offset or beyond the limit of the reader."""

    code: ClassVar[int] = OFFSET_OUT_OF_RANGE


class StorageError(Exception):
    """The disk has failed, or its data is damaged; the message names file and position."""

    code: ClassVar[int] = KAFKA_STORAGE_ERROR


class UnreadableRecords(StorageError):
    """A file can be read, but not parsed where a batch should be."""

    code: ClassVar[int] = CORRUPT_MESSAGE


class Log:
    """Log of one partition.

    directory       <log.dir>/<topic>-<partition>, which must exist
    recovery_point  offset (exclusive) up to which the log is flushed and intact
    high_watermark  offset (exclusive) up to which records are committed; None for the log end
    clean           True after a clean stop
    may_refill      True for a follower outside the ISR: damage of flushed records is cut, and fetched again from the leader
    jitter          function from the maximum to a random number of ms by which a segment is rolled before segment.ms
    failed          called when a file operation fails, before StorageError is raised: the directory handles the error

    was_cut         True if flushed records were missing or damaged at the opening, and the log was cut there
    appended_records, appended_bytes  records and bytes appended by this broker as leader, since the opening
    rejected_bytes  bytes of batches that were too large
    replicated_bytes  bytes appended as a follower, since the opening
    """

    def __init__(
        self,
        store: Store,
        directory: Path,
        config: LogConfig,
        *,
        recovery_point: int = 0,
        high_watermark: int | None = None,
        log_start_offset: int = 0,
        clean: bool = False,
        may_refill: bool = False,
        jitter: Callable[[int], int] = lambda most: 0,  # noqa: ARG005
        failed: Callable[[OSError], None] = lambda cause: None,  # noqa: ARG005
    ) -> None:
        # One function: it is the list of the log's state.
        self._store = store
        self.directory = directory
        self.name = directory.name
        self.config = config
        self._jitter = jitter
        self._failed = failed
        self.was_cut = False
        self.appended_records = self.appended_bytes = self.rejected_bytes = self.replicated_bytes = 0
        known = _LAST_OFFSET if high_watermark is None else high_watermark
        try:
            self._load(recovery_point, log_start_offset, known, clean=clean, may_refill=may_refill)
        except DamagedLog as cause:
            if not may_refill:
                raise StorageError(str(cause)) from cause
            self.was_cut = True
            try:
                self._load(recovery_point, log_start_offset, known, clean=False, may_refill=True)
            except DamagedLog as again:
                raise StorageError(str(again)) from again
            _logger.warning(
                "%s; this replica is cut at offset %d, and what it had up to %d is fetched again from the leader",
                cause.damage,
                self.end_offset,
                recovery_point,
            )
        self._active.jitter_ms = jitter(config.segment_jitter_ms)
        self.recovery_point = min(recovery_point, self.end_offset)
        self.clean_until = self.start_offset
        self.is_damaged = False
        self.is_moving = False
        self.last_flush_ms = 0
        self._unflushed = 0
        self._must_be_flushed = 0
        # Segments that the previous process rolled but did not flush may be only in the page cache.
        self._rolled = self._unflushed_segments()
        self._truncations = 0
        self._is_cut_short = False
        self._discarded: list[Segment] = []
        self._has_new_names = not clean
        self._changed = self._was_scanned or (not clean and not self._is_new)
        self._compaction: Pass | None = None
        self._closed = False
        if not clean and self.end_offset - self.recovery_point >= config.flush_messages:
            # A process that was killed has left records in the page cache. A leader makes them readable at once: a power
            # failure must not take them then.
            try:
                self.flush()
            except BaseException:
                for segment in self._segments:
                    segment.close()
                raise

    def _load(
        self, recovery_point: int, log_start_offset: int, high_watermark: int, *, clean: bool, may_refill: bool
    ) -> None:
        """Load segments, epochs and producers. Raises DamagedLog, OSError.

        After damage, in a second attempt, all segments are checked, and the log ends before the first missing or damaged batch.
        """
        # One function: segments, producers and epochs are restored in this order, each from the results of the previous step.
        store, directory, config = self._store, self.directory, self.config
        segments: list[Segment] = []
        try:
            if self.was_cut:
                recovery.drop_lost(store, directory)
            names = store.names(directory)
            last_stop = CleanStop.read(store, directory, names) if clean else None
            if last_stop is not None and last_stop.end_offset != recovery_point:
                last_stop = None  # another program has written to the log since
            if last_stop is not None and log_start_offset > last_stop.start_offset:
                _logger.warning(
                    "the log start offset of %s is %d in its checkpoint, and was %d at the last stop: that counts",
                    directory,
                    log_start_offset,
                    last_stop.start_offset,
                )
                log_start_offset = last_stop.start_offset
            path = directory / "leader-epoch-checkpoint"
            self.epochs, epochs_known = recovery.load_epochs(store, path, names, last_stop)
            # Below the log start nothing needs to be there: after a power failure the files from before a `restart_at`, which
            # sets both offsets, may be back.
            proves_nothing = self.was_cut or (not clean and recovery_point <= log_start_offset)
            proven = 0 if proves_nothing else recovery_point
            # Above the recovery point the batches decide: a truncation may have reached the epochs on disk, and not them.
            self.epochs.truncate(proven)
            segments = recovery.load_segments(store, directory, names, config.index_interval_bytes)
            self._is_new = not segments
            if self._is_new:
                segments = [Segment(store, directory, log_start_offset)]
                segments[0].start_empty()
            recovered = recovery.recover(
                store,
                segments,
                proven,
                config.index_interval_bytes,
                self.epochs,
                clean=clean,
                has_gaps=config.is_compacted,
                cuts_gaps=may_refill,
                last_stop=last_stop,
                level=logging.INFO if self.was_cut else logging.WARNING,
            )
            self._was_scanned = not self._is_new and bool(recovered.scanned)
            self._segments = recovered.segments
            recovery.check_complete(store, directory, names, proven, self._segments[-1].next_offset)
            if self._segments[-1].next_offset < log_start_offset:
                # Deleted by DeleteRecords before they were flushed.
                for segment in self._segments:
                    segment.remove()
                self._segments = segments = [Segment(store, directory, log_start_offset)]
                segments[0].start_empty()
                # A snapshot has transactions that were open then; their markers are lost.
                recovery.drop_snapshots(store, directory, -1)
                names = store.names(directory)
            self._active = self._segments[-1]
            self.end_offset = self._active.next_offset
            self.producers = recovery.load_producers(
                store, directory, names, self._segments, self.end_offset, recovered.scanned
            )
            if not epochs_known:
                recovery.find_epochs(self._segments, self.epochs)
            self.start_offset = max(log_start_offset, self._segments[0].base_offset)
            self.high_watermark = min(max(high_watermark, self.start_offset), self.end_offset)
            # Without a checkpointed high watermark, as after an import, all of the log would be read.
            if (high_watermark or may_refill) and recovery.has_markers(self._segments, self.high_watermark):
                self.producers = legacy.all_at_once(self._producers_before(self.end_offset))
            self.producers.forget_decided(self.high_watermark)
            self.epochs.drop_before(self.start_offset)
            self.epochs.truncate(self.end_offset)
        except BaseException:
            for segment in segments:  # after a lack of descriptors the log is opened again later: release them
                segment.close()
            raise

    @property
    def last_stable_offset(self) -> int:
        """Return the high watermark, or the first offset of the oldest undecided transaction below it."""
        high_watermark = self.high_watermark
        if self.producers.is_settled:
            return high_watermark
        return min(high_watermark, self.producers.undecided_from(high_watermark, high_watermark))

    @property
    def settled_offset(self) -> int:
        """Return the upper bound of the high watermark (exclusive): the log end, or the flushed offset (but not below the high
        watermark) while flush.messages requires a flush.
        """
        if self.recovery_point >= self._must_be_flushed:
            return self.end_offset
        return max(self.high_watermark, self.recovery_point)

    @property
    def segments(self) -> Sequence[Segment]:
        """Return the segments, oldest first; the last one is active."""
        return self._segments

    @property
    def size(self) -> int:
        """Return the size of all segments in bytes."""
        return sum(segment.size for segment in self._segments)

    def append(
        self,
        frame: bytes,
        start: int,
        end: int,
        leader_epoch: int,
        now_ms: int,
        *,
        refused_codecs: frozenset[int] = frozenset(),
    ) -> AppendResult:
        """Validate the batch `frame[start:end]` as Kafka does, assign offsets, write it.

        refused_codecs  codecs that the version of the request does not support

        Raises StorageError if the write fails; the log is unchanged then.
        """
        rules = self.config.rules
        batch = prepare(frame, start, end, rules, now_ms, self.name, refused_codecs)
        if batch.remaining is None and not batch.unknown:
            result = self._append_prepared(batch, leader_epoch, now_ms)
            if result.error_code in _TOO_LARGE:
                self.rejected_bytes += end - start
            return result
        again = partial(self.append, frame, start, end, leader_epoch, now_ms, refused_codecs=refused_codecs)

        def append() -> AppendResult:
            if not batch.unknown:
                return self._append_prepared(batch, leader_epoch, now_ms)
            unknown = AppendResult(-1)
            unknown.unfinished = Unfinished(iter(()), again, batch.unknown, rules.schemas)
            return unknown

        if batch.remaining is None:
            return append()
        appended = AppendResult(-1)
        appended.unfinished = Unfinished(batch.remaining, append)
        return appended

    def _append_prepared(self, batch: Prepared, leader_epoch: int, now_ms: int) -> AppendResult:
        """Append a validated batch. Raises StorageError."""
        config = self.config
        if batch.error_code != NONE:
            rejected = AppendResult(-1, -1, batch.error_code, batch.error_message, batch.record_errors)
            rejected.is_whole = batch.is_whole
            return rejected
        header = batch.header
        # Sequences are checked in the same turn of the loop as the write: while a large batch was validated in steps, others of
        # its producer may have been appended. A duplicate is answered before its size is looked at, because the batch that it
        # repeats was accepted with the config of that time.
        if header.producer_id >= 0:
            code, duplicate = self.producers.check(header)
            if code != NONE:
                return AppendResult(-1, -1, code)
            if duplicate is not None:
                return AppendResult(duplicate.first_offset, duplicate.timestamp, end_offset=duplicate.last_offset + 1)
        if batch.size_in_bytes > config.segment_bytes:
            return AppendResult(-1, -1, RECORD_LIST_TOO_LARGE)
        # The producers learn of the batch only when it is written: after a StorageError the same batch is sent again, and
        # must be neither a duplicate nor out of order.
        base_offset = self.end_offset
        self._write(header, batch.stamp(base_offset, leader_epoch), batch.size_in_bytes, leader_epoch, now_ms)
        if header.producer_id >= 0:
            self.producers.appended(header, base_offset)
        return AppendResult(base_offset, batch.append_time, end_offset=self.end_offset)

    def append_message_set(self, frame: bytes, start: int, end: int, leader_epoch: int, now_ms: int) -> AppendResult:
        """Append the message set `frame[start:end]` of an old producer (Produce 0 to 2), converted to a batch. An empty set is
        no error: its base offset is -1. Raises StorageError.
        """
        config = self.config
        # The set as a whole may take the memory of one record; max.decompressed.message.bytes bounds each of its messages, and
        # `append` checks that.
        rebuilding = legacy.rebuild(frame, start, end, config.max_message_bytes, config.largest_record)
        outcome: list[legacy.Rebuilt] = []

        def steps() -> Iterator[None]:
            outcome.append((yield from rebuilding))

        def append() -> AppendResult:
            (rebuilt,) = outcome
            if rebuilt.error_code != NONE or not rebuilt.batch:
                return AppendResult(-1, -1, rebuilt.error_code)
            return self.append(rebuilt.batch, 0, len(rebuilt.batch), leader_epoch, now_ms)

        remaining = steps()
        if next(remaining, self) is not self:
            appended = AppendResult(-1)
            appended.unfinished = Unfinished(remaining, append)
            return appended
        return append()

    def append_records(
        self,
        records: list[tuple[bytes | None, bytes | None]],
        leader_epoch: int,
        now_ms: int,
        producer: tuple[int, int] | None = None,
    ) -> AppendResult:
        """Append (key, value) pairs written by the broker as one batch; a value of None is a tombstone.

        producer  (id, epoch) of their transaction, for records that a coordinator writes for a client, without sequences
        """
        if producer is not None and self.producers.is_fenced(*producer):
            return AppendResult(-1, -1, INVALID_PRODUCER_EPOCH)
        first = 0 if producer is None else self.end_offset
        listed = number_records(records, first, now_ms)
        if producer is None:
            batch = build(listed)
        else:
            batch = build(
                listed,
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=0,
                transactional=True,
                base_offset=first,
                leader_epoch=leader_epoch,
            )
        if len(batch) > self.config.max_message_bytes:
            return AppendResult(-1, -1, MESSAGE_TOO_LARGE)
        if producer is None:
            return self.append(batch, 0, len(batch), leader_epoch, now_ms)
        header = read_header(batch, 0)
        self._write(header, (batch,), len(batch), leader_epoch, now_ms)
        self.producers.appended(header, first)
        return AppendResult(first, end_offset=self.end_offset)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        leader_epoch: int,
        now_ms: int,
        *,
        commit: bool,
        new_epoch: bool,
    ) -> AppendResult:
        """Append the marker that ends a producer's transaction here.

        new_epoch  whether the marker has an epoch of its own: transactions of version 2 (KIP-890)

        Raises StorageError.
        """
        code = self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch, new_epoch=new_epoch)
        if code != NONE:
            return AppendResult(-1, -1, code)
        offset = self.end_offset
        batch = build_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms,
            base_offset=offset,
            leader_epoch=leader_epoch,
        )
        header = read_header(batch, 0)
        self._write(header, (batch,), len(batch), leader_epoch, now_ms)
        self.producers.forget_decided(self.high_watermark)
        ended = self.producers.ended(header, offset, coordinator_epoch)
        if ended is not None and not commit:
            stable = self.producers.stable_after(ended)
            self._active.transaction_index.append(Aborted(producer_id, ended.first_offset, offset, stable))
        return AppendResult(offset, end_offset=self.end_offset)

    def _write(
        self,
        header: BatchHeader,
        buffers: Sequence[bytes | memoryview],
        size: int,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        """Write a batch that is stamped with the log end offset at the end of the log. Raises StorageError."""
        self._check_writable()
        base_offset = self.end_offset
        # Everything that may fail comes before `end_offset` moves, so that a failed write leaves the log as it was. An epoch
        # that is assigned, or a segment that is rolled, and then gets no batch is harmless: both begin at the log end. The
        # epoch is written first: a start that does not scan the batch learns of its epoch from that file only.
        try:
            if leader_epoch > self.epochs.written:
                self.epochs.assign(leader_epoch, base_offset)
                self._has_new_names = True
            segment = self._active
            if self._must_roll(segment, header, segment.size, size, base_offset + header.last_offset_delta, now_ms):
                segment = self._roll(now_ms, base_offset)
            if not segment.size:
                self._prepare_segment(segment, now_ms)
            segment.append(header, base_offset, buffers, self.config.index_interval_bytes)
        except OSError as cause:
            raise self._storage_error(cause) from cause
        # Readers see the batch from here on, up to the high watermark, which the caller moves.
        self.end_offset = segment.next_offset
        self._changed = True
        self.appended_records += header.count
        self.appended_bytes += size
        self._count_unflushed(header.count, segment.next_offset)

    def _count_unflushed(self, count: int, end_offset: int) -> None:
        """Count the records of a batch that ends at `end_offset` (exclusive) for flush.messages."""
        self._unflushed += count
        if self._unflushed >= self.config.flush_messages:
            self._must_be_flushed = end_offset
            self._unflushed = 0

    def append_replicated(self, frame: bytes, start: int, end: int, epoch: int, now_ms: int) -> int:
        """Append the whole batches in `frame[start:end]`, which a leader sent, byte for byte. Return the number of bytes taken:
        up to the first batch of a leader epoch above `epoch`, or to an incomplete last batch.

        Raises CorruptRecords for a damaged batch, or one whose offsets do not ascend from the log end, after the batches before
        it are appended; StorageError if a write fails.
        """
        self._check_writable()
        if self.end_offset == self.start_offset:
            self._make_room(frame, start, end, epoch)
        checked = check_batches(frame, start, end, epoch, self.end_offset)
        batches, view = checked.batches, memoryview(frame)
        at = 0
        while at < len(batches):
            try:
                segment = self._segment_for(batches[at].header, now_ms)
                stop = self._run_end(segment, batches, at, now_ms)
                position = segment.size
                first, last = batches[at].header, batches[stop - 1].header
                segment.log.append((view[first.start : last.end],))
            except OSError as cause:
                raise self._storage_error(cause) from cause
            self.replicated_bytes += last.end - first.start
            for batch in batches[at:stop]:
                self._take_replicated(segment, batch, position + batch.header.start - first.start)
            at = stop
        if checked.problem is not None:
            raise CorruptRecords(f"{self.name} at offset {self.end_offset}, from its leader: {checked.problem}")
        return checked.end - start

    def _make_room(self, frame: bytes, start: int, end: int, epoch: int) -> None:
        """Begin an empty log at the batch with the log start offset, which DeleteRecords may have set within a batch. Raises
        StorageError. Source: Kafka's Partition.
        """
        offset = self.start_offset
        checked = check_batches(frame, start, end, epoch, 0)
        header = checked.batches[0].header if checked.batches else None
        if header is not None and header.base_offset < offset <= header.last_offset:
            self._start_over(header.base_offset, offset)
            try:
                self._flush_of_cut().run()
            except OSError as cause:
                raise self._storage_error(cause) from cause
            self._is_cut_short = False

    def _check_writable(self) -> None:
        if self._closed:
            raise StorageError(f"{self.directory} is offline")
        if self._is_cut_short:
            raise StorageError(f"{self.directory} was not truncated completely")

    def _segment_for(self, header: BatchHeader, now_ms: int) -> Segment:
        """Prepare the active segment, or a new one, for a batch of a leader, and write its leader epoch. Raises OSError."""
        epochs = self.epochs
        if header.leader_epoch < epochs.latest:
            epochs.truncate(header.base_offset)  # begun by this broker as leader, without a batch
        if header.leader_epoch > epochs.written:
            epochs.assign(header.leader_epoch, header.base_offset)
            self._has_new_names = True
        segment = self._active
        if self._must_roll(segment, header, segment.size, header.size, header.last_offset, now_ms):
            segment = self._roll(now_ms, header.base_offset)
        if not segment.size:
            self._prepare_segment(segment, now_ms)
        return segment

    def _run_end(self, segment: Segment, batches: Sequence[ReplicatedBatch], at: int, now_ms: int) -> int:
        """Return the index after the last of `batches`, from `at` on, that one write may append to `segment`."""
        first = batches[at].header
        stop = at + 1
        # The first batch of a segment is written alone: the others are compared with its timestamp.
        while segment.size and stop < len(batches):
            header = batches[stop].header
            held = segment.size + header.start - first.start
            if header.leader_epoch != first.leader_epoch or self._may_fill_index(held):
                break
            if self._must_roll(segment, header, held, header.size, header.last_offset, now_ms):
                break
            stop += 1
        return stop

    def _take_replicated(self, segment: Segment, batch: ReplicatedBatch, position: int) -> None:
        """Record a batch that was written at `position` of the active segment."""
        header = batch.header
        segment.noted(
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            position,
            header.size,
            self.config.index_interval_bytes,
        )
        if batch.marker is not None:
            self.producers.forget_decided(self.high_watermark)
        aborted = recovery.take_batch(self.producers, header, batch.marker)
        if aborted is not None:
            segment.transaction_index.append(aborted)
        self.end_offset = segment.next_offset
        self._changed = True
        self._count_unflushed(header.count, segment.next_offset)

    def _storage_error(self, cause: OSError) -> StorageError:
        """Report an error to the directory; return it as a StorageError with file and cause."""
        self._failed(cause)
        return StorageError(f"{cause.filename or self.directory}: {cause.strerror or cause}")

    def _prepare_segment(self, segment: Segment, now_ms: int) -> None:
        """Prepare a segment for its first batch."""
        segment.created_ms = now_ms
        if self.config.preallocate:
            segment.log.reserve(self.config.segment_bytes)
        self._has_new_names = True

    def _must_roll(
        self, segment: Segment, header: BatchHeader, held: int, size: int, last_offset: int, now_ms: int
    ) -> bool:
        """Return True if a batch of `size` bytes needs a new segment, after `held` bytes in `segment`."""
        config = self.config
        if held + size > config.segment_bytes:
            return held > 0
        if last_offset - segment.base_offset > _MAX_RELATIVE_OFFSET:
            return True
        if held == 0:
            return False
        begun = segment.first_timestamp
        waited = header.max_timestamp - begun if begun is not None and begun >= 0 else now_ms - segment.created_ms
        if waited > config.segment_ms - segment.jitter_ms:
            return True
        return self._may_fill_index(held) and len(segment.index) >= self._most_entries

    @property
    def _most_entries(self) -> int:
        return self.config.segment_index_bytes // OFFSET_ENTRY_SIZE - 1

    def _may_fill_index(self, held: int) -> bool:
        """Return False for a segment of `held` bytes that cannot have filled its index: an entry stands for more than
        index.interval.bytes of log.
        """
        return held >= self._most_entries * self.config.index_interval_bytes

    def _roll(self, now_ms: int, base_offset: int) -> Segment:
        """Close the active segment and begin the next one at `base_offset`, of the next batch. Raises OSError."""
        old = self._active
        self._store.write(self.directory / f"{base_offset:020d}.snapshot", self.producers.snapshot())
        segment = Segment(self._store, self.directory, base_offset)
        segment.start_empty()
        old.seal()  # the last step that may fail: until then the old segment stays active
        self._rolled.append(old)
        segment.created_ms = now_ms
        segment.jitter_ms = self._jitter(self.config.segment_jitter_ms)
        self._segments.append(segment)
        self._active = segment
        self._has_new_names = self._changed = True
        return segment

    def read(self, offset: int, max_bytes: int, limit_offset: int, *, whole_first: bool) -> Region | None:
        """Return the batches from the one with `offset` on, None if there are no batches to read.

        offset        first requested offset (inclusive); the first batch may begin before it
        max_bytes     limit in bytes
        limit_offset  upper limit of the reader (exclusive): high watermark, last stable offset or log end
        whole_first   whether the first batch is returned even if it is larger than `max_bytes` (KIP-74)

        A read ends at the end of a segment, as in Kafka. Raises OffsetNotInLog, and StorageError for damaged bytes.
        """
        if offset >= limit_offset:
            if offset > self.end_offset:
                raise OffsetNotInLog(f"offset {offset} is beyond the log end offset {self.end_offset} of {self.name}")
            return None
        if offset < self.start_offset:
            raise OffsetNotInLog(f"offset {offset} is below the log start offset {self.start_offset} of {self.name}")
        try:
            segment = self._active
            at = len(self._segments) - 1
            while offset < segment.base_offset:
                at -= 1
                segment = self._segments[at]
            position = segment.position_of(offset)
            while position >= segment.size:  # compaction removed all batches from this offset to the end of the segment
                at += 1
                if at == len(self._segments) or self._segments[at].base_offset >= limit_offset:
                    return None
                segment = self._segments[at]
                position = segment.position_of(offset)
            end = segment.size if limit_offset >= segment.next_offset else segment.position_of(limit_offset)
            return segment.read(position, max_bytes, end, whole_first=whole_first)
        except DamagedLog as damage:
            raise UnreadableRecords(str(damage)) from damage
        except OSError as cause:
            raise self._storage_error(cause) from cause

    def delete_records(self, offset: int) -> int:
        """Delete the records below `offset` (-1: the high watermark). Returns the log start offset.

        Segments below it are removed by the next `retain`. Raises OffsetNotInLog. Source: KIP-107.
        """
        start_offset = self.high_watermark if offset == -1 else offset
        if not 0 <= start_offset <= self.high_watermark:
            raise OffsetNotInLog(f"offset {offset} is not in {self.name}, which ends at {self.high_watermark}")
        if start_offset > self.start_offset:
            self._set_start_offset(start_offset)
        return self.start_offset

    def raise_start(self, offset: int) -> None:
        """Raise the log start offset to that of the leader, at most to the log end; never lower it."""
        offset = min(offset, self.end_offset)
        if offset > self.start_offset:
            self.high_watermark = max(self.high_watermark, offset)  # the leader deletes committed records only
            self._set_start_offset(offset)

    def _set_start_offset(self, offset: int) -> None:
        self.start_offset = offset
        self._changed = True
        self.epochs.drop_before(offset)

    def retain(self, now_ms: int) -> list[Segment]:
        """Remove some of the oldest segments beyond the retention limits; call it until it returns an empty list. They are
        renamed and no longer part of the log; `Segment.remove` deletes them later, when no reader uses them. Raises
        StorageError.
        """
        if self._compaction is not None or self.is_moving or self._closed:
            return []
        segments = self._segments
        gone: list[Segment] = []
        try:
            seen = [
                Candidate(
                    segment.next_offset,
                    segment.size,
                    segment.max_timestamp if segment.max_timestamp >= 0 else segment.modified_ms(),
                )
                for segment in segments
            ]
            count = expired(seen, self.config.retention, self.start_offset, self.high_watermark, now_ms)
            if count == len(segments) <= _REMOVED_AT_ONCE:
                self._roll(now_ms, self.end_offset)
            count = min(count, _REMOVED_AT_ONCE)
            if count and not segments[count].size:
                # The name of the new file stores the log end offset from now on: it must exist first.
                segments[count].log.fileno()
            try:
                while len(gone) < count:
                    oldest = segments[0]
                    oldest.move_to(DELETED)
                    del segments[0]  # only now: until it is renamed, it can be read
                    gone.append(oldest)
                    self._store.remove(self.directory / f"{oldest.base_offset:020d}.snapshot")
            finally:
                if segments[0].base_offset > self.start_offset:
                    self._set_start_offset(segments[0].base_offset)
        except OSError as cause:
            error = self._storage_error(cause)
            if not gone:
                raise error from cause
            _logger.error("%s", error)  # the segments renamed so far must be removed by the caller
        return gone

    def dirtiness(self, now_ms: int) -> float:
        """Return the share (0 to 1) of the compactable bytes written since the last compaction, 0 if compaction is not due.

        It is due when the ratio reaches min.cleanable.dirty.ratio, or when a record has waited for max.compaction.lag.ms.
        """
        config = self.config
        if not config.is_compacted or self._compaction is not None or self.is_damaged or self.is_moving:
            return 0.0
        ready = self._compactable(now_ms)
        dirty = sum(segment.size for segment in ready if segment.next_offset > self.clean_until)
        if not dirty:
            return 0.0
        ratio = dirty / sum(segment.size for segment in ready)
        # As in Kafka, records without a timestamp have no age.
        begun = [segment.first_timestamp for segment in ready if segment.next_offset > self.clean_until]
        waited = now_ms - min((timestamp for timestamp in begun if timestamp and timestamp > 0), default=now_ms)
        return ratio if ratio >= config.min_cleanable_dirty_ratio or waited > config.max_compaction_lag_ms else 0.0

    def _compactable(self, now_ms: int) -> list[Segment]:
        """Return the inactive segments without undecided transactions that are older than min.compaction.lag.ms."""
        lag = self.config.min_compaction_lag_ms
        decided = self.last_stable_offset
        segments = []
        for segment in self._segments[:-1]:
            if segment.next_offset > decided or (lag > 0 and segment.max_timestamp > now_ms - lag):
                break
            segments.append(segment)
        return segments

    def compact(self, now_ms: int) -> Generator[Flush | list[Segment]]:
        """Run a compaction pass. Yields after each step: a flush that must be run before the next step, or segments that are no
        longer part of the log, for `Segment.remove`. Raises StorageError; the log is unchanged then. A log with damaged bytes
        is not compacted again until it is reopened.
        """
        config = self.config
        rules = CompactionRules(
            config.segment_bytes, config.index_interval_bytes, config.delete_retention_ms, config.largest_record
        )
        compactable = self._compactable(now_ms)
        work = Pass(
            self._store,
            self.directory,
            compactable,
            self.clean_until,
            rules,
            self.producers.last_batches(),
            [aborted for segment in self._segments for aborted in segment.transaction_index.entries()],
            now_ms,
        )
        self._compaction = work
        try:
            for flush in work.steps():
                yield [] if flush is None else flush
                if self._compaction is not work:  # the log was truncated
                    return
            if self._closed:
                return
            decided, work.replaced = work.replaced, []  # from here on `abandon` must not remove files
            gone: list[Segment] = []
            for old, fresh in decided:
                self._swap(old, fresh)
                gone += old
            self.clean_until = work.end
        except DamagedLog as damage:
            self.is_damaged = True
            raise StorageError(str(damage)) from damage
        except OSError as cause:
            raise self._storage_error(cause) from cause
        finally:
            if self._compaction is work:
                self._compaction = None
            work.abandon()
        yield gone

    def _swap(self, old: list[Segment], fresh: Segment) -> None:
        # The .swap name decides: a crash before it drops the new segment, one after it has `recovery` complete the swap.
        fresh.move_to(SWAP)
        for segment in old:
            segment.move_to(DELETED)
        fresh.move_to("")
        at = self._segments.index(old[0])
        self._segments[at : at + len(old)] = [fresh]
        self._changed = True

    @property
    def wants_flush(self) -> bool:
        """True if flush.messages demands a flush or a rolled segment is not flushed yet."""
        return self._must_be_flushed > self.recovery_point or bool(self._rolled)

    @property
    def awaits_flush(self) -> bool:
        """True while flush.messages demands a flush of the log: a follower must not acknowledge its end yet."""
        return self._must_be_flushed > self.recovery_point

    def begin_flush(self) -> Flush:
        """Return a flush of all unflushed data, for any thread to run; call `flushed` with it afterwards."""
        # The flush covers the data written up to now: data appended, rolled or created while it runs is left to
        # the next one, hence the fields below are reset at its beginning (`fail_flush` puts back what it needs). The order
        # of the files does not matter, because the recovery point moves only after the last of them.
        files = [segment.log for segment in (*self._rolled, self._active)]
        paths = [path for segment in self._rolled for path in segment.files()[1:]]
        paths += [self.directory / f"{segment.base_offset:020d}.snapshot" for segment in self._segments[1:][-1:]]
        paths.append(self.directory / "leader-epoch-checkpoint")
        if self._has_new_names:
            # Records on the disk whose topic is not known might be served as those of a later topic of the same name.
            paths += [self.directory / PARTITION_METADATA, self.directory, self.directory.parent]
        if not self._rolled and not self._has_new_names:
            paths = []
        self._rolled = []
        self._has_new_names = False
        self._unflushed = 0
        return Flush(self._store, files, paths, self.end_offset, self._truncations)

    def flushed(self, flush: Flush, now_ms: int) -> None:
        """Record a completed flush: move the recovery point, unless the log was truncated meanwhile."""
        # After a truncation the log may have grown beyond the end of the flush again, by batches that it did not cover.
        if flush.truncations == self._truncations:
            self.recovery_point = max(self.recovery_point, flush.end_offset)
        self.last_flush_ms = now_ms

    def flush(self, now_ms: int = 0) -> None:
        """Flush all data to disk now. Raises StorageError."""
        flush = self.begin_flush()
        try:
            flush.run()
        except OSError as cause:
            raise self._storage_error(cause) from cause
        self.flushed(flush, now_ms)

    def fail_flush(self, cause: OSError) -> None:
        """Record a failed flush. If the disk has failed, the directory goes offline, as its content is uncertain. Otherwise all
        data above the recovery point is left to the next flush.
        """
        self._failed(cause)
        self._rolled = self._unflushed_segments()
        self._has_new_names = True

    def _unflushed_segments(self) -> list[Segment]:
        """Return the inactive segments that may not be flushed yet."""
        return [segment for segment in self._segments[:-1] if segment.next_offset > self.recovery_point]

    def read_failed(self, cause: OSError) -> StorageError:
        """Report a read of this log's files that failed elsewhere to the directory, and return the error to raise."""
        return self._storage_error(cause)

    @property
    def truncations(self) -> int:
        """Return the number of truncations since the log was opened: compared by callers that process segments in steps."""
        return self._truncations

    def truncate_to(self, offset: int) -> None:
        """Truncate the log as `truncation` does, in one step. Raises StorageError."""
        self._run(self.truncation(offset))

    def truncation(self, offset: int) -> Generator[Flush | None]:
        """Remove the batch with `offset` and all after it, for a follower whose log diverges from its leader's. Yields after
        every few milliseconds of work; a yielded flush must be run before the next step. The log changes in the step before
        the flush; nothing may be appended until the end. Raises StorageError. Source: Kafka's UnifiedLog.

        The flush is what Kafka lacks: without it a power failure may bring removed batches back among the ones appended later,
        and leader epochs do not show that. Leader epochs that begin at the new end or beyond are removed even if no batch is:
        this broker began them as leader, and appended nothing. The caller writes the checkpoints after it.
        """
        if offset >= self.end_offset and not self._is_cut_short:
            try:
                self.epochs.truncate(self.end_offset)
            except OSError as failure:
                raise self._storage_error(failure) from failure
            return
        if offset < self.high_watermark:
            _logger.warning(
                "%s is truncated to %d, below its high watermark %d", self.name, offset, self.high_watermark
            )
        try:
            self._cut(offset, (yield from self._producers_before(offset)))
        except DamagedLog as damage:
            raise StorageError(str(damage)) from damage
        except OSError as cause:
            raise self._storage_error(cause) from cause
        yield self._flush_of_cut()
        self._is_cut_short = False

    def _producers_before(self, offset: int) -> Generator[None, None, ProducerStates]:
        return recovery.producers_before(
            self._store, self.directory, self._segments, offset, min(self.high_watermark, offset)
        )

    def _flush_of_cut(self) -> Flush:
        return Flush(self._store, [self._active.log], [self.directory], self.end_offset, self._truncations)

    def _run(self, steps: Generator[Flush | None, None, R]) -> R:
        """Run the steps of a truncation to their end, with their flushes, and return their result. Raises StorageError."""
        while True:
            try:
                flush = next(steps)
                if flush is not None:
                    flush.run()
            except StopIteration as stop:
                result: R = stop.value
                return result
            except OSError as cause:
                raise self._storage_error(cause) from cause

    def _cut(self, offset: int, producers: ProducerStates, damage: tuple[Segment, int] | None = None) -> None:
        """Remove the batch with `offset` and all after it. Raises DamagedLog and OSError; the truncation must be repeated then.

        producers  states after the batches that end before `offset`
        damage     segment and position to cut at, if `offset` cannot be looked up there
        """
        segments = self._segments
        self._begin_cut()
        # From the end backwards: a crash at any point leaves a log without gaps, which is truncated again.
        while (
            segments[-1] is not damage[0] if damage else len(segments) > 1 and segments[-1].base_offset > max(offset, 0)
        ):
            self._discard_last()
        active = segments[-1]
        if active.base_offset > offset:  # below the log's beginning
            self._start_at(offset)
        else:
            active.truncate(offset, damage and damage[1])
            self._active = active
        # The new end comes first: producers and epochs are cut at it. Opening the log does both again after a crash.
        self.end_offset = end = self._active.next_offset
        recovery.drop_snapshots(self._store, self.directory, end)
        self.producers = producers
        self.epochs.truncate(end)
        # No offset may be beyond the end, above all the recovery point: batches appended next are not flushed yet.
        self.start_offset = min(self.start_offset, end)
        self.high_watermark = min(self.high_watermark, end)
        self.recovery_point = min(self.recovery_point, end)
        self._must_be_flushed = min(self._must_be_flushed, end)
        self.clean_until = min(self.clean_until, end)
        self._end_cut()

    def restart_at(self, offset: int) -> None:
        """Restart the log as `restart` does, in one step. Raises StorageError."""
        self._run(self.restart(offset))

    def restart(self, offset: int) -> Generator[Flush | None]:
        """Drop all batches and start an empty log at `offset`, for a follower whose log ends before its leader's begins. Yields
        a flush, as `truncation` does. Raises StorageError; the call must be repeated then.
        """
        self._start_over(offset, offset)
        yield self._flush_of_cut()
        self._is_cut_short = False

    def _start_over(self, base_offset: int, start_offset: int) -> None:
        """Drop all batches; the next one begins at `base_offset`, and its first readable record is `start_offset`."""
        try:
            self._begin_cut()
            self.producers = ProducerStates()
            while len(self._segments) > 1:
                self._discard_last()
            self._start_at(base_offset)
            self._active.log.fileno()  # create the file: its name stores the log end offset
            recovery.drop_snapshots(self._store, self.directory, -1)
            self.epochs.truncate(0)
        except OSError as cause:
            raise self._storage_error(cause) from cause
        self.end_offset = base_offset
        self.start_offset = self.high_watermark = self.clean_until = start_offset
        self.recovery_point = min(self.recovery_point, base_offset)  # the new file is not flushed
        self._must_be_flushed = self._unflushed = 0
        self._end_cut()

    def cut_damage(self, offset: int) -> int:
        """Cut damage as `damage_cut` does, in one step. Raises StorageError."""
        return self._run(self.damage_cut(offset))

    def damage_cut(self, offset: int) -> Generator[Flush | None, None, int]:
        """Check the segment with `offset`, which could not be read, and truncate the log at its first damaged batch, for a
        follower that fetches the rest again. Return the log end offset, which is unchanged without damage. Yields and changes
        the log as `truncation` does. Raises StorageError.
        """
        segment = next((one for one in reversed(self._segments) if one.base_offset <= offset), self._segments[0])
        try:
            problem, position, end = yield from recovery.first_damage(segment)
            if problem is None or segment not in self._segments:
                return self.end_offset
            producers = yield from self._producers_before(end)
            self._cut(end, producers, (segment, position))
        except DamagedLog as damage:
            raise StorageError(str(damage)) from damage
        except OSError as cause:
            raise self._storage_error(cause) from cause
        yield self._flush_of_cut()
        self._is_cut_short = False
        _logger.warning(
            "%s at position %d: %s; this replica is cut at offset %d, and the rest is fetched again from the leader",
            segment.path,
            position,
            problem,
            end,
        )
        return self.end_offset

    def _begin_cut(self) -> None:
        # Before the first file is changed: a running flush covers the old files, and must not move the recovery point.
        self._truncations += 1
        self._is_cut_short = True

    def _end_cut(self) -> None:
        segments = self._segments
        compaction = self._compaction
        # A pass works on the oldest segments: if its last one is still there and inactive, all are.
        if compaction is not None and compaction.segments and compaction.segments[-1] not in segments[:-1]:
            self._compaction = None
        self._rolled = [segment for segment in self._rolled if segment in segments]
        self._has_new_names = self._changed = True

    def _discard_last(self) -> None:
        """Rename the newest segment, to be removed from disk later: large files take long. Raises OSError."""
        self._segments[-1].move_to(DELETED)
        self._discarded.append(self._segments.pop())

    def _start_at(self, offset: int) -> None:
        """Replace the only segment by an empty one that begins at `offset`. Raises OSError."""
        only = self._segments[0]
        only.move_to(DELETED)
        self._active = self._segments[0] = fresh = Segment(self._store, self.directory, offset)
        fresh.start_empty()
        fresh.jitter_ms = self._jitter(self.config.segment_jitter_ms)
        self._discarded.append(only)

    def take_discarded(self) -> list[Segment]:
        """Return the segments that truncations have removed from the log, for `Segment.remove`."""
        discarded, self._discarded = self._discarded, []
        return discarded

    def divergence(self, last_epoch: int, fetch_offset: int) -> tuple[int, int] | None:
        """Compare this leader's log with a follower's that ends at `fetch_offset`, in `last_epoch` (-1: without epochs).

        Return None if the follower's is a prefix of this one; else the largest epoch up to `last_epoch` and its end offset
        here. Raises OffsetNotInLog for an epoch that this log cannot know. Source: Kafka's UnifiedLog, KIP-595.
        """
        if last_epoch < 0:
            return None
        epoch, end_offset = self.epochs.end_of(last_epoch, self.end_offset)
        if epoch < 0:
            raise OffsetNotInLog(
                f"leader epoch {last_epoch} is unknown in {self.name}, whose latest is {self.epochs.latest}"
            )
        return (epoch, end_offset) if epoch < last_epoch or end_offset < fetch_offset else None

    def truncation_point(self, epoch: int, end_offset: int) -> int:
        """Return the offset to which a follower truncates whose leader has answered that their logs diverge.

        epoch, end_offset  the leader's largest epoch up to the follower's last one, and its end offset there
        """
        own_epoch, own_end = self.epochs.end_of(epoch, self.end_offset)
        if own_epoch < 0:
            own_end = self.end_offset if self.epochs.latest >= 0 else self.high_watermark
        # Where the own epoch is older than the leader's, the batches after it are of epochs that the leader does not have.
        return max(min(own_end, end_offset), self.start_offset)

    def take_over(self, moved: "Log", flushed_offset: int) -> None:
        """Take over the in-memory state of `moved`, of which this log is a copy in another directory.

        flushed_offset  offset (exclusive) up to which the copy was flushed to disk
        """
        self.high_watermark = moved.high_watermark
        self.clean_until = moved.clean_until
        self.recovery_point = min(moved.recovery_point, flushed_offset)
        self._must_be_flushed = moved._must_be_flushed
        self._unflushed = moved._unflushed
        self._rolled = self._unflushed_segments()
        self._has_new_names = True

    @property
    def has_changed(self) -> bool:
        """Return True if a clean stop has to write files; False for a log that was only read."""
        return self._changed

    def abandon(self) -> None:
        """Stop writing, as the directory is offline; open reads continue."""
        self._closed = True

    def moved(self, directory: Path) -> None:
        """Record a new path of the directory after its rename; open reads continue."""
        self.directory = directory
        self.epochs.moved(directory / "leader-epoch-checkpoint")
        for segment in (*self._segments, *self._discarded):
            segment.moved(directory)

    def close(self, *, clean: bool = True, flush: bool = True) -> None:
        """Close the log. Writes indexes and a producer snapshot, and flushes all files, so that the next start needs no scan;
        without `flush` the caller must flush everything to disk before it marks the stop as clean. Raises StorageError.
        """
        self._closed = True
        if clean and self._changed:
            try:
                self._active.seal()
                name = f"{self.end_offset:020d}.snapshot"
                self._store.write(self.directory / name, self.producers.snapshot())
                self._rolled.append(self._active)
                self._has_new_names = True
                self._drop_old_snapshots()
                work = self.begin_flush()
                if flush:
                    self._store.flush(self.directory / name)
                    work.run()
                self._write_checksums(flush=flush)
            except OSError as cause:
                raise self._storage_error(cause) from cause
            self.flushed(work, self.last_flush_ms)
        for segment in (*self._segments, *self._discarded):
            segment.close()

    def _write_checksums(self, *, flush: bool) -> None:
        """Write the checksums of the files that a clean start trusts. Raises OSError."""
        if len(self._segments) == 1 and self._active.size <= recovery.SHORT and not self.start_offset:
            self._store.remove(self.directory / clean_stop.CHECKSUMS)
            return
        path = clean_stop.write(self._store, self.directory, self._segments, self.end_offset, self.start_offset)
        if flush:
            self._store.flush(path)
            self._store.flush(self.directory)

    def _drop_old_snapshots(self) -> None:
        """Remove producer snapshots, except those of existing segments and the newest."""
        kept = {f"{segment.base_offset:020d}.snapshot" for segment in self._segments}
        kept.add(f"{self.end_offset:020d}.snapshot")
        for name in self._store.names(self.directory):
            if name.endswith(".snapshot") and name not in kept:
                self._store.remove(self.directory / name)


__all__ = [
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "AppendResult",
    "Log",
    "OffsetNotInLog",
    "StorageError",
    "Unfinished",
    "UnreadableRecords",
]
