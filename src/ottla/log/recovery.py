"""Recovery of a log at its opening: finds its segments and end offset, and checks its tail.

After a clean stop nothing is scanned: indexes are on disk and only the batches after the newest index entry are walked.
Otherwise every segment that extends beyond the recovery point is scanned: up to that point its headers, after it every byte
with CRCs. Its indexes are rebuilt, and the log is truncated at the first incomplete or damaged batch after the point, as in
Kafka. Damage before the point takes the partition offline (Kafka truncates there too, and loses acknowledged records). A
segment with missing or implausible indexes is scanned as well.

Producer states are rebuilt from the newest snapshot up to the first scanned segment, and from the batches after it; their
markers show the aborted transactions, for the indexes of the scanned segments.
"""

import logging
from collections.abc import Generator, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Final, NamedTuple

from ottla.environment.files import Store
from ottla.log.checkpoints import DamagedCheckpoint, LeaderEpochs
from ottla.log.clean_stop import CleanStop, SealedSegment
from ottla.log.index import Aborted, checksum_of
from ottla.log.producers import DamagedSnapshot, ProducerStates
from ottla.log.segment import CLEANED, DELETED, SWAP, DamagedLog, Segment
from ottla.records.batch import BatchHeader, crc_ok, records_of, scan
from ottla.records.control import ABORT, Marker, read_marker
from ottla.records.errors import CorruptRecords

SHORT: Final = 4096
_SCAN_BYTES: Final = 4 << 20
_CHECKED_A_STEP: Final = 4 << 20
"""Bytes whose CRCs are checked in one step of a few milliseconds."""
_RECALLED_BYTES: Final = 1 << 17
"""Bytes before a snapshot whose batches are remembered: five of the usual size, of one producer or two."""
_HEADERS_A_STEP: Final = 1_000
"""Number of batch headers read in one step of a few milliseconds."""
_logger = logging.getLogger("ottla.log")


def load_segments(store: Store, directory: Path, names: list[str], interval: int) -> list[Segment]:
    """Load the segments of a partition directory with the files `names`, ordered by base offset.

    Leftovers of deletions and unfinished compactions are removed; a compaction whose .log file is a .swap is completed.
    Raises DamagedLog.
    """
    # Swaps first: completing one removes and renames files, so the names are read again afterwards.
    swaps = [name for name in names if name.endswith(f".log{SWAP}")]
    for name in swaps:
        _complete_swap(store, directory, int(name[:20]), interval)
    bases = []
    for name in store.names(directory) if swaps else names:
        if name.endswith((DELETED, CLEANED, SWAP, ".tmp")):
            store.remove(directory / name)
        elif name.endswith(".log") and name[:-4].isdecimal():
            bases.append(int(name[:-4]))
    return [Segment(store, directory, base) for base in sorted(bases)]


def _complete_swap(store: Store, directory: Path, base: int, interval: int) -> None:
    """Replace the original segments by the swap segment of a compaction.

    Offset and time index are rebuilt, as they may be renamed already or not. The index of aborted transactions cannot be
    rebuilt: it is the .swap file; if that is missing and the old segments are gone, it is renamed already.
    """
    fresh = Segment(store, directory, base, SWAP)
    try:
        fresh.start_empty()
        fresh.transaction_index.resume()
        last = base
        for header in fresh.walk(0):
            size = header.end - header.start
            fresh.noted(header.base_offset, header.last_offset, header.max_timestamp, header.start, size, interval)
            last = header.last_offset
        names = store.names(directory)
        old = [name for name in names if name[:20].isdecimal() and base <= int(name[:20]) <= last]
        renamed = f"{base:020d}.txnindex"
        if renamed in old and f"{renamed}{SWAP}" not in names and not any(name[20:] == ".log" for name in old):
            old.remove(renamed)
            store.rename(directory / renamed, directory / f"{renamed}{SWAP}")
            fresh.transaction_index.resume()
        # The new segment keeps its .swap name until the old ones are gone: a crash in between comes here again, and must find
        # which segments it stands for.
        for name in old:
            if name[20:] in (".log", ".index", ".timeindex", ".txnindex"):
                store.remove(directory / name)
        fresh.move_to("")
        fresh.seal()
    finally:
        fresh.close()


