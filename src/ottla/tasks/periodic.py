"""Periodic work, which continues after a run that failed."""

import logging
from collections.abc import Callable
from typing import Final

from ottla.environment import Cancellable, Timers
from ottla.tasks.answers import Steps
from ottla.tasks.deferred import Deferred

_logger = logging.getLogger("ottla.broker")
PAUSED: Final = -1
"""Result of a run after which no timer is set until `run_in` is called."""


class Periodic:
    """Periodic task with its timer.

    name         its name in the log
    work         one run; returns the ms until the next one, None for `interval_ms`, PAUSED, or the steps of a run that takes
                 long, each of which runs in its own turn of the event loop
    interval_ms  the pause between runs, and after a run that failed

    A failed run is logged with its traceback, further ones only after a run has succeeded; the timer is set again in any
    case.
    """

    def __init__(self, name: str, work: Callable[[], int | Steps | None], interval_ms: int, timers: Timers) -> None:
        self._name = name
        self._work = work
        self._interval_ms = interval_ms
        self._timers = timers
        self._timer: Cancellable | None = None
        self._steps: Steps | None = None
        self._failing = False
        self._closed = False

    @property
    def is_set(self) -> bool:
        """True while a run is scheduled."""
        return self._timer is not None

    def run_in(self, delay_ms: int) -> None:
        """Set the timer, in place of the one that is set."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._closed:
            self._timer = self._timers.call_later(delay_ms, self._run)

    def close(self) -> None:
        """Cancel the timer; it cannot be set any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._timer = None
        delay_ms: int | None = None
        try:
            delay_ms = self._step()
        except Exception:
            self._steps = None
            if not self._failing:
                _logger.exception("%s failed and will be retried", self._name)
            self._failing = True
        if self._timer is None and delay_ms != PAUSED:
            self.run_in(self._interval_ms if delay_ms is None else delay_ms)

    def _step(self) -> int | None:
        """Begin a run, or do the next step of the current one; returns the delay until the next call."""
        if self._steps is None:
            begun = self._work()
            if begun is None or isinstance(begun, int):
                self._failing = False
                return begun
            self._steps = begun
        awaited = next(self._steps, self)
        if awaited is self:
            self._steps = None
            self._failing = False
            return None
        if not isinstance(awaited, Deferred):
            return 0
        awaited.listen(lambda _: self.run_in(0))
        return PAUSED
