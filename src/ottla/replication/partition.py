"""Replica of a partition on this broker: its log, leader and epoch, and the requests that wait for it.

With one replica, this broker, a batch is committed when it is appended, or when it is flushed to disk where flush.messages
demands it. With several, `Leadership` says what is committed, from the fetches of the followers.

Waiting callbacks. They run in the scheduler's queue, never inside an append, a fetch or a change of the leader:

    watchers        called when the high watermark has moved or the leader has changed, until they remove themselves: fetches
    end_watchers    the same for the log end: fetches of followers
    when_committed  called once, for one offset in one leader epoch: produce, transaction markers, dead letters. A batch that
                    was appended in an epoch may be truncated when the epoch ends, and another batch may then have its
                    offsets: so the end of the epoch fails every waiter, whatever the high watermark does later (KIP-101)
    when            called once, when a condition on flushes or positions of followers holds: produce with acks=1, DeleteRecords
"""

import logging
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

from ottla.environment import Cancellable
from ottla.log.log import AppendResult, Log
from ottla.metadata.image import PartitionImage
from ottla.protocol.errors import NONE, NOT_LEADER_OR_FOLLOWER
from ottla.replication.leader.leadership import Leadership
from ottla.tasks.queue import CallbackQueue

_logger = logging.getLogger("ottla.replication")


class Watchers(dict[Callable[[], None], None]):
    """Set of callbacks in the order of their registration, so that simulated runs are deterministic.

    tasks  the queue that they run in. One that was removed meanwhile may still be called
    marks  called at once, inside of the append or fetch: they note that something has changed, and complete nothing. A fetch
           session would otherwise miss an append of the same event
    """

    def __init__(self, tasks: CallbackQueue) -> None:
        super().__init__()
        self.tasks = tasks
        self.marks: dict[Callable[[], None], None] = {}
        self._is_woken = False

    def wake(self) -> None:
        """Call all watchers after the current event, each once however often they are woken until then."""
        for mark in self.marks:
            mark()
        if self and not self._is_woken:
            self._is_woken = True
            self.tasks.call(self._call)

    def _call(self) -> None:
        self._is_woken = False
        for watcher in self:
            self.tasks.call(watcher)

    def add(self, watcher: Callable[[], None]) -> None:
        """Add a callback, unless it is registered."""
        self[watcher] = None

    def discard(self, watcher: Callable[[], None]) -> None:
        """Remove a callback, if it is registered."""
        self.pop(watcher, None)