def check_complete(store: Store, directory: Path, names: list[str], recovery_point: int, end_offset: int) -> None:
    """Raise DamagedLog if records below `recovery_point` (offset, exclusive), which were flushed to disk, are missing.

    An index without its .log file is left by a lost file, or by a removal that Apache Kafka, which renames the .log first,
    did not complete before a crash.
    """
    remedy = " put it back from a backup, or move the partition's directory away to begin it empty, and restart"
    indexes = [name for name in names if name.endswith((".index", ".timeindex")) and name[:20].isdecimal()]
    logs = {name[:20] for name in names if name.endswith(".log")}
    orphans = [name for name in indexes if name[:20] not in logs]
    here = store.names(directory) if orphans else []
    for name in orphans:
        base, lost = int(name[:20]), f"{name[:20]}.log"
        if name not in here or lost in here:
            continue
        if base < recovery_point and f"{lost}{DELETED}" not in names:
            raise DamagedLog(f"{directory / lost} is missing, of records that were flushed to disk", f":{remedy}")
        if base != end_offset:  # else it belongs to the last segment, which is empty
            if f"{lost}{DELETED}" not in names:
                _logger.error("%s is missing, only its index is there", directory / lost)
            store.remove(directory / name)
    if end_offset < recovery_point:
        raise DamagedLog(
            f"{directory} ends at offset {end_offset}, and records up to {recovery_point} were flushed to disk: a .log file "
            "is missing or cut off",
            f";{remedy}",
        )


def drop_lost(store: Store, directory: Path) -> None:
    """Remove what cannot be part of an intact log, before all of it is checked: segments after a missing .log file, indexes
    without one, and damaged files of an unfinished compaction. Raises OSError.
    """
    names = store.names(directory)
    logs = {name[:20] for name in names if name.endswith(".log")}
    lost = {name[:20] for name in names if name.endswith((".index", ".timeindex")) and name[:20].isdecimal()} - logs
    for name in names:
        if name.endswith(SWAP):
            # The old segments are removed beginning with the one of the same name: if it is there, all are.
            store.remove(directory / name)
            if name[:20] not in logs:
                lost.add(name[:20])
    first = min(lost, default=None)
    for name in reversed(names):
        if first is not None and name[:20] >= first and name[20:] in (".log", ".index", ".timeindex", ".txnindex"):
            store.remove(directory / name)


def first_damage(segment: Segment) -> Generator[None, None, tuple[str | None, int, int]]:
    """Check all batches of a segment. Return the first damage with its position and the end offset (exclusive) of the batch
    before it, or None with those of the end. Yields after every few milliseconds of work. Raises OSError.
    """
    position, end = 0, segment.base_offset
    checked = 0
    for header, problem in _checked(segment, 0):
        if problem is None and not end <= header.base_offset < header.next_offset:
            problem = f"offset {header.base_offset} follows offset {end - 1}"
        if problem is not None:
            return problem, position, end
        position, end = position + header.size, header.next_offset
        checked += header.size
        if checked >= _CHECKED_A_STEP:
            checked = 0
            yield
    return ("a batch is cut off" if position < segment.size else None), position, end


def _bases(names: list[str]) -> list[int]:
    """Return the base offsets of the .log files among `names`."""
    return [int(name[:-4]) for name in names if name.endswith(".log") and name[:-4].isdecimal()]


def has_segments(store: Store, directory: Path) -> bool:
    """Return True if there is a .log file in `directory`. Raises OSError."""
    return bool(_bases(store.names(directory)))


