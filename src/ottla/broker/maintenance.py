"""Periodic work of a broker: offset checkpoints of all partitions, deletion of old segments, compaction, expiry of idle
producers.

All of it runs in steps, a few partitions per turn of the loop, so that a request waits for one step at most. One log at a time
is compacted, the dirtiest first.
"""

import logging
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Final

from ottla.broker.flushing import Flusher
from ottla.broker.removals import Removals
from ottla.environment import Clock, Timers
from ottla.log.flush import Flush
from ottla.log.log import Log, StorageError
from ottla.log.segment import Segment
from ottla.replication.partition import Partition
from ottla.replication.replicas import NEVER_MS, Replicas
from ottla.tasks.answers import Steps
from ottla.tasks.deferred import Answer, Deferred
from ottla.tasks.periodic import PAUSED, Periodic

_logger = logging.getLogger("ottla.broker")
_CHECKPOINT_MS: Final = 60_000
_FLUSH_CHECK_MS: Final = 1_000
_REOPEN_MS: Final = 1_000
_PARTITIONS_A_STEP: Final = 200
"""Number of partitions processed in one turn of the loop, which takes some milliseconds."""


class Maintenance:
    """Timers of a broker's periodic work.

    write_checkpoints      writes the offset checkpoints of all directories
    removals               deletes segments that are no longer part of a log from the disk
    first_retention_ms     log.initial.task.delay.ms
    retention_interval_ms  log.retention.check.interval.ms
    flusher                runs the flushes of a compaction, and of logs whose flush.ms is over
    expiry                 producer.id.expiration.check.interval.ms, and the current producer.id.expiration.ms
    cleaner_backoff_ms     log.cleaner.backoff.ms: the pause when no log is dirty; below zero compaction is off
    lag_check_ms           interval at which leaders look for followers that lag behind
    high_watermark_ms      replica.high.watermark.checkpoint.interval.ms, for partitions with followers
    """

    def __init__(
        self,
        write_checkpoints: Callable[[], Answer[None]],
        removals: Removals,
        replicas: Replicas,
        clock: Clock,
        timers: Timers,
        first_retention_ms: int,
        retention_interval_ms: int,
        cleaner_backoff_ms: int,
        expiry: tuple[int, Callable[[], int]],
        flusher: Flusher,
        lag_check_ms: int,
        high_watermark_ms: int,
    ) -> None:
        self._lag_check_ms = max(1, lag_check_ms)
        self._high_watermark_ms = max(1, high_watermark_ms)
        self._write_checkpoints = write_checkpoints
        self._removals = removals
        self._replicas = replicas
        self._clock = clock
        self._timers = timers
        self._first_retention_ms = first_retention_ms
        self._retention_interval_ms = retention_interval_ms
        self._cleaner_backoff_ms = cleaner_backoff_ms
        self._expiry_interval_ms, self._producer_expiration_ms = expiry
        self._flusher = flusher
        self._cleaner = Periodic("compaction", self._clean, max(0, cleaner_backoff_ms), timers)
        self._compaction: tuple[Log, Generator[Flush | list[Segment]]] | None = None
        """The log that is being compacted, and the remaining steps."""
        self._periodic = [self._cleaner]

    def begin(self) -> None:
        """Start all timers."""
        self._every("writing checkpoints", self._checkpoint, _CHECKPOINT_MS)
        self._every("writing high watermarks", self._checkpoint_replicated, self._high_watermark_ms)
        self._every("looking for lagging followers", self._replicas.observe_followers, self._lag_check_ms)
        self._every("flushing by time", self._flush, _FLUSH_CHECK_MS)
        self._every("opening partitions", self._replicas.open_postponed, _REOPEN_MS)
        self._every("retention", self._retain, self._retention_interval_ms, self._first_retention_ms)
        self._every("expiry of producers", self._expire_producers, self._expiry_interval_ms)
        if self._cleaner_backoff_ms >= 0:
            self._cleaner.run_in(self._first_retention_ms)

    def _every(
        self, name: str, work: Callable[[], Steps | None], interval_ms: int, first_ms: int | None = None
    ) -> None:
        periodic = Periodic(name, work, interval_ms, self._timers)
        self._periodic.append(periodic)
        periodic.run_in(interval_ms if first_ms is None else first_ms)

    def close(self) -> None:
        """Cancel all timers."""
        for periodic in self._periodic:
            periodic.close()

    def abandon_compaction(self) -> None:
        """End the running compaction, and remove its files. Only when none of its flushes is running."""
        if self._compaction is None:
            return
        (log, steps), self._compaction = self._compaction, None
        try:
            # A compiled generator that is only dropped does not run its `finally`, and one whose `close` fails leaves the error
            # in sys.exc_info().
            steps.throw(GeneratorExit())
        except GeneratorExit:
            pass
        except OSError as cause:  # the next start removes the files
            _logger.warning("cannot remove what the compaction of %s has written: %s", log.name, cause)

    def _logs(self) -> Iterator[tuple[Partition, bool]]:
        """Yield every partition, each with True if a step ends before it."""
        for number, partition in enumerate(self._replicas.all()):
            yield partition, number % _PARTITIONS_A_STEP == _PARTITIONS_A_STEP - 1

    def _checkpoint_replicated(self) -> Steps:
        """Write the checkpoints if a partition has several replicas: the high watermark of others is their log end."""
        if self._replicas.has_replicated:
            yield from self._checkpoint()

    def _checkpoint(self) -> Steps:
        written = self._write_checkpoints()
        if isinstance(written, Deferred):
            yield written

    def _flush(self) -> Steps:
        """Flush logs whose flush.ms has elapsed; no request waits for that. Kafka does this at intervals of
        log.flush.scheduler.interval.ms, and not at all by default.
        """
        if self._replicas.shortest_flush_ms < NEVER_MS:
            now_ms = self._clock.now_ms()
            for partition, ends_step in self._logs():
                if ends_step:
                    yield None
                log = partition.log
                if log.recovery_point < log.end_offset and now_ms - log.last_flush_ms >= log.config.flush_ms:
                    self._flusher.flush(partition)

    def _retain(self) -> Steps:
        now_ms = self._clock.wall_ms()
        for partition, ends_step in self._logs():
            if ends_step:
                yield None
            for segment in partition.log.take_discarded():
                self._removals.later(segment.remove, partition.log.config.file_delete_delay_ms)
            while True:
                log = partition.log
                try:
                    gone = log.retain(now_ms)
                except StorageError as cause:
                    _logger.error("%s", cause)
                    break
                for segment in gone:
                    _logger.info("%s: segment %d is past its retention", log.name, segment.base_offset)
                    self._removals.later(segment.remove, log.config.file_delete_delay_ms)
                if not gone:
                    break
                partition.wake()  # fetch sessions return the new log start offset
                yield None

    def _expire_producers(self) -> Steps:
        before_ms = self._clock.wall_ms() - self._producer_expiration_ms()
        for partition, ends_step in self._logs():
            if ends_step:
                yield None
            partition.log.producers.expire(before_ms)

    def _clean(self) -> int | None:
        """Do one step of the running compaction, or begin with the dirtiest log, if one is dirty enough. Returns the time of
        the next run, as for Periodic.
        """
        if self._compaction is None:
            now_ms = self._clock.wall_ms()
            logs = [partition.log for partition in self._replicas.all() if partition.log.config.is_compacted]
            dirtiest = max(logs, key=lambda log: log.dirtiness(now_ms), default=None)
            if dirtiest is None or not dirtiest.dirtiness(now_ms):
                return None
            self._compaction = dirtiest, dirtiest.compact(now_ms)
        log, steps = self._compaction
        try:
            done = next(steps, None)
        except StorageError as cause:
            _logger.error("cannot compact %s: %s", log.name, cause)
            self._compaction = None
            return None
        if done is None:
            self._compaction = None
        elif isinstance(done, Flush):
            self._flusher.run(done, partial(self._compaction_flushed, log))
            return PAUSED
        else:
            for segment in done:
                self._removals.later(segment.remove, log.config.file_delete_delay_ms)
        return 0

    def _compaction_flushed(self, log: Log, failed: OSError | None) -> None:
        if failed is not None:
            _logger.error("cannot compact %s: %s", log.name, failed.strerror or failed)
            log.fail_flush(failed)
            self.abandon_compaction()
        self._cleaner.run_in(0 if failed is None else self._cleaner_backoff_ms)
