"""Stop requests for long-running commands: after SIGTERM or Ctrl-C a command ends between two steps.

The first signal raises no exception, which could interrupt a line of output, except in a block that says it is interruptible.
The second one raises KeyboardInterrupt.

    stop_on_signals  the end by a signal is a success: exit code 0
    exit_on_signals  records are left to read or write: exit code 143 (SIGTERM) or 130 (Ctrl-C), as Kafka's tools have
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

from click.exceptions import Exit

STEP_S = 0.2
"""Maximum time that a step waits before it checks for a stop request."""


class Stop:
    """Signal handler.

    requested  SIGTERM or SIGINT was received
    number     the first signal, None before it
    insisted   another one was received after it
    is_interruptible  the first signal raises KeyboardInterrupt
    """

    def __init__(self) -> None:
        self.requested = False
        self.number: int | None = None
        self.insisted = False
        self.is_interruptible = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        del frame
        self.insisted = self.requested
        if self.number is None:
            self.number = number
        self.requested = True
        if self.insisted or self.is_interruptible:
            raise KeyboardInterrupt

    def interruptible(self) -> "_Interruptible":
        """Return a context in which a signal interrupts the calls; the block then ends."""
        return _Interruptible(self)

    def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`, or until a stop is requested."""
        end = time.monotonic() + seconds
        while not self.requested and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, STEP_S))


class _Interruptible:
    """Interruptible block. No generator, which a signal at its first instruction would end."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def __enter__(self) -> None:
        self._stop.is_interruptible = not self._stop.requested

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._stop.is_interruptible = False
        return kind is KeyboardInterrupt and not self._stop.insisted


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Handle SIGTERM and SIGINT in the block; outside the main thread, which receives the signals, nothing is handled.

    The block ends without an error when the first signal comes at the very begin or end of an interruptible block, outside of
    its handler.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    except KeyboardInterrupt:
        if stop.insisted:
            raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def exit_on_signals() -> Iterator[Stop]:
    """Handle SIGTERM and SIGINT like `stop_on_signals`; a block without an error then ends in Exit, 128 + the first signal."""
    stop: Stop | None = None
    try:
        with stop_on_signals() as stop:
            yield stop
    except KeyboardInterrupt:
        if stop is None or stop.number is None:
            raise
    if stop.number is not None:
        raise Exit(128 + stop.number)
