"""Counts of values by exponential buckets, as Prometheus' native histograms have them."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from math import frexp
from typing import Final, NamedTuple

SCHEMA: Final = 3
_AN_OCTAVE: Final = 1 << SCHEMA
_BOUNDS: Final = [2 ** (step / _AN_OCTAVE - 1) for step in range(_AN_OCTAVE)]
"""Bounds between 1/2 and 1."""


class Span(NamedTuple):
    """Consecutive buckets: `offset` is the number of empty ones before them, or for the first span the index of its first."""

    offset: int
    counts: list[int]


class NativeHistogram:
    """Counts of positive values: bucket i has those above 2**((i - 1) / 8), up to 2**(i / 8).

    zeros  number of values that are 0
    """

    __slots__ = ("_counts", "zeros")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.zeros = 0

    def record(self, value: float, weight: int = 1) -> None:
        """Count a value of at least 0, `weight` times."""
        if value == 0:
            self.zeros += weight
            return
        fraction, exponent = frexp(value)
        self._counts[bisect_left(_BOUNDS, fraction) + (exponent - 1) * _AN_OCTAVE] += weight

    @property
    def count(self) -> int:
        """Return the number of values."""
        return self._counts.total() + self.zeros

    def spans(self) -> list[Span]:
        """Return the buckets, without those that are empty."""
        spans: list[Span] = []
        end = 0
        for bucket, count in sorted(self._counts.items()):
            if not spans or bucket != end:
                spans.append(Span(bucket - end, []))
            spans[-1].counts.append(count)
            end = bucket + 1
        return spans


def merge_histograms(histograms: Iterable[NativeHistogram]) -> NativeHistogram:
    """Return the sum of histograms."""
    whole = NativeHistogram()
    for histogram in histograms:
        whole._counts.update(histogram._counts)
        whole.zeros += histogram.zeros
    return whole
