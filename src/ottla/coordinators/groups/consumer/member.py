"""A member of a consumer group (KIP-848): its description of itself, and its progress towards its target.

The two halves are two records in the log, and two tuples in memory. A decision creates a new tuple; a record is written only if
that differs from the old one.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.protocol.messages.consumer_group_current_member_assignment_record import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from ottla.protocol.messages.consumer_group_current_member_assignment_record import (
    TopicPartitions as OwnedPartitions,
)
from ottla.protocol.messages.consumer_group_member_metadata_record import ConsumerGroupMemberMetadataValue

Target = Mapping[bytes, frozenset[int]]
"""Topic id -> partitions: the target of a member."""
Owned = Mapping[bytes, Mapping[int, int]]
"""Topic id -> partition -> the member epoch in which the partition was assigned."""

JOINING: Final = 0
LEAVING: Final = -1
LEAVING_FOR_A_WHILE: Final = -2
"""Epochs that a member sends to join, to leave, and, if static, to leave temporarily."""


class MemberState(IntEnum):
    """Progress of a member towards its target; the numbers are those in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member must give partitions back, and has not confirmed that it did."""
    UNRELEASED_PARTITIONS = 2
    """The member waits for partitions that other members have not given back."""
    UNKNOWN = 127


class ClassicMember(NamedTuple):
    """Classic-protocol data of a member, needed if the group becomes a classic one again."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Description(NamedTuple):
    """Properties that a member has declared in its requests: instance id, rack, client, subscription and assignor."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    """The regular expression that the member subscribes to; "" without one."""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMember | None = None

    @classmethod
    def from_record(cls, value: ConsumerGroupMemberMetadataValue) -> "Description":
        """Return the description of a logged record."""
        classic = value.classic_member_metadata
        return cls(
            value.instance_id,
            value.rack_id,
            value.client_id,
            value.client_host,
            frozenset(value.subscribed_topic_names),
            value.subscribed_topic_regex or "",
            value.rebalance_timeout_ms,
            value.server_assignor,
            None
            if classic is None
            else ClassicMember(
                classic.session_timeout_ms,
                tuple(
                    (supported_protocol.name, supported_protocol.metadata)
                    for supported_protocol in classic.supported_protocols
                ),
            ),
        )


class Current(NamedTuple):
    """The current assignment of a member.

    epoch           the member epoch, under which it commits and fetches offsets
    previous_epoch  the epoch before, which the member may still send when a response was lost
    assigned        partitions that the member may read
    revoking        partitions that the member must give back first
    """

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Owned = {}  # noqa: RUF012 - never modified
    revoking: Owned = {}  # noqa: RUF012

    @classmethod
    def from_record(cls, value: ConsumerGroupCurrentMemberAssignmentValue) -> "Current":
        """Return the assignment of a logged record."""
        try:
            state = MemberState(value.state)
        except ValueError:
            state = MemberState.UNKNOWN
        return cls(
            value.member_epoch,
            value.previous_member_epoch,
            state,
            _owned_from(value.assigned_partitions, value.member_epoch),
            _owned_from(value.partitions_pending_revocation, value.member_epoch),
        )

    def at(self, epoch: int, state: MemberState, assigned: Owned, revoking: Owned) -> "Current":
        """Return the next assignment of the member, in `epoch`."""
        return Current(epoch, self.epoch, state, assigned, revoking)

    def owns(self, topic_id: bytes, partition: int) -> int | None:
        """Return the epoch in which a partition was assigned or is being revoked; None if the member does not own it."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if epoch is None else epoch


def _owned_from(topics: Iterable[OwnedPartitions], otherwise: int) -> Owned:
    """Return partitions with their epochs; records before Kafka 4.1 have no epochs, and get the member's (`otherwise`)."""
    return {
        topic.topic_id: dict(
            zip(topic.partitions, topic.assignment_epochs or [otherwise] * len(topic.partitions), strict=True)
        )
        for topic in topics
    }


class ConsumerMember:
    """Member of a consumer group; replay replaces both halves."""

    __slots__ = ("current", "description", "member_id")

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.description = Description()
        self.current = Current()

    @property
    def is_classic(self) -> bool:
        """True if the member uses the classic protocol."""
        return self.description.classic is not None
