"""Writes transaction markers to all partitions of an ending transaction, until every marker is committed.

A partition of __consumer_offsets gets its marker through the group coordinator, which then applies or discards the offsets.
A deleted partition needs no marker. A partition that cannot be written to now (its log is offline, its coordinator is
loading, another broker leads it), or whose leader epoch ended before the marker was committed, gets its marker in the next
attempt: a duplicate marker does no harm. The transaction is complete when all markers are committed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from ottla.broker.cluster.other_brokers import OtherBrokers
from ottla.broker.coordination import remote_markers
from ottla.broker.coordination.partition_log import PartitionLog
from ottla.broker.coordination.routing import CoordinatorRouting
from ottla.broker.requests.delayed import DelayedCommit, Uncommitted
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
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.replication.replicas import Replicas
from ottla.tasks.deferred import Answer, Deferred, Failed, awaitable
from ottla.tasks.scheduler import Scheduler

_COMMIT_TIMEOUT_MS: Final = 30_000
_RETRY_MS: Final = 100
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
        *,
        replicas: Replicas,
        groups: Runtime[Any],
        clock: Clock,
        tasks: Scheduler,
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

    def append(self, markers: Sequence[tuple[Place, Ending]]) -> Deferred[list[int]]:
        """Append one marker to each topic-partition that this broker leads.

        The result has an error code for each: NONE once its marker is committed.
        """
        codes = [NONE] * len(markers)
        appended = []
        for number, ((topic, index), ending) in enumerate(markers):
            partition = self._replicas.leader(topic, index)
            if isinstance(partition, int):
                codes[number] = partition
                continue
            if topic == OFFSETS_TOPIC:
                codes[number] = self._groups.end_transaction(index, ending)
            else:
                codes[number] = PartitionLog(partition, self._clock).append_marker(ending).error_code
            if codes[number] == NONE:
                appended.append(Uncommitted.last_of(partition, partial(codes.__setitem__, number)))
        committed: Deferred[list[int]] = Deferred(self._tasks)
        DelayedCommit(lambda: committed.complete(codes)).begin(appended, self._tasks, _COMMIT_TIMEOUT_MS)
        return committed

    async def _append_everywhere(self, places: Sequence[Place], ending: Ending) -> dict[Place, int]:
        """Append a marker to each topic-partition, at its leader; return their error codes.

        Only the metadata of this broker shows that a partition does not exist: another broker may know an older state.
        """
        codes: dict[Place, int] = {}
        local: list[Place] = []
        remote: dict[int, list[Place]] = {}
        for place in places:
            if not self._routing.exists(*place):
                codes[place] = UNKNOWN_TOPIC_OR_PARTITION
            elif self._routing.is_remote(leader := self._routing.leader(*place)):
                remote.setdefault(leader, []).append(place)
            else:
                local.append(place)
        # All are under way before the first one is awaited.
        sent = [
            (theirs, remote_markers.send(self._peers, node_id, ending, theirs)) for node_id, theirs in remote.items()
        ]
        appended = self.append([(place, ending) for place in local])
        codes.update(zip(local, await appended, strict=True))
        for theirs, response in sent:
            codes |= remote_markers.codes_of(theirs, await awaitable(response, self._tasks))
        return codes

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
        self._tasks.background(self._write(markers, coordinator_epoch, is_current, complete), "transaction markers")

    async def _write(
        self,
        markers: Markers,
        coordinator_epoch: int,
        is_current: Callable[[], bool],
        complete: Callable[[], Answer[int]],
    ) -> None:
        """Write markers. When this ends early, the next start, or the next coordinator, writes them again."""
        ending = Ending(
            markers.producer_id, markers.epoch, coordinator_epoch, commit=markers.commit, new_epoch=markers.new_epoch
        )
        left = sorted(markers.partitions)
        while left:
            if self._closed or not is_current():
                return
            codes = await self._append_everywhere(left, ending)
            left = [place for place in left if codes[place] in _RETRIED]
            if left:
                await self._tasks.sleep(_RETRY_MS)
        while not self._closed and is_current():
            try:
                if await awaitable(complete(), self._tasks) in (NONE, INVALID_TXN_STATE):
                    return
            except Failed:  # the cause is logged
                pass
            await self._tasks.sleep(_RETRY_MS)  # the log rejects the record for now

    def close(self) -> None:
        """Stop the attempts; the next start writes the missing markers."""
        self._closed = True
