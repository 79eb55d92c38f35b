"""Markers of transactions that end: into every partition that took part, until each of them has its own.

A partition of __consumer_offsets gets its marker through the group coordinator, which then counts the offsets or forgets them.
A partition that is gone has nothing to end; one that cannot be written to now (its log is offline, its coordinator is loading)
is tried again. The transaction is complete when every marker is below the high watermark.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from ottla.broker.partition_log import PartitionLog
from ottla.broker.waiting import DelayedAnswer
from ottla.coordinators.runtime import Ending, Runtime
from ottla.coordinators.transactions.state import Markers
from ottla.coordinators.transactions.transaction import Partition as Place
from ottla.environment import Cancellable, Clock, Timers
from ottla.metadata.image import OFFSETS_TOPIC
from ottla.protocol.answer import Answer, Pending
from ottla.protocol.errors import (
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_COORDINATOR,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.replication.partition import Partition
from ottla.replication.replicas import NEVER_MS, Replicas

_RETRY_MS: Final = 100
_RETRIED: Final = frozenset((KAFKA_STORAGE_ERROR, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR))
_LONGEST_WAIT_MS: Final = min(NEVER_MS, 3_600_000)


class MarkerWriter:
    """Writes markers into the partitions of this broker."""

    def __init__(self, replicas: Replicas, groups: Runtime[Any], clock: Clock, timers: Timers) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock
        self._timers = timers
        self._due: set[Cancellable] = set()
        self._closed = False

    def append(self, place: Place, ending: Ending) -> int:
        """Append one marker; the error code."""
        topic, index = place
        partition = self._replicas.find(topic, index)
        if partition is None:
            return self._replicas.absence(topic, index)
        if topic == OFFSETS_TOPIC:
            return self._groups.end_transaction(index, ending)
        return PartitionLog(partition, self._clock).append_marker(ending).error_code

    def write(self, markers: Markers, coordinator_epoch: int, complete: Callable[[], Answer[int]]) -> None:
        """Write the markers of a transaction, then call `complete` once all of them count, until it is: its answer is an error
        code.
        """
        ending = Ending(
            markers.producer_id, markers.epoch, coordinator_epoch, commit=markers.commit, new_epoch=markers.new_epoch
        )
        self._attempt(sorted(markers.partitions), [], ending, complete)

    def _attempt(
        self, places: list[Place], written: list[Place], ending: Ending, complete: Callable[[], Answer[int]]
    ) -> None:
        left = []
        for place in places:
            code = self.append(place, ending)
            if code in _RETRIED:
                left.append(place)
            elif code not in (UNKNOWN_TOPIC_OR_PARTITION, INVALID_PRODUCER_EPOCH):
                written.append(place)  # the others are gone, or have a newer marker already
        if not left:
            self.settled(written, partial(self._complete, complete))
        elif not self._closed:
            self._again(partial(self._attempt, left, written, ending, complete))

    def _complete(self, complete: Callable[[], Answer[int]]) -> None:
        def told(code: int) -> None:
            if code not in (NONE, INVALID_TXN_STATE) and not self._closed:
                self._again(partial(self._complete, complete))  # the coordinator's log does not take it now

        answer = complete()
        if isinstance(answer, Pending):
            answer.listen(told)
        else:
            told(answer)

    def _again(self, work: Callable[[], None]) -> None:
        def due() -> None:
            self._due.discard(timer)
            work()

        timer = self._timers.call_later(_RETRY_MS, due)
        self._due.add(timer)

    def settled(self, places: Iterable[Place], done: Callable[[], object]) -> None:
        """Call `done` once everything that was appended to these partitions so far is below their high watermarks."""
        found = (self._replicas.find(*place) for place in places)
        ends = [(partition, partition.log.end_offset) for partition in found if partition is not None]

        def attempt(last: bool) -> int | None:
            return NONE if last or all(self._counts(partition, end) for partition, end in ends) else None

        if attempt(False) is not None:
            done()
            return
        answer = DelayedAnswer(attempt, [partition for partition, _ in ends]).begin(self._timers, _LONGEST_WAIT_MS)
        assert isinstance(answer, Pending)
        answer.listen(lambda _: done())

    def _counts(self, partition: Partition, end_offset: int) -> bool:
        gone = self._replicas.find(partition.topic, partition.index) is not partition
        return gone or partition.log.high_watermark >= end_offset

    def close(self) -> None:
        """No more attempts; the next start writes what is missing."""
        self._closed = True
        for timer in self._due:
            timer.cancel()
        self._due.clear()
