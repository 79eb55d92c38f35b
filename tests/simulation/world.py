"""Virtual time: one queue of events in a defined order, random numbers by purpose, and the hash of everything that happens.

Two events at the same microsecond run in the order in which they were scheduled, so that a seed defines the whole run.
"""

import hashlib
import heapq
import random
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

Callback = Callable[[], None]
SECOND_US: Final = 1_000_000
MS_US: Final = 1_000


class StoryLine(NamedTuple):
    """Readable event: time in microseconds since the start, host, text."""

    at_us: int
    host: str
    text: str

    def __str__(self) -> str:
        return f"{self.at_us / SECOND_US:11.6f} s  {self.host:<14} {self.text}"


class Scheduled:
    """Event in the queue, which can be cancelled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callback) -> None:
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        self.callback = None


class World:
    """Clock, event queue, random numbers and trace of one run.

    now_us   microseconds since the start of the run
    events   number of events that ran
    counts   number of faults, restarts, requests and so on, by name
    story    readable events, in order
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_us = 0
        self.events = 0
        self.counts: Counter[str] = Counter()
        self.story: list[StoryLine] = []
        self._queue: list[tuple[int, int, Scheduled]] = []
        self._number = 0
        self._trace = hashlib.sha256()

    def random(self, purpose: str) -> random.Random:
        """Create the generator of a purpose: the numbers of one do not depend on how many another one takes."""
        return random.Random(f"{self.seed}/{purpose}")

    def call_at(self, at_us: int, callback: Callback) -> Scheduled:
        """Run `callback` at a time; a time in the past means now."""
        scheduled = Scheduled(callback)
        self._number += 1
        heapq.heappush(self._queue, (max(at_us, self.now_us), self._number, scheduled))
        return scheduled

    def call_after(self, delay_us: int, callback: Callback) -> Scheduled:
        """Run `callback` after a delay."""
        return self.call_at(self.now_us + delay_us, callback)

    def run(self, until_us: int) -> None:
        """Run all events up to a time."""
        queue = self._queue
        while queue and queue[0][0] <= until_us:
            at_us, _, scheduled = heapq.heappop(queue)
            callback = scheduled.callback
            if callback is None:
                continue
            self.now_us = at_us
            self.events += 1
            scheduled.callback = None
            callback()
        self.now_us = until_us

    def count(self, name: str) -> None:
        """Count an occurrence."""
        self.counts[name] += 1

    def trace(self, kind: str, host: str, payload: bytes) -> None:
        """Add an event to the hash of the run."""
        self._trace.update(b"%d %s %s %d " % (self.now_us, kind.encode(), host.encode(), len(payload)))
        self._trace.update(payload)

    def tell(self, host: str, text: str) -> None:
        """Add a readable event to the story and to the hash of the run."""
        self.story.append(StoryLine(self.now_us, host, text))
        self.trace("story", host, text.encode())

    def remark(self, host: str, text: str) -> None:
        """Add a readable event to the story only, for texts that may differ between versions, such as log lines."""
        self.story.append(StoryLine(self.now_us, host, text))

    @property
    def trace_hash(self) -> str:
        """Return the hash of everything that has happened."""
        return self._trace.hexdigest()
