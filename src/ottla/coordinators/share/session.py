"""Share sessions (KIP-932): a member names its partitions once, then only changes, by ShareFetch and ShareAcknowledge.

    epoch 0            a new session, which replaces the member's previous one
    epoch expected     the next request of the session
    epoch -1           the last request: the session ends

A session belongs to the connection on which it began: both end together, and with them the locks of the member. The number of
sessions is bounded (group.share.max.share.sessions); no session is evicted for another member.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Final

from ottla.protocol.errors import INVALID_SHARE_SESSION_EPOCH, NONE, SHARE_SESSION_NOT_FOUND

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 0x7FFFFFFF
Member = tuple[str, str]
"""Group id and member id."""
TopicIdPartition = tuple[bytes, int]
"""Topic id and partition."""


class ShareSession:
    """Partitions of one member, in the order in which they are served.

    epoch        expected in the next request
    partitions   with True for those that the next response has in any case, although there is nothing new: those that were
                 added to the session, and those with an error in the response before
    interrupt    is called when the session ends while one of its fetches waits
    """

    __slots__ = ("connection", "epoch", "interrupt", "member", "partitions")

    def __init__(self, member: Member, connection: Hashable) -> None:
        self.member = member
        self.connection = connection
        self.epoch = 1
        self.partitions: dict[TopicIdPartition, bool] = {}
        self.interrupt: Callable[[], None] | None = None

    def update(self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        """Add partitions, and remove forgotten ones."""
        for place in added:
            self.partitions.setdefault(place, True)
        for place in forgotten:
            self.partitions.pop(place, None)

    def is_due(self, place: TopicIdPartition, *, has_error: bool) -> bool:
        """Return whether a response has a row of a partition without records, and note it. Source: CachedSharePartition."""
        is_due = has_error or self.partitions.get(place, False)
        if place in self.partitions:
            self.partitions[place] = has_error
        return is_due

    def move_last(self, place: TopicIdPartition) -> None:
        """Make a partition whose records are in a response the last one: the others come first in the next response."""
        if self.partitions.pop(place, None) is not None:
            self.partitions[place] = False


class ShareSessions:
    """The share sessions of a broker, at most `slots`."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[Member, ShareSession] = {}
        self._of_connection: dict[Hashable, set[Member]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Return the number of partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def find(self, member: Member) -> ShareSession | None:
        """The session of a member."""
        return self._sessions.get(member)

    def begin(self, member: Member, connection: Hashable) -> ShareSession | None:
        """Begin a session, which replaces the member's previous one; returns None if all slots are in use."""
        self.end(member)
        if len(self._sessions) >= self._slots:
            return None
        session = self._sessions[member] = ShareSession(member, connection)
        self._of_connection.setdefault(connection, set()).add(member)
        return session

    def resume(self, member: Member, epoch: int) -> tuple[int, ShareSession | None]:
        """Return the session that a request continues, or an error code."""
        session = self._sessions.get(member)
        if session is None:
            return SHARE_SESSION_NOT_FOUND, None
        if epoch != session.epoch:
            return INVALID_SHARE_SESSION_EPOCH, None
        session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        return NONE, session

    def end(self, member: Member) -> ShareSession | None:
        """Close and return a member's session; None if it has no session."""
        session = self._sessions.pop(member, None)
        if session is None:
            return None
        held = self._of_connection[session.connection]
        held.discard(member)
        if not held:
            del self._of_connection[session.connection]
        if session.interrupt is not None:
            session.interrupt()
        return session

    def end_all_of(self, connection: Hashable) -> list[ShareSession]:
        """Close and return the sessions that began on a connection."""
        ended = (self.end(member) for member in tuple(self._of_connection.get(connection, ())))
        return [session for session in ended if session is not None]
