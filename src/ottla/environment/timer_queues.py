"""Timer queues: long timers of the same delay share one timer of the event loop.

Requests wait for at most max_wait_ms, timeout_ms or the like, a few values that all clients use, and nearly all of the waits
end before. A timer of the loop costs a microsecond to set and to cancel, as much as a tenth of a request. Timers of one delay
are due in the order in which they were set, so a queue holds them, and only the first needs a timer of the loop:

    delay 500     | cancelled | cancelled | due at 1,730 | cancelled | due at 1,744 |      the loop's timer is set for 1,730
    delay 30,000  | due at 31,200 | cancelled |

Cancelled timers stay until they are the first ones, or are more than half of their queue.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from ottla.environment import Cancellable, Clock, Timers

SHORTEST_MS: Final = 100
"""Delay from which on timers are queued: shorter ones are mostly not cancelled."""
MOST_QUEUES: Final = 64
"""Number of queues, above which timers of further delays are set in the loop."""
_LEAST_SWEPT: Final = 64


class _Timer:
    """Timer in `queue`, None when it has left it; without `callback` it was cancelled, or has fired."""

    __slots__ = ("callback", "due_ms", "queue")

    def __init__(self, queue: "_Queue", due_ms: int, callback: Callable[[], None]) -> None:
        self.queue: _Queue | None = queue
        self.due_ms = due_ms
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """See `Cancellable.cancel`."""
        if self.callback is not None:
            self.callback = None
            if self.queue is not None:
                self.queue.cancelled += 1

    def fire(self) -> None:
        """Call back, unless the timer was cancelled."""
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


class _Queue:
    """Timers of one delay, in the order in which they are due.

    emptied  called when none is left
    """

    __slots__ = ("_clock", "_emptied", "_is_set", "_timers", "_waiting", "cancelled", "delay_ms")

    def __init__(self, delay_ms: int, timers: Timers, clock: Clock, emptied: Callable[[int], object]) -> None:
        self.delay_ms = delay_ms
        self._emptied = emptied
        self.cancelled = 0
        """Cancelled timers in the queue."""
        self._timers = timers
        self._clock = clock
        self._waiting: deque[_Timer] = deque()
        self._is_set = False

    def add(self, callback: Callable[[], None]) -> _Timer:
        waiting = self._waiting
        while waiting and waiting[0].callback is None:
            waiting.popleft()
            self.cancelled -= 1
        if self.cancelled > max(_LEAST_SWEPT, len(waiting) // 2):
            self._waiting = waiting = deque(timer for timer in waiting if timer.callback is not None)
            self.cancelled = 0
        timer = _Timer(self, self._clock.now_ms() + self.delay_ms, callback)
        waiting.append(timer)
        if not self._is_set:
            # From now on, until the queue is empty, the loop has a timer that is not later than the first one here.
            self._is_set = True
            self._timers.call_later(self.delay_ms, self._ring)
        return timer

    def _ring(self) -> None:
        """Fire what is due, and set the loop's timer for the first one that is left."""
        waiting, now_ms = self._waiting, self._clock.now_ms()
        while waiting and (waiting[0].callback is None or waiting[0].due_ms <= now_ms):
            timer = waiting.popleft()
            timer.queue = None
            if timer.callback is None:
                self.cancelled -= 1
            else:
                # Each in a call of its own: an exception in one must not keep the others from firing.
                self._timers.call_later(0, timer.fire)
        if waiting:
            self._timers.call_later(waiting[0].due_ms - now_ms, self._ring)
        else:
            self._emptied(self.delay_ms)


class TimerQueues:
    """`Timers` that queue long timers.

    timers  those of the event loop
    clock   the clock that they follow
    """

    def __init__(self, timers: Timers, clock: Clock) -> None:
        self._timers = timers
        self._clock = clock
        self._queues: dict[int, _Queue] = {}

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Cancellable:
        """See `Timers.call_later`."""
        queue = self._queues.get(delay_ms)
        if queue is None:
            if delay_ms < SHORTEST_MS or len(self._queues) >= MOST_QUEUES:
                return self._timers.call_later(delay_ms, callback)
            queue = self._queues[delay_ms] = _Queue(delay_ms, self._timers, self._clock, self._queues.pop)
        return queue.add(callback)
