"""ConsumerGroupHeartbeat (KIP-848): the request by which a member joins, stays in, changes and leaves a consumer group.

Most heartbeats change nothing: they cost one check of the group and one timer (`_is_quiet`).
"""

from functools import partial

from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.member import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    ConsumerMember,
    Description,
    Owned,
)
from ottla.coordinators.groups.consumer.reconciliation import is_within, merge_reported
from ottla.coordinators.groups.consumer.records import member_current
from ottla.coordinators.groups.consumer.subscriptions import refresh_is_due
from ottla.coordinators.groups.consumer.timers import end_session, fence
from ottla.coordinators.groups.consumer.update import Update
from ottla.coordinators.groups.heartbeat_interval import interval_ms, settling_ms
from ottla.coordinators.groups.member_checks import check_epoch, check_instance, check_released, check_room
from ottla.coordinators.groups.migration.upgrade import Upgrade
from ottla.coordinators.groups.state import Groups
from ottla.coordinators.runtime import Millis, Result, Timer, operation
from ottla.metadata.refusal import Refused
from ottla.protocol import errors
from ottla.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.protocol.uuids import uuid_text


def refuse(
    request: ConsumerGroupHeartbeatRequest,  # noqa: ARG001 - a refusal's signature
    code: int,
    message: str | None = None,
) -> ConsumerGroupHeartbeatResponse:
    """Return an error response."""
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


def request_error(request: ConsumerGroupHeartbeatRequest) -> str | None:
    """Return the message of an INVALID_REQUEST that does not depend on the group; None if there is no such error."""
    epoch = request.member_epoch
    # From version 1 on members generate their ids (KIP-1082).
    if not request.member_id.strip() and (request.context.version >= 1 or epoch > 0 or epoch == LEAVING):
        return "MemberId can't be empty."
    for name, value in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            return f"{name} can't be empty."
    if epoch == JOINING:
        if request.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs must be provided in first request."
        if request.topic_partitions is None or request.topic_partitions:
            return "TopicPartitions must be empty when (re-)joining."
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    elif epoch == LEAVING_FOR_A_WHILE:
        if request.instance_id is None:
            return "InstanceId can't be null."
    elif epoch < LEAVING_FOR_A_WHILE:
        return "MemberEpoch is invalid."
    return None


@operation(refuse)
def heartbeat(groups: Groups, request: ConsumerGroupHeartbeatRequest, now: Millis) -> Result:
    """Handle ConsumerGroupHeartbeat."""
    group = groups.consumer_groups.get(request.group_id)
    if group is not None:
        member = group.members.get(request.member_id)
        if member is not None and _is_quiet(groups, group, member, request, now):
            group_id = request.group_id
            config_ms = groups.heartbeat_interval_ms(group_id)
            answer = ConsumerGroupHeartbeatResponse(
                member_id=member.member_id,
                member_epoch=member.current.epoch,
                heartbeat_interval_ms=interval_ms(config_ms, settling_ms(config_ms, group.target_timestamp, now)),
            )
            timer = Timer(end_session, (group_id, member.member_id), groups.session_timeout_ms(group_id))
            return Result(answers=((request, answer),), timers=(timer,))
    try:
        if request.member_epoch in (LEAVING, LEAVING_FOR_A_WHILE):
            return _leave(groups, request, now)
        return _update(groups, request, now)
    except Refused as refused:
        return Result(answers=((request, refuse(request, refused.code, refused.message)),))


def _is_quiet(
    groups: Groups, group: ConsumerGroup, member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, now: Millis
) -> bool:
    """Return whether the heartbeat changes nothing: same description, target reached, and no pending work to start."""
    current, description, context = member.current, member.description, request.context
    return (
        request.member_epoch == current.epoch == group.target_epoch == group.epoch
        and current.state == 0
        and not group.is_stale
        and description.classic is None
        and request.rebalance_timeout_ms == -1
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and request.rack_id is None
        and request.instance_id == description.instance_id
        and context.client_id == description.client_id
        and context.client_host == description.client_host
        and not (group.regexes and refresh_is_due(group, group.regexes, groups, now))
    )


