"""Interface between a group membership and its consumer: changes of the assigned partitions, and their listeners.

Listeners run on the application's thread, inside `poll`: a membership creates a `Handover`, and waits until the application's
thread has run its listener.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

from ottla.client.groups import GroupMetadata
from ottla.client.topics import TopicPartition
from ottla.tasks.deferred import Deferred

Listener = Callable[[list[TopicPartition]], object]


class AssignmentChange(Enum):
    """Kind of a change of the assigned partitions.

    ASSIGNED  the partitions belong to this member from now on
    REVOKED   the partitions move to another member; processed records can still be committed
    LOST      the partitions may belong to another member already
    """

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


class Listeners(NamedTuple):
    """Rebalance listeners of the application; None for no listener."""

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
    """Listener to run on the application's thread as `listener(partitions)`; `done` is kept afterwards."""

    change: AssignmentChange
    partitions: list[TopicPartition]
    listener: Listener
    done: Deferred[None]


class Membership(Protocol):
    """Interface of a group member, for the classic and the new protocol."""

    @property
    def metadata(self) -> GroupMetadata:
        """Return the ids and the generation or epoch of the member."""

    @property
    def error(self) -> BaseException | None:
        """Return the error that ended the membership, None while it lasts."""

    def subscribe(self, topics: list[str], pattern: str | None) -> None:
        """Subscribe to these topics, or to those that match a pattern, in place of the previous subscription."""

    async def leave(self) -> None:
        """Leave the group; an error of the coordinator is ignored."""


class MemberConsumer(Protocol):
    """Interface of a consumer for its membership."""

    @property
    def polls(self) -> int:
        """Return the number of polls; the application counts as alive while it grows (max.poll.interval.ms)."""

    async def apply_change(
        self, change: AssignmentChange, partitions: list[TopicPartition], owned: list[TopicPartition]
    ) -> None:
        """Apply a change of partitions; `owned` are the assigned partitions after the change.

        Waits until the application polls, so that partitions do not change while it processes records, and returns after
        the listener has run. With enable.auto.commit the positions of revoked partitions are committed first.
        """

    def on_rebalanced(self, latency_ms: int) -> None:
        """Record the end of a rebalance, which has taken `latency_ms`."""

    def on_failed(self) -> None:
        """Wake the application: the membership has ended with an error, which its poll raises."""


class PollTimeout(Exception):
    """The application has not polled for max.poll.interval.ms."""
