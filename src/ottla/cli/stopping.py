"""Stop requests for long-running commands: after SIGTERM or Ctrl-C a command ends between two steps.

The first signal raises no exception, which could interrupt a line of output. The second one raises KeyboardInterrupt.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STEP_S = 0.2
"""Maximum time that a step waits before it checks for a stop request."""


class Stop:
    """Signal handler.

    requested  SIGTERM or SIGINT was received
    """

    def __init__(self) -> None:
        self.requested = False
        self._is_interruptible = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        del number, frame
        if self._is_interruptible or self.requested:
            raise KeyboardInterrupt
        self.requested = True

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let a signal interrupt the calls in the block, and store it in `requested`."""
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
    """Handle SIGTERM and SIGINT in the block; outside the main thread, which receives the signals, nothing is handled."""
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
