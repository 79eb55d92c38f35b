"""Classic-protocol members of a consumer group, during a migration (KIP-848).

To them the group is a classic one whose leader is always another member: JoinGroup answers at once, with the member's epoch as
generation; SyncGroup returns the coordinator's assignment; Heartbeat returns REBALANCE_IN_PROGRESS when they must rejoin. Their
owned partitions come with JoinGroup, in the subscription, so that the cooperative assignors give back step by step, and the
eager ones everything.
"""
# ruff: noqa: ARG001 - operations have one signature, whatever they need of it

from functools import partial

from ottla.coordinators.groups.classic import membership as classic
from ottla.coordinators.groups.classic.embedded import decode_subscription, encode_assignment
from ottla.coordinators.groups.classic.group import CONSUMER
from ottla.coordinators.groups.classic.member import protocols_of, rebalance_timeout
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.member import (
    ClassicMember,
    ConsumerMember,
    Current,
    Description,
    MemberState,
)
from ottla.coordinators.groups.consumer.reconciliation import merge_reported
from ottla.coordinators.groups.consumer.timers import end_join, end_session, end_sync, fence, no_timers
from ottla.coordinators.groups.consumer.update import Update
from ottla.coordinators.groups.member_checks import check_instance, check_room
from ottla.coordinators.groups.migration.downgrade import classic_records, may_replace_and_downgrade
from ottla.coordinators.groups.state import Groups
from ottla.coordinators.runtime import Millis, Result, Timer
from ottla.metadata.refusal import Refused
from ottla.protocol import errors
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.uuids import uuid_text
from ottla.protocol.wire import PeerError

# JoinGroup


def join(groups: Groups, group: ConsumerGroup, request: JoinGroupRequest, now: Millis) -> Result:
    """Handle JoinGroup of a new or known classic member. Responses for errors of the group have no member id, as in Kafka."""
    settings = groups.settings
    if not (settings.consumer.may_upgrade or settings.consumer.may_downgrade):
        # group.consumer.migration.policy is disabled
        return classic.reject(request, errors.INCONSISTENT_GROUP_PROTOCOL, member_id="")
    try:
        return _join(groups, group, request, now)
    except Refused as refused:
        return classic.reject(request, refused.code, member_id="")


def _join(groups: Groups, group: ConsumerGroup, request: JoinGroupRequest, now: Millis) -> Result:
    instance_id = request.group_instance_id
    is_new = not request.member_id
    member_id = request.member_id or uuid_text(groups.random.bytes16())
    check_room(group, "consumer", groups.settings.consumer.max_size, member_id, instance_id)
    if not group.supports_classic(request.protocol_type, {protocol.name for protocol in request.protocols}):
        raise Refused(errors.INCONSISTENT_GROUP_PROTOCOL, None)
    if is_new and instance_id is None and request.context.version >= 4:  # KIP-394
        answer = classic.join.refuse(request, errors.MEMBER_ID_REQUIRED)
        answer.member_id = member_id
        return Result(answers=((request, answer),))
    update = Update(groups, group, member_id, now)
    old = group.static_member(instance_id)
    if instance_id is not None:
        if not is_new:
            check_instance(group, member_id, instance_id)
        elif old is not None:
            update.take_over(old)
    subscription = _subscription(request)
    update.describe(_description(update.description, request, subscription))
    if old is not None and is_new and may_replace_and_downgrade(groups, group, old):
        return _join_and_downgrade(update, request, subscription, now)
    update.retarget()
    _reconcile(update, subscription)
    answer = _join_response(update, request)
    timeout_ms = request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms
    timers = [
        *update.timers,
        Timer(end_join, (group.group_id, member_id), None),
        Timer(end_session, (group.group_id, member_id), request.session_timeout_ms),
        Timer(end_sync, (group.group_id, member_id), timeout_ms),
    ]
    group.awaiting_join.discard(member_id)
    return Result(update.records, ((request, answer),), timers)


def _reconcile(update: Update, subscription: ConsumerProtocolSubscription) -> None:
    topics = update.groups.topology.image.topics
    update.reconcile(
        merge_reported(
            (topics[owned_partition.topic].id, owned_partition.partitions)
            for owned_partition in subscription.owned_partitions or ()
            if owned_partition.topic in topics
        )
    )


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """Return the subscription in the member's first protocol. Raises Refused."""
    try:
        return decode_subscription(request.protocols[0].metadata)
    except PeerError:
        raise Refused(errors.INCONSISTENT_GROUP_PROTOCOL, None) from None


def _description(
    before: Description, request: JoinGroupRequest, subscription: ConsumerProtocolSubscription
) -> Description:
    return Description(
        instance_id=before.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        client_id=request.context.client_id or "",
        client_host=request.context.client_host,
        topics=frozenset(subscription.topics),
        regex="",  # the classic protocol resolves regular expressions in the client
        rebalance_timeout_ms=rebalance_timeout(request),
        assignor=before.assignor,
        classic=ClassicMember(request.session_timeout_ms, tuple(protocols_of(request))),
    )


def _join_response(update: Update, request: JoinGroupRequest) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=update.current.epoch,
        protocol_type=CONSUMER,
        protocol_name=request.protocols[0].name,
        member_id=update.member_id,
    )


