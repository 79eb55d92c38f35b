"""The earliest of several deadlines, with one timer."""

from collections.abc import Callable

from ottla.environment import Cancellable, Clock, Timers


class Alarm:
    """Timer that calls back at the earliest deadline that was set since it last called."""

    __slots__ = ("_callback", "_clock", "_deadline_ms", "_timer", "_timers")

    def __init__(self, callback: Callable[[], None], clock: Clock, timers: Timers) -> None:
        self._callback = callback
        self._clock = clock
        self._timers = timers
        self._timer: Cancellable | None = None
        self._deadline_ms = 0

    def set(self, deadline_ms: int) -> None:
        """Call back at `deadline_ms` of the monotonic clock, or earlier. The callback sets later deadlines again."""
        if self._timer is not None:
            if self._deadline_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._deadline_ms = deadline_ms
        self._timer = self._timers.call_later(max(0, deadline_ms - self._clock.now_ms()), self._ring)

    def cancel(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self._callback()