def log_end(store: Store, directory: Path) -> int:
    """Return the log end offset by the headers of the newest segment in `directory`; -1 without a segment. Changes no files.
    Raises OSError.
    """
    bases = _bases(store.names(directory))
    if not bases:
        return -1
    segment = Segment(store, directory, max(bases))
    end = segment.base_offset
    try:
        for header in segment.walk(0):
            if header.base_offset < end:
                break
            end = header.next_offset
    except DamagedLog:
        pass  # a partial batch at the end, or preallocated space
    finally:
        segment.close()
    return end


class Recovered(NamedTuple):
    """Result of a recovery: the remaining segments, and the base offsets of the scanned ones."""

    segments: list[Segment]
    scanned: frozenset[int]


def recover(
    store: Store,
    segments: list[Segment],
    recovery_point: int,
    interval: int,
    epochs: LeaderEpochs,
    *,
    clean: bool,
    has_gaps: bool,
    cuts_gaps: bool = False,
    last_stop: CleanStop | None = None,
    level: int = logging.WARNING,
) -> Recovered:
    """Check and repair `segments` from `recovery_point` (offset, exclusive) on. One function, as how a segment ends decides
    whether those after it are kept.

    clean      True after a clean stop: the recovery point is the end of the log, and no segment is scanned
    epochs     leader epochs, updated from the scanned batches
    has_gaps   whether the log is compacted: a segment may end before the next one begins
    last_stop  checksums of the last clean stop
    cuts_gaps  whether the log is cut where records are missing between two segments: a power failure may take just those
    level      level of the message about a cut
    """
    kept: list[Segment] = []
    scanned: set[int] = set()
    for number, segment in enumerate(segments):
        is_last = number == len(segments) - 1
        end = segment.base_offset if is_last else segments[number + 1].base_offset
        kept.append(segment)
        segment.index_interval = interval
        sealed = None if last_stop is None else last_stop.segments.get(segment.base_offset)
        # Fast paths for most segments first: completely flushed, then cleanly closed.
        if sealed is not None and not _expect(segment, sealed):
            _logger.warning("%s or one of its indexes is not as the last stop left it: it is checked", segment.path)
        elif not is_last and end <= recovery_point and (sealed is not None or segment.has_sound_indexes()):
            segment.next_offset = end
            segment.max_timestamp, segment.max_timestamp_offset = (
                segment.time_index.last() if sealed is None else sealed.newest
            )
            segment.inherit()
            continue
        elif is_last and clean and _intact(segment, recovery_point, interval):
            continue
        # A segment emptied by compaction has an empty index.
        is_emptied = not segment.size and len(segment.time_index) > 0
        scanned.add(segment.base_offset)
        known = recovery_point if is_last else min(recovery_point, end)
        damage = scan_segment(segment, interval, epochs, known)
        if damage is not None and not is_last and segment.next_offset == end <= recovery_point:
            _logger.error("%s; its records are complete, and the bytes behind them are cut off", damage)
            damage = None
        if is_last and sealed is not None and segment.next_offset > recovery_point:
            raise DamagedLog(
                f"{segment.path} ended at offset {recovery_point} at the last stop, and has offsets up to "
                f"{segment.next_offset}: the offsets of a batch are damaged"
            )
        if damage is None and sealed is not None and segment.size < sealed.size and segment.next_offset < end:
            raise DamagedLog(
                f"{segment.path} had {sealed.size} bytes at the last stop and has {segment.size}: it is cut off",
                ": put it back from a backup, or move the partition's directory away to begin it empty, and restart",
            )
        # Compaction leaves such gaps too, but mostly in flushed segments: to fetch a few records again does no harm.
        may_lack = not has_gaps or segment.next_offset >= recovery_point
        if damage is None and cuts_gaps and may_lack and not is_last and segment.next_offset < end:
            damage = f"{segment.path} ends before the next file begins, at offset {end}"
        if damage is not None:
            # Later segments are removed even if they are intact: a log must not have gaps.
            _logger.log(level, "%s; the log is cut there, at offset %d", damage, segment.next_offset)
            for lost in segments[number + 1 :]:
                _remove(store, lost)
            # Before others take these offsets: a power failure must not bring the old batches back among them.
            segment.log.flush()
            store.flush(segment.directory)
            break
        if not is_last:
            if segment.next_offset < end and (is_emptied or not has_gaps):
                _logger.error(
                    "%s ends at offset %d, and the next file begins at %d: records between them are missing, unless the "
                    "topic was compacted once",
                    segment.path,
                    segment.next_offset,
                    end,
                )
            segment.next_offset = end  # a compacted segment may end earlier
    checked = [segment for segment in kept if segment.base_offset in scanned and segment.size]
    if checked:
        _logger.info(
            "%s was not closed cleanly: %d of %d segments checked, the log ends at offset %d",
            checked[0].path.parent,
            len(checked),
            len(kept),
            kept[-1].next_offset,
        )
    return Recovered(kept, frozenset(scanned))


