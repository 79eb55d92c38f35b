"""A consumer group (KIP-848): members, and the assignment that the coordinator computes.

Three epochs follow one another:

    group epoch        +1 when the members, their subscriptions or their topics change
    assignment epoch   the group epoch whose target was computed last; behind it the group is Assigning
    member epochs      each member follows after giving back its revoked partitions; until all have, the group is Reconciling

This module has state and queries only. The state changes by `replay`, one record at a time, both in operation and after a
restart. State that is in memory only is marked as such.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ottla.coordinators.groups.consumer.member import (
    ConsumerMember,
    Current,
    Description,
    MemberState,
    Owned,
    Target,
)
from ottla.coordinators.groups.consumer.records import group_tombstones
from ottla.coordinators.records import CoordinatorRecord
from ottla.protocol.messages.consumer_group_current_member_assignment_record import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from ottla.protocol.messages.consumer_group_member_metadata_record import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from ottla.protocol.messages.consumer_group_metadata_record import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from ottla.protocol.messages.consumer_group_regular_expression_record import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from ottla.protocol.messages.consumer_group_target_assignment_member_record import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
)
from ottla.protocol.messages.consumer_group_target_assignment_metadata_record import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.schema import Message

EMPTY: Final = "Empty"
ASSIGNING: Final = "Assigning"
RECONCILING: Final = "Reconciling"
STABLE: Final = "Stable"

KEYS: Final = (
    ConsumerGroupMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)
"""Key classes of the records of a consumer group."""


class Resolved(NamedTuple):
    """Topics that match a regular expression, at a revision of the metadata and a time in ms since the epoch."""

    topics: frozenset[str]
    revision: int
    timestamp: int


class ConsumerGroup:
    """State of a consumer group and its members."""

    __slots__ = (
        "_regexes",
        "_subscribed",
        "awaiting_join",
        "epoch",
        "group_id",
        "is_stale",
        "members",
        "metadata_hash",
        "owners",
        "resolved",
        "static",
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
        self.members: dict[str, ConsumerMember] = {}
        """Members by id, in the order of joining."""
        self.static: dict[str, str] = {}
        """Instance id -> member id (KIP-345)."""
        self.targets: dict[str, Target] = {}
        """Targets by member id."""
        self.owners: dict[bytes, dict[int, str]] = {}
        """Topic id -> partition -> id of the member that owns the partition, or has not given it back yet."""
        self.resolved: dict[str, Resolved] = {}
        """Topics by regular expression."""
        self._subscribed: frozenset[str] | None = None
        self._regexes: Counter[str] | None = None

        # In memory only.
        self.is_stale = True
        """True if the topics may differ from those hashed in `metadata_hash`, as after a restart."""
        self.awaiting_join: set[str] = set()
        """Classic members that must rejoin, and whose rejoin timeout is running."""

    # Replay.

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply one record of this group."""
        key, value = record.key, record.value
        if isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
            stored = (
                Current.from_record(value) if isinstance(value, ConsumerGroupCurrentMemberAssignmentValue) else None
            )
            self._set_current(key.member_id, stored)
        elif isinstance(key, ConsumerGroupMemberMetadataKey):
            self._subscribed = self._regexes = None
            if isinstance(value, ConsumerGroupMemberMetadataValue):
                self._describe(key.member_id, Description.from_record(value))
            else:
                self._remove(key.member_id)
        elif isinstance(key, ConsumerGroupTargetAssignmentMemberKey):
            if isinstance(value, ConsumerGroupTargetAssignmentMemberValue):
                self.targets[key.member_id] = {
                    topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions
                }
            else:
                self.targets.pop(key.member_id, None)
        elif isinstance(key, ConsumerGroupRegularExpressionKey):
            self._subscribed = None
            if isinstance(value, ConsumerGroupRegularExpressionValue):
                self.resolved[key.regular_expression] = Resolved(
                    frozenset(value.topics), value.version, value.timestamp
                )
            else:
                self.resolved.pop(key.regular_expression, None)
        else:
            self._replay_epoch(value)

    def _replay_epoch(self, value: Message | None) -> None:
        if isinstance(value, ConsumerGroupMetadataValue):
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            self.is_stale = False
        elif isinstance(value, ConsumerGroupTargetAssignmentMetadataValue):
            self.target_epoch, self.target_timestamp = value.assignment_epoch, value.assignment_timestamp

    def _describe(self, member_id: str, description: Description) -> None:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = ConsumerMember(member_id)
        self._release_instance(member)
        member.description = description
        if description.instance_id is not None:
            self.static[description.instance_id] = member_id

    def _release_instance(self, member: ConsumerMember) -> None:
        instance_id = member.description.instance_id
        if instance_id is not None and self.static.get(instance_id) == member.member_id:
            del self.static[instance_id]

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        self.awaiting_join.discard(member_id)
        if member is None:
            return
        self._disown(member_id, member.current)
        self._release_instance(member)

    def _set_current(self, member_id: str, current: Current | None) -> None:
        member = self.members.get(member_id)
        if member is None:
            if current is None:
                return
            # Compaction keeps the newest record of each key: the assignment may come before the description.
            member = self.members[member_id] = ConsumerMember(member_id)
        self._disown(member_id, member.current)
        member.current = Current() if current is None else current
        for owned in (member.current.assigned, member.current.revoking):
            for topic_id, partitions in owned.items():
                owners = self.owners.setdefault(topic_id, {})
                for partition in partitions:
                    owners[partition] = member_id

    def _disown(self, member_id: str, current: Current) -> None:
        for owned in (current.assigned, current.revoking):
            for topic_id, partitions in owned.items():
                owners = self.owners.get(topic_id)
                if owners is None:
                    continue
                for partition in partitions:
                    if owners.get(partition) == member_id:
                        del owners[partition]
                if not owners:
                    del self.owners[topic_id]

    # Queries.

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> str:
        """The state of the group, as Kafka names it."""
        if not self.members:
            return EMPTY
        if self.epoch > self.target_epoch:
            return ASSIGNING
        return STABLE if all(self.is_settled(member) for member in self.members.values()) else RECONCILING

    def is_settled(self, member: ConsumerMember) -> bool:
        """Return whether the member has its target."""
        return member.current.state is MemberState.STABLE and member.current.epoch == self.target_epoch

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member with that group.instance.id."""
        return None if instance_id is None else self.members.get(self.static.get(instance_id, ""))

    def target_of(self, member_id: str, instance_id: str | None) -> Target:
        """Return the target of a member; a member that takes over an instance id inherits that of the previous member."""
        target = self.targets.get(member_id)
        if target is None and instance_id is not None:
            target = self.targets.get(self.static.get(instance_id, ""))
        return {} if target is None else target

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a member reads `topic`, by its name or by a regular expression."""
        if self._subscribed is None:
            descriptions = {member_id: member.description for member_id, member in self.members.items()}
            self._subscribed = frozenset(subscriptions(descriptions, self.resolved))
        return topic in self._subscribed

    @property
    def regexes(self) -> Mapping[str, int]:
        """The regular expressions that members subscribe to, each with its number of members."""
        if self._regexes is None:
            regexes = (member.description.regex for member in self.members.values())
            self._regexes = Counter(regex for regex in regexes if regex)
        return self._regexes

    @property
    def classic_members(self) -> int:
        """Number of members that use the classic protocol."""
        return sum(1 for member in self.members.values() if member.is_classic)

    def supports_classic(self, protocol_type: str, names: set[str]) -> bool:
        """Return whether a classic member with these protocols is compatible with the classic members of the group."""
        if protocol_type != "consumer":
            return False
        if self.is_empty:
            return bool(names)
        common = set(names)
        for member in self.members.values():
            if member.description.classic is not None:
                common &= {name for name, _ in member.description.classic.protocols}
        return bool(common)

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Return whether another member still owns a partition of the member's target."""
        return any(
            partition in self.owners.get(topic_id, {})
            for topic_id, partitions in self.targets.get(member.member_id, {}).items()
            for partition in partitions - member.current.assigned.get(topic_id, {}).keys()
        )

    def preferred_assignor(self, default: str, descriptions: Mapping[str, Description]) -> str:
        """Return the assignor that most members name; `default` if no member names any."""
        votes = Counter(
            description.assignor for description in descriptions.values() if description.assignor is not None
        )
        return votes.most_common(1)[0][0] or default if votes else default

    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that delete the group."""
        return group_tombstones(self.group_id, list(self.members), list(self.resolved))


def subscriptions(descriptions: Mapping[str, Description], resolved: Mapping[str, Resolved]) -> Iterator[str]:
    """Yield the names of all topics that members read; a regular expression that is not resolved yet adds no topics."""
    for description in descriptions.values():
        yield from description.topics
        if description.regex in resolved:
            yield from resolved[description.regex].topics


__all__ = [
    "ASSIGNING",
    "EMPTY",
    "KEYS",
    "RECONCILING",
    "STABLE",
    "ConsumerGroup",
    "Owned",
    "Resolved",
    "subscriptions",
]
