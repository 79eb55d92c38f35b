"""Replica of a partition on this broker: its log, leader and epoch, and the requests that wait for it.

With one in-sync replica, this broker, a batch is committed when it is appended, or when it is flushed to disk where
flush.messages demands it.

Two kinds of waiting callbacks:

    watchers        called when the high watermark has moved or the leader has changed, until they remove themselves: fetches
    when_committed  called once, for one offset in one leader epoch: produce, transaction markers, dead letters. A batch that
                    was appended in an epoch may be truncated when the epoch ends, and another batch may then have its
                    offsets: so the end of the epoch fails every waiter, whatever the high watermark does later (KIP-101)
"""

from collections.abc import Callable

from ottla.environment import Cancellable
from ottla.log.log import AppendResult, Log
from ottla.protocol.errors import NONE, NOT_LEADER_OR_FOLLOWER


class Watchers(dict[Callable[[], None], None]):
    """Set of callbacks in the order of their registration, so that simulated runs are deterministic."""

    def add(self, watcher: Callable[[], None]) -> None:
        """Add a callback, unless it is registered."""
        self[watcher] = None

    def discard(self, watcher: Callable[[], None]) -> None:
        """Remove a callback, if it is registered."""
        self.pop(watcher, None)


class _Waiter:
    """Callback to run when the high watermark has reached `offset` (exclusive)."""

    __slots__ = ("callback", "offset", "partition")

    def __init__(self, partition: "Partition", offset: int, callback: Callable[[int], None]) -> None:
        self.partition = partition
        self.offset = offset
        self.callback = callback

    def cancel(self) -> None:
        """Remove the callback; nothing if it was called."""
        self.partition.forget(self)


class Partition:
    """Replica of a partition on this broker.

    watchers  called whenever the high watermark has moved or the leader has changed; each removes itself
    flush     called when the log demands a flush; after it the callee calls `advance`
    """

    __slots__ = ("_waiters", "flush", "index", "leader_epoch", "leader_id", "log", "topic", "topic_id", "watchers")

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: Log,
        leader_id: int,
        leader_epoch: int,
        flush: Callable[["Partition"], None],
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.watchers = Watchers()
        self.flush = flush
        self._waiters: dict[_Waiter, None] = {}
        """In the order of their offsets, which are log end offsets at the time of registration."""

    def follow(self, leader_id: int, leader_epoch: int) -> None:
        """Take over leader and epoch from the metadata. Waiters of another epoch fail with NOT_LEADER_OR_FOLLOWER."""
        if (leader_id, leader_epoch) == (self.leader_id, self.leader_epoch):
            return
        # Before the waiters are called: a callback that registers again must see the new epoch.
        self.leader_id, self.leader_epoch = leader_id, leader_epoch
        self.fail(NOT_LEADER_OR_FOLLOWER)

    def lead(self) -> None:
        """Become or stay leader in the current epoch, which begins at the log end (KIP-101).

        With no other replica in sync, the whole log is committed.
        """
        # In this order: followers and consumers that learn of the new epoch must find where it begins.
        self.log.epochs.begin(self.leader_epoch, self.log.end_offset)
        self.advance()

    def when_committed(self, leader_epoch: int, offset: int, callback: Callable[[int], None]) -> Cancellable:
        """Call `callback` with an error code once: NONE when all records below `offset` are committed.

        leader_epoch  the epoch in which they were appended; when it has ended, now or later, NOT_LEADER_OR_FOLLOWER
        offset        exclusive: the end of the log after the append

        The code for a partition that is deleted or whose disk fails is that of `Replicas.absence`. The callback may be called
        before this returns. There is no timeout here: the caller cancels.
        """
        waiter = _Waiter(self, offset, callback)
        # The epoch is compared first: after a truncation the high watermark may have passed `offset` with other batches.
        if leader_epoch != self.leader_epoch:
            callback(NOT_LEADER_OR_FOLLOWER)
        elif self.log.high_watermark >= offset:
            callback(NONE)
        else:
            self._waiters[waiter] = None
        return waiter

    def forget(self, waiter: _Waiter) -> None:
        """Remove a waiter that was cancelled."""
        self._waiters.pop(waiter, None)

    def append(
        self,
        frame: bytes,
        start: int,
        end: int,
        now_ms: int,
        *,
        refused_codecs: frozenset[int] = frozenset(),
        begins_at_zero: bool = False,
    ) -> AppendResult:
        """Append the batch `frame[start:end]` of a producer; see `AppendResult.unfinished`. Raises StorageError."""
        appended = self.log.append(
            frame,
            start,
            end,
            self.leader_epoch,
            now_ms,
            refused_codecs=refused_codecs,
            begins_at_zero=begins_at_zero,
        )
        if appended.unfinished is None:
            self.advance()
            return appended
        return self._advanced(appended)

    def _advanced(self, appended: AppendResult) -> AppendResult:
        """Return `appended`, and move the high watermark: now, or when an append that takes long is complete."""
        unfinished = appended.unfinished
        if unfinished is None:
            self.advance()
        else:
            appended.unfinished = unfinished._replace(append=lambda: self._advanced(unfinished.append()))
        return appended

    def append_message_set(self, frame: bytes, start: int, end: int, now_ms: int) -> AppendResult:
        """Append the message set `frame[start:end]` of an old producer. Raises StorageError."""
        return self._advanced(self.log.append_message_set(frame, start, end, self.leader_epoch, now_ms))

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
        self.advance()
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
        self.advance()
        return appended

    def advance(self) -> None:
        """Move the high watermark as far as allowed, after an append or a flush."""
        log = self.log
        # The flush is requested first: one that runs at once moves the settled offset, and calls this again.
        if log.wants_flush:
            self.flush(self)
        settled = log.settled_offset
        if log.high_watermark != settled:
            # Before anything is called back: callbacks read the high watermark, and may append.
            log.high_watermark = settled
            if self._waiters:
                self._answer_committed(settled)
            if self.watchers:
                self.wake()

    def _answer_committed(self, high_watermark: int) -> None:
        ready = []
        for waiter in self._waiters:
            if waiter.offset > high_watermark:
                break
            ready.append(waiter)
        # All are removed before one is called: a callback may append, and come here again.
        for waiter in ready:
            del self._waiters[waiter]
        for waiter in ready:
            waiter.callback(NONE)

    def fail(self, error_code: int) -> None:
        """Call all waiters for an offset with `error_code`, then the watchers."""
        # Waiters that a callback registers are not failed with the others: in a new epoch they may succeed.
        failed, self._waiters = self._waiters, {}
        for waiter in failed:
            waiter.callback(error_code)
        self.wake()

    def wake(self) -> None:
        """Call the watchers."""
        for watcher in tuple(self.watchers):  # a copy, as most watchers remove themselves
            watcher()
