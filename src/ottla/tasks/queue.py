"""Queue of callbacks that follow completions: first in, first out, each outside of the stack that queued it.

    event (socket, timer, worker) --- complete ---> queue --- drain, an event of its own ---> callbacks, in order
                                                      ^                                          |
                                                      +--------------- complete -----------------+

The first callback in an empty queue schedules the drain with a timer that is due at once. asyncio and uvloop run it before
sockets are looked at again, the simulator at the same microsecond. The frequent events, a readable socket and a call of another
thread, drain as their last statement (`begin_event`, `end_event`): another pass of the loop would cost them 10 to 20
microseconds. A drain is never re-entered: what its callbacks complete is queued behind what is there.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

from ottla.environment import Cancellable, Timers

T = TypeVar("T")
_logger = logging.getLogger("ottla.tasks")
_CALLS_A_PASS: Final = 1000
"""Callbacks of one drain; the rest waits for the next pass of the event loop, after sockets and timers."""


def log_error(name: str, error: BaseException) -> None:
    """Log an exception that no code has caught, with its traceback."""
    _logger.error("%s failed", name, exc_info=error)


class CallbackQueue:
    """Callbacks that are run in order, after the current event.

    timers    timers of the event loop
    on_error  called with (name, error) when a callback or a background task raises; the further callbacks run
    """

    def __init__(self, timers: Timers, on_error: Callable[[str, BaseException], None] = log_error) -> None:
        self._timers = timers
        self.on_error = on_error
        self._queue: deque[Callable[[], object]] = deque()
        self._is_scheduled = False
        """True while the drain is scheduled or runs."""
        self._is_closed = False

    def call(self, callback: Callable[[], object]) -> None:
        """Run `callback` after the current event, behind what is queued already."""
        if self._is_closed:
            return
        self._queue.append(callback)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._timers.call_later(0, self._drain)

    def begin_event(self) -> bool:
        """Announce that an event ends with `end_event`, which drains the queue in place of a timer; False if that is not
        needed, as a drain is scheduled already, or runs.
        """
        if self._is_scheduled:
            return False
        self._is_scheduled = True
        return True

    def end_event(self) -> None:
        """Drain the queue as the last statement of an event, after `begin_event` has returned True."""
        self._drain()

    def run_event(self, event: Callable[[], T]) -> T:
        """Run a callback of the environment, then the queue; return its result."""
        is_begun = self.begin_event()
        try:
            return event()
        finally:
            if is_begun:
                self.end_event()

    def _drain(self) -> None:
        queue = self._queue
        try:
            for _ in range(_CALLS_A_PASS):
                if not queue:
                    break
                callback = queue.popleft()
                try:
                    callback()
                except Exception as error:  # noqa: BLE001  (one that fails must not keep the others from running)
                    self.on_error("a callback", error)
        finally:
            self._is_scheduled = bool(queue)
            if queue:
                self._timers.call_later(0, self._drain)

    @property
    def is_empty(self) -> bool:
        """Return whether everything that was completed has been acted on."""
        return not self._is_scheduled

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Cancellable:
        """Call `callback` once, after `delay_ms`."""
        return self._timers.call_later(max(delay_ms, 0), callback)

    def close(self) -> None:
        """Drop all callbacks, now and later: the broker or client has ended."""
        self._is_closed = True
        self._queue.clear()
