"""Upgrade of a classic group to a consumer group when a member joins with the consumer protocol (KIP-848, migration).

The classic members keep their assignments as members of the new group; classic_members.py serves their requests. Members parked
in a rebalance are asked to rejoin.
"""

from ottla.coordinators.groups.classic import membership as classic
from ottla.coordinators.groups.classic.embedded import decode_assignment, decode_subscription
from ottla.coordinators.groups.classic.group import CONSUMER, ClassicGroup
from ottla.coordinators.groups.classic.member import Member
from ottla.coordinators.groups.consumer.group import ConsumerGroup, subscriptions
from ottla.coordinators.groups.consumer.member import ClassicMember, Current, Description, MemberState, Owned
from ottla.coordinators.groups.consumer.records import (
    group_epoch,
    member_current,
    member_description,
    member_target,
    target_epoch,
)
from ottla.coordinators.groups.records import group_tombstone
from ottla.coordinators.groups.state import Groups
from ottla.coordinators.records import CoordinatorRecord
from ottla.coordinators.runtime import Result
from ottla.metadata.refusal import Refused
from ottla.protocol import errors
from ottla.protocol.wire import PeerError


class Upgrade:
    """The consumer group that replaces a classic one, and the records that create it."""

    __slots__ = ("classic", "group", "records")

    def __init__(self, groups: Groups, old: ClassicGroup) -> None:
        """Convert the group `old`. Raises Refused (GROUP_ID_NOT_FOUND) if it must stay a classic group."""
        self.classic = old
        self.group = ConsumerGroup(old.group_id)
        self.records = [group_tombstone(old.group_id)]
        if old.members or not old.is_empty:
            _check(groups, old)
            made = _records(groups, old)
            for record in made:
                self.group.replay(record)
            self.records += made

    def follows(self) -> Result:
        """Return the answers and timers for after the records are in the log."""
        return classic.hand_over(self.classic)


def _check(groups: Groups, group: ClassicGroup) -> None:
    settings = groups.settings.consumer
    why = None
    if not settings.may_upgrade:
        why = "online upgrade is disabled"
    elif group.protocol_type != CONSUMER:
        why = "the group does not use the consumer embedded protocol"
    elif len(group.members) > settings.max_size:
        why = "the group size exceeds the consumer group maximum size"
    if why is not None:
        raise _refusal(group, why)


def _refusal(group: ClassicGroup, why: str) -> Refused:
    return Refused(
        errors.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group.group_id} to consumer group because {why}."
    )


def _records(groups: Groups, group: ClassicGroup) -> list[CoordinatorRecord]:
    try:
        members = {
            member.member_id: _convert(groups, group, member, group.protocol) for member in group.members.values()
        }
    except PeerError:
        raise _refusal(group, "the embedded consumer protocol is malformed") from None
    group_id, epoch = group.group_id, group.generation
    names = set(subscriptions({member_id: description for member_id, (description, _) in members.items()}, {}))
    return [
        *(member_description(group_id, member_id, description) for member_id, (description, _) in members.items()),
        group_epoch(group_id, epoch, groups.topology.metadata_hash(names)),
        *(
            member_target(group_id, member_id, {topic: frozenset(parts) for topic, parts in current.assigned.items()})
            for member_id, (_, current) in members.items()
        ),
        target_epoch(group_id, epoch, 0),
        *(member_current(group_id, member_id, current) for member_id, (_, current) in members.items()),
    ]


def _convert(groups: Groups, group: ClassicGroup, member: Member, protocol: str | None) -> tuple[Description, Current]:
    """Convert a classic member to a consumer group member in the classic group's generation. Raises PeerError, Refused."""
    metadata = member.metadata(protocol) if protocol is not None else member.protocols[0][1]
    subscription = decode_subscription(metadata)
    assigned: dict[bytes, dict[int, int]] = {}
    if member.assignment:
        assignment = decode_assignment(member.assignment)
        if assignment.user_data:
            raise _refusal(
                group,
                "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
                "assignor before re-attempting the upgrade",
            )
        topics = groups.topology.image.topics
        for topic in assignment.assigned_partitions:
            if topic.topic in topics and topic.partitions:
                assigned[topics[topic.topic].id] = dict.fromkeys(topic.partitions, group.generation)
    owned: Owned = assigned
    description = Description(
        member.instance_id,
        subscription.rack_id or None,
        member.client_id,
        member.client_host,
        frozenset(subscription.topics),
        "",
        member.rebalance_timeout_ms,
        None,
        ClassicMember(member.session_timeout_ms, tuple(member.protocols)),
    )
    return description, Current(group.generation, group.generation, MemberState.STABLE, owned, {})
