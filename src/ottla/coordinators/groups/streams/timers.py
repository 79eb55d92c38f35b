"""Timeouts of streams groups, and the removal of members.

    end_session        a member sent no heartbeat in its session timeout
    end_revocation     a member did not give back its revoked tasks in its rebalance timeout
    end_initial_delay  the first members had time to join: the first targets are computed

The first two fence the member: it is removed, the group has a new epoch, and the member joins again when its next request
fails.
"""

from collections.abc import Sequence
from typing import Any, Final

from ottla.coordinators.groups.state import Groups
from ottla.coordinators.groups.streams.assignors import AssignorFailed
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.member import LEAVING_FOR_A_WHILE, MemberState
from ottla.coordinators.groups.streams.records import group_epoch, member_tombstones, target_epoch
from ottla.coordinators.groups.streams.targets import compute_targets, target_records
from ottla.coordinators.runtime import NOTHING, Millis, Result, Timer

_RETRY_MS: Final = 1_000
"""Delay before a timer runs again after its records could not be appended."""


def end_session(groups: Groups, group_id: str, member_id: str, now: Millis) -> Result:  # noqa: ARG001
    """Fence a member that sent no heartbeat in its session timeout."""
    return _end(groups, group_id, member_id, Timer(end_session, (group_id, member_id), _RETRY_MS))


def end_revocation(groups: Groups, group_id: str, member_id: str, now: Millis) -> Result:  # noqa: ARG001
    """Fence a member that did not give back its tasks in time."""
    group = groups.streams_groups.get(group_id)
    member = None if group is None else group.members.get(member_id)
    if member is None or member.current.state is not MemberState.UNREVOKED_TASKS:
        return NOTHING
    if member.current.epoch == LEAVING_FOR_A_WHILE:  # it left temporarily, and is removed at the end of its session
        return NOTHING
    return _end(groups, group_id, member_id, Timer(end_revocation, (group_id, member_id), _RETRY_MS))


def _end(groups: Groups, group_id: str, member_id: str, retry: Timer) -> Result:
    group = groups.streams_groups.get(group_id)
    if group is None or member_id not in group.members:
        return NOTHING
    result = fence(group, member_id)
    return result._replace(refused=lambda groups, code, now: Result(timers=(retry,)))  # noqa: ARG005


def fence(group: StreamsGroup, member_id: str, answers: Sequence[tuple[Any, Any]] = ()) -> Result:
    """Remove a member that leaves or is fenced; `answers` are sent after the removal."""
    group_id, epoch = group.group_id, group.epoch + 1
    descriptions = group.stored_description, group.failed_description
    records = member_tombstones(group_id, member_id)
    records.append(
        group_epoch(group_id, epoch, group.metadata_hash, group.validated_epoch, group.configs, descriptions)
    )
    if (
        len(group.members) == 1
    ):  # an empty group has no targets to compute, and its next member need not wait for the interval
        records.append(target_epoch(group_id, epoch, 0))
    timers = [Timer(end, (group_id, member_id), None) for end in (end_session, end_revocation)]
    return Result(records, answers, timers)


def end_initial_delay(groups: Groups, group_id: str, now: Millis) -> Result:
    """Compute the first targets of a group; its members get them with their next heartbeats."""
    group = groups.streams_groups.get(group_id)
    if group is None:
        return NOTHING
    if group.is_empty or group.epoch <= group.target_epoch:
        group.delay_runs = False
        return NOTHING
    members = {
        member_id: (member.description, member.current, member.offsets) for member_id, member in group.members.items()
    }
    retry = Timer(end_initial_delay, (group_id,), _RETRY_MS)
    _, assign = groups.streams_assignor(group_id)
    try:
        targets = compute_targets(members, group.sized, group.configs, assign)
    except AssignorFailed:
        group.delay_runs = False  # heartbeats compute the targets from now on, and return the error
        return NOTHING
    records = [*target_records(group, targets), target_epoch(group_id, group.epoch, now)]

    def end_delay(groups: Groups, now: Millis) -> Result:  # noqa: ARG001
        groups.streams_groups[group_id].delay_runs = False
        return NOTHING

    return Result(records, then=end_delay, refused=lambda groups, code, now: Result(timers=(retry,)))  # noqa: ARG005


def after_loading(groups: Groups, group: StreamsGroup) -> list[Timer]:
    """Return the timers of a group loaded from the log: every member gets a full session timeout."""
    group_id = group.group_id
    timers = []
    for member_id, member in group.members.items():
        timers.append(Timer(end_session, (group_id, member_id), groups.streams_session_timeout_ms(group_id)))
        if member.current.state is MemberState.UNREVOKED_TASKS:
            timers.append(Timer(end_revocation, (group_id, member_id), member.description.rebalance_timeout_ms))
    return timers
