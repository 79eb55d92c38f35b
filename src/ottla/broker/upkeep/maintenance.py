"""Periodic work of a broker: offset checkpoints of all partitions, deletion of old segments, compaction, expiry of idle
producers.

All of it pauses after some partitions, so that a request waits for a few milliseconds at most. One log at a time is compacted,
the dirtiest first.
"""

import logging
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, NamedTuple

from ottla.broker.config import BrokerConfig
from ottla.broker.upkeep.flushing import Flusher
from ottla.broker.upkeep.removals import Removals
from ottla.environment import Clock
from ottla.log.flush import Flush
from ottla.log.log import Log, StorageError
from ottla.log.segment import Segment
from ottla.replication.replicas import NEVER_MS, Replicas
from ottla.tasks.deferred import Answer, Deferred, awaitable
from ottla.tasks.periodic import Periodic
from ottla.tasks.scheduler import Scheduler

_logger = logging.getLogger("ottla.broker")
_CHECKPOINT_MS: Final = 60_000
_FLUSH_CHECK_MS: Final = 1_000
_REOPEN_MS: Final = 1_000
_PARTITIONS_A_STEP: Final = 200
"""Number of partitions processed in one turn of the loop, which takes some milliseconds."""


class MaintenanceConfig(NamedTuple):
    """Intervals of the periodic work of a broker, in ms.

    first_retention_ms     log.initial.task.delay.ms
    retention_interval_ms  log.retention.check.interval.ms
    cleaner_backoff_ms     log.cleaner.backoff.ms: the pause when no log is dirty; below zero compaction is off
    expiry_interval_ms     producer.id.expiration.check.interval.ms
    lag_check_ms           interval at which leaders look for followers that lag behind
    high_watermark_ms      replica.high.watermark.checkpoint.interval.ms, for partitions with followers
    """

    first_retention_ms: int
    retention_interval_ms: int
    cleaner_backoff_ms: int
    expiry_interval_ms: int
    lag_check_ms: int
    high_watermark_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> "MaintenanceConfig":
        """Return the intervals in the configs of a broker."""
        return cls(
            config.integer("log.initial.task.delay.ms"),
            config.integer("log.retention.check.interval.ms"),
            config.integer("log.cleaner.backoff.ms") if config.flag("log.cleaner.enable") else -1,
            config.integer("producer.id.expiration.check.interval.ms"),
            max(1, config.integer("replica.lag.time.max.ms") // 2),
            max(1, config.integer("replica.high.watermark.checkpoint.interval.ms")),
        )


class Maintenance:
    """Timers of a broker's periodic work.

    write_checkpoints       writes the offset checkpoints of all directories
    removals                deletes segments that are no longer part of a log from the disk
    flusher                 runs the flushes of a compaction, and of logs whose flush.ms is over
    producer_expiration_ms  returns the current producer.id.expiration.ms
    """

    def __init__(
        self,
        *,
        config: MaintenanceConfig,
        write_checkpoints: Callable[[], Answer[None]],
        removals: Removals,
        replicas: Replicas,
        clock: Clock,
        tasks: Scheduler,
        producer_expiration_ms: Callable[[], int],
        flusher: Flusher,
    ) -> None:
        self._config = config
        self._write_checkpoints = write_checkpoints
        self._removals = removals
        self._replicas = replicas
        self._clock = clock
        self._tasks = tasks
        self._producer_expiration_ms = producer_expiration_ms
        self._flusher = flusher
        self._compaction: tuple[Log, Generator[Flush | list[Segment]]] | None = None
        """The log that is being compacted, and the remaining steps."""
        self._periodic: list[Periodic] = []

    def begin(self) -> None:
        """Start all timers."""
        config = self._config
        self._every("writing checkpoints", self._checkpoint, _CHECKPOINT_MS)
        self._every("writing high watermarks", self._checkpoint_replicated, config.high_watermark_ms)
        self._every("looking for lagging followers", self._observe_followers, config.lag_check_ms)
        self._every("flushing by time", self._flush, _FLUSH_CHECK_MS)
        self._every("opening partitions", self._open_postponed, _REOPEN_MS)
        self._every("retention", self._retain, config.retention_interval_ms, config.first_retention_ms)
        self._every("expiry of producers", self._expire_producers, config.expiry_interval_ms)
        if config.cleaner_backoff_ms >= 0:
            self._every("compaction", self._clean, config.cleaner_backoff_ms, config.first_retention_ms)

    def _every(
        self,
        name: str,
        work: Callable[[], Coroutine[Deferred[Any], Any, int | None]],
        interval_ms: int,
        first_ms: int | None = None,
    ) -> None:
        periodic = Periodic(name, lambda: self._tasks.start(work(), name), interval_ms, self._tasks)
        self._periodic.append(periodic)
        periodic.run_in(interval_ms if first_ms is None else first_ms)

    def close(self) -> None:
        """Cancel all timers, and the work that is under way."""
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

    async def _pause(self, number: int) -> None:
        """Let others run after the last partition of a step."""
        if number % _PARTITIONS_A_STEP == 0:
            await self._tasks.sleep(0)

    async def _checkpoint_replicated(self) -> None:
        """Write the checkpoints if a partition has several replicas: the high watermark of others is their log end."""
        if self._replicas.has_replicated:
            await self._checkpoint()

    async def _checkpoint(self) -> None:
        await awaitable(self._write_checkpoints(), self._tasks)

    async def _observe_followers(self) -> None:
        now_ms = self._clock.now_ms()
        for number, partition in enumerate(self._replicas.led(), 1):
            partition.observe(now_ms)
            await self._pause(number)

    async def _open_postponed(self) -> None:
        self._replicas.open_postponed()

    async def _flush(self) -> None:
        """Flush logs whose flush.ms has elapsed; no request waits for that. Kafka does this at intervals of
        log.flush.scheduler.interval.ms, and not at all by default.
        """
        if self._replicas.shortest_flush_ms == NEVER_MS:
            return
        now_ms = self._clock.now_ms()
        for number, partition in enumerate(self._replicas.all(), 1):
            await self._pause(number)
            log = partition.log
            if log.recovery_point < log.end_offset and now_ms - log.last_flush_ms >= log.config.flush_ms:
                self._flusher.flush(partition)

    async def _retain(self) -> None:
        now_ms = self._clock.wall_ms()
        for number, partition in enumerate(self._replicas.all(), 1):
            await self._pause(number)
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
                await self._tasks.sleep(0)

    async def _expire_producers(self) -> None:
        before_ms = self._clock.wall_ms() - self._producer_expiration_ms()
        for number, partition in enumerate(self._replicas.all(), 1):
            await self._pause(number)
            partition.log.producers.expire(before_ms)

    async def _clean(self) -> int | None:
        """Compact the dirtiest log, if one is dirty enough. Return 0 if others may follow at once."""
        now_ms = self._clock.wall_ms()
        logs = [partition.log for partition in self._replicas.all() if partition.log.config.is_compacted]
        log = max(logs, key=lambda log: log.dirtiness(now_ms), default=None)
        if log is None or not log.dirtiness(now_ms):
            return None
        steps = log.compact(now_ms)
        self._compaction = log, steps
        try:
            for done in steps:
                if isinstance(done, Flush):
                    await self._flush_cleaned(log, done)
                    continue
                for segment in done:
                    self._removals.later(segment.remove, log.config.file_delete_delay_ms)
                await self._tasks.sleep(0)
        except StorageError as cause:
            _logger.error("cannot compact %s: %s", log.name, cause)
            self.abandon_compaction()
            return None
        self._compaction = None
        return 0

    async def _flush_cleaned(self, log: Log, flush: Flush) -> None:
        """Flush what a compaction has written. Raises StorageError."""
        try:
            await self._flusher.run(flush)
        except OSError as cause:
            log.fail_flush(cause)
            raise StorageError(cause.strerror or str(cause)) from cause
