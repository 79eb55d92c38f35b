"""Retention: selects the segments of a log that may be deleted, without I/O.

Only whole segments are deleted, oldest first, and none beyond the high watermark. There are three reasons to delete a segment:

    below the start   all its records are below the log start offset (DeleteRecords, KIP-107); also in compacted logs
    too old           its newest record is older than retention.ms; without timestamps the age of the file is used
    too large         the log has at least retention.bytes without it
"""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple


class Candidate(NamedTuple):
    """Properties of a segment for retention: size in bytes, `end_offset` exclusive, `newest_ms` since the epoch."""

    end_offset: int
    size: int
    newest_ms: int


class Retention(NamedTuple):
    """Limits retention.ms and retention.bytes, -1 for none; `deletes` is True if cleanup.policy contains delete."""

    deletes: bool
    max_ms: int
    max_bytes: int


def expired(
    segments: Sequence[Candidate], retention: Retention, start_offset: int, high_watermark: int, now_ms: int
) -> int:
    """Count the `segments` (oldest first; the last one is active) that may be deleted. Source: Kafka's UnifiedLog."""
    newest = len(segments) - 1
    written = segments if segments[newest].size else segments[:newest]
    settled = list(takewhile(lambda segment: segment.end_offset <= high_watermark, written))
    below = _leading(number < newest and segment.end_offset <= start_offset for number, segment in enumerate(settled))
    if not retention.deletes:
        return below
    surplus = sum(segment.size for segment in segments) - retention.max_bytes if retention.max_bytes >= 0 else -1
    too_much = 0
    for segment in settled:
        surplus -= segment.size
        if surplus < 0:
            break
        too_much += 1
    too_old = _leading(retention.max_ms >= 0 and now_ms - segment.newest_ms > retention.max_ms for segment in settled)
    return max(below, too_much, too_old)


def _leading(answers: Iterable[bool]) -> int:
    """Count the true values before the first false one."""
    return sum(1 for _ in takewhile(bool, answers))
