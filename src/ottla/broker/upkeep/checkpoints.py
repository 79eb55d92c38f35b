"""Writes the checkpoints of the log directories on the background thread: requests do not wait for a slow disk."""

import logging
from collections.abc import Callable, Iterable
from functools import partial

from ottla.environment import Worker
from ottla.log.directory import LogDirectory
from ottla.tasks.deferred import Answer, on_worker
from ottla.tasks.scheduler import Scheduler

_logger = logging.getLogger("ottla.broker")
_Failures = list[tuple[LogDirectory, OSError]]


class Checkpoints:
    """Writes the offsets of all partitions of some directories.

    background  the thread that writes; None writes at once, on the event loop
    """

    def __init__(self, directories: Iterable[LogDirectory], background: Worker | None, tasks: Scheduler) -> None:
        self._directories = directories
        self._background = background
        self._tasks = tasks

    def write_now(self) -> None:
        """Write the current checkpoints of every directory on the event loop, at the start of the broker."""
        writes = [(directory, directory.prepare_checkpoint()) for directory in self._directories]
        self._fail_directories(_write_all([(directory, write) for directory, write in writes if write is not None]))

    def write(self) -> Answer[None]:
        """Write the current checkpoints of every directory; a directory fails when its disk rejects the write."""
        writes = [(directory, directory.prepare_checkpoint()) for directory in self._directories]
        work = partial(_write_all, [(directory, write) for directory, write in writes if write is not None])
        if self._background is None:
            self._fail_directories(work())
            return None
        return self._tasks.run(self._write_in_background(self._background, work), "writing checkpoints")

    async def _write_in_background(self, background: Worker, work: Callable[[], _Failures]) -> None:
        self._fail_directories(await on_worker(background, work, self._tasks))

    @staticmethod
    def _fail_directories(failures: _Failures) -> None:
        for directory, cause in failures:
            _logger.error("cannot write the checkpoints of %s: %s", directory.path, cause)
            directory.fail(cause)


def _write_all(writes: list[tuple[LogDirectory, Callable[[], None]]]) -> _Failures:
    failures = []
    for directory, write in writes:
        try:
            write()
        except OSError as cause:
            failures.append((directory, cause))
    return failures