def _join_and_downgrade(
    update: Update, request: JoinGroupRequest, subscription: ConsumerProtocolSubscription, now: Millis
) -> Result:
    """Handle a static member, the last one with the consumer protocol, that rejoins with the classic protocol."""
    group, groups = update.group, update.groups
    resubscribed = update.epoch != group.epoch
    if not resubscribed:
        update.target = group.target_of(update.member_id, update.description.instance_id)
        _reconcile(update, subscription)
    members: dict[str, tuple[Description, Current]] = {}
    for member_id, member in group.members.items():
        if member_id == update.replaced:
            members[update.member_id] = update.description, update.current
        else:
            members[member_id] = member.description, member.current
    record, protocols = classic_records(groups, group.group_id, update.epoch, members, now)
    scratch = {*group.members, update.member_id}
    timers = [timer for member_id in scratch for timer in no_timers(group.group_id, member_id)]
    return Result(
        (*group.tombstones(), record),
        ((request, _join_response(update, request)),),
        timers,
        then=partial(classic.take_over, group.group_id, protocols, resubscribed),
    )


# SyncGroup and Heartbeat


def _member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ConsumerMember:
    """Return the sender of a request. Raises Refused."""
    if instance_id is not None:
        member: ConsumerMember | None = check_instance(group, member_id, instance_id)
    else:
        member = group.members.get(member_id)
    if member is None or not member.is_classic:
        raise Refused(errors.UNKNOWN_MEMBER_ID, None)
    if member.current.epoch != generation:
        raise Refused(errors.ILLEGAL_GENERATION, None)
    return member


def sync(groups: Groups, group: ConsumerGroup, request: SyncGroupRequest, now: Millis) -> Result:
    """Handle SyncGroup: return a classic member's assignment."""
    try:
        member = _member(group, request.member_id, request.group_instance_id, request.generation_id)
        classic_member = member.description.classic
        assert classic_member is not None
        name, metadata = classic_member.protocols[0]
        if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, name):
            raise Refused(errors.INCONSISTENT_GROUP_PROTOCOL, None)
    except Refused as refused:
        return Result(answers=((request, classic.sync.refuse(request, refused.code)),))
    current = member.current
    if current.epoch < group.target_epoch and current.state is not MemberState.UNREVOKED_PARTITIONS:
        answer = classic.sync.refuse(request, errors.REBALANCE_IN_PROGRESS)
        return Result(answers=((request, answer),), timers=_rejoin_timers(group, member))
    topics = groups.topology.image.topics_by_id
    assigned = {
        topics[topic_id].name: sorted(parts) for topic_id, parts in current.assigned.items() if topic_id in topics
    }
    response = SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=encode_assignment(assigned, metadata),
    )
    key = (group.group_id, member.member_id)
    timers = (Timer(end_sync, key, None), Timer(end_session, key, classic_member.session_timeout_ms))
    return Result(answers=((request, response),), timers=timers)


def heartbeat(groups: Groups, group: ConsumerGroup, request: HeartbeatRequest, now: Millis) -> Result:
    """Handle Heartbeat of a classic member, which must rejoin for a new target, or to give back or receive partitions."""
    try:
        member = _member(group, request.member_id, request.group_instance_id, request.generation_id)
    except Refused as refused:
        return Result(answers=((request, HeartbeatResponse(error_code=refused.code)),))
    classic_member, current = member.description.classic, member.current
    assert classic_member is not None
    session = Timer(end_session, (group.group_id, member.member_id), classic_member.session_timeout_ms)
    must_rejoin = (
        current.epoch < group.target_epoch
        or current.state is MemberState.UNREVOKED_PARTITIONS
        or (current.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
    )
    if not must_rejoin:
        return Result(answers=((request, HeartbeatResponse()),), timers=(session,))
    response = HeartbeatResponse(error_code=errors.REBALANCE_IN_PROGRESS)
    return Result(answers=((request, response),), timers=(session, *_rejoin_timers(group, member)))


def _rejoin_timers(group: ConsumerGroup, member: ConsumerMember) -> list[Timer]:
    """Return the timer of the member's rejoin timeout; it starts only when the member is first asked to rejoin."""
    member_id = member.member_id
    if member_id in group.awaiting_join:
        return []
    group.awaiting_join.add(member_id)
    return [Timer(end_join, (group.group_id, member_id), member.description.rebalance_timeout_ms)]


# LeaveGroup


def leave(groups: Groups, group: ConsumerGroup, request: LeaveGroupRequest, now: Millis) -> Result:
    """Handle LeaveGroup: members leave, or an operator removes static ones by their instance id."""
    codes: list[int] = []
    leaving: list[str] = []
    for who in classic.leaving_members(request):
        member: ConsumerMember | None
        code = errors.NONE
        if who.group_instance_id is None:
            member = group.members.get(who.member_id)
        else:
            member = group.static_member(who.group_instance_id)
            if member is not None and who.member_id not in ("", member.member_id):
                code = errors.FENCED_INSTANCE_ID
        if member is None:
            code = errors.UNKNOWN_MEMBER_ID
        elif code == errors.NONE and member.member_id not in leaving:
            leaving.append(member.member_id)
        codes.append(code)
    return fence(groups, group, leaving, now, ((request, classic.leave_response(request, codes)),))
