"""Moves of partitions from one log directory to another while they serve requests (KIP-113).

A move is a task that pauses after each step, so that requests are served in between; flushes run off the loop. Its order, which
is safe at any crash or failure:

    copy and flush    the partition is in the old directory
    assign            the metadata assigns it to the new one (KIP-858): from now on a start without the new directory
                      does not serve the old copy. If the move fails after this, the old directory is assigned again
    copy the rest, rename, discard the old copy
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ottla.broker.upkeep.flushing import Flusher
from ottla.log.directory import LogDirectory
from ottla.log.flush import Flush
from ottla.log.log import StorageError
from ottla.metadata.refusal import ChangeResult
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.tasks.deferred import Answer, awaitable
from ottla.tasks.scheduler import Scheduler

_logger = logging.getLogger("ottla.broker")


class _Move(NamedTuple):
    partition: Partition
    home: LogDirectory
    target: LogDirectory

    @property
    def key(self) -> tuple[str, int]:
        """Return topic and partition."""
        return self.partition.topic, self.partition.index


class Moves:
    """The moves that are under way, by topic and partition.

    assign  records in the metadata which log directory a partition is in
    remove  removes the directory of a copy that is not completed, off the event loop
    """

    def __init__(
        self,
        replicas: Replicas,
        tasks: Scheduler,
        flusher: Flusher,
        assign: Callable[[Partition, LogDirectory], Answer[ChangeResult]],
        remove: Callable[[LogDirectory, Path], None],
    ) -> None:
        self._replicas = replicas
        self._tasks = tasks
        self._flusher = flusher
        self._assign = assign
        self._remove = remove
        self._assigned: set[tuple[str, int]] = set()
        """Partitions whose new directory is recorded in the metadata, or is being recorded."""
        self._under_way: dict[tuple[str, int], _Move] = {}

    def begin(self, partition: Partition, target: LogDirectory) -> None:
        """Move `partition` to `target`. A move to its present directory cancels the one under way; one to a third directory
        replaces it. Raises StorageError.
        """
        key = partition.topic, partition.index
        held = self._under_way.get(key)
        if held is not None and held.target is target:
            return
        if held is not None:
            self._drop(key)
        home = self._replicas.home_of(partition)
        if home is target:
            return
        try:
            relocation = target.begin_move(*key, partition.topic_id, partition.log)
        except OSError as cause:
            target.fail(cause)
            raise StorageError(f"{target.path}: {cause.strerror}") from cause
        _logger.info("%s moves to %s", partition.log.name, target.path)
        move = self._under_way[key] = _Move(partition, home, target)
        self._tasks.background(self._run(move, relocation.steps()), f"the move of {partition.log.name}")

    def _drop(self, key: tuple[str, int]) -> None:
        move = self._under_way.pop(key)
        self._remove(move.target, move.target.drop_move(*key))
        if key in self._assigned:
            self._assigned.discard(key)
            self._assign(move.partition, move.home)

    def _continues(self, move: _Move) -> bool:
        """Return whether a move is to go on, after a pause."""
        if self._under_way.get(move.key) is not move:
            return False
        if self._replicas.find(*move.key) is move.partition and move.target.offline is None:
            return True
        self._drop(move.key)  # deleted, or one of the two directories failed
        return False

    async def _run(self, move: _Move, steps: Iterator[Flush | None]) -> None:
        await self._tasks.sleep(0)
        try:
            while self._continues(move):
                flush = next(steps, move)
                if flush is move:
                    self._complete(move)
                    return
                if isinstance(flush, Flush):
                    await self._flusher.run(flush)
                    if self._continues(move):
                        await self._record(move)
                else:
                    await self._tasks.sleep(0)
        except (OSError, StorageError) as cause:
            if not self._continues(move):
                return
            self._give_up(move, cause)
            if isinstance(cause, OSError):  # the source reports its own errors, as StorageError
                move.target.fail(cause)

    def _complete(self, move: _Move) -> None:
        """Replace the partition by its copy. Raises OSError, StorageError."""
        self._replicas.move(move.partition, move.target)
        del self._under_way[move.key]
        self._assigned.discard(move.key)
        _logger.info("%s lies in %s now", move.partition.log.name, move.target.path)

    async def _record(self, move: _Move) -> None:
        """Record the new directory in the metadata, before the last steps."""
        self._assigned.add(move.key)
        result = await awaitable(self._assign(move.partition, move.target), self._tasks)
        if result.error_code and self._under_way.get(move.key) is move:
            self._give_up(move, result.error_message)

    def _give_up(self, move: _Move, reason: object) -> None:
        _logger.error("cannot move %s to %s: %s", move.partition.log.name, move.target.path, reason)
        self._drop(move.key)

    def close(self) -> None:
        """Stop all moves; the next start begins them again."""
        self._under_way.clear()
