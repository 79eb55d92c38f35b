"""Distribution of values on a logarithmic scale, whose recording costs a few additions, and its recent quantiles."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

_HALVES: Final = 2
_SIZE: Final = 128
_RECENT_MS: Final = 60_000
_MOST_SNAPSHOTS: Final = 8


class Distribution:
    """Counts of values by bucket, each factor of two in two buckets: [2, 3) and [3, 4), [4, 6) and [6, 8), ...

    counts  number of values by bucket
    total   sum of all values
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * _SIZE
        self.total = 0

    def record(self, value: int, weight: int = 1) -> None:
        """Count a value of at least 0 and below 2**63, `weight` times."""
        bits = value.bit_length()
        self.counts[2 * bits + (value >> bits - 2 & 1) if bits > 1 else 2 * bits] += weight
        self.total += value * weight

    @property
    def count(self) -> int:
        """Return the number of values."""
        return sum(self.counts)


def lower_bound(bucket: int) -> int:
    """Return the smallest value of a bucket."""
    bits, half = divmod(bucket, _HALVES)
    if bits < _HALVES:
        return bits
    return (1 << bits - 1) + (half << bits - 2)


def quantile(counts: Sequence[int], fraction: float) -> float:
    """Return a quantile (0 to 1), interpolated within its bucket; 0 without values."""
    rank = fraction * sum(counts)
    below = 0
    for bucket, count in enumerate(counts):
        if count and below + count >= rank:
            low, high = lower_bound(bucket), lower_bound(bucket + 1)
            return low + (high - low) * (rank - below) / count
        below += count
    return 0.0


class Recent:
    """Counts of a distribution in the last minute or more, from snapshots that readers take.

    read  returns the counts since the start, in a new list
    """

    __slots__ = ("_read", "_snapshots")

    def __init__(self, read: Callable[[], list[int]]) -> None:
        self._read = read
        self._snapshots: deque[tuple[int, list[int]]] = deque()

    def counts(self, now_ms: int) -> list[int]:
        """Return the counts since the newest snapshot that is at least a minute old, or the start, and take a snapshot."""
        current = self._read()
        snapshots = self._snapshots
        while len(snapshots) > 1 and snapshots[1][0] <= now_ms - _RECENT_MS:
            snapshots.popleft()
        is_due = not snapshots or now_ms - snapshots[-1][0] >= _RECENT_MS // _MOST_SNAPSHOTS
        before = snapshots[0] if snapshots and snapshots[0][0] <= now_ms - _RECENT_MS else None
        if is_due:
            snapshots.append((now_ms, current))
        if before is None:
            return current
        recent = [count - earlier for count, earlier in zip(current, before[1], strict=True)]
        return recent if any(recent) else current
