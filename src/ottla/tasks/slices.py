"""Long work on the event loop, in slices between which requests are served.

Work is an iterator that yields after each piece of at most some milliseconds. The first piece runs at once, so that short work
is done when `run` returns; each further piece runs in its own turn of the loop.
"""

import logging
from collections.abc import Callable
from functools import partial

from ottla.environment import Timers
from ottla.tasks.answers import Steps
from ottla.tasks.deferred import Deferred

_logger = logging.getLogger("ottla.broker")


class Slices:
    """Runs work in slices, each begun by a timer that is due at once."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._closed = False

    def run(self, steps: Steps, done: Callable[[], None], failed: Callable[[], None] | None = None) -> None:
        """Do all of `steps`, then call `done`. A failed step is logged and ends the work; `failed` (or `done`) is called."""
        if self._closed:
            return
        try:
            awaited = next(steps)
        except StopIteration:
            done()
        except Exception:  # `done` must be called even after a bug in a step
            _logger.exception("a piece of work on the event loop failed")
            (failed or done)()
        else:
            if isinstance(awaited, Deferred):
                awaited.listen(lambda _: self.run(steps, done, failed))
            else:
                self._timers.call_later(0, partial(self.run, steps, done, failed))

    def close(self) -> None:
        """Begin no further slice."""
        self._closed = True