def _expect(segment: Segment, sealed: SealedSegment) -> bool:
    """Return whether a segment and its aborted transactions are as the last clean stop left them. The content of the other
    indexes is compared when it is used: they are read as a whole for that. Raises OSError.
    """
    if not segment.has_sound_indexes():
        return False
    segment.expect_indexes(sealed.offset_index, sealed.time_index)
    segment.transaction_index.expect(sealed.transaction_index)
    segment.has_gaps = sealed.gaps
    return segment.size == sealed.size and segment.transaction_index.is_as_expected()


def _intact(segment: Segment, recovery_point: int, interval: int) -> bool:
    """Return True if the last segment has the same end as at the clean stop. A short segment is read in place of its indexes:
    one file instead of three.
    """
    try:
        if segment.log.size <= SHORT:
            segment.start_empty()
            segment.transaction_index.resume()
            for header in segment.walk(0):
                if not segment.follows(header):
                    return False
                size = header.end - header.start
                segment.noted(
                    header.base_offset, header.last_offset, header.max_timestamp, header.start, size, interval
                )
            return segment.next_offset <= recovery_point
        if not segment.load_end():
            return False
    except DamagedLog:
        return False
    return segment.next_offset <= recovery_point


def scan_segment(segment: Segment, interval: int, epochs: LeaderEpochs, recovery_point: int) -> str | None:
    """Scan a segment, rebuild its indexes and truncate it at the first damage behind the recovery point (offset). Return a
    description of the damage, or None. Raises DamagedLog for damage before it: flushed records are never truncated.
    """
    segment.start_empty()
    damage = None
    position = 0
    # Two walks. Below the recovery point the bytes were flushed: headers suffice, and damage is the disk's, which must not be
    # answered by dropping acknowledged records. Above it a crash may have left anything, so every CRC is checked.
    known = segment.walk(0)
    while segment.next_offset < recovery_point and (header := next(known, None)) is not None:
        if not segment.follows(header):
            raise DamagedLog(
                f"{segment.path} at position {position}: offset {header.base_offset} follows {segment.next_offset - 1}"
            )
        size = header.end - position
        segment.noted(header.base_offset, header.last_offset, header.max_timestamp, position, size, interval)
        if header.leader_epoch > epochs.latest:
            epochs.assign(header.leader_epoch, header.base_offset)
        position = header.end
    for header, problem in _checked(segment, position):
        if problem is None and not segment.follows(header):
            problem = f"offset {header.base_offset} follows offset {segment.next_offset - 1}"
        if problem is not None:
            damage = f"{segment.path} at position {position}: {problem}"
            break
        size = header.end - header.start
        segment.noted(header.base_offset, header.last_offset, header.max_timestamp, position, size, interval)
        if header.leader_epoch > epochs.latest:
            epochs.assign(header.leader_epoch, header.base_offset)
        position += size
    if position < segment.size:
        damage = damage or f"{segment.path} at position {position}: a batch is cut off"
        segment.log.truncate(position)
    return damage


