"""Downgrade of a consumer group to a classic one after its last consumer-protocol member left (KIP-848, migration).

The classic members keep their last assignments; they are asked to rejoin, and one of them becomes the leader.
"""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from ottla.coordinators.groups.classic import membership as classic
from ottla.coordinators.groups.classic.embedded import encode_assignment
from ottla.coordinators.groups.classic.group import CONSUMER, ClassicGroup, State
from ottla.coordinators.groups.classic.member import Member
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.member import ConsumerMember, Current, Description, Owned
from ottla.coordinators.groups.records import stable_group
from ottla.coordinators.groups.state import Groups
from ottla.coordinators.records import CoordinatorRecord
from ottla.coordinators.runtime import Millis, Result, Timer


def may_downgrade(groups: Groups, group: ConsumerGroup, leaving: Collection[str]) -> bool:
    """Return whether the group may become a classic one without `leaving`: classic members only, size and policy permitting."""
    stays = len(group.members) - len(leaving)
    return (
        groups.settings.consumer.may_downgrade
        and 0 < stays <= groups.settings.max_size
        and group.classic_members == stays
        and not any(group.members[member_id].is_classic for member_id in leaving)
    )


def may_replace_and_downgrade(groups: Groups, group: ConsumerGroup, replaced: ConsumerMember) -> bool:
    """Return whether the group may become a classic one after a classic member has replaced `replaced`."""
    return (
        groups.settings.consumer.may_downgrade
        and len(group.members) <= groups.settings.max_size
        and not replaced.is_classic
        and group.classic_members == len(group.members) - 1
    )


def classic_records(
    groups: Groups, group_id: str, epoch: int, members: dict[str, tuple[Description, Current]], now: Millis
) -> tuple[CoordinatorRecord, dict[str, list[tuple[str, bytes]]]]:
    """Return the snapshot of a classic group of these members in generation `epoch`, and all protocols of each member.

    The protocols are returned because the snapshot has the chosen one only.
    """
    group = ClassicGroup(group_id)
    assignments = {}
    for member_id, (description, current) in members.items():
        assert description.classic is not None
        member = Member(
            member_id,
            description.instance_id,
            description.client_id,
            description.client_host,
            description.classic.session_timeout_ms,
            description.rebalance_timeout_ms,
            list(description.classic.protocols),
        )
        group.add(member, CONSUMER)
        assignments[member_id] = encode_assignment(
            _by_name(groups, current.assigned), description.classic.protocols[0][1]
        )
    group.generation = epoch
    group.protocol = group.choose_protocol()
    group.state = State.STABLE
    protocols = {member_id: member.protocols for member_id, member in group.members.items()}
    return stable_group(group, assignments, now), protocols


def _by_name(groups: Groups, owned: Owned) -> dict[str, list[int]]:
    topics = groups.topology.image.topics_by_id
    return {topics[topic_id].name: sorted(parts) for topic_id, parts in owned.items() if topic_id in topics}


def downgrade(
    groups: Groups,
    group: ConsumerGroup,
    leaving: Collection[str],
    now: Millis,
    answers: Sequence[tuple[Any, Any]],
    timers: Sequence[Timer],
) -> Result:
    """Replace the consumer group by a classic one, and ask its members to rejoin."""
    stay = {
        member_id: (member.description, member.current)
        for member_id, member in group.members.items()
        if member_id not in leaving
    }
    record, protocols = classic_records(groups, group.group_id, group.epoch, stay, now)
    return Result(
        (*group.tombstones(), record),
        answers,
        timers,
        then=partial(classic.take_over, group.group_id, protocols, True),
    )
