"""Moves of partitions from one log directory to another while they serve requests (KIP-113).

Each turn of the loop does one step of one move, so that requests are served in between; flushes run off the loop. The order of
a move, which is safe at any crash or failure:

    copy and flush    the partition is in the old directory
    assign            the metadata assigns it to the new one (KIP-858): from now on a start without the new directory
                      does not serve the old copy. If the move fails after this, the old directory is assigned again
    copy the rest, rename, discard the old copy
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ottla.broker.flushing import Flusher
from ottla.environment import Timers
from ottla.log.directory import LogDirectory
from ottla.log.flush import Flush
from ottla.log.log import StorageError
from ottla.metadata.refusal import ChangeResult
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.tasks.answers import after
from ottla.tasks.deferred import Answer

_logger = logging.getLogger("ottla.broker")


class _Move(NamedTuple):
    partition: Partition
    home: LogDirectory
    target: LogDirectory
    steps: Iterator[Flush | None]


class Moves:
    """The moves that are under way, by topic and partition.

    assign  records in the metadata which log directory a partition is in
    remove  removes the directory of a copy that is not completed, off the event loop
    """

    def __init__(
        self,
        replicas: Replicas,
        timers: Timers,
        flusher: Flusher,
        assign: Callable[[Partition, LogDirectory], Answer[ChangeResult]],
        remove: Callable[[LogDirectory, Path], None],
    ) -> None:
        self._replicas = replicas
        self._timers = timers
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
        self._under_way[key] = _Move(partition, home, target, relocation.steps())
        self._timers.call_later(0, partial(self._step, self._under_way[key]))

    def _drop(self, key: tuple[str, int]) -> None:
        move = self._under_way.pop(key)
        self._remove(move.target, move.target.drop_move(*key))
        if key in self._assigned:
            self._assigned.discard(key)
            self._assign(move.partition, move.home)

    def _step(self, move: _Move, failed: OSError | None = None) -> None:
        key = move.partition.topic, move.partition.index
        if self._under_way.get(key) is not move:
            return
        if self._replicas.find(*key) is not move.partition or move.target.offline is not None:
            self._drop(key)  # deleted, or one of the two directories failed
            return
        try:
            if failed is not None:
                raise failed
            flush = next(move.steps, move)
            if flush is move:
                self._replicas.move(move.partition, move.target)
                del self._under_way[key]
                self._assigned.discard(key)
                _logger.info("%s lies in %s now", move.partition.log.name, move.target.path)
                return
        except (OSError, StorageError) as cause:
            _logger.error("cannot move %s to %s: %s", move.partition.log.name, move.target.path, cause)
            self._drop(key)
            if isinstance(cause, OSError):  # the source reports its own errors, as StorageError
                move.target.fail(cause)
            return
        if isinstance(flush, Flush):
            self._flusher.run(flush, partial(self._record, move))
        else:
            self._timers.call_later(0, partial(self._step, move))

    def _record(self, move: _Move, failed: OSError | None = None) -> None:
        """Record the new directory in the metadata, before the last steps."""
        key = move.partition.topic, move.partition.index
        if failed is not None or self._under_way.get(key) is not move:
            self._step(move, failed)
            return

        def recorded(result: ChangeResult) -> None:
            if result.error_code and self._under_way.get(key) is move:
                _logger.error(
                    "cannot move %s to %s: %s", move.partition.log.name, move.target.path, result.error_message
                )
                self._drop(key)
            else:
                self._step(move)

        self._assigned.add(key)
        after(self._assign(move.partition, move.target), recorded)

    def close(self) -> None:
        """Stop all moves; the next start begins them again."""
        self._under_way.clear()
