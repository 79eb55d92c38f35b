"""The log of one partition: append at the end, read from anywhere, never change what was acknowledged.

Offsets of a log, from left to right:

    log start offset        the first one that may be read
    last stable offset      below it no transaction is open; readers of committed data stop here
    high watermark          below it everything is on all in-sync replicas; consumers stop here
    log end offset          the next one to be given out

The log does not know replicas: whoever leads or follows it moves the high watermark.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ottla.log import recovery
from ottla.log.checkpoints import LeaderEpochs
from ottla.log.compaction import Pass, Rules
from ottla.log.config import LogConfig
from ottla.log.index import OFFSET_ENTRY_SIZE
from ottla.log.producers import ProducerStates
from ottla.log.retention import Candidate, expired
from ottla.log.segment import DELETED, SWAP, DamagedLog, Segment
from ottla.log.store import Region, Store
from ottla.protocol.errors import (
    KAFKA_STORAGE_ERROR,
    MESSAGE_TOO_LARGE,
    NONE,
    OFFSET_OUT_OF_RANGE,
    RECORD_LIST_TOO_LARGE,
)
from ottla.records import legacy
from ottla.records.batch import build, read_header, records_of
from ottla.records.errors import CorruptRecords
from ottla.records.record import Record
from ottla.records.validation import Prepared, prepare

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
_MAX_RELATIVE_OFFSET: Final = 0x7FFFFFFF


class Appended:
    """Where a batch went: `base_offset` is its first offset (-1 when it was refused, with the error's code and text)."""

    __slots__ = ("append_time", "base_offset", "error_code", "error_message", "record_errors")

    def __init__(
        self,
        base_offset: int,
        append_time: int = -1,
        error_code: int = NONE,
        error_message: str | None = None,
        record_errors: list[tuple[int, str | None]] | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.append_time = append_time
        self.error_code = error_code
        self.error_message = error_message
        self.record_errors = record_errors


class OffsetOutOfRange(Exception):
    """An offset below the log start offset or beyond what the reader may see."""

    code = OFFSET_OUT_OF_RANGE


class StorageError(Exception):
    """The disk failed, or holds damaged bytes; the message names file and position."""

    code = KAFKA_STORAGE_ERROR


class Log:
    """One partition's batches.

    directory       <log.dir>/<topic>-<partition>, which must exist
    recovery_point  offset (exclusive) up to which everything is known to be on the medium and whole
    """

    def __init__(
        self, store: Store, directory: Path, config: LogConfig, *, recovery_point: int = 0, log_start_offset: int = 0
    ) -> None:
        self._store = store
        self.directory = directory
        self.name = directory.name
        self.config = config
        try:
            found = recovery.load_segments(store, directory, config.index_interval_bytes)
            if not found:
                found = [Segment(store, directory, log_start_offset)]
                found[0].start_empty()
            self._segments = recovery.recover(store, found, recovery_point, config.index_interval_bytes)
            self._active = self._segments[-1]
            self.producers: ProducerStates = recovery.load_producers(
                store, directory, self._segments, self._active.next_offset
            )
        except (OSError, DamagedLog) as cause:
            raise StorageError(str(cause)) from cause
        self.end_offset = self._active.next_offset
        self.start_offset = max(log_start_offset, self._segments[0].base_offset)
        self.high_watermark = self.end_offset
        self.recovery_point = min(recovery_point, self.end_offset)
        self.epochs = LeaderEpochs(store, directory / "leader-epoch-checkpoint")
        self.epochs.truncate(self.end_offset)
        self._unflushed = 0
        self.clean_until = self.start_offset
        self.is_damaged = False
        self._compacting = False
        self._closed = False

    @property
    def last_stable_offset(self) -> int:
        """The high watermark, as long as no transaction can be open."""
        return self.high_watermark

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    def append(
        self, frame: bytes, start: int, end: int, leader_epoch: int, now_ms: int, *, zstd_allowed: bool = True
    ) -> Appended:
        """Validate the batch `frame[start:end]` as Kafka does, give it offsets, write it.

        Raises StorageError when the disk does not take it; the log is then as it was.
        """
        config = self.config
        rules = config.rules if zstd_allowed else config.rules_without_zstd
        batch = prepare(frame, start, end, rules, now_ms, self.name)
        if batch.error_code != NONE:
            return Appended(-1, -1, batch.error_code, batch.error_message, batch.record_errors)
        header = batch.header
        if header.producer_id >= 0:
            code, duplicate = self.producers.check(header)
            if code != NONE:
                return Appended(-1, -1, code)
            if duplicate is not None:
                return Appended(duplicate.first_offset, duplicate.timestamp)
        if batch.size_in_bytes > config.segment_bytes:
            return Appended(-1, -1, RECORD_LIST_TOO_LARGE)
        return Appended(self._write(batch, leader_epoch), batch.append_time)

    def append_message_set(self, frame: bytes, start: int, end: int, leader_epoch: int, now_ms: int) -> Appended:
        """Append the message set `frame[start:end]` of an old producer (Produce 0 to 2), converted up. An empty set is no
        error: its base offset is -1. Raises StorageError.
        """
        config = self.config
        rebuilt = legacy.rebuild(frame, start, end, config.max_message_bytes, config.max_decompressed_bytes)
        if rebuilt.error_code != NONE or not rebuilt.batch:
            return Appended(-1, -1, rebuilt.error_code)
        return self.append(rebuilt.batch, 0, len(rebuilt.batch), leader_epoch, now_ms)

    def append_records(
        self, records: list[tuple[bytes | None, bytes | None]], leader_epoch: int, now_ms: int
    ) -> Appended:
        """Append (key, value) pairs of the broker itself as one batch; a value of None is a tombstone."""
        batch = build([Record(at, now_ms, key, value) for at, (key, value) in enumerate(records)])
        if len(batch) > self.config.max_message_bytes:
            return Appended(-1, -1, MESSAGE_TOO_LARGE)
        return self.append(batch, 0, len(batch), leader_epoch, now_ms)

    def _write(self, batch: Prepared, leader_epoch: int) -> int:
        base_offset = self.end_offset
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        header = batch.header
        try:
            segment = self._active
            if self._must_roll(segment, batch, base_offset + header.last_offset_delta):
                segment = self._roll()
            buffers = batch.stamped(base_offset, leader_epoch)
            segment.append(header, base_offset, buffers, self.config.index_interval_bytes)
            self.end_offset = segment.next_offset
            self._unflushed += header.count
            if self._unflushed >= self.config.flush_messages:
                self.flush()
        except OSError as cause:
            raise StorageError(f"{self._active.path}: {cause.strerror}") from cause
        if header.producer_id >= 0:
            self.producers.appended(header, base_offset)
        return base_offset

    def _must_roll(self, segment: Segment, batch: Prepared, last_offset: int) -> bool:
        config = self.config
        size = segment.size
        if size + batch.size_in_bytes > config.segment_bytes:
            return size > 0
        if last_offset - segment.base_offset > _MAX_RELATIVE_OFFSET:
            return True
        if size == 0:
            return False
        begun = segment.first_timestamp
        newest = batch.header.max_timestamp
        aged = begun is not None and begun >= 0 and newest >= 0 and newest - begun > config.segment_ms
        # An entry stands for more than index.interval.bytes of log, so a short log cannot have filled its index.
        entries = config.segment_index_bytes // OFFSET_ENTRY_SIZE - 1
        return aged or (size >= entries * config.index_interval_bytes and len(segment.index) >= entries)

    def _roll(self) -> Segment:
        """Close the active segment and begin the next one at the log end offset."""
        old = self._active
        old.seal()
        old.log.flush()
        self._store.replace(self.directory / f"{self.end_offset:020d}.snapshot", self.producers.snapshot())
        self.recovery_point = self.end_offset
        self._unflushed = 0
        segment = Segment(self._store, self.directory, self.end_offset)
        segment.start_empty()
        self._segments.append(segment)
        self._active = segment
        return segment

    def read(self, offset: int, max_bytes: int, limit_offset: int, *, whole_first: bool) -> Region | None:
        """Batches from the one that holds `offset` on, None when there is nothing.

        offset        first offset wanted (inclusive); the first batch may begin before it
        max_bytes     limit in bytes
        limit_offset  offset (exclusive) at which the reader stops: high watermark, last stable offset or log end
        whole_first   the first batch is returned even when it is larger than `max_bytes` (KIP-74)

        A read ends at the end of a segment, as in Kafka. Raises OffsetOutOfRange, and StorageError for damaged bytes.
        """
        if offset >= limit_offset:
            if offset > self.end_offset:
                raise OffsetOutOfRange(f"offset {offset} is beyond the log end offset {self.end_offset} of {self.name}")
            return None
        if offset < self.start_offset:
            raise OffsetOutOfRange(f"offset {offset} is below the log start offset {self.start_offset} of {self.name}")
        try:
            segment = self._active
            at = len(self._segments) - 1
            while offset < segment.base_offset:
                at -= 1
                segment = self._segments[at]
            position = segment.position_of(offset)
            while position >= segment.size:  # compaction left nothing from this offset to the end of the segment
                at += 1
                if at == len(self._segments) or self._segments[at].base_offset >= limit_offset:
                    return None
                segment = self._segments[at]
                position = segment.position_of(offset)
            end = segment.size if limit_offset >= segment.next_offset else segment.position_of(limit_offset)
            return segment.read(position, max_bytes, end, whole_first=whole_first)
        except DamagedLog as cause:
            raise StorageError(str(cause)) from cause

    def read_message_set(self, offset: int, max_bytes: int, limit_offset: int, magic: int) -> bytes:
        """What `read` finds, as a message set of `magic` for an old consumer; the first batch is taken whole.

        Where there is nothing but control batches, which old consumers cannot step over, it goes on behind them. Raises as
        `read` does, and NotForOldClients.
        """
        while (region := self.read(offset, max_bytes, limit_offset, whole_first=True)) is not None:
            data = region.read()
            try:
                found = legacy.for_old_client(data, magic, offset, max_bytes)
                offset = self._next_offset(data)
            except CorruptRecords as cause:
                raise StorageError(f"{self.directory}: {cause}") from cause
            if found:
                return found
        return b""

    def offset_at(self, timestamp: int) -> tuple[int, int, int] | None:
        """The first record at or after `timestamp` (ms) as (timestamp, offset, leader epoch). Raises StorageError."""
        try:
            for segment in self._segments:
                if segment.max_timestamp >= timestamp and segment.next_offset > self.start_offset:
                    found = segment.offset_at(timestamp)
                    if found is not None:
                        return found
        except (OSError, DamagedLog) as cause:
            raise StorageError(str(cause)) from cause
        return None

    def offset_of_newest(self) -> tuple[int, int, int] | None:
        """The first record with the largest timestamp, as (timestamp, offset, leader epoch) (KIP-734). Raises StorageError."""
        try:
            newest = max(self._segments, key=lambda segment: segment.max_timestamp)
            return newest.offset_of_newest()
        except (OSError, DamagedLog) as cause:
            raise StorageError(str(cause)) from cause

    def offsets_before(self, timestamp: int) -> list[int]:
        """What ListOffsets 0 asks for: offsets at which a segment begins that was last written to at or before `timestamp`
        (ms; -1 for any time, -2 for the beginning only), newest first, with the log end in front when the log is not empty.
        """
        if timestamp == -2:
            return [self.start_offset]
        marks = [(segment.base_offset, segment.modified_ms()) for segment in self._segments]
        if self._active.size:
            marks.append((self.end_offset, marks[-1][1]))
        return [max(base, self.start_offset) for base, at in reversed(marks) if timestamp == -1 or at <= timestamp]

    def records(self) -> list[Record]:
        """Every record from the log start offset on, decoded: for a coordinator that loads. Raises StorageError."""
        found: list[Record] = []
        offset = self.start_offset
        while offset < self.end_offset:
            region = self.read(offset, 4 << 20, self.end_offset, whole_first=True)
            if region is None:
                break
            data = region.read()
            try:
                found += records_of(data)
                offset = self._next_offset(data)
            except CorruptRecords as cause:
                raise StorageError(f"{self.directory}: {cause}") from cause
        return [record for record in found if record.offset >= self.start_offset]

    @staticmethod
    def _next_offset(data: bytes) -> int:
        position, offset = 0, 0
        while position < len(data):
            header = read_header(data, position)
            position, offset = header.end, header.next_offset
        return offset

    def delete_records(self, offset: int) -> int:
        """Nothing below `offset` may be read any more; -1 stands for the high watermark. Returns the log start offset.

        Segments that lie below it go with the next `retain`. Raises OffsetOutOfRange. Source: KIP-107.
        """
        wanted = self.high_watermark if offset == -1 else offset
        if not 0 <= wanted <= self.high_watermark:
            raise OffsetOutOfRange(f"offset {offset} is not in {self.name}, which ends at {self.high_watermark}")
        if wanted > self.start_offset:
            self._begin_at(wanted)
        return self.start_offset

    def _begin_at(self, offset: int) -> None:
        self.start_offset = offset
        self.epochs.drop_before(offset)

    def retain(self, now_ms: int) -> list[Segment]:
        """Let go of what retention allows; returns segments that are no longer part of the log, for `Segment.remove` once
        readers have let go of them. Raises StorageError.
        """
        segments = self._segments
        seen = [
            Candidate(
                segment.next_offset,
                segment.size,
                segment.max_timestamp if segment.max_timestamp >= 0 else segment.modified_ms(),
            )
            for segment in segments
        ]
        if self._compacting:
            return []
        count = expired(seen, self.config.retention, self.start_offset, self.high_watermark, now_ms)
        if not count:
            return []
        gone = segments[:count]
        try:
            if count == len(segments):
                # The name of the new file is what remembers the log end offset from now on: it must be there first.
                self._roll().log.fileno()
            del self._segments[:count]
            for segment in gone:
                segment.move_to(DELETED)
                self._store.remove(self.directory / f"{segment.base_offset:020d}.snapshot")
        except OSError as cause:
            raise StorageError(f"{self.directory}: {cause.strerror}") from cause
        if self._segments[0].base_offset > self.start_offset:
            self._begin_at(self._segments[0].base_offset)
        return gone

    def dirtiness(self, now_ms: int) -> float:
        """How much of what could be compacted was written since the last time: from 0 to 1, 0 when it is not worth it yet.

        It is when it reaches min.cleanable.dirty.ratio, or when a record has waited for max.compaction.lag.ms.
        """
        config = self.config
        if not config.is_compacted or self._compacting or self.is_damaged:
            return 0.0
        ready = self._compactable(now_ms)
        dirty = sum(segment.size for segment in ready if segment.next_offset > self.clean_until)
        if not dirty:
            return 0.0
        ratio = dirty / sum(segment.size for segment in ready)
        oldest = next(segment for segment in ready if segment.next_offset > self.clean_until)
        waited = now_ms - (oldest.first_timestamp or now_ms)
        return ratio if ratio >= config.min_cleanable_dirty_ratio or waited > config.max_compaction_lag_ms else 0.0

    def _compactable(self, now_ms: int) -> list[Segment]:
        """Segments that are no longer written to, committed, and older than min.compaction.lag.ms."""
        lag = self.config.min_compaction_lag_ms
        found = []
        for segment in self._segments[:-1]:
            if segment.next_offset > self.high_watermark or (lag > 0 and segment.max_timestamp > now_ms - lag):
                break
            found.append(segment)
        return found

    def compact(self, now_ms: int) -> Iterator[list[Segment]]:
        """Compact what can be. Yields after each step, at the end with the segments that are no longer part of the log, for
        `Segment.remove`. Raises StorageError; the log is then as it was, and is not compacted again until it is reopened
        when its bytes are damaged.
        """
        config = self.config
        rules = Rules(config.segment_bytes, config.index_interval_bytes, config.delete_retention_ms)
        work = Pass(
            self._store,
            self.directory,
            self._compactable(now_ms),
            self.clean_until,
            rules,
            self.producers.last_offsets(),
            now_ms,
        )
        self._compacting = True
        try:
            for _ in work.steps():
                yield []
            if self._closed:
                return
            decided, work.replaced = work.replaced, []  # from here on there is nothing to abandon
            gone: list[Segment] = []
            for old, fresh in decided:
                self._swap(old, fresh)
                gone += old
            self.clean_until = work.end
        except (OSError, DamagedLog) as cause:
            self.is_damaged = self.is_damaged or isinstance(cause, DamagedLog)
            raise StorageError(str(cause)) from cause
        finally:
            self._compacting = False
            work.abandon()
        yield gone

    def _swap(self, old: list[Segment], fresh: Segment) -> None:
        fresh.move_to(SWAP)
        for segment in old:
            segment.move_to(DELETED)
        fresh.move_to("")
        at = self._segments.index(old[0])
        self._segments[at : at + len(old)] = [fresh]

    def flush(self) -> None:
        """Put everything on the medium; the recovery point moves to the log end offset. Raises OSError."""
        end = self.end_offset
        self._active.log.flush()
        self.recovery_point = end
        self._unflushed = 0

    def close(self, *, clean: bool = True) -> None:
        """Stop. A clean stop flushes, writes indexes and the producers' snapshot, so that the next start scans nothing."""
        self._closed = True
        if clean:
            self.flush()
            self._active.seal()
            name = f"{self.end_offset:020d}.snapshot"
            self._store.replace(self.directory / name, self.producers.snapshot())
            self._drop_old_snapshots()
        for segment in self._segments:
            segment.close()

    def _drop_old_snapshots(self) -> None:
        """Keep the snapshots of segments that exist, and the newest."""
        kept = {f"{segment.base_offset:020d}.snapshot" for segment in self._segments}
        kept.add(f"{self.end_offset:020d}.snapshot")
        for name in self._store.names(self.directory):
            if name.endswith(".snapshot") and name not in kept:
                self._store.remove(self.directory / name)


__all__ = [
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "Appended",
    "Log",
    "OffsetOutOfRange",
    "StorageError",
]
