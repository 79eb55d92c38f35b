"""Interface of a membership and its consumer: partitions are assigned, revoked or lost, and listeners are called.

A listener of the application runs in the application's thread, inside `poll`. So a membership hands out a `Handover` and waits
until its listener has been run.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

from ottla.client.groups import GroupMetadata
from ottla.client.topics import TopicPartition
from ottla.net.scheduler import Promise

Listener = Callable[[list[TopicPartition]], object]


class AssignmentChange(Enum):
    """AssignmentChange of the assigned partitions.

    ASSIGNED  they belong to this member from now on
    REVOKED   they go to another member; processed records can still be committed
    LOST      they may belong to another member already
    """

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


class Listeners(NamedTuple):
    """Listeners of the application for changes of its partitions; None: not called."""

    on_assign: Listener | None = None
    on_revoke: Listener | None = None
    on_lost: Listener | None = None

    def of(self, change: AssignmentChange) -> Listener | None:
        """Return the listener for a change; without a listener for losses, on_revoke gets them, as in Kafka."""
        if change is AssignmentChange.ASSIGNED:
            return self.on_assign
        if change is AssignmentChange.REVOKED or self.on_lost is None:
            return self.on_revoke
        return self.on_lost


class Handover(NamedTuple):
    """Call `listener(partitions)` in the application's thread, then keep `done`."""

    change: AssignmentChange
    partitions: list[TopicPartition]
    listener: Listener
    done: Promise[None]


class Membership(Protocol):
    """A member of a group, whatever the protocol."""

    @property
    def metadata(self) -> GroupMetadata:
        """Ids and generation or epoch of the member in its group."""

    @property
    def error(self) -> BaseException | None:
        """Error that ended the membership, None while it lasts."""

    def subscribe(self, topics: list[str], pattern: str | None) -> None:
        """Read these topics, or those that match, in place of those before."""

    async def leave(self) -> None:
        """Leave the group; an error of the coordinator is ignored."""


class MemberConsumer(Protocol):
    """Interface of a consumer, as its membership uses it."""

    @property
    def polls(self) -> int:
        """Number of polls of the application: it is alive while the number grows (max.poll.interval.ms)."""

    async def changed(
        self, change: AssignmentChange, partitions: list[TopicPartition], owned: list[TopicPartition]
    ) -> None:
        """Apply a change of partitions; `owned` are the partitions afterwards.

        Waits until the application polls, so that nothing changes while it works on records, and returns when the listener has
        run. Processed records of revoked partitions are committed first, if the consumer commits by itself.
        """


class PollTimeout(Exception):
    """The application has not polled for max.poll.interval.ms."""
