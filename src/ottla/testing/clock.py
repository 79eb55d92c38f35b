"""Time as a test wants it: it stands still, and it jumps.

A jump is made in steps, each a two-hundredth of it (1 ms at least): what is due in a step is done in the order in which it is
due, and what that asks for in turn before the next step. So a jump of ten minutes expires a session and ends the rebalance that
follows, and a jump of a month costs no more than one of ten minutes.
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import Final

from ottla.environment import Cancellable
from ottla.environment.system import SystemClock

_STEPS: Final = 200
_TURNS: Final = 1000
"""Of the loop, at most, for what is to be done at once; each piece of it may ask for more."""


class MovableClock:
    """The machine's clock, some way ahead of it, or standing still."""

    def __init__(self) -> None:
        self._system = SystemClock()
        self._wall_ahead_ms = self._ahead_ms = 0
        self._stands_at: tuple[int, int] | None = None
        self.was_moved = False

    def wall_ms(self) -> int:
        return self._system.wall_ms() + self._wall_ahead_ms if self._stands_at is None else self._stands_at[0]

    def now_ms(self) -> int:
        return self._system.now_ms() + self._ahead_ms if self._stands_at is None else self._stands_at[1]

    @property
    def stands(self) -> bool:
        """True while the clock is stopped."""
        return self._stands_at is not None

    def stop(self) -> None:
        """Stand still from now on."""
        self._stands_at = self.wall_ms(), self.now_ms()
        self.was_moved = True

    def go_on(self) -> None:
        """Run again from where it stands."""
        if self._stands_at is not None:
            self._wall_ahead_ms = self._stands_at[0] - self._system.wall_ms()
            self._ahead_ms = self._stands_at[1] - self._system.now_ms()
            self._stands_at = None

    def move(self, ms: int) -> None:
        """Be `ms` later at once."""
        self.was_moved = True
        if self._stands_at is None:
            self._wall_ahead_ms += ms
            self._ahead_ms += ms
        else:
            self._stands_at = self._stands_at[0] + ms, self._stands_at[1] + ms


class _Due:
    """A call at `deadline_ms`."""

    __slots__ = ("callback", "deadline_ms", "number")

    def __init__(self, deadline_ms: int, number: int, callback: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self.number = number
        self.callback: Callable[[], None] | None = callback

    def __lt__(self, other: "_Due") -> bool:
        return (self.deadline_ms, self.number) < (other.deadline_ms, other.number)

    def cancel(self) -> None:
        self.callback = None

    def run(self) -> None:
        if self.callback is not None:
            self.callback()


class MovableTimers:
    """The timers of a broker on a MovableClock. What is to be done at once is done even while time stands still."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: MovableClock) -> None:
        self._loop = loop
        self._clock = clock
        self._heap: list[_Due] = []
        self._numbers = 0
        self._at_once = 0
        """Calls that the loop has been asked for and has not made."""
        self._alarm: asyncio.TimerHandle | None = None

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Cancellable:
        self._numbers += 1
        due = _Due(self._clock.now_ms() + delay_ms, self._numbers, callback)
        if delay_ms <= 0:
            self._soon(due)
        else:
            heapq.heappush(self._heap, due)
            if self._heap[0] is due:
                self.set_alarm()
        return due

    def _soon(self, due: _Due) -> None:
        def run() -> None:
            self._at_once -= 1
            due.run()

        self._at_once += 1
        self._loop.call_soon(run)

    def set_alarm(self) -> None:
        """Wake up for the next deadline: to be called when the clock has begun to run or to stand."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._heap and not self._clock.stands:
            delay_ms = max(0, self._heap[0].deadline_ms - self._clock.now_ms())
            self._alarm = self._loop.call_later(delay_ms / 1000, self._ring)

    def _ring(self) -> None:
        self._do_what_is_due()
        self.set_alarm()

    def _do_what_is_due(self) -> None:
        now_ms = self._clock.now_ms()
        while self._heap and self._heap[0].deadline_ms <= now_ms:
            self._soon(heapq.heappop(self._heap))

    async def advance(self, ms: int) -> None:
        """Move the clock by `ms`, and do everything that is due on the way, in order."""
        step = -(-ms // _STEPS)
        left = ms
        while self._heap and (distance := self._heap[0].deadline_ms - self._clock.now_ms()) <= left:
            if self._heap[0].callback is None:
                heapq.heappop(self._heap)
                continue
            ahead = min(left, max(0, -(-distance // step) * step)) if step else 0
            self._clock.move(ahead)
            left -= ahead
            self._do_what_is_due()
            await self._settled()
        self._clock.move(left)
        self._do_what_is_due()
        await self._settled()
        self.set_alarm()

    async def _settled(self) -> None:
        """Wait until everything that was to be done at once is done."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
            if not self._at_once:
                return
