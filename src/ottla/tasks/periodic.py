"""Periodic work, which continues after a run that failed."""

import logging
from collections.abc import Callable
from typing import Any, Final

from ottla.environment import Cancellable, Timers
from ottla.tasks.scheduler import Task

_logger = logging.getLogger("ottla.broker")
PAUSED: Final = -1
"""Result of a run after which no timer is set until `run_in` is called."""


class Periodic:
    """Periodic task with its timer.

    name         its name in the log
    work         one run; returns the ms until the next one, None for `interval_ms`, PAUSED, or the task of a run that has to
                 wait, whose result is one of these
    interval_ms  the pause between runs, and after a run that failed

    A failed run is logged with its traceback, further ones only after a run has succeeded; the timer is set again in any
    case.
    """

    def __init__(
        self, name: str, work: Callable[[], int | Task[int | None] | None], interval_ms: int, timers: Timers
    ) -> None:
        self._name = name
        self._work = work
        self._interval_ms = interval_ms
        self._timers = timers
        self._timer: Cancellable | None = None
        self._run: Task[int | None] | None = None
        """The run that has to wait."""
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
            self._timer = self._timers.call_later(delay_ms, self._begin)

    def close(self) -> None:
        """Cancel the timer, which cannot be set any more, and the task that is running."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._run is not None:
            self._run.ignore(self._ended)
            self._run.cancel()

    def _begin(self) -> None:
        self._timer = None
        try:
            begun = self._work()
        except Exception as error:  # noqa: BLE001  (it is logged)
            self._end(None, error)
            return
        if not isinstance(begun, Task):
            self._end(begun, None)
        elif begun.done:
            self._ended(begun)
        else:
            self._run = begun
            begun.listen(self._ended)

    def _ended(self, run: Any) -> None:
        self._run = None
        self._end(None if run.error is not None else run.result(), run.error)

    def _end(self, delay_ms: int | None, error: BaseException | None) -> None:
        """Note the outcome of a run, and set the timer."""
        if isinstance(error, Exception) and not self._failing:
            _logger.error("%s failed and will be retried", self._name, exc_info=error)
        self._failing = error is not None
        if self._timer is None and delay_ms != PAUSED:
            self.run_in(self._interval_ms if delay_ms is None else delay_ms)
