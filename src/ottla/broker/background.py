"""One thread for work that waits for the disk and must keep its order: changes of the metadata, files that are removed.

Results are handed back on the event loop. After `close` nobody is called back any more; what was begun is finished.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any


class Background:
    """Runs functions one after the other on a thread, which is started with the first one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread: ThreadPoolExecutor | None = None
        self._closed = False

    def run(self, work: Callable[[], Any], done: Callable[[Any], object]) -> None:
        """Run `work` on the thread, after what was handed in before; then `done` with its result on the event loop.

        An exception of `work` is reported by the loop, and `done` is not called.
        """
        if self._closed:
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="ottla-background")
        self._loop.run_in_executor(self._thread, work).add_done_callback(partial(self._report, done))

    def _report(self, done: Callable[[Any], object], future: "asyncio.Future[Any]") -> None:
        if not self._closed and not future.cancelled():
            done(future.result())

    def close(self) -> None:
        """Wait for what was handed in."""
        self._closed = True
        if self._thread is not None:
            self._thread.shutdown()
