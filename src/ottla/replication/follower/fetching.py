"""Follower of the partitions that one broker leads: decides what to fetch, and what each response means for a log.

A pure machine, without clock, disk, socket or loop. Its user carries out effects, and reports their results:

    follow -> busy --resume--> ready --row of a response--> busy (an effect runs) --resume--> ready ...
                                  |                           |
                                  +--- error: paused, or stopped until the leader epoch is newer

A ready partition is in the leader's fetch session (KIP-227), with the values last named to the leader. A request names only
partitions that are new or have other values, and forgets those that left, so its cost depends on what changed. All others
are forgotten before the next request: the leader would return the same records again.

Truncation is safe for two reasons. A row of a response counts only if the partition's fetch offset and leader epoch are still
those of the request. And only a leader says where logs diverge, by the epoch of the last fetched record (KIP-595); the high
watermark of a follower lags, and does not decide.

Throttled partitions (KIP-73) are held back like after an error while more than their rate is used, unless they are in sync.
Never while a request carries them: its response counts, otherwise a leader whose responses come late would be starved.

While a request waits at the leader, partitions that become ready are fetched by a second request outside of the session
(`request_aside`), on another connection, because the leader serves one request of a connection at a time. They join the
session with its next request.
"""

import heapq
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, NamedTuple

