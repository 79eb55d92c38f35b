"""Work of the broker that is due at deadlines, which continues after a run that failed."""

import logging
from collections.abc import Callable
from typing import Final

from ottla.environment import Clock, Timers
from ottla.tasks.alarm import Alarm

_logger = logging.getLogger("ottla.broker")
_RETRY_MS: Final = 100
"""Delay before failed work is retried."""


class DueWork:
    """Runs `work` at the earliest deadline that was set since its last run.

    name  its name in the log
    work  does the tasks that are due, and sets the next deadline

    A run that raises is logged with its traceback and repeated; further failures are not logged until a run has succeeded.
    """

    def __init__(self, name: str, work: Callable[[], None], clock: Clock, timers: Timers) -> None:
        self._name = name
        self._work = work
        self._clock = clock
        self._alarm = Alarm(self._run, clock, timers)
        self._is_failing = False
        self._is_closed = False

    def set(self, deadline_ms: int) -> None:
        """Ensure that the work runs at `deadline_ms` (monotonic clock) or earlier."""
        if not self._is_closed:
            self._alarm.set(deadline_ms)

    def _run(self) -> None:
        try:
            self._work()
        except Exception:  # one failure must not end the work of all other deadlines
            if not self._is_failing:
                _logger.exception("%s failed and will be retried", self._name)
            self._is_failing = True
            self.set(self._clock.now_ms() + _RETRY_MS)
        else:
            self._is_failing = False

    def close(self) -> None:
        """Cancel the timer; no deadline can be set any more."""
        self._is_closed = True
        self._alarm.cancel()
