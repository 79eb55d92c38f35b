"""The garbage collector of the process, which leaves out full collections while large requests are served.

The objects of a request live until it is answered; then their counts of references end them, and there is nothing to collect. A
full collection in between goes through all of them, and with 100,000 rows takes longer than any other pass of the event loop.
Young generations are collected as ever, so that what becomes a cycle meanwhile is found unless it is old.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NEVER: Final = 1 << 30


class Collector:
    """Full collections of a process, which has one garbage collector for the brokers of all its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._served = 0
        self._thresholds = gc.get_threshold()

    @contextmanager
    def without_full_collections(self) -> Iterator[None]:
        """Leave out full collections until the end of the block, and of other blocks that have begun meanwhile."""
        with self._lock:
            if self._served == 0:
                self._thresholds = gc.get_threshold()
                gc.set_threshold(*self._thresholds[:2], _NEVER)
            self._served += 1
        try:
            yield
        finally:
            with self._lock:
                self._served -= 1
                if self._served == 0:
                    gc.set_threshold(*self._thresholds)


COLLECTOR: Final = Collector()
