"""Callback that runs at the earliest of several deadlines, with one timer."""

from collections.abc import Callable
from typing import Final

from ottla.broker.periodic import PAUSED, Periodic
from ottla.environment import Clock, Timers

_RETRY_MS: Final = 100
"""Delay before failed work is retried."""


class Alarm:
    """Runs `work` at the earliest deadline that was set since its last run.

    name  its name in the log
    work  does the tasks that are due, and sets the alarm for the next deadline
    """

    def __init__(self, name: str, work: Callable[[], None], clock: Clock, timers: Timers) -> None:
        self._work = work
        self._clock = clock
        self._timer = Periodic(name, self._run, _RETRY_MS, timers)
        self._deadline_ms = 0

    def set(self, deadline_ms: int) -> None:
        """Ensure that the work runs at `deadline_ms` (monotonic clock) or earlier."""
        if self._timer.is_set and self._deadline_ms <= deadline_ms:
            return
        self._deadline_ms = deadline_ms
        self._timer.run_in(max(0, deadline_ms - self._clock.now_ms()))

    def _run(self) -> int:
        self._work()
        return PAUSED

    def close(self) -> None:
        """Cancel the timer; it cannot be set any more."""
        self._timer.close()
