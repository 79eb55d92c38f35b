"""Positions and lag of groups: committed offsets, or start offsets of share groups."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.client.admin.groups import ListedGroup
from ottla.client.aio import Admin
from ottla.client.topics import LATEST, TopicPartition

SHARE: Final = "share"


class GroupPositions(NamedTuple):
    """Positions of a group by partition, and its lag over all partitions where it is known; None where in none."""

    positions: dict[TopicPartition, int]
    lag: int | None


async def group_positions(admin: Admin, listed: Iterable[ListedGroup], timeout_s: float) -> dict[str, GroupPositions]:
    """Return the positions of groups; those that may not be described are left out. Raises KafkaError."""
    groups = list(listed)
    known: dict[str, GroupPositions] = {}
    shared = [group.group_id for group in groups if group.type == SHARE]
    others = [group.group_id for group in groups if group.type != SHARE]
    if shared:
        share_offsets = await admin.list_share_group_offsets(shared, timeout=timeout_s)
        for group_id, starts in share_offsets.successes.items():
            lags = [entry.lag for entry in starts.values() if entry.lag is not None]
            started = {part: entry.start_offset for part, entry in starts.items() if entry.start_offset is not None}
            known[group_id] = GroupPositions(started, sum(lags) if lags else None)
    if not others:
        return known
    committed = await admin.list_consumer_group_offsets(others, timeout=timeout_s)
    offsets = {
        group_id: {partition: entry.offset for partition, entry in its.items() if entry.offset >= 0}
        for group_id, its in committed.successes.items()
    }
    partitions = sorted({partition for its in offsets.values() for partition in its})
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST), timeout=timeout_s)
    known_ends = {partition: entry.offset for partition, entry in ends.successes.items()}
    for group_id, its in offsets.items():
        behind = [max(0, known_ends[part] - offset) for part, offset in its.items() if part in known_ends]
        known[group_id] = GroupPositions(its, sum(behind) if behind else None)
    return known


async def group_lags(admin: Admin, listed: Iterable[ListedGroup], timeout_s: float) -> dict[str, int]:
    """Return the lag of the groups that have one. Raises KafkaError."""
    positions = await group_positions(admin, listed, timeout_s)
    return {group_id: entry.lag for group_id, entry in positions.items() if entry.lag is not None}
