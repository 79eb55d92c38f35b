"""Delayed requests: a fetch waits for data, a produce for the commit of its batches, up to a timeout.

A waiting fetch costs one object, one timer and one entry in the watchers of each of its partitions, or of its session. An
append triggers another attempt, which answers or continues to wait; nothing polls.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from ottla.environment import Cancellable, Timers
from ottla.protocol.errors import REQUEST_TIMED_OUT
from ottla.replication.partition import Partition, Watchers
from ottla.tasks.deferred import Deferred
from ottla.tasks.queue import CallbackQueue

R = TypeVar("R")


class Expirations:
    """Numbers of waits that ended at their timeout, by operation; Produce and DeleteRecords count once for each partition."""

    __slots__ = ("deletions", "fetches", "follower_fetches", "produces", "share_fetches")

    def __init__(self) -> None:
        self.produces = self.deletions = self.fetches = self.follower_fetches = self.share_fetches = 0

    def produce(self, count: int) -> None:
        """Count batches that were not committed in time."""
        self.produces += count

    def delete_records(self, count: int) -> None:
        """Count deletions that were not complete in time."""
        self.deletions += count

    def fetch(self) -> None:
        """Count a fetch of a consumer."""
        self.fetches += 1

    def follower_fetch(self) -> None:
        """Count a fetch of a follower."""
        self.follower_fetches += 1

    def share_fetch(self) -> None:
        """Count a fetch of a member of a share group."""
        self.share_fetches += 1


class Watched(Protocol):
    """Partition or share partition, for whose next change a request can wait."""

    @property
    def watchers(self) -> Watchers: ...


class DelayedAnswer(Generic[R]):
    """Delayed answer, attempted whenever one of `partitions` grows, and for the last time at the timeout.

    attempt(last)  the response, or None to go on waiting; with last=True it must answer
    expired        called at the timeout
    is_deferred    whether the first attempt is made after what is queued already: what the request itself has completed for
                   others comes first
    """

    __slots__ = (
        "_attempt",
        "_expired",
        "_is_deferred",
        "_is_over",
        "_partitions",
        "_pending",
        "_tasks",
        "_timer",
        "_timers",
        "_wait_ms",
    )

    def __init__(
        self,
        attempt: Callable[[bool], R | None],
        partitions: Iterable[Watched],
        tasks: CallbackQueue,
        expired: Callable[[], None] = lambda: None,
        *,
        is_deferred: bool = False,
    ) -> None:
        self._attempt = attempt
        self._expired = expired
        self._is_deferred = is_deferred
        self._is_over = False
        self._tasks = tasks
        self._timers: Timers = tasks
        self._partitions = list(partitions)
        self._pending: Deferred[R] = Deferred(tasks)
        self._timer: Cancellable | None = None
        self._wait_ms = 0

    def begin(self, timers: Timers, wait_ms: int) -> Deferred[R]:
        """Start the wait, which lasts at most `wait_ms`; the caller has made the first attempt, unless it is deferred."""
        self._timers = timers
        for partition in self._partitions:
            partition.watchers.add(self._look_again)
        self._wait_ms = wait_ms
        if self._is_deferred:
            self._tasks.call(self._look_again)
        else:
            self._timer = timers.call_later(wait_ms, self._time_over)
        self._pending.withdrawn = self._stop
        return self._pending

    def give_up(self, response: R) -> None:
        """End the wait and answer with `response`."""
        self._finish(response)

    def _look_again(self) -> None:
        if self._is_over:  # it was woken before that
            return
        response = self._attempt(False)
        if response is not None:
            self._finish(response)
        elif self._timer is None:
            self._timer = self._timers.call_later(self._wait_ms, self._time_over)

    def _time_over(self) -> None:
        self._expired()
        response = self._attempt(True)
        assert response is not None
        self._finish(response)

    def _finish(self, response: R) -> None:
        self._stop()
        self._pending.complete(response)

    def _stop(self) -> None:
        """Stop the wait, without an answer."""
        self._is_over = True
        self._pending.withdrawn = None
        for partition in self._partitions:
            partition.watchers.discard(self._look_again)
        if self._timer is not None:
            self._timer.cancel()


class Uncommitted(NamedTuple):
    """Appended batch, committed once every offset below `end_offset` is; `leader_epoch` is that of the append.

    decided  called once with an error code: NONE when it is committed; see `Partition.when_committed`
    acks     -1: the wait is for the commit; otherwise for so many replicas, see `Partition.has_acknowledged`
    """

    partition: Partition
    leader_epoch: int
    end_offset: int
    decided: Callable[[int], None]
    acks: int = -1

    @classmethod
    def last_of(cls, partition: Partition, decided: Callable[[int], None]) -> "Uncommitted":
        """Return the batch that was appended to `partition` last."""
        return cls(partition, partition.leader_epoch, partition.log.end_offset, decided)

    def wait(self, callback: Callable[[int], None]) -> Cancellable:
        """Call `callback` with the error code once."""
        if self.acks == -1:
            return self.partition.when_committed(self.leader_epoch, self.end_offset, callback)
        holds = partial(self.partition.has_acknowledged, self.acks, self.end_offset)
        return self.partition.when(self.leader_epoch, holds, callback)


class Deleted(NamedTuple):
    """Deletion of all records below `offset`, done once every live replica has deleted them; see `Uncommitted`."""

    partition: Partition
    leader_epoch: int
    offset: int
    decided: Callable[[int], None]

    def wait(self, callback: Callable[[int], None]) -> Cancellable:
        """Call `callback` with the error code once."""
        return self.partition.when(self.leader_epoch, partial(_is_deleted, self), callback)


def _is_deleted(deleted: Deleted) -> bool:
    return deleted.partition.low_watermark >= deleted.offset


class DelayedCommit:
    """Wait for several batches or deletions; those not decided at the timeout get REQUEST_TIMED_OUT.

    done     called when all are decided; before `begin` returns if the list is empty
    expired  called with the number of those that are not decided at the timeout
    """

    __slots__ = ("_done", "_expired", "_timer", "_waiting")

    def __init__(self, done: Callable[[], None], expired: Callable[[int], None] = lambda count: None) -> None:  # noqa: ARG005
        self._done = done
        self._expired = expired
        self._timer: Cancellable | None = None
        self._waiting: dict[int, tuple[Cancellable, Callable[[int], None]]] = {}

    def begin(self, batches: Sequence[Uncommitted | Deleted], timers: Timers, timeout_ms: int) -> None:
        """Start the wait."""
        self._waiting = {
            number: (batch.wait(partial(self._on_decided, number)), batch.decided)
            for number, batch in enumerate(batches)
        }
        if self._waiting:
            self._timer = timers.call_later(timeout_ms, self._time_over)
        else:
            self._done()

    def _on_decided(self, number: int, error_code: int) -> None:
        _, decided = self._waiting.pop(number)
        decided(error_code)
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._done()

    def _time_over(self) -> None:
        left, self._waiting = self._waiting, {}
        self._expired(len(left))
        for waiter, decided in left.values():
            waiter.cancel()
            decided(REQUEST_TIMED_OUT)
        self._done()
