"""Fetch sessions (KIP-227): a client names its partitions once, then only changes; the response holds only changes too.

    id, epoch            meaning
    0, 0                 a new session (epoch 0 with an id: instead of that one)
    any, -1              no session; an id is closed
    id, last epoch + 1   the next fetch of the session

A session keeps its partitions in the order in which they are answered; one whose records an incremental fetch returned goes
to the end, so that a full answer does not starve the partitions behind it. The cache is bounded
(max.incremental.fetch.session.cache.slots): when it is full and no session has been idle long enough (two minutes), a client
gets no session.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from ottla.environment import Random
from ottla.protocol.errors import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
    NONE,
)

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
NO_SESSION: Final = 0
_MAX_EPOCH: Final = 0x7FFFFFFF


class RequestedPartition:
    """A partition as a fetch requests it, and the values last returned in the session.

    topic           its name, "" when the client uses ids
    topic_id        its id, zero when the client uses names
    current_epoch   leader epoch the client believes in, -1 for any
    """

    __slots__ = (
        "current_epoch",
        "fetch_offset",
        "index",
        "last_high_watermark",
        "last_stable_offset",
        "last_start_offset",
        "max_bytes",
        "topic",
        "topic_id",
    )

    def __init__(
        self, topic: str, topic_id: bytes, index: int, current_epoch: int, fetch_offset: int, max_bytes: int
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.current_epoch = current_epoch
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.last_high_watermark = -1
        self.last_stable_offset = -1
        self.last_start_offset = -1

    @property
    def key(self) -> tuple[str, bytes, int]:
        """Key of the partition within its session."""
        return self.topic, self.topic_id, self.index


class FetchSession:
    """The partitions of one client. `epoch` is the one expected next; `by_id` is True if it names topics by their ids."""

    __slots__ = ("by_id", "epoch", "id", "last_used_ms", "partitions")

    def __init__(self, session_id: int, now_ms: int, *, by_id: bool) -> None:
        self.id = session_id
        self.by_id = by_id
        self.epoch = 1
        self.last_used_ms = now_ms
        self.partitions: OrderedDict[tuple[str, bytes, int], RequestedPartition] = OrderedDict()

    def update(self, requested: Iterable[RequestedPartition], forgotten: Iterable[tuple[str, bytes, int]]) -> None:
        """Take in what a fetch adds, changes and gives up."""
        for key in forgotten:
            self.partitions.pop(key, None)
        for partition in requested:
            held = self.partitions.get(partition.key)
            if held is None:
                self.partitions[partition.key] = partition
            else:
                held.fetch_offset = partition.fetch_offset
                held.max_bytes = partition.max_bytes
                held.current_epoch = partition.current_epoch


class FetchSessions:
    """The sessions of a broker. Time is handed in, in ms."""

    def __init__(self, slots: int, eviction_ms: int, random: Random) -> None:
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._random = random
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, session_id: int, now_ms: int, *, by_id: bool) -> FetchSession | None:
        """Begin a session (instead of `session_id`); None when there is no room."""
        self._sessions.pop(session_id, None)
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms < self._eviction_ms:
                return None
            del self._sessions[oldest.id]
        new_id = 0
        while new_id == NO_SESSION or new_id in self._sessions:
            new_id = self._random.below(_MAX_EPOCH) + 1
        session = self._sessions[new_id] = FetchSession(new_id, now_ms, by_id=by_id)
        return session

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
        """Close a session; unknown ones are passed over."""
        self._sessions.pop(session_id, None)
