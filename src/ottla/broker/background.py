"""One thread for work that waits for the disk and must keep its order: changes of the metadata, checkpoints.

Results are passed to the event loop; after `close` no callback runs, but work that was handed in is finished.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

_logger = logging.getLogger("ottla.broker")


class Background:
    """A `Worker`; its thread is started with the first piece of work."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread: ThreadPoolExecutor | None = None
        self._closed = False

    def run(self, work: Callable[[], Any], done: Callable[[Any], object], failed: Callable[[], object]) -> None:
        """See `Worker.run`. Nothing is run after `close`."""
        if self._closed:
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="ottla-background")
        self._loop.run_in_executor(self._thread, work).add_done_callback(partial(self._report, done, failed))

    def _report(
        self, done: Callable[[Any], object], failed: Callable[[], object], future: "asyncio.Future[Any]"
    ) -> None:
        if self._closed or future.cancelled():
            return
        cause = future.exception()
        if cause is None:
            done(future.result())
        else:
            _logger.error("work on the background thread failed", exc_info=cause)
            failed()

    def close(self, *, cancel: bool = False) -> None:
        """Wait for the work that was handed in; with `cancel` only for the piece that has begun."""
        self._closed = True
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=cancel)
