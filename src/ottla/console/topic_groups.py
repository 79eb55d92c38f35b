"""Groups that read a topic: those with positions in it, or with members that have partitions of it."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.client.admin.groups import ListedGroup
from ottla.client.aio import Admin
from ottla.client.topics import TopicPartition
from ottla.console.group_positions import SHARE, group_positions

MOST_GROUPS: Final = 200
"""Groups of a cluster that are asked for their positions."""
_WITHOUT_ASSIGNMENT: Final = (SHARE, "streams")


class TopicGroup(NamedTuple):
    """Group with its members that have partitions of the topic, and its lag there; None where it is not known."""

    group: ListedGroup
    partitions: int
    members: int | None
    lag: int | None


class TopicGroups(NamedTuple):
    """Groups of a topic, and the number of groups that were not asked."""

    rows: list[TopicGroup]
    left_out: int


async def topic_groups(admin: Admin, topic: str, ends: Mapping[TopicPartition, int], timeout_s: float) -> TopicGroups:
    """Return the groups of a topic, sorted by id; `ends` are its end offsets. Raises KafkaError."""
    listed = await admin.list_groups(timeout=timeout_s)
    asked = [group for _, group in sorted(listed.items())][:MOST_GROUPS]
    positions = await group_positions(admin, asked, timeout_s)
    described = await admin.describe_consumer_groups(
        [group.group_id for group in asked if group.type not in _WITHOUT_ASSIGNMENT], timeout=timeout_s
    )
    rows = []
    for group in asked:
        known = positions.get(group.group_id)
        offsets = {} if known is None else {p: at for p, at in known.positions.items() if p.topic == topic}
        assigned = _assignment_of(described.successes.get(group.group_id), topic)
        if not offsets and not assigned:
            continue
        behind = [max(0, ends[partition] - offset) for partition, offset in offsets.items() if partition in ends]
        members = None if group.type in _WITHOUT_ASSIGNMENT else len({*assigned.values()})
        lag = sum(behind) if behind and group.type != SHARE else None
        rows.append(TopicGroup(group, len({*offsets, *assigned}), members, lag))
    return TopicGroups(rows, len(listed) - len(asked))


def _assignment_of(description: Any, topic: str) -> dict[TopicPartition, str]:
    """Return the partitions of the topic that members have, with the member."""
    if description is None:
        return {}
    return {
        partition: member.member_id
        for member in description.members
        for partition in member.assignment
        if partition.topic == topic
    }
