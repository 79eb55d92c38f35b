"""Delayed removal of files that are no longer part of a log, and of directories of deleted partitions.

They stay for a while (file.delete.delay.ms, log.segment.delete.delay.ms), because a response may still be sent from them.
Segments are removed on the event loop, a few at a time; directories on a thread of their own, since thousands of them take
seconds. A stop leaves directories to the next start, which recognizes them by their names.
"""

import heapq
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.environment import Worker
from ottla.tasks.deferred import on_worker
from ottla.tasks.due_work import DueWork
from ottla.tasks.scheduler import Scheduler

_logger = logging.getLogger("ottla.broker")
_FILES_A_TURN: Final = 16
_DIRECTORIES_A_JOB: Final = 16
"""Number of directories removed by one job of the thread; a stop waits for the running job."""
_REMOVED_AT_A_STOP: Final = 1_000
Remove = Callable[[], None]


class Removals:
    """Queue of files and directories to remove.

    worker  the thread on which directories are removed
    """

    def __init__(self, tasks: Scheduler, worker: Worker) -> None:
        self._clock = tasks.clock
        self._tasks = tasks
        self._worker = worker
        self._waiting: list[tuple[int, int, bool, Remove]] = []
        """A heap of (due ms, number, on the background thread, remove)."""
        self._count = 0
        self._alarm = DueWork("removing files", self._run, tasks.clock, tasks)
        self._directories: deque[Remove] = deque()
        """Removals of directories that are due."""
        self._is_removing = False

    def later(self, remove: Remove, delay_ms: int, *, in_background: bool = False) -> None:
        """Call `remove` after `delay_ms`; one that uses the log's store must not run in the background."""
        self._count += 1
        heapq.heappush(self._waiting, (self._clock.now_ms() + delay_ms, self._count, in_background, remove))
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._waiting:
            self._alarm.set(self._waiting[0][0])

    def _run(self) -> None:
        now_ms = self._clock.now_ms()
        files = 0
        while self._waiting and self._waiting[0][0] <= now_ms and files < _FILES_A_TURN:
            _, _, in_background, remove = heapq.heappop(self._waiting)
            if in_background:
                self._directories.append(remove)
            else:
                files += 1
                _try(remove)
        if self._directories and not self._is_removing:
            self._tasks.background(self._remove_directories(), "removing directories")
        self._set_alarm()

    async def _remove_directories(self) -> None:
        """Remove directories on the thread, a few at a time."""
        self._is_removing = True
        try:
            while self._directories:
                count = min(len(self._directories), _DIRECTORIES_A_JOB)
                some = [self._directories.popleft() for _ in range(count)]
                await on_worker(self._worker, partial(_remove_all, some), self._tasks)
        finally:
            self._is_removing = False

    def close(self) -> None:
        """Remove pending files up to a limit; the next start removes the rest, and all pending directories."""
        self._alarm.close()
        files = [
            remove for _, _, in_background, remove in sorted(self._waiting)[:_REMOVED_AT_A_STOP] if not in_background
        ]
        self._waiting.clear()
        self._directories.clear()
        _remove_all(files)


def _remove_all(removes: list[Remove]) -> None:
    for remove in removes:
        _try(remove)


def _try(remove: Remove) -> None:
    try:
        remove()
    except OSError as cause:
        _logger.warning("cannot remove %s: %s; the next start does", cause.filename or "a file", cause.strerror)
