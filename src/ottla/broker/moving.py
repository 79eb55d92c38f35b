"""Partitions on their way from one log directory to another, while they are written to and read from (KIP-113).

One step of one move a turn of the loop, so that requests go on between them; what must be on the medium is flushed off the
loop.
"""

import logging
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from ottla.broker.flushing import Flusher
from ottla.environment import Timers
from ottla.log.directory import LogDirectory
from ottla.log.flush import Flush
from ottla.log.log import StorageError
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas

_logger = logging.getLogger("ottla.broker")


class _Move(NamedTuple):
    partition: Partition
    target: LogDirectory
    steps: Iterator[Flush | None]


class Moves:
    """The moves that are under way, by topic and partition."""

    def __init__(self, replicas: Replicas, timers: Timers, flusher: Flusher) -> None:
        self._replicas = replicas
        self._timers = timers
        self._flusher = flusher
        self._under_way: dict[tuple[str, int], _Move] = {}

    def begin(self, partition: Partition, target: LogDirectory) -> None:
        """Move `partition` to `target`. A move to where it lies takes back the one that is under way; one to a third directory
        takes its place. Raises StorageError.
        """
        key = partition.topic, partition.index
        held = self._under_way.get(key)
        if held is not None and held.target is target:
            return
        if held is not None:
            self._drop(key)
        if self._replicas.home_of(partition) is target:
            return
        try:
            relocation = target.begin_move(*key, partition.topic_id, partition.log)
        except OSError as cause:
            target.fail(cause)
            raise StorageError(f"{target.path}: {cause.strerror}") from cause
        _logger.info("%s moves to %s", partition.log.name, target.path)
        self._under_way[key] = _Move(partition, target, relocation.steps())
        self._timers.call_later(0, partial(self._step, self._under_way[key]))

    def _drop(self, key: tuple[str, int]) -> None:
        move = self._under_way.pop(key)
        move.target.drop_move(*key)

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
                _logger.info("%s lies in %s now", move.partition.log.name, move.target.path)
                return
        except (OSError, StorageError) as cause:
            _logger.error("cannot move %s to %s: %s", move.partition.log.name, move.target.path, cause)
            self._drop(key)
            if isinstance(cause, OSError):  # the source reports its own errors, as StorageError
                move.target.fail(cause)
            return
        if isinstance(flush, Flush):
            self._flusher.run(flush, partial(self._step, move))
        else:
            self._timers.call_later(0, partial(self._step, move))

    def close(self) -> None:
        """No more steps; what was copied is left to the next start, which begins anew."""
        self._under_way.clear()
