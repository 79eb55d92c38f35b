"""Clocks and random numbers of the machine."""

import random
import time


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
