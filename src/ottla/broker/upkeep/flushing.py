"""Flushes of logs to disk, off the event loop: fsync runs in a few threads.

Group commit: while a log's flush runs, batches go on being appended to it; all of them share the next flush, which begins
when the running one is done. So with flush.messages=1 a request costs its share of an fsync, however many producers there
are, and no batch is acknowledged before it is flushed (`Log.settled_offset` holds the high watermark back).
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.environment import Clock, Worker
from ottla.log.disk_errors import is_disk_failure, is_shortage
from ottla.log.flush import Flush
from ottla.log.log import Log
from ottla.observability.distribution import Distribution
from ottla.replication.partition import Partition
from ottla.tasks.deferred import Deferred
from ottla.tasks.scheduler import Scheduler

_logger = logging.getLogger("ottla.broker")
_SHORTAGE_RETRY_MS: Final = 100
"""Delay before retrying a flush that failed for lack of resources, such as file descriptors."""
_RETRY_MS: Final = 1_000
"""Delay before retrying a flush that failed for another reason than the disk, such as a missing permission."""


class Flusher:
    """Runs flushes on the threads of a worker.

    tasks   the broker's scheduler
    times   durations of flushes in ns
    now_ns  time of a monotonic clock, in ns; None: durations are not measured
    """

    def __init__(self, worker: Worker, tasks: Scheduler, clock: Clock) -> None:
        self._worker = worker
        self._tasks = tasks
        self._clock = clock
        self.times = Distribution()
        self.now_ns: Callable[[], int] | None = None
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
        self.begin(flush, partial(self._on_flushed, partition, log, flush))

    def _on_flushed(self, partition: Partition, log: Log, flush: Flush, cause: OSError | None) -> None:
        self._running.discard(log)
        if cause is not None:
            log.fail_flush(cause)
            if is_shortage(cause):
                self._tasks.call_later(_SHORTAGE_RETRY_MS, partition.advance)
            elif not is_disk_failure(cause):
                _logger.error("cannot flush %s (will be retried): %s", log.directory, cause)
                self._tasks.call_later(_RETRY_MS, partition.advance)
            return
        log.flushed(flush, self._clock.now_ms())
        if partition.log is log:
            partition.advance()

    async def run(self, flush: Flush) -> None:
        """Run `flush`. Raises OSError."""
        ended: Deferred[OSError | None] = Deferred(self._tasks)
        self.begin(flush, ended.complete)
        cause = await ended
        if cause is not None:
            raise cause

    def begin(self, flush: Flush, done: Callable[[OSError | None], None]) -> None:
        """Run `flush`, then call `done` on the loop with the error, or None on success."""
        if self.now_ns is not None:
            timed = partial(self._record_time, done)
            self._worker.run(
                partial(_attempt_timed, flush, self.now_ns),
                timed,
                lambda: done(OSError("flush failed, the log says why")),
            )
            return
        # A bug in a flush counts as a failure, so that no waiting request takes its batch for flushed.
        self._worker.run(partial(_attempt, flush), done, lambda: done(OSError("flush failed, the log says why")))

    def _record_time(self, done: Callable[[OSError | None], None], outcome: tuple[OSError | None, int]) -> None:
        cause, duration_ns = outcome
        self.times.record(duration_ns)
        done(cause)

    def close(self) -> None:
        """Wait for running flushes; their callbacks are not called."""
        self._closed = True
        self._worker.close()


def _attempt_timed(flush: Flush, now_ns: Callable[[], int]) -> tuple[OSError | None, int]:
    begun_ns = now_ns()
    return _attempt(flush), now_ns() - begun_ns


def _attempt(flush: Flush) -> OSError | None:
    try:
        flush.run()
    except OSError as cause:
        return cause
    return None
