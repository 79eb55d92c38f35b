"""Registry of counters, gauges and histograms of this process, by name and labels; names are defined where they are used.

A metric costs its memory and one addition; code on the hot path keeps the metric object, not its name. Expensive measurements
are made only if the metrics are read (`has_readers`).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Label names and values, sorted by name."""
LATENCY_BOUNDS_NS: Final = tuple(int(base * 10**power) for power in range(4, 10) for base in (1, 2, 5))
"""Upper bounds of buckets for times: 10 microseconds to 5 seconds, in ns."""


class Counter:
    """Counter: a number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, count: int = 1) -> None:
        """Add `count`, not negative."""
        self.value += count


class Gauge:
    """Gauge: a number that is computed when it is read."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[], float]) -> None:
        self._read = read

    @property
    def value(self) -> float:
        """Return the current value."""
        return self._read()


class Histogram:
    """Counts of values by bucket.

    bounds  upper bounds (inclusive) of the buckets, ascending; values above the last one have a bucket of their own
    counts  number of values by bucket
    total   sum of all values
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[int]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0

    def record(self, value: int) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """Return the number of values."""
        return sum(self.counts)

    def quantile(self, fraction: float) -> int:
        """Upper bound of the bucket with this quantile (0 to 1); the last bound for values above it, 0 without values."""
        rank = fraction * self.count
        below = 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            below += count
            if count and below >= rank:
                return bound
        return self.bounds[-1] if self.total else 0


Metric: TypeAlias = Counter | Gauge | Histogram
M = TypeVar("M", Counter, Gauge, Histogram)


class Sample(NamedTuple):
    """Name, labels and value of one metric, for readers."""

    name: str
    labels: Labels
    metric: Metric


class Registry:
    """Metrics of a broker or client, each created on first use.

    has_readers  True once something reads the metrics
    """

    def __init__(self) -> None:
        self._metrics: dict[tuple[str, Labels], Metric] = {}
        self.has_readers = False

    def counter(self, name: str, labels: Mapping[str, str] | None = None) -> Counter:
        """Return the counter of this name and labels. Raises ValueError if the name belongs to another kind of metric."""
        return self._get(name, labels, Counter, Counter)

    def gauge(self, name: str, read: Callable[[], float], labels: Mapping[str, str] | None = None) -> Gauge:
        """Return the gauge of this name and labels; only the first `read` is used. Raises ValueError as `counter`."""
        return self._get(name, labels, Gauge, lambda: Gauge(read))

    def histogram(self, name: str, bounds: Sequence[int], labels: Mapping[str, str] | None = None) -> Histogram:
        """Return the histogram of this name and labels; only the first `bounds` are used. Raises ValueError as `counter`."""
        return self._get(name, labels, Histogram, lambda: Histogram(bounds))

    def _get(self, name: str, labels: Mapping[str, str] | None, kind: type[M], create: Callable[[], M]) -> M:
        key = name, tuple(sorted((labels or {}).items()))
        metric = self._metrics.get(key)
        if metric is None:
            metric = self._metrics[key] = create()
        if not isinstance(metric, kind):
            raise ValueError(f"metric {name} is a {type(metric).__name__.lower()}, not a {kind.__name__.lower()}")
        return metric

    def samples(self) -> Iterator[Sample]:
        """Iterate over all metrics, by name and labels; sets `has_readers`."""
        self.has_readers = True
        for (name, labels), metric in sorted(self._metrics.items()):
            yield Sample(name, labels, metric)
