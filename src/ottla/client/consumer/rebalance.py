"""What a membership says to its consumer: partitions come, go, or are lost; and the application may be told.

A listener of the application runs in the application's thread, inside `poll`. So a membership hands out a `Handover` and waits
until somebody has run it.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

from ottla.client.groups import GroupMetadata
from ottla.client.scheduler import Promise
from ottla.client.topics import TopicPartition

Listener = Callable[[list[TopicPartition]], object]


class Change(Enum):
    """What happens to partitions.

    ASSIGNED  they are ours from now on
    REVOKED   they go elsewhere; what was processed can still be committed
    LOST      they went elsewhere already
    """

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


class Listeners(NamedTuple):
    """What the application wants to be told; None: nothing."""

    on_assign: Listener | None = None
    on_revoke: Listener | None = None
    on_lost: Listener | None = None

    def of(self, change: Change) -> Listener | None:
        """Who is told; a loss is told as a revocation when nobody listens for losses, as in Kafka."""
        if change is Change.ASSIGNED:
            return self.on_assign
        if change is Change.REVOKED or self.on_lost is None:
            return self.on_revoke
        return self.on_lost


class Handover(NamedTuple):
    """Call `listener(partitions)` in the application's thread, then keep `done`."""

    change: Change
    partitions: list[TopicPartition]
    listener: Listener
    done: Promise[None]


class Membership(Protocol):
    """A member of a group, whatever the protocol."""

    @property
    def metadata(self) -> GroupMetadata:
        """What the group knows the member by."""

    @property
    def error(self) -> BaseException | None:
        """Why it is no member any more, None while it is."""

    def subscribe(self, topics: list[str], pattern: str | None) -> None:
        """Read these topics, or those that match, in place of those before."""

    async def leave(self) -> None:
        """Tell the coordinator, without caring what it says."""


class Member(Protocol):
    """What a membership asks of its consumer."""

    @property
    def polls(self) -> int:
        """How often the application has asked for records: while the number grows it lives (max.poll.interval.ms)."""

    async def changed(self, change: Change, partitions: list[TopicPartition], owned: list[TopicPartition]) -> None:
        """Partitions come or go; `owned` is what there is afterwards.

        Waits until the application polls, so that nothing changes under its hands, and returns when it knows. What is
        processed of revoked partitions is committed first, if that is the consumer's business.
        """


class Silent(Exception):
    """The application has not polled for max.poll.interval.ms."""
