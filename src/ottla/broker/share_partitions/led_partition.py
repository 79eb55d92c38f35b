"""Share partition on its leader (KIP-932): loading, reads from the log, writes of its state, waiting fetches.

A share partition is loaded at its first fetch, and loaded again when its state was changed by another request. Its writes go to
the share coordinator one at a time: changes that arrive meanwhile go into the next one, all together, so that many small
acknowledgements cost few records of __share_group_state.

Fetches without enough records wait here, and are served in the order of their arrival.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.coordinators.runtime import COORDINATOR_UNAVAILABLE
from ottla.coordinators.share.acknowledgement import Acknowledgement, DeliveryLimits, InvalidAcknowledgement
from ottla.coordinators.share.acquisition import Acquired, AcquireRequest, LogBatch
from ottla.coordinators.share.partition import NEVER, UNINITIALIZED, SharePartition
from ottla.coordinators.share.state import ReadState, StateOutcome, StateRead, WriteState
from ottla.coordinators.share.window import DeadLetters, StateChange
from ottla.environment.files import Region
from ottla.log import reading
from ottla.log.log import READ_COMMITTED, OffsetNotInLog, StorageError
from ottla.protocol.errors import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    FENCED_LEADER_EPOCH,
    FENCED_STATE_EPOCH,
    GROUP_ID_NOT_FOUND,
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_COORDINATOR,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
    error,
)
from ottla.replication.partition import Watchers
from ottla.tasks.deferred import Answer, Deferred, Failed, awaitable
from ottla.tasks.scheduler import Scheduler

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.records.batch import BatchHeader
    from ottla.replication.partition import Partition

_logger = logging.getLogger("ottla.broker")
_RETRY_MS: Final = 20
_CLIENT_ERRORS: Final = {
    NOT_COORDINATOR: COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_LOAD_IN_PROGRESS: COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_NOT_AVAILABLE: COORDINATOR_NOT_AVAILABLE,
    GROUP_ID_NOT_FOUND: GROUP_ID_NOT_FOUND,
    UNKNOWN_TOPIC_OR_PARTITION: UNKNOWN_TOPIC_OR_PARTITION,
    FENCED_LEADER_EPOCH: NOT_LEADER_OR_FOLLOWER,
    FENCED_STATE_EPOCH: NOT_LEADER_OR_FOLLOWER,
}
"""Errors of the share coordinator, as returned to members; the others are UNKNOWN_SERVER_ERROR."""


class AcknowledgementResult(NamedTuple):
    """Outcome of an acknowledgement, as returned to its member."""

    error_code: int = NONE
    message: str | None = None


class GroupRules(NamedTuple):
    """Current configs of a group: for its share partitions, and for reading the log."""

    rules: DeliveryLimits
    isolation: int
    reset: str


class AcquiredRegion(NamedTuple):
    """Records that a member acquired, and their region in the log."""

    records: Region
    acquired: list[Acquired]


class ShareServices(Protocol):
    """Services that a share partition uses; `now` is in ms, on the clock of the locks."""

    def now(self) -> int: ...

    @property
    def tasks(self) -> Scheduler: ...

    def ring_at(self, shared: "LedSharePartition", deadline: int) -> None: ...

    def read(self, request: ReadState) -> Answer[StateRead]: ...

    def write(self, request: WriteState) -> Answer[StateOutcome]: ...

    def rules(self, group_id: str) -> GroupRules: ...

    def initial_offset(self, group_id: str, log: "Log") -> int: ...

    def write_dead_letters(self, shared: "LedSharePartition", dead: list[DeadLetters]) -> None: ...


class _SharePartitionWatchers(Watchers):
    """Watchers of a share partition; the log's partition is watched while there are any."""

    def __init__(self, partition: "Partition", wake: Callable[[], None]) -> None:
        super().__init__(partition.watchers.tasks)
        self._partition = partition
        self._wake = wake

    def add(self, watcher: Callable[[], None]) -> None:
        if not self:
            self._partition.watchers.add(self._wake)
        super().add(watcher)

    def discard(self, watcher: Callable[[], None]) -> None:
        super().discard(watcher)
        if not self:
            self._partition.watchers.discard(self._wake)


