"""Log of an internal topic's partition, with the operations that coordinators need."""

import logging
from collections.abc import Callable, Iterator, Sequence

from ottla.coordinators.log import CoordinatorAppend, Ending, LoggedBatch
from ottla.environment import Clock
from ottla.log import reading
from ottla.log.log import AppendResult, StorageError
from ottla.protocol.errors import KAFKA_STORAGE_ERROR, NONE, NOT_ENOUGH_REPLICAS, NOT_LEADER_OR_FOLLOWER
from ottla.records.control import ABORT, COMMIT, read_marker
from ottla.replication.partition import Partition

_logger = logging.getLogger("ottla.broker")


class PartitionLog:
    """Implementation of `CoordinatorLog` on the log of a partition, in its leader epoch at the creation."""

    def __init__(self, partition: Partition, clock: Clock) -> None:
        self._partition = partition
        self._clock = clock
        self._epoch = partition.leader_epoch
        self._watcher: Callable[[], None] | None = None

    def watch(self, committed: Callable[[], None]) -> None:
        """Call `committed` whenever the high watermark has moved, until `close`."""
        self._watcher = committed
        self._partition.watchers.add(committed)

    def close(self) -> None:
        """Stop watching."""
        if self._watcher is not None:
            self._partition.watchers.discard(self._watcher)
            self._watcher = None

    def append(
        self, records: Sequence[tuple[bytes, bytes | None]], producer: tuple[int, int] | None
    ) -> CoordinatorAppend:
        """Append (key, value) pairs as one batch, in the transaction of `producer` (id, epoch) unless that is None."""
        return self._append(lambda: self._partition.append_records(list(records), self._clock.wall_ms(), producer))

    def append_marker(self, ending: Ending) -> CoordinatorAppend:
        """Append the marker that ends a producer's transaction."""
        return self._append(
            lambda: self._partition.append_marker(
                ending.producer_id,
                ending.producer_epoch,
                ending.coordinator_epoch,
                self._clock.wall_ms(),
                commit=ending.commit,
                new_epoch=ending.new_epoch,
            )
        )

    def _append(self, append: Callable[[], AppendResult]) -> CoordinatorAppend:
        if self._partition.leader_epoch != self._epoch:
            # Another broker leads by now, and coordinators learn of it in a later step.
            return CoordinatorAppend(NOT_LEADER_OR_FOLLOWER)
        if self._partition.lacks_replicas:  # as for a producer with acks=all
            return CoordinatorAppend(NOT_ENOUGH_REPLICAS)
        try:
            placed = append()
        except StorageError as cause:
            _logger.error("%s", cause)
            return CoordinatorAppend(KAFKA_STORAGE_ERROR)
        if placed.error_code != NONE:
            return CoordinatorAppend(placed.error_code)
        return CoordinatorAppend(NONE, placed.end_offset)

    def committed_offset(self) -> int:
        """The high watermark (exclusive)."""
        return self._partition.log.high_watermark

    def end_offset(self) -> int:
        """The log end (exclusive)."""
        return self._partition.log.end_offset

    def read(self) -> Iterator[LoggedBatch]:
        """Yield all batches and markers, oldest first."""
        for header, records in reading.batches(self._partition.log):
            producer_id = header.producer_id if header.is_transactional else -1
            if not header.is_control:
                yield LoggedBatch(records, producer_id)
            elif records:
                kind = read_marker(records[0].key, records[0].value).type
                if kind in (ABORT, COMMIT):
                    yield LoggedBatch((), producer_id, kind == COMMIT)
