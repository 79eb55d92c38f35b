"""What an opening log finds: its segments, where it ends, and whether its tail can be believed.

After a clean stop nothing is scanned: indexes are on disk and only the batches after the newest index entry are walked.
Otherwise every segment that reaches beyond the recovery point is read from its beginning, batch by batch with CRC, its
indexes are rebuilt, and the log is cut at the first batch that is not whole and right; what followed it goes, as in Kafka.
The producers are rebuilt from the newest snapshot and the batches after it.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ottla.log.producers import DamagedSnapshot, ProducerStates
from ottla.log.segment import CLEANED, DELETED, SWAP, DamagedLog, Segment
from ottla.log.store import Store
from ottla.records.batch import BatchHeader, crc_ok, scan

_SCAN_BYTES: Final = 4 << 20
_logger = logging.getLogger("ottla.log")


def load_segments(store: Store, directory: Path, interval: int) -> list[Segment]:
    """The segments of a partition directory by base offset.

    Leftovers of deletions and of compactions that were not decided are removed; one that was (its .log file is a .swap) is
    carried through. Raises DamagedLog.
    """
    names = store.names(directory)
    for name in names:
        if name.endswith(f".log{SWAP}"):
            _carry_through(store, directory, int(name[:20]), interval)
    bases = []
    for name in store.names(directory):
        if name.endswith((DELETED, CLEANED, SWAP, ".tmp")):
            store.remove(directory / name)
        elif name.endswith(".log") and name[:-4].isdecimal():
            bases.append(int(name[:-4]))
    return [Segment(store, directory, base) for base in sorted(bases)]


def _carry_through(store: Store, directory: Path, base: int, interval: int) -> None:
    """Put a swap segment in the place of those that it was made from. Its indexes are made again: they may have had their
    names already, or not.
    """
    fresh = Segment(store, directory, base, SWAP)
    fresh.start_empty()
    last = base
    for header in fresh.walk(0):
        size = header.end - header.start
        fresh.noted(header.base_offset, header.last_offset, header.max_timestamp, header.start, size, interval)
        last = header.last_offset
    for name in store.names(directory):
        if (
            name[:20].isdecimal()
            and name[20:] in (".log", ".index", ".timeindex", ".txnindex")
            and base <= int(name[:20]) <= last
        ):
            store.remove(directory / name)
    fresh.move_to("")
    fresh.seal()
    fresh.close()


def recover(store: Store, segments: list[Segment], recovery_point: int, interval: int) -> list[Segment]:
    """Make `segments` believable from `recovery_point` (offset, exclusive) on; returns those that remain.

    After a clean stop the recovery point is the end of the log, and only ends are looked up.
    """
    kept: list[Segment] = []
    for number, segment in enumerate(segments):
        is_last = number == len(segments) - 1
        end = segment.base_offset if is_last else segments[number + 1].base_offset
        if not is_last and end <= recovery_point:
            segment.next_offset = end
            segment.max_timestamp, segment.max_timestamp_offset = segment.time_index.last()
            kept.append(segment)
            continue
        if is_last and _intact(segment, recovery_point):
            kept.append(segment)
            continue
        damage = scan_segment(segment, interval)
        kept.append(segment)
        if damage is not None:
            _logger.warning("%s; the log is cut there, at offset %d", damage, segment.next_offset)
            for lost in segments[number + 1 :]:
                _remove(store, lost)
            break
        segment.seal()
        if not is_last:
            segment.next_offset = end  # what compaction left may end earlier
    return kept


def _intact(segment: Segment, recovery_point: int) -> bool:
    """Whether a last segment ends where it was left at a clean stop."""
    if not segment.index.fits(segment.size):
        return False
    try:
        segment.load_end()
    except DamagedLog:
        return False
    return segment.next_offset <= recovery_point


def scan_segment(segment: Segment, interval: int) -> str | None:
    """Read a whole segment, rebuild its indexes and cut it at the first damage; returns what was wrong, None if nothing."""
    segment.start_empty()
    damage = None
    position = 0
    for header, problem in _checked(segment):
        if problem is not None:
            damage = f"{segment.path} at position {position}: {problem}"
            break
        size = header.end - header.start
        segment.noted(header.base_offset, header.last_offset, header.max_timestamp, position, size, interval)
        position += size
    if position < segment.size:
        damage = damage or f"{segment.path} at position {position}: a batch is cut off"
        segment.log.truncate(position)
    return damage


def _checked(segment: Segment) -> Iterator[tuple[BatchHeader, str | None]]:
    """Every batch of a segment, with what is wrong with it."""
    position, want = 0, _SCAN_BYTES
    while position < segment.size:
        data = segment.log.read(position, want)
        found = scan(data)
        for header in found.batches:
            problem = None
            if not crc_ok(data, header):
                problem = "the CRC of a batch is wrong"
            elif not segment.follows(header):
                problem = f"offset {header.base_offset} follows offset {segment.next_offset - 1}"
            yield header, problem
        if found.corrupt is not None:
            yield BatchHeader(), found.corrupt
            return
        if found.end == 0:
            if position + len(data) >= segment.size:
                return
            want *= 2
        else:
            position, want = position + found.end, _SCAN_BYTES


def _remove(store: Store, segment: Segment) -> None:
    segment.close()
    for path in segment.files():
        store.remove(path)


def load_producers(store: Store, directory: Path, segments: list[Segment], end_offset: int) -> ProducerStates:
    """The producers as of `end_offset` (exclusive): newest usable snapshot, then the batches after it. Raises DamagedLog."""
    states, offset = ProducerStates(), segments[0].base_offset
    for name in sorted(store.names(directory), reverse=True):
        if not name.endswith(".snapshot") or not name[:-9].isdecimal():
            continue
        at = int(name[:-9])
        if at > end_offset:
            store.remove(directory / name)
            continue
        file = store.open(directory / name)
        try:
            states = ProducerStates.from_snapshot(file.read(0, file.size))
        except DamagedSnapshot as cause:
            _logger.warning("%s: %s; it is removed and rebuilt from the log", directory / name, cause)
            store.remove(directory / name)
            continue
        finally:
            file.close()
        offset = max(offset, at)
        break
    for segment in segments:
        if segment.next_offset <= offset:
            continue
        for header in segment.walk(segment.position_of(offset)):
            if header.producer_id >= 0 and header.base_offset >= offset:
                states.appended(header, header.base_offset)
    return states