def _checked(segment: Segment, position: int) -> Iterator[tuple[BatchHeader, str | None]]:
    """Iterate over the batches of a segment from `position` on, each with its damage, if any; positions are relative."""
    want = _SCAN_BYTES
    while position < segment.size:
        data = segment.log.read(position, want)
        scanned = scan(data)
        for header in scanned.batches:
            yield header, None if crc_ok(data, header) else "the CRC of a batch is wrong"
        if scanned.corrupt is not None:
            yield BatchHeader(), scanned.corrupt
            return
        if scanned.end == 0:
            if len(data) < want:
                return
            want *= 2
        else:
            position, want = position + scanned.end, _SCAN_BYTES


def load_epochs(
    store: Store, path: Path, names: list[str], last_stop: CleanStop | None = None
) -> tuple[LeaderEpochs, bool]:
    """Load the leader epochs of a partition. Return False with them if the file is damaged or missing after a power failure."""
    try:
        if last_stop is not None and checksum_of(store.mapped(path)[:]) != last_stop.epochs:
            raise DamagedCheckpoint(f"{path} is not as the last stop left it")
        missing = path.name not in names
        return LeaderEpochs(store, path, is_new=missing), not (missing and any(name.endswith(".log") for name in names))
    except DamagedCheckpoint as cause:
        _logger.warning("%s; it is written again from the batches", cause)
        store.remove(path)
        return LeaderEpochs(store, path, is_new=True), False


def find_epochs(segments: list[Segment], epochs: LeaderEpochs) -> None:
    """Restore the leader epochs from all batches. Raises DamagedLog."""
    epochs.truncate(0)  # a scan of the newest segments knows the older epochs too late
    for segment in segments:
        for header in segment.walk(0):
            if header.leader_epoch > epochs.latest:
                epochs.assign(header.leader_epoch, header.base_offset)
    epochs.rewrite()


def _remove(store: Store, segment: Segment) -> None:
    segment.close()
    for path in reversed(segment.files()):  # the .log last: indexes without it would look like those of a lost file
        store.remove(path)


def load_producers(
    store: Store,
    directory: Path,
    names: list[str],
    segments: list[Segment],
    end_offset: int,
    scanned: frozenset[int] = frozenset(),
) -> ProducerStates:
    """Restore the producer states as of `end_offset` (exclusive): newest usable snapshot, then the batches after it. Aborted
    transactions are added to the indexes of the `scanned` segments, which are then written. Raises DamagedLog and OSError.
    """
    # A snapshot beyond the first scanned segment may tell of batches that were cut, and the indexes of aborted transactions of
    # scanned segments have to be filled again: so their batches are read even if a newer snapshot is there.
    newest = min(scanned, default=end_offset)
    states, offset = _from_snapshot(store, directory, names, segments[0].base_offset, newest, end_offset)
    offset = max(offset, segments[0].base_offset)
    _recall(states, segments, offset)
    for segment in segments:
        if segment.next_offset <= offset:
            continue
        for header in segment.walk(segment.position_of(offset)):
            if header.base_offset >= offset:
                aborted = take_batch(states, header, marker_of(segment, header))
                if aborted is not None and segment.base_offset in scanned:
                    segment.transaction_index.append(aborted)
    for segment in segments[:-1]:
        if segment.base_offset in scanned:
            segment.seal()
    return states


def producers_before(
    store: Store, directory: Path, segments: Sequence[Segment], offset: int, high_watermark: int
) -> Generator[None, None, ProducerStates]:
    """Restore the producer states from the batches that end before `offset`, for a truncation to it. Changes no files. Yields
    after every few milliseconds of work. Raises DamagedLog and OSError.

    Snapshots beyond the high watermark are not used: they lack the transactions whose markers are not committed yet.
    """
    begin, newest = segments[0].base_offset, min(offset, high_watermark)
    states, position = _from_snapshot(store, directory, store.names(directory), begin, newest, None)
    position = max(position, segments[0].base_offset)
    _recall(states, segments, position)
    walked = 0
    for segment in tuple(segments):
        if segment.base_offset >= offset:
            break
        if segment.next_offset <= position:
            continue
        for header in segment.walk(segment.position_of(position)):
            if header.last_offset >= offset:
                return states
            walked += 1
            if walked % _HEADERS_A_STEP == 0:
                yield
            if header.base_offset >= position:
                take_batch(states, header, marker_of(segment, header))
            if header.next_offset >= offset:  # what follows may be damaged
                return states
    return states


