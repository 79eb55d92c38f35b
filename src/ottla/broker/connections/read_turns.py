"""Turns of connections to be read: those that have data in one pass of the event loop share some milliseconds of it.

    pass 1   a b c ... 10 ms | d e f ... pause, and wait in this order
    pass 2   resume d e f g
    pass 3   d e f g | a, which has data again, waits behind those that wait already
    ...

A burst of readable connections is told from the next one by a gap, so that a connection costs two looks at the clock, and
nothing has to be called between two passes unless there is a queue.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol, final

from mypy_extensions import i64

from ottla.environment import Timers

_NS_A_PASS: Final = 10_000_000
_GAP_NS: Final = 50_000
"""Time between two reads above which the loop has looked for events in between."""
_RESUMED_A_PASS: Final = 8


class ReadableConnection(Protocol):
    """Connection that waits for its turn."""

    def wait_for_turn(self) -> None:
        """Pause reading."""

    def take_turn(self) -> None:
        """Resume reading; the next read needs no further turn."""


@final
class ReadTurns:
    """Turns of the connections of an event loop.

    now_ns  time of a monotonic clock, in ns
    """

    def __init__(self, timers: Timers, now_ns: Callable[[], int]) -> None:
        self._timers = timers
        self._now_ns = now_ns
        self._begun_ns: i64 = 0
        self._ended_ns: i64 = 0
        self._waiting: OrderedDict[ReadableConnection, None] = OrderedDict()
        self._is_scheduled = False

    def may_read(self, connection: ReadableConnection) -> bool:
        """Return whether a connection may be read now; otherwise it pauses until its turn."""
        now_ns: i64 = self._now_ns()
        if not self._waiting:
            if now_ns - self._ended_ns > _GAP_NS:
                self._begun_ns = now_ns
                return True
            if now_ns - self._begun_ns < _NS_A_PASS:
                return True
        self._waiting[connection] = None
        connection.wait_for_turn()
        if not self._is_scheduled:
            self._is_scheduled = True
            self._timers.call_later(0, self._resume_some)
        return False

    def has_read(self) -> None:
        """Note the end of a read, and of what it has caused."""
        self._ended_ns = self._now_ns()

    def remove(self, connection: ReadableConnection) -> None:
        """Forget a closed connection."""
        self._waiting.pop(connection, None)

    def _resume_some(self) -> None:
        for _ in range(_RESUMED_A_PASS):
            if not self._waiting:
                break
            connection, _ = self._waiting.popitem(last=False)
            connection.take_turn()
        self._is_scheduled = bool(self._waiting)
        if self._waiting:
            self._timers.call_later(0, self._resume_some)
        else:
            self._begun_ns = self._ended_ns = self._now_ns()
