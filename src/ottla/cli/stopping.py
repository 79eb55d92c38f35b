"""Stop requests for commands that run until they are stopped: after SIGTERM or Ctrl-C a command ends between two steps.

The first signal raises no exception, which could come in the middle of a line of output. The second one does, to end at once.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STEP_S = 0.2
"""A step waits no longer than this before it looks whether it is to stop."""


class Stop:
    """Handler of the signals.

    requested  SIGTERM or SIGINT came
    """

    def __init__(self) -> None:
        self.requested = False
        self._is_interruptible = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The signal's handler."""
        del number, frame
        if self._is_interruptible or self.requested:
            raise KeyboardInterrupt
        self.requested = True

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Around a call that may wait for long: a signal interrupts it, and is kept in `requested`."""
        self._is_interruptible = not self.requested
        try:
            yield
        except KeyboardInterrupt:
            if self.requested:
                raise
            self.requested = True
        finally:
            self._is_interruptible = False

    def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`, or until a stop is requested."""
        end = time.monotonic() + seconds
        while not self.requested and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, STEP_S))


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Handle SIGTERM and SIGINT; outside the main thread, which alone gets signals, a stop is never requested."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