def _recall(states: ProducerStates, segments: Sequence[Segment], offset: int) -> None:
    """Complete the states of a snapshot of `offset` by the batches shortly before it."""
    segment = next((one for one in reversed(segments) if one.base_offset < offset), None)
    if segment is None or not len(states):
        return
    try:
        end = segment.position_of(offset)
        headers = segment.walk(segment.index.boundary_before(max(0, end - _RECALLED_BYTES)))
        states.recall(takewhile(lambda header: header.base_offset < offset, headers))
    except DamagedLog:
        return  # the next reader reports it


def has_markers(segments: Sequence[Segment], offset: int) -> bool:
    """Return True if there is a control batch from `offset` on. Raises DamagedLog and OSError."""
    return any(
        header.is_control
        for segment in segments
        if segment.next_offset > offset
        for header in segment.walk(segment.position_of(offset))
    )


def take_batch(states: ProducerStates, header: BatchHeader, marker: Marker | None) -> Aborted | None:
    """Update `states` by a batch of the log; return the transaction that it aborts, if any.

    marker  marker of a control batch, None if compaction has emptied it
    """
    if header.producer_id < 0:
        return None
    if not header.is_control:
        states.appended(header, header.base_offset)
        return None
    if marker is None:
        return None
    ended = states.ended(header, header.base_offset, marker.coordinator_epoch)
    if ended is None or marker.type != ABORT:
        return None
    return Aborted(ended.producer_id, ended.first_offset, ended.marker_offset, states.stable_after(ended))


def drop_snapshots(store: Store, directory: Path, end_offset: int) -> None:
    """Remove the producer snapshots beyond the log end. Raises OSError."""
    for name in store.names(directory):
        if name.endswith(".snapshot") and name[:-9].isdecimal() and int(name[:-9]) > end_offset:
            store.remove(directory / name)


def _from_snapshot(
    store: Store, directory: Path, names: list[str], oldest: int, newest: int, end_offset: int | None
) -> tuple[ProducerStates, int]:
    """Return the producer states of the newest snapshot from offset `oldest` to `newest` (both inclusive), and its offset.
    Removes snapshots beyond the log end, if that is given.

    oldest  the begin of the log: an older snapshot, which a power failure may bring back, has transactions as open that ended
            in segments that were deleted since
    """
    for name in sorted(names, reverse=True):
        if not name.endswith(".snapshot") or not name[:-9].isdecimal():
            continue
        at = int(name[:-9])
        if end_offset is not None and at > end_offset:
            store.remove(directory / name)
        if at > newest:
            continue
        if at < oldest:
            break
        try:
            return ProducerStates.from_snapshot(bytes(store.mapped(directory / name)[:])), at
        except DamagedSnapshot as cause:
            _logger.warning("%s: %s; it is removed and rebuilt from the log", directory / name, cause)
            store.remove(directory / name)
    return ProducerStates(), 0


def marker_of(segment: Segment, header: BatchHeader) -> Marker | None:
    """Return the marker in a control batch; None for another batch, or if compaction has emptied it. Raises DamagedLog."""
    if not header.is_control or not header.count:
        return None
    try:
        return marker_in(segment.log.read(header.start, header.end - header.start), header)
    except CorruptRecords as cause:
        raise DamagedLog(f"{segment.path} at position {header.start}: {cause}") from None


def marker_in(batch: bytes, header: BatchHeader) -> Marker | None:
    """Return the marker in the bytes of a control batch, None if compaction has emptied it. Raises CorruptRecords."""
    if not header.count:
        return None
    record = records_of(batch)[0]
    return read_marker(record.key, record.value)
