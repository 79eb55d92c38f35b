"""Access of the code below the broker to its environment: time, random numbers, timers and a background thread.

Everything that needs time or randomness gets one of these objects, so that the same state machines run in a broker and in a
test with a virtual clock. The lowest layer: it imports nothing of Ottla.
"""

import random
import time
from collections.abc import Callable
from typing import Any, Protocol


class Clock(Protocol):
    """Time in milliseconds."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch: for timestamps in records and logs."""

    def now_ms(self) -> int:
        """Milliseconds on a monotonic clock: for deadlines."""


class Random(Protocol):
    """The source of ids and jitter."""

    def bytes16(self) -> bytes:
        """16 random bytes, for a uuid."""

    def below(self, bound: int) -> int:
        """A number from 0 (inclusive) to `bound` (exclusive)."""


class Cancellable(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """Calls back later, on the thread of the event loop."""

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Cancellable: ...


class Worker(Protocol):
    """Runs functions one after the other on another thread."""

    def run(self, work: Callable[[], Any], done: Callable[[Any], object], failed: Callable[[], object]) -> None:
        """Run `work`, then `done` with its result on the event loop.

        failed  called in place of `done` after an exception that `work` should have caught itself; it is logged
        """


class SystemClock:
    """The machine's own clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class SystemRandom:
    """The machine's own random numbers."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def bytes16(self) -> bytes:
        return self._random.randbytes(16)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)
