"""Values over time in bounded memory, and rates by the differences between two looks."""

from array import array
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

MOST_POINTS: Final = 720
"""Number of points of a series: an hour at a look every five seconds."""


class Series:
    """The newest points of a value over time, oldest first; a time is in ms since the epoch."""

    __slots__ = ("_most", "_times", "_values")

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._most = most
        self._times = array("q")
        self._values = array("d")

    def add(self, time_ms: int, value: float) -> None:
        """Add a point."""
        self._times.append(time_ms)
        self._values.append(value)
        if len(self._times) >= 2 * self._most:  # seldom, so that a point costs no copy of all others
            del self._times[: -self._most]
            del self._values[: -self._most]

    def points(self, after_ms: int = -1) -> list[tuple[int, float]]:
        """Return the points after a time."""
        pairs = zip(self._times[-self._most :], self._values[-self._most :], strict=True)
        return [(time_ms, value) for time_ms, value in pairs if time_ms > after_ms]

    @property
    def latest(self) -> tuple[int, float] | None:
        """Newest point."""
        return (self._times[-1], self._values[-1]) if self._times else None


class Histories:
    """Series by name, at most `most`.

    A new name gets a series while there is room. One that a page shows is `watched`: it takes the room of the name that was
    watched longest ago, or never.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._series: dict[str, Series] = {}
        self._watched: dict[str, None] = {}

    def watch(self, name: str) -> None:
        """Keep a series for a name from now on."""
        self._watched.pop(name, None)
        self._watched[name] = None
        if name not in self._series and len(self._series) >= self._most:
            others = (other for other in self._series if other not in self._watched)
            oldest = next(others, None) or next(iter(self._watched))
            self._series.pop(oldest, None)
            self._watched.pop(oldest, None)
        self._series.setdefault(name, Series())

    def watched(self, most: int) -> list[str]:
        """Return the names that were watched last."""
        return list(self._watched)[-most:]

    def add(self, name: str, time_ms: int, value: float) -> None:
        """Add a point to the series of a name, if it has one or there is room."""
        series = self._series.get(name)
        if series is None:
            if len(self._series) >= self._most:
                return
            series = self._series[name] = Series()
        series.add(time_ms, value)

    def points(self, name: str, after_ms: int = -1) -> list[tuple[int, float]]:
        """Return the points of a name after a time, empty if it has no series."""
        series = self._series.get(name)
        return [] if series is None else series.points(after_ms)

    def latest_ms(self, name: str) -> int | None:
        """Return the time of the newest point of a name."""
        latest = self._series[name].latest if name in self._series else None
        return None if latest is None else latest[0]

    def keep(self, names: Collection[str]) -> None:
        """Drop the series of all other names, but for the watched ones."""
        for name in [name for name in self._series if name not in names and name not in self._watched]:
            del self._series[name]


class _Look(NamedTuple):
    now_ms: int
    positions: Mapping[Any, int]


class Progress:
    """Rates of names, each with several positions that grow, such as the end offsets of the partitions of a topic."""

    def __init__(self) -> None:
        self._looks: dict[str, _Look] = {}
        self._rates: dict[str, float] = {}

    def look(self, name: str, now_ms: int, positions: Mapping[Any, int]) -> float | None:
        """Return the growth per second since the last look, None at the first one; positions that fall count as 0.

        `now_ms` is on a monotonic clock.
        """
        before = self._looks.get(name)
        self._looks[name] = _Look(now_ms, dict(positions))
        if before is None or now_ms <= before.now_ms:
            return None
        grown = sum(max(0, at - before.positions.get(key, at)) for key, at in positions.items())
        rate = self._rates[name] = grown * 1000 / (now_ms - before.now_ms)
        return rate

    def rate(self, name: str) -> float | None:
        """Return the rate of a name at its last look, None before its second one."""
        return self._rates.get(name)

    @property
    def total(self) -> float | None:
        """Sum of the rates of all names; None before any rate is known."""
        return sum(self._rates.values()) if self._rates else None

    def keep(self, names: Collection[str]) -> None:
        """Forget all other names."""
        for name in [name for name in self._looks if name not in names]:
            del self._looks[name]
            self._rates.pop(name, None)

    def clear(self) -> None:
        """Forget all looks, so that no rate is an average over a pause."""
        self._looks.clear()
        self._rates.clear()
