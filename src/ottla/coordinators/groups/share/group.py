"""A share group (KIP-932): members that fetch from partitions together, and the partitions whose state is kept for them.

A partition goes through these states before it is assigned to members:

                     heartbeat                      the share coordinator succeeds
    (subscribed) ---------------> initializing ---------------------------------> initialized ---> assigned
                                       |  it fails                                     |
                                       +-----> (subscribed)                            +--> deleting --> (gone)

Logged state changes by `replay` only. There is no reconciliation as in a consumer group: partitions are shared, and the next
heartbeat of a member assigns its whole target.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.coordinators.groups.consumer.member import Target
from ottla.coordinators.groups.share.records import NamedPartitions, ShareDescription
from ottla.coordinators.records import CoordinatorRecord
from ottla.coordinators.runtime import Millis
from ottla.protocol.messages.share_group_current_member_assignment_record import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
)
from ottla.protocol.messages.share_group_member_metadata_record import (
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
)
from ottla.protocol.messages.share_group_metadata_record import ShareGroupMetadataValue
from ottla.protocol.messages.share_group_state_partition_metadata_record import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    TopicPartitionsInfo,
)
from ottla.protocol.messages.share_group_target_assignment_member_record import (
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
)
from ottla.protocol.messages.share_group_target_assignment_metadata_record import (
    ShareGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.schema import Message

SHARE: Final = "share"
"""The type of a share group as ListGroups spells it."""
EMPTY: Final = "Empty"
STABLE: Final = "Stable"


class ShareMember:
    """Member of a share group; replay replaces all fields.

    epoch           the member epoch
    previous_epoch  the epoch before, which the member may still send when a response was lost
    """

    __slots__ = ("assigned", "description", "epoch", "member_id", "previous_epoch")

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.description = ShareDescription()
        self.epoch = 0
        self.previous_epoch = 0
        self.assigned: Target = {}


class StatePartitions(NamedTuple):
    """Partitions by their state at the share coordinator, which exists (initialized), is being created (initializing), or is
    being deleted (deleting: whole topics).
    """

    initializing: NamedPartitions = {}  # noqa: RUF012 - never modified
    initialized: NamedPartitions = {}  # noqa: RUF012
    deleting: Mapping[bytes, str] = {}

    @classmethod
    def from_record(cls, value: ShareGroupStatePartitionMetadataValue) -> "StatePartitions":
        """Return the partitions of a logged record."""
        return cls(
            _names_from(value.initializing_topics),
            _names_from(value.initialized_topics),
            {deleting_topic.topic_id: deleting_topic.topic_name for deleting_topic in value.deleting_topics},
        )

    def partitions(self, topic_id: bytes) -> frozenset[int]:
        """The initialized partitions of a topic."""
        return self.initialized[topic_id][1] if topic_id in self.initialized else frozenset()


def _names_from(topics: list[TopicPartitionsInfo]) -> NamedPartitions:
    return {topic.topic_id: (topic.topic_name, frozenset(topic.partitions)) for topic in topics}


def union_of(one: NamedPartitions, other: NamedPartitions) -> NamedPartitions:
    """Return the union of two sets of partitions."""
    result = dict(one)
    for topic_id, (name, partitions) in other.items():
        result[topic_id] = name, partitions | (result[topic_id][1] if topic_id in result else frozenset())
    return result


def without(one: NamedPartitions, other: NamedPartitions) -> NamedPartitions:
    """Return the partitions of `one` that are not in `other`; topics without remaining partitions are left out."""
    result = {}
    for topic_id, (name, partitions) in one.items():
        left = partitions - (other[topic_id][1] if topic_id in other else frozenset())
        if left:
            result[topic_id] = name, left
    return result


class ShareGroup:
    """State of a share group: its members, and the partitions that have a state at the share coordinator."""

    __slots__ = (
        "asked_at",
        "epoch",
        "group_id",
        "is_stale",
        "members",
        "metadata_hash",
        "partitions",
        "target_epoch",
        "target_timestamp",
        "targets",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1
        self.metadata_hash = 0
        self.target_epoch = 1
        self.target_timestamp = 0
        """Time of the last computation of the targets, in ms since the epoch; 0: never."""
        self.members: dict[str, ShareMember] = {}
        """Members by id, in the order of joining."""
        self.targets: dict[str, Target] = {}
        """Targets by member id."""
        self.partitions = StatePartitions()

        # In memory only.
        self.is_stale = True
        """True after a change of topics, targets or state partitions, on which the next heartbeat may have to act."""
        self.asked_at: dict[bytes, Millis] = {}
        """Time of the last request to the share coordinator to initialise a topic's partitions; limits repetition."""

    # Replay.

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply one record of this group."""
        key, value = record.key, record.value
        self.is_stale = True
        if isinstance(key, ShareGroupCurrentMemberAssignmentKey):
            self._set_current(key.member_id, value)
        elif isinstance(key, ShareGroupMemberMetadataKey):
            if isinstance(value, ShareGroupMemberMetadataValue):
                self._member(key.member_id).description = ShareDescription(
                    value.rack_id, value.client_id, value.client_host, frozenset(value.subscribed_topic_names)
                )
            else:
                self.members.pop(key.member_id, None)
        elif isinstance(key, ShareGroupTargetAssignmentMemberKey):
            if isinstance(value, ShareGroupTargetAssignmentMemberValue):
                self.targets[key.member_id] = {
                    topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions
                }
            else:
                self.targets.pop(key.member_id, None)
        elif isinstance(key, ShareGroupStatePartitionMetadataKey):
            self.partitions = (
                StatePartitions.from_record(value)
                if isinstance(value, ShareGroupStatePartitionMetadataValue)
                else StatePartitions()
            )
            self.asked_at = {topic_id: self.asked_at.get(topic_id, 0) for topic_id in self.partitions.initializing}
        elif isinstance(value, ShareGroupMetadataValue):
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
        elif isinstance(value, ShareGroupTargetAssignmentMetadataValue):
            self.target_epoch, self.target_timestamp = value.assignment_epoch, value.assignment_timestamp

    def _member(self, member_id: str) -> ShareMember:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = ShareMember(member_id)
        return member

    def _set_current(self, member_id: str, value: Message | None) -> None:
        if isinstance(value, ShareGroupCurrentMemberAssignmentValue):
            # Compaction keeps the newest record of each key: the assignment may come before the description.
            member = self._member(member_id)
            member.epoch, member.previous_epoch = value.member_epoch, value.previous_member_epoch
            member.assigned = {
                assigned_partition.topic_id: frozenset(assigned_partition.partitions)
                for assigned_partition in value.assigned_partitions
            }
        elif member_id in self.members:
            member = self.members[member_id]
            member.epoch, member.previous_epoch, member.assigned = 0, 0, {}

    # Queries.

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> str:
        """The state of the group, as Kafka names it."""
        return STABLE if self.members else EMPTY

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a member reads `topic`."""
        return any(topic in member.description.topics for member in self.members.values())
