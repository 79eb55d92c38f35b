"""Flushes of logs to disk, off the event loop: fsync runs in a few threads.

Group commit: while a log's flush runs, batches go on being appended to it; all of them share the next flush, which begins
when the running one is done. So with flush.messages=1 a request costs its share of an fsync, however many producers there
are, and no batch is acknowledged before it is flushed (`Log.settled_offset` holds the high watermark back).
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from ottla.environment import Clock
from ottla.log.disk_errors import is_disk_failure, is_shortage
from ottla.log.flush import Flush
from ottla.log.log import Log
from ottla.replication.partition import Partition

_logger = logging.getLogger("ottla.broker")
_THREADS: Final = 4
"""Number of flushes of different files that run at a time; file systems join them in one commit of their journal."""

_SHORTAGE_RETRY_S: Final = 0.1
"""Pause before a flush is retried that failed for a lack of resources, such as file descriptors."""
_RETRY_S: Final = 1.0
"""Pause before a flush is retried that failed for another reason than the disk, as for a file without permission."""


class Flusher:
    """Runs flushes in a few threads, which are started with the first one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._threads: ThreadPoolExecutor | None = None
        self._running: set[Log] = set()
        self._closed = False

    def flush(self, partition: Partition) -> None:
        """Flush the partition's log to disk, then update its high watermark. If a flush is running already, another one
        follows it when the log still needs one.
        """
        log = partition.log
        if log in self._running or self._closed:
            return
        self._running.add(log)
        flush = log.begin_flush()
        self.run(flush, partial(self._flushed, partition, log, flush))

    def _flushed(self, partition: Partition, log: Log, flush: Flush, cause: OSError | None) -> None:
        self._running.discard(log)
        if cause is not None:
            log.fail_flush(cause)
            if is_shortage(cause):
                self._loop.call_later(_SHORTAGE_RETRY_S, partition.advance)
            elif not is_disk_failure(cause):
                _logger.error("cannot flush %s, it is tried again: %s", log.directory, cause)
                self._loop.call_later(_RETRY_S, partition.advance)
            return
        log.flushed(flush, self._clock.now_ms())
        if partition.log is log:
            partition.advance()

    def run(self, flush: Flush, done: Callable[[OSError | None], None]) -> None:
        """Run `flush`, then call `done` on the loop with the error, or None on success."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ottla-flush")
        future = self._loop.run_in_executor(self._threads, flush.run)
        future.add_done_callback(partial(self._report, done))

    def _report(self, done: Callable[[OSError | None], None], future: "asyncio.Future[None]") -> None:
        cause = None if future.cancelled() else future.exception()
        if self._closed or future.cancelled():
            return
        if cause is not None and not isinstance(cause, OSError):
            _logger.error("a flush failed", exc_info=cause)
            # The waiters must not take the batch for flushed.
            cause = OSError(f"flush failed: {cause}")
        done(cause)

    def close(self) -> None:
        """Wait for running flushes; no callback is called any more."""
        self._closed = True
        if self._threads is not None:
            self._threads.shutdown()
