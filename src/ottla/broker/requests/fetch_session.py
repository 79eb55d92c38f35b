"""Fetch sessions (KIP-227): a client names its partitions once, then only changes; responses hold only changes too.

    id, epoch            meaning
    0, 0                 a new session (epoch 0 with an id: instead of that one)
    any, -1              no session; an id is closed
    id, last epoch + 1   the next fetch of the session

A session keeps its partitions in the order of responses. A partition whose records an incremental fetch returned moves to the
end, so that a full response does not starve the partitions behind it. The cache is bounded
(max.incremental.fetch.session.cache.slots): when it is full and no session has been idle long enough (two minutes), a client
gets no session.
"""

from collections import OrderedDict
from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from ottla.environment import Random
from ottla.protocol.errors import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
    NONE,
)
from ottla.replication.partition import Partition, Watchers
from ottla.tasks.queue import CallbackQueue

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
NO_SESSION: Final = 0
_MAX_EPOCH: Final = 0x7FFFFFFF


class RequestedPartition:
    """Partition of a fetch session: the requested values, and those last returned.

    topic           topic name, "" when the client uses ids
    topic_id        topic id, zero when the client uses names
    current_epoch   leader epoch the client believes in, -1 for any
    last_fetched_epoch  leader epoch of the record before the fetch offset, -1 if it is not checked (KIP-595)
    start_offset    log start offset of a follower, -1 for a consumer
    order           place in the order of its session
    watched         partition whose changes are reported to the session; None without one
    """

    __slots__ = (
        "current_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "last_high_watermark",
        "last_stable_offset",
        "last_start_offset",
        "max_bytes",
        "order",
        "session",
        "start_offset",
        "topic",
        "topic_id",
        "watched",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        current_epoch: int,
        fetch_offset: int,
        max_bytes: int,
        last_fetched_epoch: int = -1,
        start_offset: int = -1,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.current_epoch = current_epoch
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.last_fetched_epoch = last_fetched_epoch
        self.start_offset = start_offset
        self.last_high_watermark = -1
        self.last_stable_offset = -1
        self.last_start_offset = -1
        self.order = 0
        self.session: FetchSession | None = None
        self.watched: Partition | None = None

    @property
    def key(self) -> tuple[str, bytes, int]:
        """Return what the partition is found by in its session."""
        return self.topic, self.topic_id, self.index

    def watch(self, partition: Partition | None) -> None:
        """Watch `partition` instead of the one watched before: its changes are reported to the session. None ends that."""
        if self.watched is partition:
            return
        is_of_follower = self.session is not None and self.session.is_of_follower
        moved = self._on_high_watermark if is_of_follower else self._on_change
        if self.watched is not None:
            self.watched.watchers.marks.pop(moved, None)
            self.watched.end_watchers.marks.pop(self._on_change, None)
        if partition is not None:
            partition.watchers.marks[moved] = None
            if is_of_follower:
                partition.end_watchers.marks[self._on_change] = None
        self.watched = partition

    def _on_change(self) -> None:
        if self.session is not None:
            self.session.mark_due(self)

    def _on_high_watermark(self) -> None:
        """Note a high watermark that has moved: a follower learns of it with its next response, which this does not wake."""
        if self.session is not None:
            self.session.note(self)


class FetchSession:
    """Fetch session: the partitions of one client, and those due for the next fetch.

    by_id     True if it names topics by their ids
    is_of_follower  True for the session of a follower with the leader of its partitions
    epoch     epoch expected in the next request
    watchers  called when a partition of the session may have something new
    permissions  those by which its partitions were looked at last; None without an authorizer

    The cost of an incremental fetch depends on the number of changes only. `_due` has the partitions that a fetch must check:
    named by the last fetch, changed since they were looked at (each has a watcher at its partition for that), with records
    that are not fetched yet, or with an error. All others are at their end, and their values are those last returned.
    """

    __slots__ = (
        "_due",
        "_orders",
        "by_id",
        "epoch",
        "id",
        "is_of_follower",
        "last_used_ms",
        "partitions",
        "permissions",
        "watchers",
    )

    def __init__(
        self, session_id: int, now_ms: int, tasks: CallbackQueue, *, by_id: bool, is_of_follower: bool = False
    ) -> None:
        self.id = session_id
        self.by_id = by_id
        self.is_of_follower = is_of_follower
        self.epoch = 1
        self.last_used_ms = now_ms
        self.permissions: object | None = None
        self.partitions: OrderedDict[tuple[str, bytes, int], RequestedPartition] = OrderedDict()
        self.watchers = Watchers(tasks)
        self._due: dict[RequestedPartition, None] = {}
        self._orders = 0

    def update(self, requested: Iterable[RequestedPartition], forgotten: Iterable[tuple[str, bytes, int]]) -> None:
        """Add or update the requested partitions, and remove the forgotten ones."""
        for key in forgotten:
            removed = self.partitions.pop(key, None)
            if removed is not None:
                removed.watch(None)
                self._due.pop(removed, None)
        for partition in requested:
            key = partition.key
            held = self.partitions.get(key)
            if held is None:
                self.partitions[key] = held = partition
                partition.session = self
                self._put_last(partition)
            else:
                held.fetch_offset = partition.fetch_offset
                held.max_bytes = partition.max_bytes
                held.current_epoch = partition.current_epoch
                held.last_fetched_epoch = partition.last_fetched_epoch
                held.start_offset = partition.start_offset
            self._due[held] = None

    def _put_last(self, partition: RequestedPartition) -> None:
        self._orders += 1
        partition.order = self._orders

    def move_to_end(self, partition: RequestedPartition) -> None:
        """Move a partition to the end of the order, unless it has left the session."""
        key = partition.key
        if self.partitions.get(key) is partition:
            self.partitions.move_to_end(key)
            self._put_last(partition)

    def due(self) -> list[RequestedPartition]:
        """Return the partitions that a fetch must check, in the order of the session."""
        return sorted(self._due, key=attrgetter("order"))

    def note(self, partition: RequestedPartition) -> None:
        """Mark a partition as due for the next fetch."""
        self._due[partition] = None

    def mark_due(self, partition: RequestedPartition) -> None:
        """Mark a partition as due for the next fetch, and wake a waiting fetch."""
        self._due[partition] = None
        self.watchers.wake()

    def look_at_all(self) -> None:
        """Mark all partitions as due for the next fetch."""
        self._due = dict.fromkeys(self.partitions.values())

    def settle(self, partition: RequestedPartition) -> None:
        """Mark a partition as up to date after a response: it is due again when it changes."""
        self._due.pop(partition, None)

    def close(self) -> None:
        """Remove the watchers of all partitions."""
        for partition in self.partitions.values():
            partition.watch(None)


class FetchSessions:
    """Fetch sessions of a broker. Time is an argument, in ms.

    evictions  number of sessions that were ended in favour of another one
    """

    def __init__(self, slots: int, eviction_ms: int, random: Random, tasks: CallbackQueue) -> None:
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._random = random
        self._tasks = tasks
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Return the number of partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def begin(self, session_id: int, now_ms: int, *, by_id: bool, is_of_follower: bool = False) -> FetchSession | None:
        """Begin a session (instead of `session_id`); returns None when the cache is full. A follower always gets one."""
        self.end(session_id)
        if is_of_follower:
            self._end_abandoned(now_ms)
        if len(self._sessions) >= self._slots and not is_of_follower:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms < self._eviction_ms:
                return None
            self.evictions += 1
            self.end(oldest.id)
        new_id = 0
        while new_id == NO_SESSION or new_id in self._sessions:
            new_id = self._random.below(_MAX_EPOCH) + 1
        session = self._sessions[new_id] = FetchSession(
            new_id, now_ms, self._tasks, by_id=by_id, is_of_follower=is_of_follower
        )
        return session

    def _end_abandoned(self, now_ms: int) -> None:
        """End the sessions of followers that have ended, or have begun others: a follower in use fetches all the time."""
        abandoned = [
            session.id
            for session in self._sessions.values()
            if session.is_of_follower and now_ms - session.last_used_ms >= self._eviction_ms
        ]
        for session_id in abandoned:
            self.end(session_id)

    def resume(self, session_id: int, epoch: int, now_ms: int, *, by_id: bool) -> tuple[int, FetchSession | None]:
        """Return the session that a fetch continues, or the error code."""
        session = self._sessions.get(session_id)
        if session is None:
            return FETCH_SESSION_ID_NOT_FOUND, None
        if epoch != session.epoch:
            return INVALID_FETCH_SESSION_EPOCH, None
        if by_id != session.by_id:
            return FETCH_SESSION_TOPIC_ID_ERROR, None
        session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return NONE, session

    def end(self, session_id: int) -> None:
        """Close a session; unknown ids are ignored."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()
