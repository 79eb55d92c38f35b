"""Effects of a follower's fetches on its logs, in steps of a few milliseconds.

Nothing is acknowledged before it is as durable as the topic demands: a partition is resumed, with the end of its log as the
next fetch offset, after the flush that flush.messages asks for. A batch that a leader sent is written from the frame of the
response, without a copy.
"""

import logging
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, NamedTuple

from ottla.environment import Clock
from ottla.log.disk_errors import is_passing
from ottla.log.flush import Flush
from ottla.log.log import Log, StorageError
from ottla.log.segment import DamagedLog
from ottla.records.batch import HEADER_SIZE, read_header
from ottla.records.errors import CorruptRecords
from ottla.replication.follower.fetching import Fetching
from ottla.replication.follower.followed import (
    Append,
    Begin,
    Diverge,
    Effect,
    FollowedPartition,
    Key,
    LookUp,
    Position,
    Restart,
    Truncate,
)
from ottla.replication.partition import Partition
from ottla.tasks.deferred import Answer, Deferred
from ottla.tasks.queue import CallbackQueue
from ottla.tasks.scheduler import Pieces

_logger = logging.getLogger("ottla.replication")
_PIECE_BYTES: Final = 1 << 16
"""Bytes that are appended between two looks at the clock: some milliseconds even for the smallest batches."""
_STEP_MS: Final = 5
_LENGTH_AT: Final = 8
_LENGTH_END: Final = 12


