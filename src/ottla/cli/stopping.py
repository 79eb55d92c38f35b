"""How a command that runs until it is told to stop hears of it: SIGTERM and Ctrl-C ask, and it ends between two steps.

A signal that threw an exception could come in the middle of a line of output. The second one does throw: somebody is impatient.
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
    """Whether somebody has asked.

    asked  SIGTERM or SIGINT came
    """

    def __init__(self) -> None:
        self.asked = False
        self._impatient = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The signal's handler."""
        del number, frame
        if self._impatient or self.asked:
            raise KeyboardInterrupt
        self.asked = True

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Around a call that may wait for long: a signal interrupts it, and is kept in `asked`."""
        self._impatient = not self.asked
        try:
            yield
        except KeyboardInterrupt:
            if self.asked:
                raise
            self.asked = True
        finally:
            self._impatient = False

    def sleep(self, seconds: float) -> None:
        """Do nothing for so long, or until somebody asks."""
        end = time.monotonic() + seconds
        while not self.asked and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, STEP_S))


@contextmanager
def told_to_stop() -> Iterator[Stop]:
    """Hear SIGTERM and SIGINT; in a thread that gets no signals nobody asks."""
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
