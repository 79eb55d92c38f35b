"""Busy polling: keeps an event loop awake for a moment after it has sent a message, because the next one is about to come.

The messages are responses and the next requests of clients, fetch requests of a follower and the responses of its leader, or
requests of a client and their responses; each kind is polled for by a `BusyPolling` of its own. A client with one request in
flight sends the next one some 50 us after a response, a client in Python some 200; the records for a follower come as often. By
then the thread of the loop would sleep, and waking it takes as long again (a virtual machine's processor has to leave its idle
state), and as much CPU time as the polling. So the loop looks for events without sleeping after a message, but only where the
message before came within GAP_NS (clients: CLIENT_GAP_NS) of the one that was sent before it, and for at most twice the gaps of
the last messages:

    sent       received  sent                             twice the gap
     |--- < GAP_NS ---|....|== polling ==| received, sent |== polling ==| the loop sleeps

The time between received and sent does not count: a client waits for the response however long it takes. A client that sends a
request every millisecond never causes polling; the last of a burst of requests costs GAP_NS at most. Nor does one that sends
or gets more than SMALL_BYTES at a time: it is busy with that, and may need the processor.

Between two looks without a message the thread yields its processor to one that waits for it: with several brokers on few
processors the followers run while their leader polls. After a message it does not: what the message has caused may be scheduled
behind the look. The followers give the processor back after some 100 us. A thread that computes keeps it for milliseconds, in
which the message may come; a loop that sleeps gets the processor sooner, as the kernel prefers threads that were asleep. So the
polling pauses when a yield has taken longer than YIELD_NS: for SHORT_PAUSE_NS at first, and twice as long as before, up to
LONG_PAUSE_NS, when the next long yield comes soon.
"""

import asyncio
import os
import time
from collections.abc import Callable
from typing import Final

GAP_NS: Final = 400_000
CLIENT_GAP_NS: Final = 100_000
"""The gap for a client: a broker on the same machine responds within it, one behind a network seldom."""
POLL_NS: Final = 60_000
"""Shortest time of polling."""
SMALL_BYTES: Final = 16_384
YIELD_NS: Final = 1_000_000
"""Time of a yield above which the thread that had the processor computes; a follower takes some 165 us for a record."""
SHORT_PAUSE_NS: Final = 10_000_000
LONG_PAUSE_NS: Final = 160_000_000


def _yield_processor() -> None:
    if hasattr(os, "sched_yield"):
        os.sched_yield()


class BusyPolling:
    """Busy polling of one event loop.

    now_ns           time of a monotonic clock, in ns
    yield_processor  lets another thread run that waits for this one's processor
    longest_gap_ns   gap between a message sent and the next one received from which on the loop sleeps
    """

    __slots__ = (
        "_follows",
        "_gap_ns",
        "_is_new",
        "_is_polling",
        "_last_ns",
        "_longest_gap_ns",
        "_loop",
        "_now_ns",
        "_pause_ns",
        "_resume_ns",
        "_yield_processor",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        now_ns: Callable[[], int] = time.perf_counter_ns,
        yield_processor: Callable[[], object] = _yield_processor,
        longest_gap_ns: int = GAP_NS,
    ) -> None:
        self._loop = loop
        self._longest_gap_ns = longest_gap_ns
        self._now_ns = now_ns
        self._yield_processor = yield_processor
        self._last_ns = -longest_gap_ns
        self._gap_ns = 0
        """Longest of the last gaps below `longest_gap_ns`; an old one counts an eighth less with each message."""
        self._follows = False
        """True if the last message received was small and came shortly after one was sent."""
        self._is_new = False
        """True if a message came since the last look."""
        self._is_polling = False
        self._pause_ns = SHORT_PAUSE_NS
        self._resume_ns = 0
        """End of the last pause, which took `_pause_ns`."""

    def on_received(self, size: int) -> None:
        """Note that `size` bytes came. Called on the thread of the loop, like all methods."""
        self._is_new = True
        gap_ns = self._now_ns() - self._last_ns
        self._follows = gap_ns < self._longest_gap_ns and size <= SMALL_BYTES
        if self._follows:
            self._gap_ns = max(gap_ns, self._gap_ns - (self._gap_ns >> 3))

    def on_sent(self, size: int) -> None:
        """Poll from now on after `size` bytes were sent, if they are few, and the last message received was small and came
        shortly after the one sent before it.
        """
        if size > SMALL_BYTES:
            return
        self._last_ns = self._now_ns()
        if self._follows and not self._is_polling and self._last_ns >= self._resume_ns:
            self._is_polling = True
            self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        # A loop with a scheduled call does not sleep: it looks for events, and comes back.
        begun_ns = self._now_ns()
        self._is_polling = begun_ns - self._last_ns < min(max(self._gap_ns * 2, POLL_NS), self._longest_gap_ns)
        if not self._is_polling:
            return
        if self._is_new:
            self._is_new = False
            self._loop.call_soon(self._poll)
            return
        self._yield_processor()
        ended_ns = self._now_ns()
        if ended_ns - begun_ns > YIELD_NS:
            self._is_polling = False
            is_soon = begun_ns - self._resume_ns < self._pause_ns
            self._pause_ns = min(2 * self._pause_ns, LONG_PAUSE_NS) if is_soon else SHORT_PAUSE_NS
            self._resume_ns = ended_ns + self._pause_ns
        else:
            self._loop.call_soon(self._poll)


def busy_polling(loop: asyncio.AbstractEventLoop, longest_gap_ns: int = GAP_NS) -> BusyPolling | None:
    """Return the busy polling of a loop; None on a single processor, which the peer needs to send its next message."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return BusyPolling(loop, longest_gap_ns=longest_gap_ns) if processors > 1 else None
