"""Pauses of tasks that have much to do: together they use some milliseconds of each pass of the event loop.

    pass 1   | sockets, timers | task a ------ 10 ms |
    pass 2   | sockets, timers | task b -- ends, task a --- 10 ms |
    pass 3   | sockets, timers | task a ...

Tasks of all connections wait in one queue, so that none is favoured. Time is CPU time of the thread: a machine that is busy
with other processes does not make the pieces smaller.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from ottla.tasks.deferred import Deferred
from ottla.tasks.queue import CallbackQueue

_NS_A_PASS: Final = 10_000_000


class Pace:
    """Queue of paced tasks.

    cpu_ns  CPU time of the thread in ns; with a clock that stands still no task ever pauses
    """

    def __init__(self, tasks: CallbackQueue, cpu_ns: Callable[[], int]) -> None:
        self._tasks = tasks
        self._cpu_ns = cpu_ns
        self._ends_ns = -1
        """CPU time at which the tasks have used this pass; -1 before the first of them has run in it."""
        self._waiting: deque[Deferred[None]] = deque()

    def turn(self) -> Deferred[None] | None:
        """Return what the calling task has to wait for before its next piece; None while there is time left."""
        if not self._waiting and self._has_time():
            return None
        turn: Deferred[None] = Deferred(self._tasks)
        self._waiting.append(turn)
        return turn

    def _has_time(self) -> bool:
        if self._ends_ns < 0:
            self._ends_ns = self._cpu_ns() + _NS_A_PASS
            self._tasks.call_later(0, self._begin_pass)
            return True
        return self._cpu_ns() < self._ends_ns

    def _begin_pass(self) -> None:
        self._ends_ns = -1
        self._resume_next()

    def _resume_next(self) -> None:
        """Resume the task that has waited longest, then others while there is time."""
        if self._waiting and self._has_time():
            self._waiting.popleft().complete(None)
            self._tasks.call(self._resume_next)  # behind the piece of the resumed task