class LogEffects:
    """Carries out effects on the logs of this broker.

    find        returns the replica of a followed partition on this broker; None while its log is offline
    checkpoint  writes the checkpoints of all directories
    flush       runs a flush, then calls back with its error, None after a success
    look_up     requests an offset of the leader
    resumed     called when a partition may be fetched again, or is not followed any more
    failed      called when a partition is not followed any more because its log could not be written, with the number of
                such failures since the last success; 1 for a lack of resources, such as file descriptors, which passes
    damaged     reports an offset in a part of the log that could not be read, see `Replicas.report_damage`
    """

    def __init__(
        self,
        clock: Clock,
        tasks: CallbackQueue,
        *,
        find: Callable[[FollowedPartition], Partition | None],
        checkpoint: Callable[[], Answer[None]],
        flush: Callable[[Flush, Callable[[OSError | None], None]], None],
        look_up: Callable[[Fetching, LookUp], None],
        resumed: Callable[[Fetching], None],
        failed: Callable[[FollowedPartition, int], None],
        damaged: Callable[[Partition, int], None],
    ) -> None:
        self._clock = clock
        self._tasks = tasks
        self._find = find
        self._checkpoint = checkpoint
        self._flush = flush
        self._look_up = look_up
        self._resumed = resumed
        self._failed = failed
        self._report_damage = damaged
        self._damaged: set[Key] = set()
        """Partitions whose leader sends damaged batches, which was logged."""
        self._failures: dict[Key, int] = {}

    def steps(self, fetching: Fetching, effects: Iterable[Effect], frame: bytes = b"") -> Pieces:
        """Carry out effects that `fetching` returned, in order. The checkpoints are written once before and once after all cuts
        of logs: a failover brings many, and each write is several flushes.

        frame  the response, of which the records of an `Append` are (start, end)
        """
        effects = list(effects)
        yield from self._lower_recovery_points(fetching, effects)
        cuts: list[_Cut] = []
        begun_ms = self._clock.now_ms()
        for effect in effects:
            if self._clock.now_ms() - begun_ms >= _STEP_MS:
                yield None
                begun_ms = self._clock.now_ms()
            try:
                yield from self._carry_out(fetching, effect, frame, cuts)
            except Exception:  # the other partitions of the response must not wait for the next leader epoch
                _logger.exception("an effect on %s-%d failed", effect.partition.topic, effect.partition.index)
                if fetching.is_current(effect):
                    fetching.pause(effect.partition, self._clock.now_ms())
        if cuts:
            # Before anything is appended: after a crash they must not be beyond the end of a log.
            yield from self._write_checkpoints()
        for cut in cuts:
            self._settle(fetching, cut.effect, cut.partition, cut.log, has_failed=False)

    def _lower_recovery_points(self, fetching: Fetching, effects: Iterable[Effect]) -> Pieces:
        """Lower the recovery points of all logs that are cut below them, on disk: after a crash between a cut and its
        checkpoints a log would look damaged. `_change` looks again, since a flush may end before the cut.
        """
        has_lowered = False
        for effect in effects:
            if isinstance(effect, (Begin, Diverge, Truncate)) and fetching.is_current(effect):
                partition = self._find(effect.partition)
                if partition is not None and _is_current(fetching, effect, partition) and partition.damaged_at < 0:
                    has_lowered = (
                        _lower_recovery_point(partition.log, _cut_offset(effect, partition.log)) or has_lowered
                    )
        if has_lowered:
            yield from self._write_checkpoints()

    def _carry_out(self, fetching: Fetching, effect: Effect, frame: bytes, cuts: list["_Cut"]) -> Pieces:
        """Carry out an effect. If it cuts the log, it is added to `cuts`, to be settled after the checkpoints."""
        followed = effect.partition
        if not fetching.is_current(effect):
            return
        partition = self._find(followed)
        if partition is None:
            fetching.unfollow(*followed.key)
            return
        if not _is_current(fetching, effect, partition):
            return
        if partition.damaged_at >= 0 and not (isinstance(effect, Begin) and partition.damaged_in < effect.epoch):
            fetching.unfollow(*followed.key)  # see `Partition.may_cut_damage`
            return
        log = partition.log
        has_failed = is_cut = False
        try:
            if isinstance(effect, Append):
                has_failed = not (yield from self._append(fetching, effect, partition, frame))
            elif isinstance(effect, LookUp):
                self._look_up(fetching, effect)
                return
            else:
                if isinstance(effect, Begin) and partition.damaged_at >= 0:
                    if not (yield from self._cut_damage(fetching, effect, partition)):
                        return
                    partition.damaged_at = -1
                truncations = log.truncations
                yield from self._change(fetching, effect, partition)
                is_cut = log.truncations != truncations
        except CorruptRecords as corrupt:
            if followed.key not in self._damaged:
                self._damaged.add(followed.key)
                _logger.error("%s; the batch is fetched again", corrupt)
            has_failed = True
        except (StorageError, OSError) as cause:
            _logger.error("%s-%d cannot be written: %s", partition.topic, partition.index, cause)
            if fetching.is_current(effect):
                fetching.unfollow(*followed.key)
                failures = 1 if is_passing(cause) else self._failures.get(followed.key, 0) + 1
                self._failures[followed.key] = failures
                if isinstance(cause.__cause__, DamagedLog) and partition.damaged_at < 0:
                    # A truncation reads what is before it. Where the damage is is found at the cut, in a new leader epoch.
                    self._report_damage(partition, max(log.start_offset, log.end_offset - 1))
                else:
                    self._failed(followed, failures)
            return
        if is_cut:
            cuts.append(_Cut(effect, partition, log))
        else:
            self._settle(fetching, effect, partition, log, has_failed=has_failed)

    def _settle(self, fetching: Fetching, effect: Effect, partition: Partition, log: Log, *, has_failed: bool) -> None:
        """Go on with a partition when its log is as durable as the topic demands."""
        if _is_current(fetching, effect, partition):
            # A log that was moved to another directory meanwhile has not taken part in the last change.
            has_failed = has_failed or partition.log is not log
            partition.when_settled(lambda: self._on_settled(fetching, effect, partition, has_failed=has_failed))

    def _on_settled(self, fetching: Fetching, effect: Effect, partition: Partition, *, has_failed: bool) -> None:
        if not _is_current(fetching, effect, partition):
            return
        position = position_of(partition.log)
        if not has_failed:
            self._failures.pop(effect.partition.key, None)
        if isinstance(effect, Append):
            effect.partition.is_in_sync = position.offset >= effect.high_watermark
        if has_failed:
            fetching.pause(effect.partition, self._clock.now_ms(), position)
        else:
            fetching.resume(effect.partition, position)
        self._resumed(fetching)

    def _append(
        self, fetching: Fetching, effect: Append, partition: Partition, frame: bytes
    ) -> Generator[Deferred[Any] | None, None, bool]:
        """Append in pieces of whole batches. Return False if the records hold nothing that may be appended."""
        start, end = effect.records or (0, 0)
        position = start
        log = partition.log
        if _may_be_older(log, effect):
            yield from self._drop_older(fetching, effect, partition, frame)
            if not _is_current(fetching, effect, partition) or partition.log is not log:
                return True
        begun_ms = self._clock.now_ms()
        while True:
            stop = min(end, position + _PIECE_BYTES)
            if end - position >= _LENGTH_END:
                # At least the first batch, whatever its size.
                size = int.from_bytes(frame[position + _LENGTH_AT : position + _LENGTH_END], "big", signed=True)
                stop = min(end, max(stop, position + _LENGTH_END + size))
            taken = partition.append_fetched(
                frame,
                position,
                stop,
                effect.epoch,
                effect.start_offset,
                effect.high_watermark,
                self._clock.wall_ms(),
            )
            position += taken
            if not taken or position >= end:
                break
            if self._clock.now_ms() - begun_ms >= _STEP_MS:
                yield None
                begun_ms = self._clock.now_ms()
                if not _is_current(fetching, effect, partition) or partition.log is not log:
                    return True
        self._damaged.discard(effect.partition.key)
        return position > start or start >= end

    def _drop_older(self, fetching: Fetching, effect: Append, partition: Partition, frame: bytes) -> Pieces:
        """Begin a log again at the leader's log start, if that is in the middle of the first batch, and all records here are
        older: DeleteRecords has deleted them. The batch would overlap them.
        """
        start, end = effect.records or (0, 0)
        log = partition.log
        if end - start < HEADER_SIZE:
            return
        first = read_header(frame, start)
        if first.base_offset < log.end_offset <= effect.start_offset < first.next_offset:
            yield from self._cut(fetching, effect, partition, log.restart(effect.start_offset))

    def _change(self, fetching: Fetching, effect: Begin | Diverge | Truncate | Restart, partition: Partition) -> Pieces:
        """Begin to follow a log, or make it a prefix of the leader's."""
        if not _is_current(fetching, effect, partition):
            return
        log = partition.log
        offset = _cut_offset(effect, log)
        if isinstance(effect, Restart) or offset < log.start_offset:
            level, why = _seriousness(effect, partition, offset)
            level = max(level, logging.WARNING)
            _logger.log(
                level, "%s, which begins at %d, is replaced from %d on%s", log.name, log.start_offset, offset, why
            )
            yield from self._cut(fetching, effect, partition, log.restart(offset), writes=False)
        else:
            if offset < log.end_offset:
                level, why = _seriousness(effect, partition, offset)
                _logger.log(level, "%s is truncated from %d to %d%s", log.name, log.end_offset, offset, why)
                if _lower_recovery_point(log, offset):
                    yield from self._write_checkpoints()
                    if not _is_current(fetching, effect, partition):
                        return
            yield from self._cut(fetching, effect, partition, log.truncation(offset), writes=False)

    def _write_checkpoints(self) -> Generator[Deferred[Any], None, None]:
        written = self._checkpoint()
        if isinstance(written, Deferred):
            yield written

    def _cut_damage(
        self, fetching: Fetching, effect: Effect, partition: Partition
    ) -> Generator[Deferred[Any] | None, None, bool]:
        """Cut the log at its damage, or begin it again if that cannot be done: it is fetched again. Return False if the effect
        ended before the cut.

        It cannot be done if the log is damaged before that, too; or if an offset could not be read twice although no batch of
        the segment is damaged: then an index is.
        """
        log, offset = partition.log, partition.damaged_at
        truncations = log.truncations
        try:
            if not (yield from self._cut(fetching, effect, partition, log.damage_cut(offset))):
                return False
            if log.truncations != truncations or partition.sound_at != offset:
                partition.sound_at = offset if log.truncations == truncations else -1
                return True
            _logger.warning("%s is replaced, as offset %d cannot be read and no batch is damaged", log.name, offset)
        except StorageError as cause:
            if not isinstance(cause.__cause__, (DamagedLog, FileNotFoundError)):
                raise
            _logger.warning("%s is replaced, as it cannot be cut at its damage: %s", log.name, cause)
        if not _is_current(fetching, effect, partition):
            return False
        partition.sound_at = -1
        return (yield from self._cut(fetching, effect, partition, log.restart(log.start_offset)))

    def _cut(
        self,
        fetching: Fetching,
        effect: Effect,
        partition: Partition,
        steps: Generator[Flush | None, None, object],
        *,
        writes: bool = True,
    ) -> Generator[Deferred[Any] | None, None, bool]:
        """Run a truncation, then write the checkpoints: after a crash they must not be beyond the end of the log. Return False
        if the effect ended before anything was changed.

        writes  False: the caller writes the checkpoints
        """
        log = partition.log
        truncations = log.truncations
        for flush in steps:
            if flush is None:
                yield None
                if not _is_current(fetching, effect, partition):  # nothing was changed yet
                    return False
                continue
            # The log has changed: whatever became of the effect, it can be written again only after the last step.
            failures: list[OSError] = []
            yield self._run_flush(flush, failures)
            if failures:
                raise log.read_failed(failures[0])
        if writes and log.truncations != truncations:
            yield from self._write_checkpoints()
        return True

    def _run_flush(self, flush: Flush, failures: list[OSError]) -> Deferred[None]:
        """Run a flush, and add its error to `failures`."""
        ended: Deferred[None] = Deferred(self._tasks)

        def end(cause: OSError | None) -> None:
            if cause is not None:
                failures.append(cause)
            ended.complete(None)

        self._flush(flush, end)
        return ended


