"""Clock and timers that a test controls: stop, resume, and advance.

Time advances in up to 200 steps of at least 1 ms. In each step the timers due by then fire in the order of their deadlines,
including timers that they schedule for the same step. So an advance of ten minutes expires a session and completes the
rebalance that follows, and an advance of a month costs no more than one of ten minutes.
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import Final

from ottla.environment import Cancellable
from ottla.environment.system import SystemClock

_STEPS: Final = 200
_MAX_TURNS: Final = 1000
"""Maximum turns of the event loop to run immediate calls, each of which may schedule more."""


class MovableClock:
    """System clock with an adjustable offset, or stopped."""

    def __init__(self) -> None:
        self._system = SystemClock()
        self._wall_ahead_ms = self._ahead_ms = 0
        self._stopped_at: tuple[int, int] | None = None
        self.was_moved = False

    def wall_ms(self) -> int:
        return self._system.wall_ms() + self._wall_ahead_ms if self._stopped_at is None else self._stopped_at[0]

    def now_ms(self) -> int:
        return self._system.now_ms() + self._ahead_ms if self._stopped_at is None else self._stopped_at[1]

    @property
    def is_stopped(self) -> bool:
        """True while the clock is stopped."""
        return self._stopped_at is not None

    def stop(self) -> None:
        """Stop the clock at its current time."""
        self._stopped_at = self.wall_ms(), self.now_ms()
        self.was_moved = True

    def resume(self) -> None:
        """Run again from the time at which the clock is stopped."""
        if self._stopped_at is not None:
            self._wall_ahead_ms = self._stopped_at[0] - self._system.wall_ms()
            self._ahead_ms = self._stopped_at[1] - self._system.now_ms()
            self._stopped_at = None

    def move(self, ms: int) -> None:
        """Advance the clock by `ms`, without firing timers."""
        self.was_moved = True
        if self._stopped_at is None:
            self._wall_ahead_ms += ms
            self._ahead_ms += ms
        else:
            self._stopped_at = self._stopped_at[0] + ms, self._stopped_at[1] + ms


class _ScheduledCall:
    """Cancellable call at `deadline_ms`."""

    __slots__ = ("callback", "deadline_ms", "number")

    def __init__(self, deadline_ms: int, number: int, callback: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self.number = number
        self.callback: Callable[[], None] | None = callback

    def __lt__(self, other: "_ScheduledCall") -> bool:
        return (self.deadline_ms, self.number) < (other.deadline_ms, other.number)

    def cancel(self) -> None:
        self.callback = None

    def run(self) -> None:
        if self.callback is not None:
            self.callback()


class MovableTimers:
    """Timers of a broker on a MovableClock; calls without a delay run even while the clock is stopped."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: MovableClock) -> None:
        self._loop = loop
        self._clock = clock
        self._heap: list[_ScheduledCall] = []
        self._numbers = 0
        self._pending_calls = 0
        """Number of calls scheduled on the loop and not run yet."""
        self._alarm: asyncio.TimerHandle | None = None

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Cancellable:
        self._numbers += 1
        due = _ScheduledCall(self._clock.now_ms() + delay_ms, self._numbers, callback)
        if delay_ms <= 0:
            self._call_soon(due)
        else:
            heapq.heappush(self._heap, due)
            if self._heap[0] is due:
                self.set_alarm()
        return due

    def _call_soon(self, due: _ScheduledCall) -> None:
        def run() -> None:
            self._pending_calls -= 1
            due.run()

        self._pending_calls += 1
        self._loop.call_soon(run)

    def set_alarm(self) -> None:
        """Set the loop's timer for the next deadline; must be called after the clock is stopped or resumed."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._heap and not self._clock.is_stopped:
            delay_ms = max(0, self._heap[0].deadline_ms - self._clock.now_ms())
            self._alarm = self._loop.call_later(delay_ms / 1000, self._on_alarm)

    def _on_alarm(self) -> None:
        self._run_due_calls()
        self.set_alarm()

    def _run_due_calls(self) -> None:
        now_ms = self._clock.now_ms()
        while self._heap and self._heap[0].deadline_ms <= now_ms:
            self._call_soon(heapq.heappop(self._heap))

    async def advance(self, ms: int) -> None:
        """Advance the clock by `ms`, and run the calls due on the way, in the order of their deadlines."""
        step = -(-ms // _STEPS)
        left = ms
        while self._heap and (distance := self._heap[0].deadline_ms - self._clock.now_ms()) <= left:
            if self._heap[0].callback is None:
                heapq.heappop(self._heap)
                continue
            ahead = min(left, max(0, -(-distance // step) * step)) if step else 0
            self._clock.move(ahead)
            left -= ahead
            self._run_due_calls()
            await self._drain()
        self._clock.move(left)
        self._run_due_calls()
        await self._drain()
        self.set_alarm()

    async def _drain(self) -> None:
        """Run the loop until no immediate call is left."""
        for _ in range(_MAX_TURNS):
            await asyncio.sleep(0)
            if not self._pending_calls:
                return