def _update(groups: Groups, request: ConsumerGroupHeartbeatRequest, now: Millis) -> Result:
    joins = request.member_epoch == JOINING
    group, upgrade = _group_of(groups, request.group_id, joins=joins)
    check_room(group, "consumer", groups.settings.consumer.max_size, request.member_id, request.instance_id)
    member_id = request.member_id or uuid_text(groups.random.bytes16())
    owned = None
    if request.topic_partitions is not None:
        owned = merge_reported((topic.topic_id, topic.partitions) for topic in request.topic_partitions)
    update = Update(groups, group, member_id, now)
    if request.context.authorizer is not None:
        update.context = request.context
    if request.instance_id is not None:
        old = group.static_member(request.instance_id)
        if not joins:
            check_instance(group, member_id, request.instance_id)
        elif old is not None:
            if not old.is_classic:
                check_released(old, member_id, request.instance_id)
            update.take_over(old)
    elif not joins and member_id not in group.members:
        raise Refused(errors.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
    check_epoch(update.current, "consumer", request.member_epoch, is_behind=is_within(owned, update.current.assigned))
    before = update.current.assigned
    update.describe(_description(update.description, request))
    update.retarget()
    update.reconcile(owned)
    current = update.current
    response = ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=current.epoch,
        heartbeat_interval_ms=update.heartbeat_interval_ms(),
    )
    says_all = request.rebalance_timeout_ms != -1 and owned is not None
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    if joins or (says_all and subscribes) or not _same_partitions(before, current.assigned):
        response.assignment = _assignment(current.assigned)
    session = Timer(end_session, (group.group_id, member_id), groups.session_timeout_ms(group.group_id))
    records = [*(upgrade.records if upgrade is not None else ()), *update.records]
    follows = partial(_after_upgrade, upgrade) if upgrade is not None else None
    return Result(records, ((request, response),), (*update.timers, session), then=follows)


def _group_of(groups: Groups, group_id: str, *, joins: bool) -> tuple[ConsumerGroup, Upgrade | None]:
    """Return the group; a joining member creates a missing group, and converts a classic one."""
    group = groups.consumer_groups.get(group_id)
    if group is not None:
        return group, None
    classic = groups.groups.get(group_id)
    if classic is not None and joins:
        upgrade = Upgrade(groups, classic)
        return upgrade.group, upgrade
    if groups.type_of(group_id) is not None:
        raise Refused(errors.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    if not joins:
        raise Refused(errors.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
    return ConsumerGroup(group_id), None


def _after_upgrade(upgrade: Upgrade, groups: Groups, now: Millis) -> Result:  # noqa: ARG001
    """Start the sessions of the classic members as members of the consumer group."""
    result = upgrade.follows()
    sessions = [
        Timer(end_session, (upgrade.group.group_id, member.member_id), member.session_timeout_ms)
        for member in upgrade.classic.members.values()
    ]
    return result._replace(timers=(*result.timers, *sessions))


def _description(before: Description, request: ConsumerGroupHeartbeatRequest) -> Description:
    """Return the member's description after the request; fields that the request leaves out are unchanged."""
    names = request.subscribed_topic_names
    regex = request.subscribed_topic_regex
    timeout = request.rebalance_timeout_ms
    return Description(
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.context.client_id or "",
        client_host=request.context.client_host,
        topics=before.topics if names is None else frozenset(names),
        regex=before.regex if regex is None else regex,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout == -1 else timeout,
        assignor=before.assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def _same_partitions(before: Owned, after: Owned) -> bool:
    return before.keys() == after.keys() and all(after[topic].keys() == parts.keys() for topic, parts in before.items())


def _assignment(owned: Owned) -> Assignment:
    topics = [TopicPartitions(topic_id=topic_id, partitions=list(parts)) for topic_id, parts in owned.items()]
    return Assignment(topic_partitions=topics)


def _leave(groups: Groups, request: ConsumerGroupHeartbeatRequest, now: Millis) -> Result:
    group_id, member_id, epoch = request.group_id, request.member_id, request.member_epoch
    group = groups.consumer_groups.get(group_id)
    if group is None:
        known = groups.type_of(group_id) is not None
        text = f"Group {group_id} is not a consumer group." if known else f"Group {group_id} not found."
        raise Refused(errors.GROUP_ID_NOT_FOUND, text)
    answer = ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=epoch)
    if request.instance_id is not None:
        member = check_instance(group, member_id, request.instance_id)
        if epoch == LEAVING_FOR_A_WHILE:
            # Its partitions get epoch 0, so that they are valid with any epoch that it returns with.
            kept = {topic_id: dict.fromkeys(parts, 0) for topic_id, parts in member.current.assigned.items()}
            away = member.current._replace(epoch=epoch, assigned=kept, revoking={})
            return Result((member_current(group_id, member_id, away),), ((request, answer),))
    elif member_id not in group.members:
        raise Refused(errors.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")
    return fence(groups, group, (member_id,), now, ((request, answer),))
