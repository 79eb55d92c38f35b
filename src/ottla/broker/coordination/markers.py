"""Writes transaction markers to all partitions of an ending transaction, until every marker is committed.

A partition of __consumer_offsets gets its marker through the group coordinator, which then applies or discards the offsets.
A deleted partition needs no marker. A partition that cannot be written to now (its log is offline, its coordinator is
loading, another broker leads it), or whose leader epoch ended before the marker was committed, gets its marker in the next
attempt: a duplicate marker does no harm. The transaction is complete when all markers are committed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from ottla.broker.coordination.partition_log import PartitionLog
from ottla.broker.coordination.remote_markers import write_remotely
from ottla.broker.coordination.routing import CoordinatorRouting
from ottla.broker.delayed import DelayedCommit, Uncommitted
from ottla.broker.other_brokers import OtherBrokers
from ottla.coordinators.log import Ending
from ottla.coordinators.runtime import Runtime
from ottla.coordinators.transactions.state import Markers
from ottla.coordinators.transactions.transaction import TopicPartition as Place
from ottla.environment import Clock
from ottla.metadata.image import OFFSETS_TOPIC
from ottla.protocol.errors import (
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_TXN_STATE,
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.replication.replicas import Replicas
from ottla.tasks.answers import after
from ottla.tasks.deferred import Answer, Deferred
from ottla.tasks.queue import CallbackQueue
from ottla.tasks.retrying import repeat_while

_COMMIT_TIMEOUT_MS: Final = 30_000
_RETRIED: Final = frozenset(
    (
        COORDINATOR_LOAD_IN_PROGRESS,
        KAFKA_STORAGE_ERROR,
        NOT_COORDINATOR,
        NOT_ENOUGH_REPLICAS,
        NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        NOT_LEADER_OR_FOLLOWER,
        REQUEST_TIMED_OUT,
    )
)


class MarkerWriter:
    """Writes markers into the partitions of this broker, and lets other brokers write those of theirs."""

    def __init__(
        self,
        replicas: Replicas,
        groups: Runtime[Any],
        clock: Clock,
        tasks: CallbackQueue,
        routing: CoordinatorRouting,
        peers: OtherBrokers,
    ) -> None:
        self._routing = routing
        self._peers = peers
        self._replicas = replicas
        self._groups = groups
        self._clock = clock
        self._tasks = tasks
        self._closed = False

    def append(self, markers: Sequence[tuple[Place, Ending, Callable[[int], None]]], done: Callable[[], None]) -> None:
        """Append one marker to each topic-partition that this broker leads.

        markers  (place, ending, decided); `decided` is called once with an error code, NONE when the marker is committed
        done     called when all are decided, perhaps before this returns
        """
        appended = []
        for (topic, index), ending, decided in markers:
            partition = self._replicas.leader(topic, index)
            if isinstance(partition, int):
                decided(partition)
                continue
            if topic == OFFSETS_TOPIC:
                code = self._groups.end_transaction(index, ending)
            else:
                code = PartitionLog(partition, self._clock).append_marker(ending).error_code
            if code == NONE:
                appended.append(Uncommitted.last_of(partition, decided))
            else:
                decided(code)
        DelayedCommit(done).begin(appended, self._tasks, _COMMIT_TIMEOUT_MS)

    def _append_everywhere(
        self, places: Sequence[Place], ending: Ending, decided: Callable[[Place, int], None], done: Callable[[], None]
    ) -> None:
        """Append a marker to each topic-partition, at its leader; see `append`.

        Only the metadata of this broker shows that a partition does not exist: another broker may know an older state.
        """
        local: list[Place] = []
        remote: dict[int, list[Place]] = {}
        left = set(places)

        def settle(place: Place, code: int) -> None:
            decided(place, code)
            left.discard(place)
            if not left:
                done()

        unknown = [place for place in places if not self._routing.exists(*place)]
        for place in places:
            if place in unknown:
                continue
            leader = self._routing.leader(*place)
            if self._routing.is_remote(leader):
                remote.setdefault(leader, []).append(place)
            else:
                local.append(place)
        if not places:
            done()
        for node_id, theirs in remote.items():
            write_remotely(self._peers, node_id, ending, theirs, settle)
        self.append([(place, ending, partial(settle, place)) for place in local], lambda: None)
        for place in unknown:
            settle(place, UNKNOWN_TOPIC_OR_PARTITION)

    def write(
        self,
        markers: Markers,
        coordinator_epoch: int,
        is_current: Callable[[], bool],
        complete: Callable[[], Answer[int]],
    ) -> None:
        """Write the markers of a transaction until all are committed, then call `complete` until it succeeds.

        is_current  returns False when this broker does not coordinate the transaction in this epoch any more: the coordinator
                    of the next epoch writes the markers again
        complete    answers an error code
        """
        ending = Ending(
            markers.producer_id, markers.epoch, coordinator_epoch, commit=markers.commit, new_epoch=markers.new_epoch
        )
        left = sorted(markers.partitions)

        def attempt() -> Answer[list[Place]]:
            """Write the outstanding markers; the answer lists the partitions that still lack theirs."""
            nonlocal left
            failed: list[Place] = []
            attempted: Deferred[list[Place]] = Deferred(self._tasks)

            def decided(place: Place, code: int) -> None:
                if code in _RETRIED:
                    failed.append(place)

            def done() -> None:
                nonlocal left
                left = failed
                attempted.complete(failed)

            if self._closed or not is_current():
                return failed
            self._append_everywhere(left, ending, decided, done)
            return attempted

        def is_incomplete(code: int) -> bool:
            # The log rejects the record for now.
            return code not in (NONE, INVALID_TXN_STATE) and not self._closed and is_current()

        def written(failed: list[Place]) -> Answer[int]:
            if failed or self._closed or not is_current():
                return NONE  # the next start, or the next coordinator, writes them
            return repeat_while(is_incomplete, partial(_answered, complete), self._tasks)

        is_left: Callable[[list[Place]], bool] = lambda failed: bool(failed) and not self._closed  # noqa: E731
        after(repeat_while(is_left, attempt, self._tasks), written)

    def close(self) -> None:
        """Stop the attempts; the next start writes the missing markers."""
        self._closed = True


def _answered(complete: Callable[[], Answer[int]]) -> Answer[int]:
    """Call `complete`; the answer is UNKNOWN_SERVER_ERROR if that of `complete` is abandoned."""
    answer = complete()
    if not isinstance(answer, Deferred):
        return answer
    whole: Deferred[int] = Deferred(answer.tasks)
    answer.then(whole.complete, lambda: whole.complete(UNKNOWN_SERVER_ERROR))
    return whole
