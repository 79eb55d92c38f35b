"""Background threads whose results are passed to an asyncio event loop."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

_logger = logging.getLogger("ottla.environment")


class ThreadWorker:
    """Implementation of `Worker` with a fixed number of threads, which are started on first use.

    Results are passed to the event loop; after `close` no callback runs, but queued work is finished.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, threads: int) -> None:
        self._loop = loop
        self._name = name
        self._count = threads
        self._threads: ThreadPoolExecutor | None = None
        self._closed = False

    def run(self, work: Callable[[], Any], done: Callable[[Any], object], failed: Callable[[], object]) -> None:
        """See `Worker.run`. Ignored after `close`."""
        if self._closed:
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._count, thread_name_prefix=self._name)
        self._loop.run_in_executor(self._threads, work).add_done_callback(partial(self._report, done, failed))

    def _report(
        self, done: Callable[[Any], object], failed: Callable[[], object], future: "asyncio.Future[Any]"
    ) -> None:
        if self._closed or future.cancelled():
            return
        cause = future.exception()
        if cause is None:
            done(future.result())
        else:
            _logger.error("work on thread %s failed", self._name, exc_info=cause)
            failed()

    def close(self, *, cancel: bool = False, wait: bool = True) -> None:
        """See `Worker.close`."""
        self._closed = True
        if self._threads is not None:
            self._threads.shutdown(wait, cancel_futures=cancel)


class ThreadWorkers:
    """Implementation of `Workers` for an asyncio event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def start(self, name: str, threads: int = 1) -> ThreadWorker:
        return ThreadWorker(self._loop, name, threads)