class _Wait:
    """Callback to run once, with an error code, unless it is cancelled before.

    waits  those of its kind that are registered
    """

    __slots__ = ("_callback", "_waits")

    def __init__(self, waits: "dict[Any, None]", callback: Callable[[int], None]) -> None:
        self._waits = waits
        self._callback: Callable[[int], None] | None = callback

    def decide(self, error_code: int) -> None:
        """Call back, unless the wait was cancelled."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(error_code)

    def cancel(self) -> None:
        """Remove the callback; nothing if it was called."""
        self._callback = None
        self._waits.pop(self, None)


class _Waiter(_Wait):
    """Callback to run when the high watermark has reached `offset` (exclusive)."""

    __slots__ = ("offset",)

    def __init__(self, waits: "dict[_Waiter, None]", offset: int, callback: Callable[[int], None]) -> None:
        super().__init__(waits, callback)
        self.offset = offset


class _Condition(_Wait):
    """Callback to run when `holds()` is true."""

    __slots__ = ("holds",)

    def __init__(
        self, waits: "dict[_Condition, None]", holds: Callable[[], bool], callback: Callable[[int], None]
    ) -> None:
        super().__init__(waits, callback)
        self.holds = holds


def _no_change(partition: "Partition") -> None:
    """Ignore a change of the ISR: a partition outside of a cluster has one replica."""


class Partition:
    """Replica of a partition on this broker.

    watchers      called whenever the high watermark has moved or the leader has changed; each removes itself
    end_watchers  called whenever the log end has moved, or the leader has changed
    flush         called when the log demands a flush; after it the callee calls `advance`
    reported      damage that was logged last, so that each is logged once
    damaged_at    offset in a segment that could not be read; -1 without damage. A follower cuts the log there, and fetches the
                  rest again, see `may_cut_damage`
    damaged_in    leader epoch in which that was reported: until its end the leader may know the position before the cut
    sound_at      offset that could not be read, although no batch of its segment is damaged; -1 for none
    isr_changed   called on the leader when its ISR should change: the callee writes `Leadership.proposal`
    leadership    positions of the followers, and the ISR; None for a partition with one replica, and where another broker leads
    """

    __slots__ = (
        "_conditions",
        "_leads",
        "_settled",
        "_tasks",
        "_waiters",
        "damaged_at",
        "damaged_in",
        "end_watchers",
        "flush",
        "index",
        "isr_changed",
        "leader_epoch",
        "leader_id",
        "leadership",
        "log",
        "reported",
        "sound_at",
        "topic",
        "topic_id",
        "watchers",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: Log,
        leader_id: int,
        leader_epoch: int,
        flush: Callable[["Partition"], None],
        tasks: CallbackQueue,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self._tasks = tasks
        self.watchers = Watchers(tasks)
        self.end_watchers = Watchers(tasks)
        self.flush = flush
        self.isr_changed: Callable[[Partition], None] = _no_change
        self.leadership: Leadership | None = None
        self.damaged_at = self.damaged_in = self.sound_at = -1
        self.reported = ""
        self._leads = False
        self._settled: Callable[[], None] | None = None
        """On a follower: called once, when the log awaits no flush."""
        self._waiters: dict[_Waiter, None] = {}
        """In the order of their offsets."""
        self._conditions: dict[_Condition, None] = {}

    def follow(self, leader_id: int, leader_epoch: int) -> None:
        """Take over leader and epoch from the metadata. Waiters of another epoch fail with NOT_LEADER_OR_FOLLOWER."""
        if (leader_id, leader_epoch) == (self.leader_id, self.leader_epoch):
            return
        self.leader_id, self.leader_epoch = leader_id, leader_epoch
        self._leads, self.leadership, self._settled = False, None, None
        self.fail(NOT_LEADER_OR_FOLLOWER)

    def lead(self, leadership: Leadership | None = None) -> None:
        """Become or stay leader in the current epoch, which begins at the log end (KIP-101).

        leadership  state of the followers; None without any: then the whole log is committed
        """
        # In this order: followers and consumers that learn of the new epoch must find where it begins.
        self.log.epochs.begin(self.leader_epoch, self.log.end_offset)
        self._leads, self.leadership = True, leadership
        self.advance()
        self.propose()

    def record_fetch(self, node_id: int, offset: int, start_offset: int, broker_epoch: int, now_ms: int) -> None:
        """Record that a follower has fetched from `offset` on: it has everything before it."""
        leadership = self.leadership
        if leadership is None:
            return
        if leadership.record_fetch(node_id, offset, start_offset, broker_epoch, self.log.end_offset, now_ms):
            self.advance()
        if leadership.may_grow(node_id, self.log.end_offset, self.log.high_watermark):
            self.isr_changed(self)

    def observe(self, now_ms: int) -> None:
        """Look for followers that lag behind, and for those that need not be waited for any more."""
        leadership = self.leadership
        if leadership is not None:
            leadership.observe(self.log.end_offset, now_ms)
            self.advance()
            if leadership.has_lagging(self.log.end_offset):
                self.isr_changed(self)

    def propose(self) -> None:
        """Request a change of the ISR if one is due."""
        leadership, end = self.leadership, self.log.end_offset
        if leadership is not None and (
            leadership.is_outdated
            or any(leadership.may_grow(node, end, self.log.high_watermark) for node in leadership.followers)
        ):
            self.isr_changed(self)

    def may_cut_damage(self, placed: PartitionImage, node_id: int) -> bool:
        """Return True if this replica, on broker `node_id`, may cut its damaged log in a state of the partition.

        It must not be in the ISR or ELR, from which it might be elected without what it cut; nor may the leader add it for a
        position that it had before. As it does not fetch while it is damaged, no leader of a later epoch knows one.
        """
        return placed.leader_epoch > self.damaged_in and node_id not in placed.isr and node_id not in placed.elr

    @property
    def lacks_replicas(self) -> bool:
        """True while fewer than min.insync.replicas are in sync: a batch with acks=all is refused."""
        return self.leadership is not None and self.leadership.is_under_min_isr

    @property
    def lost_replicas(self) -> bool:
        """True if fewer than min.insync.replicas have what was committed last."""
        return self.leadership is not None and self.leadership.lacks_followers

    def has_acknowledged(self, acks: int, offset: int | None = None) -> bool:
        """Return True if the records below `offset`, by default all, have as many acknowledgements as a producer requires.

        acks  -1: committed; 0 and 1: appended here, and flushed if flush.messages demands it; n: on so many replicas, or on
              all that are in sync if they are fewer
        """
        log, leadership = self.log, self.leadership
        offset = log.end_offset if offset is None else offset
        if acks == -1:
            return log.high_watermark >= offset
        if acks == 0:
            return True
        if log.settled_offset < offset:
            return False
        if acks == 1 or leadership is None:
            return True
        return leadership.count_replicas(offset) >= min(acks, len(leadership.state.isr))

    @property
    def low_watermark(self) -> int:
        """Smallest log start offset of the leader and its live followers."""
        start_offset = self.log.start_offset
        return start_offset if self.leadership is None else self.leadership.low_watermark(start_offset)

    def when_committed(self, leader_epoch: int, offset: int, callback: Callable[[int], None]) -> Cancellable:
        """Call `callback` with an error code once: NONE when all records below `offset` are committed.

        leader_epoch  the epoch in which they were appended; when it has ended, now or later, NOT_LEADER_OR_FOLLOWER
        offset        exclusive: the end of the batch

        The code for a partition that is deleted or whose disk fails is that of `Replicas.absence`. There is no timeout here:
        the caller cancels.
        """
        waiter = _Waiter(self._waiters, offset, callback)
        # The epoch is compared first: after a truncation the high watermark may have passed `offset` with other batches.
        if leader_epoch != self.leader_epoch:
            self._decide(waiter, NOT_LEADER_OR_FOLLOWER)
        elif self.log.high_watermark >= offset:
            self._decide(waiter, NONE)
        else:
            is_last = not self._waiters or next(reversed(self._waiters)).offset <= offset
            self._waiters[waiter] = None
            if not is_last:  # it repeats a batch, and must not wait for those behind it
                in_order = sorted(self._waiters, key=attrgetter("offset"))
                self._waiters.clear()
                self._waiters.update(dict.fromkeys(in_order))
        return waiter

    def _decide(self, wait: _Wait, error_code: int) -> None:
        """Call back after the current event. What a wait has come to is fixed here, whatever happens until then."""
        self._tasks.call(partial(wait.decide, error_code))

    def when(self, leader_epoch: int, holds: Callable[[], bool], callback: Callable[[int], None]) -> Cancellable:
        """Call `callback` with NONE once `holds()` is true, looked at after each append, flush and fetch of a follower; with
        NOT_LEADER_OR_FOLLOWER when the leader epoch has ended.
        """
        condition = _Condition(self._conditions, holds, callback)
        if leader_epoch != self.leader_epoch:
            self._decide(condition, NOT_LEADER_OR_FOLLOWER)
        elif holds():
            self._decide(condition, NONE)
        else:
            self._conditions[condition] = None
        return condition

    def append(
        self, frame: bytes, start: int, end: int, now_ms: int, *, refused_codecs: frozenset[int] = frozenset()
    ) -> AppendResult:
        """Append the batch `frame[start:end]` of a producer; see `AppendResult.unfinished`. Raises StorageError."""
        appended = self.log.append(frame, start, end, self.leader_epoch, now_ms, refused_codecs=refused_codecs)
        if appended.unfinished is None:
            self._grew()
            return appended
        return self._advance_after(appended)

    def _advance_after(self, appended: AppendResult) -> AppendResult:
        """Return `appended`, and move the high watermark: now, or when an append that takes long is complete."""
        unfinished = appended.unfinished
        if unfinished is None:
            self._grew()
        else:
            appended.unfinished = unfinished._replace(append=lambda: self._advance_after(unfinished.append()))
        return appended

    def append_message_set(self, frame: bytes, start: int, end: int, now_ms: int) -> AppendResult:
        """Append the message set `frame[start:end]` of an old producer. Raises StorageError."""
        return self._advance_after(self.log.append_message_set(frame, start, end, self.leader_epoch, now_ms))

    def append_records(
        self,
        records: list[tuple[bytes | None, bytes | None]],
        now_ms: int,
        producer: tuple[int, int] | None = None,
    ) -> AppendResult:
        """Append (key, value) pairs of the broker itself as one batch, of a producer's transaction if one is given as (id,
        epoch). Raises StorageError.
        """
        appended = self.log.append_records(records, self.leader_epoch, now_ms, producer)
        self._grew()
        return appended

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        now_ms: int,
        *,
        commit: bool,
        new_epoch: bool,
    ) -> AppendResult:
        """Append the marker that ends a producer's transaction here. Raises StorageError."""
        appended = self.log.append_marker(
            producer_id,
            producer_epoch,
            coordinator_epoch,
            self.leader_epoch,
            now_ms,
            commit=commit,
            new_epoch=new_epoch,
        )
        self._grew()
        return appended

    def _grew(self) -> None:
        """Act on an append."""
        self.advance()
        self.end_watchers.wake()

    def advance(self) -> None:
        """Move the high watermark as far as allowed, after an append, a flush, or a fetch of a follower.

        Completions are queued: no caller is re-entered.
        """
        log = self.log
        # The flush is requested first: one that runs at once moves the settled offset, and calls this again.
        if log.wants_flush:
            self.flush(self)
        if not self._leads:  # a follower takes the high watermark of its leader
            self._settle()
            return
        committed = log.settled_offset
        if self.leadership is not None:
            committed = self.leadership.committed(committed)
        if log.high_watermark < committed:
            log.high_watermark = committed
            if self._waiters:  # producers first: they have waited longest
                self._answer_committed(committed)
            self.watchers.wake()
        if self._conditions:
            self._answer_conditions()

    def _answer_conditions(self) -> None:
        ready = [condition for condition in self._conditions if condition.holds()]
        for condition in ready:
            del self._conditions[condition]
            self._decide(condition, NONE)

    def _answer_committed(self, high_watermark: int) -> None:
        ready = []
        for waiter in self._waiters:
            if waiter.offset > high_watermark:
                break
            ready.append(waiter)
        for waiter in ready:
            del self._waiters[waiter]
            self._decide(waiter, NONE)

    def log_damage(self, cause: Exception) -> None:
        """Log why records could not be read, each reason once: readers ask again and again."""
        text = str(cause)
        if text != self.reported:
            self.reported = text
            _logger.error("%s", text)

    def fail(self, error_code: int) -> None:
        """Call all waiters with `error_code`, then the watchers."""
        waits: list[_Wait] = [*self._waiters, *self._conditions]
        for wait in waits:
            self._decide(wait, error_code)
        self._waiters.clear()
        self._conditions.clear()
        self.wake()

    def wake(self) -> None:
        """Call the watchers, and those of the log end."""
        self.watchers.wake()
        self.end_watchers.wake()

    # -- follower --

    def append_fetched(
        self,
        frame: bytes,
        start: int,
        end: int,
        fetch_epoch: int,
        leader_start_offset: int,
        leader_high_watermark: int,
        now_ms: int,
    ) -> int:
        """Append the batches `frame[start:end]` of the leader, then take over its high watermark and log start offset. Return
        the number of bytes taken; see `Log.append_replicated`. Raises CorruptRecords, after the intact batches are appended,
        and StorageError.
        """
        log = self.log
        before = log.high_watermark, log.start_offset
        taken = log.append_replicated(frame, start, end, fetch_epoch, now_ms) if start < end else 0
        # The value of a leader that was elected just now may be behind: what is committed stays so.
        log.high_watermark = max(log.high_watermark, min(leader_high_watermark, log.end_offset))
        log.raise_start(leader_start_offset)
        if (log.high_watermark, log.start_offset) != before:
            self.watchers.wake()
        return taken

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the follower may acknowledge the end of its log: now, or after the flush that flush.messages
        demands. It replaces an earlier callback, and is not called after a change of the leader.
        """
        self._settled = callback
        self.advance()

    def _settle(self) -> None:
        callback = self._settled
        if callback is not None and not self.log.awaits_flush:
            self._settled = None
            self._tasks.call(callback)