class LedSharePartition:
    """Share partition led by this broker; `state` is None during loading, `failure` is the error of a failed loading."""

    __slots__ = (
        "_leader_epoch",
        "_queue",
        "_services",
        "_state_epoch",
        "_writing",
        "failure",
        "group_id",
        "partition",
        "rings_at",
        "state",
        "turn",
        "watchers",
    )

    def __init__(self, services: ShareServices, group_id: str, partition: "Partition") -> None:
        self._services = services
        self.group_id = group_id
        self.partition = partition
        self._leader_epoch = partition.leader_epoch
        self.state: SharePartition | None = None
        self.failure = NONE
        self.rings_at = NEVER
        self.turn = 0
        """Incremented when the state is loaded again: results of earlier work are ignored."""
        self.watchers = _SharePartitionWatchers(partition, self._on_append)
        self._state_epoch = 0
        self._queue: list[tuple[StateChange, Callable[[AcknowledgementResult], None] | None]] = []
        self._writing = False

    # Loading.

    def load(self) -> None:
        """Request the state from the share coordinator; its arrival wakes waiting fetches."""
        self.turn += 1
        self.state, self.failure = None, NONE
        self._services.tasks.background(self._load(self.turn), "loading of a share partition")

    async def _load(self, turn: int) -> None:
        tasks, partition = self._services.tasks, self.partition
        while turn == self.turn:
            request = ReadState(self.group_id, partition.topic_id, partition.index, partition.leader_epoch)
            try:
                response = await awaitable(self._services.read(request), tasks)
            except Failed:  # the cause is logged
                response = StateRead(UNKNOWN_SERVER_ERROR, None)
            if turn == self.turn and response.error_code not in COORDINATOR_UNAVAILABLE:
                self._read(response)
                return
            await tasks.sleep(_RETRY_MS)

    def _read(self, response: StateRead) -> None:
        if response.error_code != NONE:
            self.failure = _CLIENT_ERRORS.get(response.error_code, UNKNOWN_SERVER_ERROR)
            self.wake()
            return
        start = response.start_offset
        if start == UNINITIALIZED:
            try:
                start = self._services.initial_offset(self.group_id, self.partition.log)
            except StorageError as cause:
                _logger.error("%s", cause)
                self.failure = KAFKA_STORAGE_ERROR
                self.wake()
                return
        self._state_epoch = response.state_epoch
        self.state = SharePartition(start, response.batches)
        if dead := self.state.pending_dead_letters():
            self._services.write_dead_letters(self, dead)
        self.wake()

    # Waiting.

    def wake(self) -> None:
        """Attempt all waiting fetches again."""
        self.watchers.wake()

    def _on_append(self) -> None:
        """Attempt waiting fetches again after an append, while records are available."""
        for watcher in tuple(self.watchers):
            if not self._has_news():
                return
            watcher()

    def _has_news(self) -> bool:
        state = self.state
        if state is None:
            return True
        group = self._services.rules(self.group_id)
        offset = state.next_offset(group.rules)
        return offset is not None and offset < self.limit(group.isolation)

    # Reading.

    def limit(self, isolation: int) -> int:
        """First offset that members may not read (exclusive limit)."""
        log = self.partition.log
        return log.last_stable_offset if isolation == READ_COMMITTED else log.high_watermark

    def readable(self, group: GroupRules, max_bytes: int, *, whole_first: bool) -> tuple[int, Region] | None:
        """Return the next offset to acquire and the region from it on; None if there is nothing. Raises StorageError."""
        state = self.state
        assert state is not None
        log = self.partition.log
        limit = self.limit(group.isolation)
        while (offset := state.next_offset(group.rules)) is not None and offset < limit:
            try:
                region = log.read(offset, max_bytes, limit, whole_first=whole_first)
            except OffsetNotInLog:
                if offset >= log.start_offset:
                    return None
                state.skip_below(log.start_offset)
                continue
            if region is not None:
                return offset, region
            if not whole_first:
                return None
            state.skip_between(offset, limit)  # compaction removed all of its records
            if state.next_offset(group.rules) == offset:
                return None
        return None

    def acquire(
        self, member: str, offset: int, region: Region, wish: AcquireRequest, group: GroupRules
    ) -> AcquiredRegion | None:
        """Acquire records of `region`, which was read from `offset`, for a member. Raises StorageError."""
        state = self.state
        assert state is not None
        log = self.partition.log
        enough = state.enough(offset, wish.max_records)
        headers: list[BatchHeader] = []
        for header in reading.headers(log, region):
            headers.append(header)
            if header.last_offset >= enough:
                break
        batches = [LogBatch(header.base_offset, header.last_offset) for header in headers]
        if group.isolation == READ_COMMITTED:
            batches = _mark_aborted(log, region, offset, headers, batches)
        now = self._services.now()
        acquired = state.acquire(member, offset, batches, wish, group.rules, now)
        if not acquired:
            return None
        self._services.ring_at(self, now + group.rules.lock_ms)
        first, last = acquired[0].first, acquired[-1].last
        begin = next(header.start for header in headers if header.last_offset >= first)
        end = next(header.end for header in reversed(headers) if header.base_offset <= last)
        return AcquiredRegion(Region(region.file, begin, end - begin), acquired)

    def has_moved(self, offset: int) -> bool:
        """Return whether the next offset to acquire has moved beyond `offset`, so that another read makes sense."""
        return self.state is not None and self.state.window.next_free() > offset

    # Acknowledging.

    def acknowledge(self, member: str, batches: list[Acknowledgement]) -> Answer[AcknowledgementResult]:
        """Apply a member's acknowledgements; answered when the share coordinator has written them."""
        state = self.state
        if state is None:
            return AcknowledgementResult(UNKNOWN_TOPIC_OR_PARTITION, error(UNKNOWN_TOPIC_OR_PARTITION).message)
        rules = self._services.rules(self.group_id).rules
        change = state.acknowledge(member, batches, rules, self._services.now())
        if isinstance(change, InvalidAcknowledgement):
            return AcknowledgementResult(change.error_code, change.message)
        answer: Deferred[AcknowledgementResult] = Deferred(self._services.tasks)
        self._write(change, answer.complete)
        return answer

    def release(self, member: str) -> None:
        """Release the records of a member that has left."""
        if self.state is not None:
            self._write(self.state.release(member, self._services.rules(self.group_id).rules))

    def expire(self, now: int) -> None:
        """Free the records of locks that have ended."""
        state = self.state
        if state is None:
            return
        change = state.expire(self._services.rules(self.group_id).rules, now)
        self._write(change)
        self._services.ring_at(self, state.next_deadline())
        if change.written:
            self.wake()

    def archive(self, letters: DeadLetters, turn: int) -> None:
        """Archive records that are in the dead-letter topic, or cannot be written there."""
        if self.state is not None and turn == self.turn:
            self._write(self.state.archive(letters.first, letters.last))

    # Writing.

    def _write(self, change: StateChange, answer: Callable[[AcknowledgementResult], None] | None = None) -> None:
        state = self.state
        assert state is not None
        if not change.written:
            state.settle(change, written=True)
            if answer is not None:
                answer(AcknowledgementResult())
            return
        self._queue.append((change, answer))
        if not self._writing:
            self._write_on()

    def _write_on(self) -> None:
        """Write the queued changes, and those that arrive meanwhile."""
        while self._queue and not self._writing:
            state = self.state
            if state is None:
                return
            changes, self._queue = self._queue, []
            partition = self.partition
            request = WriteState(
                self.group_id,
                partition.topic_id,
                partition.index,
                self._state_epoch,
                partition.leader_epoch,
                state.start_offset,
                state.delivery_complete_count,
                [batch for change, _ in changes for batch in change.written],
            )
            self._writing = True
            outcome = self._services.write(request)
            settle = partial(self._on_written, changes, self.turn)
            if isinstance(outcome, Deferred):
                failed = partial(self._on_settled, settle, StateOutcome(UNKNOWN_SERVER_ERROR))
                outcome.then(partial(self._on_settled, settle), failed)
                return
            settle(outcome)

    def _on_settled(self, settle: Callable[[StateOutcome], None], outcome: StateOutcome) -> None:
        settle(outcome)
        self._write_on()

    def _on_written(
        self,
        changes: list[tuple[StateChange, Callable[[AcknowledgementResult], None] | None]],
        turn: int,
        outcome: StateOutcome,
    ) -> None:
        self._writing = False
        code = outcome.error_code
        acknowledged = AcknowledgementResult()
        if code != NONE:
            message = f"Error in write state RPC. {outcome.error_message or error(code).message}"
            acknowledged = AcknowledgementResult(_CLIENT_ERRORS.get(code, UNKNOWN_SERVER_ERROR), message)
        state = self.state if turn == self.turn else None
        dead: list[DeadLetters] = []
        for change, _ in changes:
            if state is not None:
                dead += state.settle(change, written=code == NONE)
        if state is not None and code != NONE:
            _logger.warning(
                "cannot write the state of %s in %s: %s", self.group_id, self.partition.log.name, acknowledged
            )
            self._services.ring_at(self, state.next_deadline())
        if dead:
            self._services.write_dead_letters(self, dead)
        if acknowledged.error_code in (NOT_LEADER_OR_FOLLOWER, GROUP_ID_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION):
            self.reset()
        for _, answer in changes:
            if answer is not None:
                answer(acknowledged)
        self.wake()

    def reset(self) -> None:
        """Load the state again after it was replaced; changes that are not written yet are void."""
        self.load()
        self._give_up(NOT_LEADER_OR_FOLLOWER)

    @property
    def has_lost_leadership(self) -> bool:
        """True if the leader epoch in which this was opened has ended: the state may have another owner."""
        return self.partition.leader_epoch != self._leader_epoch

    def close(self, code: int = UNKNOWN_TOPIC_OR_PARTITION) -> None:
        """Discard the share partition: later results are ignored, changes that are not written yet fail with `code`."""
        self.turn += 1
        self.state = None
        self._give_up(code)

    def _give_up(self, code: int) -> None:
        """Fail all changes that are not written yet."""
        waiting, self._queue = self._queue, []
        self.rings_at = NEVER
        for _, answer in waiting:
            if answer is not None:
                answer(AcknowledgementResult(code, error(code).message))


def _mark_aborted(
    log: "Log", region: Region, offset: int, headers: "list[BatchHeader]", batches: list[LogBatch]
) -> list[LogBatch]:
    """Return `batches` with those of aborted transactions marked. Raises StorageError."""
    aborted = reading.aborted_in(log, region, offset)
    if not aborted:
        return batches
    return [
        batch._replace(
            is_aborted=header.is_transactional
            and not header.is_control
            and any(
                transaction.producer_id == header.producer_id
                and transaction.first_offset <= batch.first <= transaction.last_offset
                for transaction in aborted
            )
        )
        for header, batch in zip(headers, batches, strict=True)
    ]