class _Cut(NamedTuple):
    """Effect that has cut a log, whose checkpoints are not written yet."""

    effect: Effect
    partition: Partition
    log: Log


def _cut_offset(effect: Begin | Diverge | Truncate | Restart, log: Log) -> int:
    """Return the offset at which an effect cuts a log; its end, or beyond, for none."""
    if isinstance(effect, Begin):
        # Without epochs a leader could not find out whether the logs diverge.
        return log.high_watermark if log.epochs.latest < 0 else log.end_offset
    if isinstance(effect, Diverge):
        offset = log.truncation_point(effect.last_epoch, effect.end_offset)
        # The whole log diverges: what both have may end below its start.
        return min(offset, effect.end_offset) if offset == log.start_offset else offset
    return effect.offset


def _lower_recovery_point(log: Log, offset: int) -> bool:
    """Lower the recovery point for a cut at `offset`, and return True if that must be on disk before the cut."""
    # The cut is at the begin of a batch, perhaps below the offset, but not below the high watermark.
    least_end = min(offset, log.high_watermark)
    if not log.start_offset <= offset < log.end_offset or least_end >= log.recovery_point:
        return False
    log.recovery_point = least_end
    return True


def _seriousness(effect: Effect, partition: Partition, offset: int) -> tuple[int, str]:
    """Return the level at which a cut of a log at `offset` is logged, and what it removes and why: an error if that was
    committed, or is everything.
    """
    log = partition.log
    committed = min(log.high_watermark, log.end_offset)
    if offset >= committed and (offset > 0 or not log.end_offset):
        return logging.INFO, ""
    if offset < committed:
        what = f"offsets {max(offset, log.start_offset)} to {committed - 1}, which were committed, are removed"
    else:
        what = "all of its records are removed"
    return logging.ERROR, (
        f": {what}, because node {partition.leader_id}, the leader in epoch {effect.epoch}, does not have them; it was elected "
        "with an older or an empty log"
    )


def _is_current(fetching: Fetching, effect: Effect, partition: Partition) -> bool:
    """Return True if an effect is still valid. A partition has its new leader before it is not followed any more: this broker
    may lead it, and clients may have written to it.
    """
    return fetching.is_current(effect) and partition.leader_epoch == effect.epoch


def _may_be_older(log: Log, effect: Append) -> bool:
    """Return True if all records of a log may have been deleted at its leader."""
    return effect.start_offset >= log.end_offset != log.start_offset


def position_of(log: Log) -> Position:
    """Return the position of a follower's log. An empty one has no last epoch: it cannot diverge."""
    is_empty = log.start_offset == log.end_offset
    return Position(log.end_offset, -1 if is_empty else log.epochs.latest, log.start_offset)
