"""Load of the event loop: its longest hold, and the share of time in which its thread is idle."""

from collections import deque
from collections.abc import Callable
from typing import Final

from ottla.environment import Cancellable, Timers

_BEAT_MS: Final = 20
_WINDOW_NS: Final = 60_000_000_000
_SAMPLE_NS: Final = 5_000_000_000
_NS_A_MS: Final = 1_000_000
_NS_A_SECOND: Final = 1e9


class LoopLoad:
    """Measures how late a timer of 20 ms is: that is the time for which other work has held the loop.

    now_ns         time of a monotonic clock, in ns
    thread_cpu_ns  CPU time of the calling thread, which is that of the loop
    beaten         called every 20 ms
    held_seconds   sum of the delays since the start
    """

    def __init__(
        self,
        timers: Timers,
        now_ns: Callable[[], int],
        thread_cpu_ns: Callable[[], int],
        beaten: Callable[[], None] = lambda: None,
    ) -> None:
        self._beaten = beaten
        self._timers = timers
        self._now_ns = now_ns
        self._thread_cpu_ns = thread_cpu_ns
        self._timer: Cancellable | None = None
        self._due_ns = 0
        self._held_ns = 0
        self._window_ends_ns = 0
        self._longest_ns = self._longest_before_ns = 0
        self._samples: deque[tuple[int, int]] = deque()
        """Times and CPU times of the last minute."""

    def begin(self) -> None:
        """Begin to measure; called on the thread of the loop."""
        self._set(self._now_ns())

    def _set(self, now_ns: int) -> None:
        self._due_ns = now_ns + _BEAT_MS * _NS_A_MS
        self._timer = self._timers.call_later(_BEAT_MS, self._beat)

    def _beat(self) -> None:
        now_ns = self._now_ns()
        held_ns = max(0, now_ns - self._due_ns)
        self._held_ns += held_ns
        if now_ns > self._window_ends_ns:
            self._window_ends_ns = now_ns + _WINDOW_NS
            self._longest_before_ns, self._longest_ns = self._longest_ns, 0
        self._longest_ns = max(self._longest_ns, held_ns)
        if not self._samples or now_ns - self._samples[-1][0] >= _SAMPLE_NS:
            self._samples.append((now_ns, self._thread_cpu_ns()))
            while now_ns - self._samples[0][0] > _WINDOW_NS:
                self._samples.popleft()
        self._beaten()
        self._set(now_ns)

    @property
    def held_seconds(self) -> float:
        """Return the sum of all delays."""
        return self._held_ns / _NS_A_SECOND

    @property
    def longest_hold_seconds(self) -> float:
        """Return the longest hold in the last one to two minutes."""
        return max(self._longest_ns, self._longest_before_ns) / _NS_A_SECOND

    def idle_fraction(self) -> float:
        """Return the share of the last minute, 0 to 1, in which the thread of the loop used no CPU; called on that thread."""
        if not self._samples:
            return 1.0
        begun_ns, begun_cpu_ns = self._samples[0]
        elapsed_ns = self._now_ns() - begun_ns
        if elapsed_ns <= 0:
            return 1.0
        return min(1.0, max(0.0, 1 - (self._thread_cpu_ns() - begun_cpu_ns) / elapsed_ns))

    def close(self) -> None:
        """End the measurement."""
        if self._timer is not None:
            self._timer.cancel()
