"""Checkpoints at the start of a broker, and on its background thread."""

from collections.abc import Callable
from typing import Any

from tests.queues import manual_queue

from ottla.broker.upkeep.checkpoints import Checkpoints


class Directory:
    """Log directory that notes when its checkpoints were written."""

    def __init__(self) -> None:
        self.writes = 0

    def prepare_checkpoint(self) -> Callable[[], None]:
        return self._write

    def _write(self) -> None:
        self.writes += 1


class Worker:
    """Background thread that does nothing for a while."""

    def __init__(self) -> None:
        self.work: list[Callable[[], Any]] = []

    def run(self, work: Callable[[], Any], done: Callable[[Any], object], failed: Callable[[], object]) -> None:
        del done, failed
        self.work.append(work)


def test_the_start_does_not_go_on_before_the_checkpoints_are_written() -> None:
    """Records appended next must not be below a high watermark from before a loss."""
    directory, worker = Directory(), Worker()
    checkpoints = Checkpoints([directory], worker, manual_queue())  # type: ignore[list-item, arg-type]
    checkpoints.write()
    assert (directory.writes, len(worker.work)) == (0, 1)
    checkpoints.write_now()
    assert (directory.writes, len(worker.work)) == (1, 1)
