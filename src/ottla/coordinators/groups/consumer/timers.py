"""Timeouts of consumer groups, and the removal of members.

    end_session     a member sent no heartbeat in its session timeout
    end_revocation  a member did not give back its revoked partitions in its rebalance timeout
    end_join        a classic member did not rejoin in its rebalance timeout
    end_sync        a classic member joined, but did not fetch its assignment in its rebalance timeout

Each of them fences the member: it is removed, the group has a new epoch, and the member joins again when its next request
fails. When the last member with the consumer protocol leaves, the group becomes a classic one if the policy allows it.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

from ottla.coordinators.groups.consumer.group import ConsumerGroup, Resolved, subscriptions
from ottla.coordinators.groups.consumer.member import LEAVING_FOR_A_WHILE, MemberState
from ottla.coordinators.groups.consumer.records import (
    group_epoch,
    member_tombstones,
    regex_tombstone,
    resolved_regex,
    target_epoch,
)
from ottla.coordinators.groups.consumer.regexes import matching
from ottla.coordinators.groups.migration.downgrade import downgrade, may_downgrade
from ottla.coordinators.groups.state import Groups
from ottla.coordinators.records import CoordinatorRecord
from ottla.coordinators.runtime import NOTHING, Millis, Result, Timer
from ottla.protocol.context import RequestContext
from ottla.security.operations import AclOperation, AclResourceType

_RETRY_MS: Final = 1_000
"""Delay before a timer runs again after its records could not be appended."""


def end_session(groups: Groups, group_id: str, member_id: str, now: Millis) -> Result:
    """Fence a member that sent no heartbeat in its session timeout."""
    return _end(groups, group_id, member_id, now, Timer(end_session, (group_id, member_id), _RETRY_MS))


def end_revocation(groups: Groups, group_id: str, member_id: str, now: Millis) -> Result:
    """Fence a member that did not give back its partitions in time."""
    group = groups.consumer_groups.get(group_id)
    member = None if group is None else group.members.get(member_id)
    if member is None or member.current.state is not MemberState.UNREVOKED_PARTITIONS:
        return NOTHING
    if member.current.epoch == LEAVING_FOR_A_WHILE:  # it left temporarily, and is removed at the end of its session
        return NOTHING
    return _end(groups, group_id, member_id, now, Timer(end_revocation, (group_id, member_id), _RETRY_MS))


def end_join(groups: Groups, group_id: str, member_id: str, now: Millis) -> Result:
    """Fence a classic member that did not rejoin in time."""
    return _end(groups, group_id, member_id, now, Timer(end_join, (group_id, member_id), _RETRY_MS))


def end_sync(groups: Groups, group_id: str, member_id: str, now: Millis) -> Result:
    """Fence a classic member that did not fetch its assignment in time."""
    return _end(groups, group_id, member_id, now, Timer(end_sync, (group_id, member_id), _RETRY_MS))


def _end(groups: Groups, group_id: str, member_id: str, now: Millis, retry: Timer) -> Result:
    group = groups.consumer_groups.get(group_id)
    if group is None or member_id not in group.members:
        return NOTHING
    result = fence(groups, group, (member_id,), now)
    return result._replace(refused=lambda groups, code, now: Result(timers=(retry,)))  # noqa: ARG005


def no_timers(group_id: str, member_id: str) -> list[Timer]:
    """Return timers that cancel all of a member's."""
    return [
        Timer(operation, (group_id, member_id), None) for operation in (end_session, end_revocation, end_join, end_sync)
    ]


def fence(
    groups: Groups,
    group: ConsumerGroup,
    leaving: Collection[str],
    now: Millis,
    answers: Sequence[tuple[Any, Any]] = (),
) -> Result:
    """Remove members that leave or are fenced; `answers` are sent after the removal."""
    if not leaving:
        return Result(answers=answers)
    timers = [timer for member_id in leaving for timer in no_timers(group.group_id, member_id)]
    if may_downgrade(groups, group, leaving):
        timers += [
            timer
            for member_id in group.members
            if member_id not in leaving
            for timer in no_timers(group.group_id, member_id)
        ]
        return downgrade(groups, group, leaving, now, answers, timers)
    stays = {member_id: member.description for member_id, member in group.members.items() if member_id not in leaving}
    records: list[CoordinatorRecord] = []
    for member_id in leaving:
        records += member_tombstones(group.group_id, member_id)
    regexes = {description.regex for description in stays.values()}
    forgotten = [regex for regex in group.resolved if regex not in regexes]
    records += [regex_tombstone(group.group_id, regex) for regex in forgotten]
    resolved = {regex: resolution for regex, resolution in group.resolved.items() if regex in regexes}
    metadata_hash = groups.topology.metadata_hash(set(subscriptions(stays, resolved)))
    records.append(group_epoch(group.group_id, group.epoch + 1, metadata_hash))
    if not stays:  # an empty group has no targets to compute, and its next member need not wait for the interval
        records.append(target_epoch(group.group_id, group.epoch + 1, 0))
    return Result(records, answers, timers)


def refresh_regexes(groups: Groups, group_id: str, context: RequestContext | None, now: Millis) -> Result:
    """Resolve the regular expressions of a group; a change of their topics begins a new epoch.

    context  that of the request after which they are resolved: topics that its sender may not describe do not match, as in
             Kafka; None without an authorizer
    """
    group = groups.consumer_groups.get(group_id)
    if group is None:
        return NOTHING
    descriptions = {member_id: member.description for member_id, member in group.members.items()}
    cluster = groups.topology
    resolved = dict(group.resolved)
    records: list[CoordinatorRecord] = []
    changed = False
    for regex in sorted({description.regex for description in descriptions.values() if description.regex}):
        topics = matching(regex, cluster.image.topics)
        if context is not None:
            topics = frozenset(topic for topic in topics if _may_describe(context, topic))
        before = resolved.get(regex)
        changed = changed or topics != (frozenset() if before is None else before.topics)
        resolved[regex] = Resolved(topics, cluster.image.revision, now)
        records.append(resolved_regex(group_id, regex, topics, cluster.image.revision, now))
    metadata_hash = cluster.metadata_hash(set(subscriptions(descriptions, resolved)))
    if changed or metadata_hash != group.metadata_hash:
        records.append(group_epoch(group_id, group.epoch + 1, metadata_hash))
    return Result(records)


def _may_describe(context: RequestContext, topic: str) -> bool:
    return context.allowed(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic, is_logged=False)


def after_loading(groups: Groups, group: ConsumerGroup) -> list[Timer]:
    """Return the timers of a group loaded from the log: every member gets a full session timeout."""
    group_id = group.group_id
    timers = []
    for member_id, member in group.members.items():
        classic = member.description.classic
        session = groups.session_timeout_ms(group_id) if classic is None else classic.session_timeout_ms
        timers.append(Timer(end_session, (group_id, member_id), session))
        if classic is None and member.current.state is MemberState.UNREVOKED_PARTITIONS:
            timers.append(Timer(end_revocation, (group_id, member_id), member.description.rebalance_timeout_ms))
    return timers