from ottla.protocol.errors import (
    FENCED_LEADER_EPOCH,
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
    NONE,
    OFFSET_OUT_OF_RANGE,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from ottla.replication.follower.followed import (
    BUSY,
    EARLIEST,
    LATEST,
    PAUSED,
    READY,
    REFUSED,
    STOPPED,
    Append,
    Asked,
    Begin,
    Diverge,
    Effect,
    FollowedPartition,
    Key,
    LookUp,
    Position,
    Restart,
    Truncate,
)
from ottla.replication.throttle import ReplicationThrottle

_LEAST_BACKOFF_MS: Final = 20
_HOLD_MS: Final = 20
"""Time for which a request waits for flushes after a response, so that their partitions need not leave the session."""
_BRIEF_WAIT_MS: Final = 20
"""Wait at the leader of a request that another one follows soon: one outside of the session, as the session's next request
waits for its end, and one of the session while effects run, as their partitions are fetched aside, one request at a time, until
it ends.
"""
_LATE_MS: Final = 100
"""Time after the wait of a request outside of the session for which the session's next request waits for the response."""
_NAMED_AT_ONCE: Final = 1000
"""Number of partitions that a request names at most, so that encoding and serving it take a few milliseconds."""
_NO_SESSION: Final = 0
_FULL: Final = 0
_SESSIONLESS: Final = -1
_MAX_EPOCH: Final = 0x7FFFFFFF
_SESSION_CODES: Final = frozenset(
    (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR)
)


class FetchLimits(NamedTuple):
    """Configs of the fetches of a follower.

    min_bytes       replica.fetch.min.bytes
    max_wait_ms     replica.fetch.wait.max.ms
    partition_bytes replica.fetch.max.bytes
    response_bytes  replica.fetch.response.max.bytes
    backoff_ms      replica.fetch.backoff.ms
    """

    min_bytes: int = 1
    max_wait_ms: int = 500
    partition_bytes: int = 1 << 20
    response_bytes: int = 10 << 20
    backoff_ms: int = 1000


class Fetching:
    """Fetches from one broker. Time is an argument, in ms.

    node_id       replica id
    broker_epoch  broker epoch of this broker
    throttle      throttle of the partitions that this broker follows
    """

    def __init__(
        self, node_id: int, broker_epoch: int, limits: FetchLimits, throttle: ReplicationThrottle | None = None
    ) -> None:
        self._throttle = throttle
        self._replica = ReplicaState(replica_id=node_id, replica_epoch=broker_epoch)
        self._limits = limits
        self._partitions: dict[Key, FollowedPartition] = {}
        self._ready: dict[FollowedPartition, None] = {}
        """Ready partitions; those that had something new last are at the end, so that full responses starve none."""
        self._news: dict[FollowedPartition, None] = {}
        """Ready partitions that the session does not have, or has with other values."""
        self._leaving: dict[Key, None] = {}
        """Partitions of the session that are not ready, or not followed."""
        self._busy: dict[FollowedPartition, None] = {}
        self._pauses: list[tuple[int, int, FollowedPartition]] = []
        self._pause_count = 0
        self._session_id = _NO_SESSION
        self._session_epoch = _FULL
        self._is_refused = False
        """True if the leader had no room for a session."""
        self._sent: FetchRequest | None = None
        self._aside: FetchRequest | None = None
        self._members_aside: list[FollowedPartition] = []
        self._aside_failed = False
        self._aside_until_ms = 0
        self._failures = 0
        self._not_before_ms = 0
        self._hold_until_ms = 0

    # -- partitions --

    def __len__(self) -> int:
        return len(self._partitions)

    def find(self, topic_id: bytes, index: int) -> FollowedPartition | None:
        """Return a partition that is followed, None for another one."""
        return self._partitions.get((topic_id, index))

    def follow(self, topic: str, topic_id: bytes, index: int, leader_epoch: int) -> Begin | None:
        """Follow a partition in a leader epoch. Return None if it is followed in this epoch already, or in a newer one."""
        partition = self._partitions.get((topic_id, index))
        if partition is None:
            partition = FollowedPartition(topic, topic_id, index, leader_epoch)
            self._partitions[topic_id, index] = partition
        elif partition.leader_epoch >= leader_epoch:
            return None
        else:
            partition.leader_epoch = leader_epoch
            self._leave(partition)
        partition._failures = 0
        partition._has_lost_offset = False
        self._suspend(partition, BUSY)
        return Begin(partition, leader_epoch)

    def unfollow(self, topic_id: bytes, index: int) -> None:
        """Stop following a partition; rows and effects of it are void from now on. No effect for one that is not followed."""
        partition = self._partitions.pop((topic_id, index), None)
        if partition is not None:
            self._suspend(partition, STOPPED)

    def is_current(self, effect: Effect) -> bool:
        """Return True if an effect, or its result, is still valid."""
        partition = effect.partition
        return effect.epoch == partition.leader_epoch and self._partitions.get(partition.key) is partition

    def resume(self, partition: FollowedPartition, position: Position) -> None:
        """Make a busy partition ready, with the position that its effect led to: the next request fetches from there.

        The leader takes the fetch offset for an acknowledgement. Where flush.messages demands a flush, it comes first.
        """
        if partition._phase != BUSY:
            return
        partition.position = position
        partition._failures = 0
        self._make_ready(partition)

    def pause(self, partition: FollowedPartition, now_ms: int, position: Position | None = None) -> None:
        """Fetch a partition again after a back-off, which doubles with each failure until `resume`. Its effect has failed."""
        if self._partitions.get(partition.key) is partition:
            if position is not None:
                partition.position = position
            self._leave(partition)
            self._pause(partition, now_ms)

    def _leave(self, partition: FollowedPartition) -> None:
        """Have the leader forget a partition before it is named again. A row of it may be lost, and would not be repeated."""
        if partition._named is not None:
            self._leaving[partition.key] = None
            partition._named = None

    def _pause(self, partition: FollowedPartition, now_ms: int) -> None:
        if partition._named is not None:
            partition._named = REFUSED
        wait = _backoff_ms(partition._failures, self._limits.backoff_ms)
        partition._failures += 1
        self._wait_until(partition, now_ms + wait)

    def _wait_until(self, partition: FollowedPartition, due_ms: int) -> None:
        self._suspend(partition, PAUSED)
        partition._due_ms = due_ms
        self._pause_count += 1  # equal times must not compare partitions
        heapq.heappush(self._pauses, (partition._due_ms, self._pause_count, partition))

    def _suspend(self, partition: FollowedPartition, phase: int) -> None:
        """Take a partition out of the requests."""
        partition._phase = phase
        self._ready.pop(partition, None)
        self._news.pop(partition, None)
        if partition._named is not None:
            self._leaving[partition.key] = None
        if phase == BUSY:
            self._busy[partition] = None
        else:
            self._busy.pop(partition, None)

    def _hold_throttled(self, candidates: Iterable[FollowedPartition], now_ms: int) -> None:
        """Take the throttled ones of some ready partitions out of the requests, while more than their rate is used, unless they
        are in sync. No running request may carry the candidates.
        """
        throttle = self._throttle
        wait_ms = 0 if throttle is None else throttle.wait_ms(now_ms)
        if throttle is None or not wait_ms:
            return
        held = [
            partition
            for partition in candidates
            if not partition.is_in_sync and throttle.names(partition.topic, partition.index)
        ]
        for partition in held:
            self._wait_until(partition, now_ms + wait_ms)

    def _make_ready(self, partition: FollowedPartition) -> None:
        partition._phase = READY
        self._busy.pop(partition, None)
        self._ready[partition] = None
        if partition._named is not None:
            self._leaving.pop(partition.key, None)
        if partition._named != partition._asked():
            self._news[partition] = None

    def leader_restarted(self) -> None:
        """Begin a new session at once, with all partitions that wait for the end of a back-off: the leader has registered
        again. A request in flight counts no more.
        """
        self._sent = None
        self._clear_aside()
        self._forget_session()
        self._session_id = _NO_SESSION
        self._failures = self._not_before_ms = self._hold_until_ms = 0
        waiting = sorted(self._pauses)
        self._pauses.clear()
        for due_ms, _, partition in waiting:
            partition._failures = 0
            self._end_pause(partition, due_ms)

    # -- requests --

    def request(self, now_ms: int) -> FetchRequest | None:
        """Return the next request of the session; None if none is due, or one is running."""
        self._end_pauses(now_ms)
        if self._sent is not None or not self._ready or now_ms < self._starts_ms():
            return None
        self._clear_aside()
        self._hold_throttled(self._ready, now_ms)
        if not self._ready:
            return None
        limits = self._limits
        count = len(self._news) if self._is_refused else _NAMED_AT_ONCE
        # A partition cannot be named and forgotten at once: it is named by the next request, which follows without a wait.
        named = [partition for partition in islice(self._news, count) if partition.key not in self._leaving]
        for partition in named:
            partition._named = partition._asked()
            del self._news[partition]
        self._sent = request = FetchRequest(
            replica_state=self._replica,
            max_wait_ms=self._wait_ms(),
            min_bytes=limits.min_bytes,
            max_bytes=limits.response_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=self._topics(named),
            forgotten_topics_data=_forgotten(self._leaving),
        )
        for key in self._leaving:
            left = self._partitions.get(key)
            if left is not None:
                left._named = None
        self._leaving.clear()
        return request

    def _wait_ms(self) -> int:
        """Return for how long the leader may keep the session's next request without records, in ms."""
        most_ms = self._limits.max_wait_ms
        if self._news:
            return 0
        return min(_BRIEF_WAIT_MS, most_ms) if self._busy else most_ms

    def request_aside(self, now_ms: int) -> FetchRequest | None:
        """Return a request outside of the session for partitions that became ready while its request runs; None without
        any.
        """
        self._end_pauses(now_ms)
        if self._sent is None or self._aside is not None or self._aside_failed or not self._news:
            return None
        self._hold_throttled(self._news, now_ms)
        if not self._news:
            return None
        self._members_aside = members = list(islice(self._news, _NAMED_AT_ONCE))
        for partition in members:
            partition._aside = partition._asked()
        limits = self._limits
        self._aside_until_ms = now_ms + _BRIEF_WAIT_MS + _LATE_MS
        self._aside = request = FetchRequest(
            replica_state=self._replica,
            max_wait_ms=min(_BRIEF_WAIT_MS, limits.max_wait_ms),
            min_bytes=limits.min_bytes,
            max_bytes=limits.response_bytes,
            session_id=_NO_SESSION,
            session_epoch=_SESSIONLESS,
            topics=self._topics(members),
            forgotten_topics_data=[],
        )
        return request

    def _topics(self, partitions: Iterable[FollowedPartition]) -> list[FetchTopic]:
        topics: dict[bytes, FetchTopic] = {}
        max_bytes = self._limits.partition_bytes
        for partition in partitions:
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = topics[partition.topic_id] = FetchTopic(topic_id=partition.topic_id, partitions=[])
            position = partition.position
            topic.partitions.append(
                FetchPartition(
                    partition=partition.index,
                    current_leader_epoch=partition.leader_epoch,
                    fetch_offset=position.offset,
                    last_fetched_epoch=position.epoch,
                    log_start_offset=position.start_offset,
                    partition_max_bytes=max_bytes,
                )
            )
        return list(topics.values())

    def due_ms(self) -> int | None:
        """Return the time at which `request` may return one that it does not return now; None if only an event changes it."""
        while self._pauses and not _is_paused(self._pauses[0][2], self._pauses[0][0]):
            heapq.heappop(self._pauses)
        due = self._pauses[0][0] if self._pauses else None
        if self._sent is None and self._ready:
            due = self._starts_ms() if due is None else min(due, self._starts_ms())
        return due

    def _starts_ms(self) -> int:
        """Return the time from which the session may have its next request."""
        start = self._not_before_ms
        if self._busy:
            start = max(start, self._hold_until_ms)
        if self._aside is not None:
            start = max(start, self._aside_until_ms)
        return start

    def _end_pauses(self, now_ms: int) -> None:
        while self._pauses and self._pauses[0][0] <= now_ms:
            due_ms, _, partition = heapq.heappop(self._pauses)
            self._end_pause(partition, due_ms)

    def _end_pause(self, partition: FollowedPartition, due_ms: int) -> None:
        if _is_paused(partition, due_ms):
            self._make_ready(partition)

    # -- responses --

    def on_failure(self, request: FetchRequest, now_ms: int) -> None:
        """Handle a request without response: after a back-off a new session begins."""
        if request is self._aside:
            self._clear_aside()
            self._aside_failed = True
        elif request is self._sent:
            self._sent = None
            self._aside_failed = False
            self._forget_session()
            self._back_off(now_ms)
        else:
            self._name_again(request)

    def on_response(self, request: FetchRequest, response: Any, now_ms: int) -> list[Effect]:
        """Handle the response to `request`, and return the effects to carry out, in order.

        response  FetchResponse, with records or their positions
        """
        effects: list[Effect] = []
        if request is self._aside:
            asked = {partition.key: partition._aside for partition in self._members_aside}
            self._clear_aside()
            self._aside_failed = response.error_code != NONE
            self._judge_all(response, asked, now_ms, effects)
        elif request is self._sent:
            self._sent = None
            self._aside_failed = False
            if response.error_code != NONE:
                self._session_failed(response.error_code, now_ms)
                return effects
            self._failures = 0
            self._hold_until_ms = now_ms + _HOLD_MS
            self._judge_all(response, None, now_ms, effects)
            self._continue_session(response.session_id)
        else:  # void by now, but its bytes were sent
            self._count_all(response, now_ms)
            self._name_again(request)
        return effects

    def _name_again(self, request: FetchRequest) -> None:
        """Name the partitions of a void request again: if it reached the leader after a later request of the session, the
        leader takes its older positions for those of this follower, and a session does not repeat a position.
        """
        for topic in request.topics:
            for row in topic.partitions:
                partition = self._partitions.get((topic.topic_id, row.partition))
                if partition is not None and partition._named is not None:
                    partition._named = REFUSED
                    if partition._phase == READY:
                        self._news[partition] = None

    def _judge_all(
        self, response: Any, aside: dict[Key, Asked | None] | None, now_ms: int, effects: list[Effect]
    ) -> None:
        for topic in response.responses:
            for row in topic.partitions:
                partition = self._partitions.get((topic.topic_id, row.partition_index))
                if partition is None:
                    continue
                asked = partition._named if aside is None else aside.get(partition.key)
                # A partition that is not ready was in the response already, or has left since the request.
                if partition._phase == READY and self._counts(partition, asked):
                    effect = self._judge(partition, row, now_ms)
                    if effect is not None:
                        effects.append(effect)
                else:
                    self._count(partition, row.records, now_ms)

    @staticmethod
    def _counts(partition: FollowedPartition, asked: Asked | None) -> bool:
        """Return True if offset and epoch are still those of the request."""
        return asked == partition._asked()

    def _judge(self, partition: FollowedPartition, row: Any, now_ms: int) -> Effect | None:
        """Return the effect of one row."""
        code, epoch = row.error_code, partition.leader_epoch
        if code == NONE:
            partition._has_lost_offset = False
            self._suspend(partition, BUSY)
            diverging = row.diverging_epoch
            if diverging.epoch >= 0:
                return Diverge(partition, epoch, diverging.epoch, diverging.end_offset)
            self._count(partition, row.records, now_ms)
            return Append(partition, epoch, row.records, row.high_watermark, row.log_start_offset)
        if code == OFFSET_OUT_OF_RANGE:
            self._suspend(partition, BUSY)
            return LookUp(partition, epoch, LATEST)
        if code == FENCED_LEADER_EPOCH:
            self._suspend(partition, STOPPED)
        else:
            self._pause(partition, now_ms)
        return None

    def _count_all(self, response: Any, now_ms: int) -> None:
        for topic in response.responses:
            for row in topic.partitions:
                partition = self._partitions.get((topic.topic_id, row.partition_index))
                if partition is not None:
                    self._count(partition, row.records, now_ms)

    def _count(self, partition: FollowedPartition, records: Any, now_ms: int) -> None:
        """Count the records of a row for the throttle."""
        throttle = self._throttle
        if records and throttle is not None and throttle.names(partition.topic, partition.index):
            size = records[1] - records[0] if isinstance(records, tuple) else len(records)
            throttle.record(size, now_ms)

    def on_looked_up(self, effect: LookUp, offset: int | None, now_ms: int) -> Effect | None:
        """Handle the leader's offset, None for an error, and return the next effect. Only for a current effect."""
        partition, epoch = effect.partition, effect.epoch
        own_end = partition.position.offset
        if offset is None:
            self._pause(partition, now_ms)
        elif effect.timestamp == LATEST:
            if offset < own_end:
                return Truncate(partition, epoch, offset)
            return LookUp(partition, epoch, EARLIEST)
        elif own_end < offset or partition._has_lost_offset:
            # For the second time the leader has the offset and refuses it: it knows no epoch as old as the last one here. All
            # that it still has was written later.
            partition._has_lost_offset = False
            return Restart(partition, epoch, offset)
        else:
            partition._has_lost_offset = True
            self._pause(partition, now_ms)
        return None

    # -- session --

    def _continue_session(self, session_id: int) -> None:
        if session_id == _NO_SESSION:
            self._is_refused = self._session_epoch == _FULL
            self._forget_session()
            self._session_id = _NO_SESSION
            return
        self._is_refused = False
        self._session_id = session_id
        self._session_epoch = 1 if self._session_epoch == _MAX_EPOCH else self._session_epoch + 1

    def _forget_session(self) -> None:
        """Begin a new session with the next request, instead of the old one if its id is known."""
        self._session_epoch = _FULL
        for partition in self._partitions.values():
            partition._named = None
        self._leaving.clear()
        self._news = dict(self._ready)

    def _session_failed(self, code: int, now_ms: int) -> None:
        """Handle the error of a whole response: a lost session begins again at once, unless that has failed before."""
        is_first = code in _SESSION_CODES and not self._failures
        self._forget_session()
        if code == FETCH_SESSION_ID_NOT_FOUND:
            self._session_id = _NO_SESSION
        if is_first:
            self._failures = 1
        else:
            self._back_off(now_ms)

    def _back_off(self, now_ms: int) -> None:
        self._not_before_ms = now_ms + _backoff_ms(self._failures, self._limits.backoff_ms)
        self._failures += 1

    def _clear_aside(self) -> None:
        for partition in self._members_aside:
            partition._aside = None
        self._members_aside = []
        self._aside = None


def _backoff_ms(failures: int, most_ms: int) -> int:
    """Return the back-off after a number of earlier failures."""
    return min(_LEAST_BACKOFF_MS << min(failures, 16), most_ms)


def _is_paused(partition: FollowedPartition, due_ms: int) -> bool:
    """Return True if a partition still waits for this end of a back-off."""
    return partition._phase == PAUSED and partition._due_ms == due_ms


def _forgotten(keys: Iterable[Key]) -> list[ForgottenTopic]:
    topics: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in keys:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ForgottenTopic(topic_id=topic_id, partitions=[])
        topic.partitions.append(index)
    return list(topics.values())
