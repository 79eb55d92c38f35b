"""Histogram of latencies for the performance tools."""

from collections.abc import Sequence


class Latencies:
    """Latencies counted by whole milliseconds."""

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0
        self.most_ms = 0.0
        self._seen: dict[int, int] = {}

    def add(self, milliseconds: float) -> None:
        """Count one latency."""
        self.count += 1
        self.total_ms += milliseconds
        self.most_ms = max(self.most_ms, milliseconds)
        whole = int(milliseconds)
        self._seen[whole] = self._seen.get(whole, 0) + 1

    @property
    def average_ms(self) -> float:
        """Average latency, 0 before the first one."""
        return self.total_ms / self.count if self.count else 0.0

    def quantiles(self, shares: Sequence[float]) -> list[int]:
        """Return the latencies in ms below which these shares (0.5, 0.99) lie, rounded down; `shares` is sorted."""
        latencies: list[int] = []
        passed, left = 0, list(shares)
        for milliseconds, count in sorted(self._seen.items()):
            passed += count
            while left and passed >= left[0] * self.count:
                latencies.append(milliseconds)
                left.pop(0)
        return latencies or [0] * len(shares)
