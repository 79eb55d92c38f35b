"""Classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and their timeouts.

The steps of a rebalance; its states are drawn in group.py:

    join       parks the member until all others rejoined (or the longest rebalance timeout of a member is over; out of
               Empty: group.initial.rebalance.delay.ms, prolonged while members keep coming), then every member gets the
               new generation, and the leader gets the list of members
    sync       parks the member until the leader's assignments are in the log, then every member gets its own
    heartbeat  returns REBALANCE_IN_PROGRESS when the member must rejoin
    leave      removes members, as does the end of a session

State in memory changes at once (joining and parked members); generation, protocol, leader and assignments change by replay of
a record. If a decision needs a record first, its consequences are in the result's `then`, so that a failed append leaves the
group unchanged.

One file, because each step of a rebalance is called from several of the others.
"""
# ruff: noqa: ARG001 - operations, refusals and timers have one signature each, whatever they need of it

import uuid
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Final, Protocol

from ottla.coordinators.groups.classic.group import ClassicGroup, State
from ottla.coordinators.groups.classic.member import Member, protocols_of
from ottla.coordinators.groups.records import empty_group, stable_group
from ottla.coordinators.groups.state import Groups, GroupSettings
from ottla.coordinators.records import CoordinatorRecord
from ottla.coordinators.runtime import COORDINATOR_UNAVAILABLE, NOTHING, Millis, Result, Timer, operation
from ottla.protocol import errors
from ottla.protocol.messages.group_metadata_record import GroupMetadataValue
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_RETRY_MS: Final = 1_000
"""Delay before a timer runs again after its records could not be appended."""


class _Draft:
    """Result of an operation under construction, to which answers and timers are added step by step."""

    __slots__ = ("answers", "timers")

    def __init__(self) -> None:
        self.answers: list[tuple[Any, Any]] = []
        self.timers: list[Timer] = []

    def answer(self, request: Any, response: Any) -> None:
        self.answers.append((request, response))

    def session(self, group: ClassicGroup, member: Member) -> None:
        """Renew the member's session."""
        self.timers.append(Timer(expire_session, (group.group_id, member.member_id), member.session_timeout_ms))

    def cancel_session(self, group: ClassicGroup, member_id: str) -> None:
        self.timers.append(Timer(expire_session, (group.group_id, member_id), None))

    def result(self) -> Result:
        return Result(answers=self.answers, timers=self.timers)


def after_loading(group: ClassicGroup, settings: GroupSettings) -> list[Timer]:
    """Return the timers of a group loaded from the log: every member gets a full session timeout."""
    return [
        Timer(expire_session, (group.group_id, member.member_id), member.session_timeout_ms)
        for member in group.members.values()
    ] + ([Timer(shrink, (group.group_id,), 0)] if len(group.members) > settings.max_size else [])


def take_over(
    group_id: str,
    protocols: dict[str, list[tuple[str, bytes]]],
    must_rejoin: bool,
    groups: Groups,
    now: Millis,
) -> Result:
    """Start the classic group that a consumer group became (KIP-848): start the sessions; rebalance if a member left."""
    group = groups.groups[group_id]
    draft = _Draft()
    group.restore_protocols(protocols)
    for member in group.members.values():
        draft.session(group, member)
    if must_rejoin:
        _prepare_rebalance(groups, group, draft)
    return draft.result()


def hand_over(group: ClassicGroup) -> Result:
    """End the classic group that became a consumer group (KIP-848): parked members must rejoin, its timers are cancelled."""
    draft = _Draft()
    for member in group.members.values():
        draft.cancel_session(group, member.member_id)
        if member.join is not None:
            draft.answer(member.join, _refuse_join(member.join, errors.REBALANCE_IN_PROGRESS))
        if member.sync is not None:
            draft.answer(member.sync, SyncGroupResponse(error_code=errors.REBALANCE_IN_PROGRESS))
        member.join = member.sync = None
    for member_id in sorted(group.pending_members):
        draft.cancel_session(group, member_id)
    draft.timers += [Timer(end_join, (group.group_id,), None), Timer(expire_sync, (group.group_id,), None)]
    return draft.result()


def shrink(groups: Groups, group_id: str, now: Millis) -> Result:
    """Begin a rebalance of a group that exceeds group.max.size after loading; it admits only as many members as allowed."""
    group = groups.get(group_id)
    if group is None or group.state is not State.STABLE:
        return NOTHING
    draft = _Draft()
    _prepare_rebalance(groups, group, draft)
    return draft.result()


class _NamesGroup(Protocol):
    group_id: str


def _names_group(request: _NamesGroup) -> int:
    return errors.NONE if request.group_id else errors.INVALID_GROUP_ID


# JoinGroup


def _refuse_join(request: JoinGroupRequest, code: int) -> JoinGroupResponse:
    return _not_joined(request, code, "" if code in COORDINATOR_UNAVAILABLE else request.member_id)


def _not_joined(request: JoinGroupRequest, code: int, member_id: str) -> JoinGroupResponse:
    """Return an error response; its protocol name is null if the version allows that."""
    name = None if request.context.version >= 7 else ""
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=name)


@operation(_refuse_join, _names_group)
def join(groups: Groups, request: JoinGroupRequest, now: Millis) -> Result:
    """Handle JoinGroup: add the member to the next generation."""
    return join_in_place(groups, request, (), now)


def join_in_place(
    groups: Groups, request: JoinGroupRequest, instead_of: Sequence[CoordinatorRecord], now: Millis
) -> Result:
    """Handle JoinGroup like `join`; `instead_of`, the tombstones of an empty consumer group, is appended before a new group."""
    if request.group_id in groups.share_groups:
        return reject(request, errors.INCONSISTENT_GROUP_PROTOCOL, member_id="")
    group = groups.get(request.group_id)
    if group is None:
        if request.member_id:
            return reject(request, errors.UNKNOWN_MEMBER_ID)
        new = empty_group(ClassicGroup(request.group_id), 0, now)
        return Result(records=(*instead_of, new), then=partial(_join_new_group, request))
    return _join(groups, group, request, now)


def reject(request: JoinGroupRequest, code: int, member_id: str | None = None) -> Result:
    """Reject a JoinGroup; the response has the request's member id unless `member_id` is set."""
    response = _not_joined(request, code, request.member_id if member_id is None else member_id)
    return Result(answers=((request, response),))


def _join_new_group(request: JoinGroupRequest, groups: Groups, now: Millis) -> Result:
    return _join(groups, groups.groups[request.group_id], request, now)


def _join(groups: Groups, group: ClassicGroup, request: JoinGroupRequest, now: Millis) -> Result:
    draft = _Draft()
    if not _has_room(group, request.member_id, groups.settings.max_size):
        if group.remove(request.member_id) is not None:
            draft.cancel_session(group, request.member_id)
        draft.answer(request, _not_joined(request, errors.GROUP_MAX_SIZE_REACHED, ""))
        return draft.result()
    if not group.supports(request.protocol_type, [protocol.name for protocol in request.protocols]):
        return reject(request, errors.INCONSISTENT_GROUP_PROTOCOL)
    if request.member_id:
        _join_known(groups, group, request, draft)
        return draft.result()
    instance_id = request.group_instance_id
    member_id = f"{request.context.client_id or '' if instance_id is None else instance_id}-{_uuid(groups)}"
    if instance_id is not None:
        replaced = group.static_member(instance_id)
        if replaced is not None:
            return _replace_static(groups, group, replaced, member_id, request, now)
        _add(groups, group, member_id, request, draft)
    elif request.context.version >= 4:  # KIP-394: a member id first, so that retries do not leave unused members behind
        group.pending_members.add(member_id)
        draft.timers.append(Timer(expire_session, (group.group_id, member_id), request.session_timeout_ms))
        draft.answer(request, _not_joined(request, errors.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(groups, group, member_id, request, draft)
    return draft.result()


def _uuid(groups: Groups) -> str:
    return str(uuid.UUID(bytes=groups.random.bytes16(), version=4))


def _has_room(group: ClassicGroup, member_id: str, max_size: int) -> bool:
    """Return whether group.max.size admits this member. While preparing, only rejoined members count, so that a group that has
    become too large drops its last ones.
    """
    if group.state is State.EMPTY or len(group.members) < max_size:
        return True
    member = group.members.get(member_id)
    if group.state is State.PREPARING_REBALANCE:
        return (member is not None and member.join is not None) or group.joining < max_size
    return member is not None


def _join_known(groups: Groups, group: ClassicGroup, request: JoinGroupRequest, draft: _Draft) -> None:
    """Handle JoinGroup of a pending member, or of a member that rejoins."""
    if request.member_id in group.pending_members:
        if request.group_instance_id is not None:
            # Only dynamic members are assigned pending ids; a static one here is a bug, in Kafka too.
            draft.answer(request, _not_joined(request, errors.UNKNOWN_SERVER_ERROR, ""))
            return
        _add(groups, group, request.member_id, request, draft)
        return
    code = group.check_member(request.member_id, request.group_instance_id)
    if code != errors.NONE or group.is_empty:
        draft.answer(request, _refuse_join(request, code or errors.UNKNOWN_MEMBER_ID))
        return
    member = group.members[request.member_id]
    unchanged = member.protocols == protocols_of(request)
    is_leader = group.leader == member.member_id
    if unchanged and group.state is State.COMPLETING_REBALANCE:
        draft.answer(
            request, _join_response(group, member, with_members=is_leader)
        )  # its response was lost: send it again
    elif unchanged and group.state is State.STABLE and not is_leader:
        draft.answer(request, _join_response(group, member, with_members=False))
    else:
        _park_join(member, request, draft)
        group.update(member, request)
        _rebalance_or_complete(groups, group, draft)


def _add(groups: Groups, group: ClassicGroup, member_id: str, request: JoinGroupRequest, draft: _Draft) -> None:
    """Add a member that joins for the first time. The new-member timeout replaces its session (KIP-394: 5 minutes)."""
    member = Member.joining(member_id, request)
    member.is_new = True
    member.join = request
    if group.initial_rebalance:
        group.joined_meanwhile = True
    group.add(member, request.protocol_type)
    timeout_ms = groups.settings.new_member_join_timeout_ms
    draft.timers.append(Timer(expire_session, (group.group_id, member_id), timeout_ms))
    _rebalance_or_complete(groups, group, draft)


def _park_join(member: Member, request: JoinGroupRequest, draft: _Draft) -> None:
    """Park the request until the rebalance ends. An older one of the same member is answered with REBALANCE_IN_PROGRESS."""
    if member.join is not None:
        draft.answer(member.join, _refuse_join(member.join, errors.REBALANCE_IN_PROGRESS))
    member.join = request


def _replace_static(
    groups: Groups, group: ClassicGroup, old: Member, new_id: str, request: JoinGroupRequest, now: Millis
) -> Result:
    """Give a restarted static member its new member id, without a rebalance where nothing else changed (KIP-345)."""
    draft = _Draft()
    if group.state is State.STABLE:
        snapshot = stable_group(group, {member.member_id: member.assignment for member in group.members.values()}, now)
        replacement = Member.joining(new_id, request)
        others = [member for member in group.members.values() if member is not old]
        if _protocol_with(group, others, replacement) == group.protocol:
            value = snapshot.value
            assert isinstance(value, GroupMetadataValue)
            for stored in value.members:
                if stored.member_id == old.member_id:
                    stored.member_id = new_id
                    stored.subscription = replacement.metadata(group.protocol or "")
                    stored.session_timeout = replacement.session_timeout_ms
                    stored.rebalance_timeout = replacement.rebalance_timeout_ms
            leader_before = group.leader
            if value.leader == old.member_id:
                value.leader = new_id
            return Result(
                records=(snapshot,),
                then=partial(_static_replaced, request, new_id, old.member_id, leader_before or ""),
                refused=partial(_static_not_replaced, request),
            )
    _fence(old, draft)
    draft.cancel_session(group, old.member_id)
    member = group.replace(old, new_id)
    group.update(member, request)
    member.join = request
    draft.session(group, member)
    _rebalance_or_complete(groups, group, draft)
    return draft.result()


def _protocol_with(group: ClassicGroup, others: list[Member], newcomer: Member) -> str:
    """Return the protocol that the group would choose with the members `others` and `newcomer`."""
    imagined = ClassicGroup(group.group_id)
    imagined.members = {member.member_id: member for member in [*others, newcomer]}
    return imagined.choose_protocol()


def _fence(old: Member, draft: _Draft) -> None:
    """Answer the parked requests of a static member with FENCED_INSTANCE_ID after another one took over its instance id."""
    if old.join is not None:
        draft.answer(old.join, _not_joined(old.join, errors.FENCED_INSTANCE_ID, old.member_id))
    if old.sync is not None:
        draft.answer(old.sync, SyncGroupResponse(error_code=errors.FENCED_INSTANCE_ID))
    old.join = old.sync = None


def _static_replaced(
    request: JoinGroupRequest, new_id: str, old_id: str, leader_before: str, groups: Groups, now: Millis
) -> Result:
    """Answer a rejoined static member with the current generation, after its new member id is in the log.

    From version 9 on (KIP-814) a leader learns that it leads and must not assign again. Before, its response names the
    previous member id as leader, so that it acts as a follower.
    """
    group = groups.groups[request.group_id]
    member = group.members[new_id]
    group.update(member, request)
    draft = _Draft()
    draft.cancel_session(group, old_id)
    draft.session(group, member)
    response = _join_response(group, member, with_members=False)
    if request.context.version >= 9:
        if group.leader == new_id:
            response = _join_response(group, member, with_members=True)
            response.skip_assignment = True
    else:
        response.leader = leader_before
    draft.answer(request, response)
    return draft.result()


def _static_not_replaced(request: JoinGroupRequest, groups: Groups, code: int, now: Millis) -> Result:
    return reject(request, code, "")


def _join_response(group: ClassicGroup, member: Member, *, with_members: bool) -> JoinGroupResponse:
    """The JoinGroup response of a member of the current generation; the leader's lists the members."""
    protocol = group.protocol or ""
    members = [
        JoinGroupResponseMember(
            member_id=group_member.member_id,
            group_instance_id=group_member.instance_id,
            metadata=group_member.metadata(protocol),
        )
        for group_member in (group.members.values() if with_members else ())
    ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=protocol,
        leader=group.leader or "",
        member_id=member.member_id,
        members=members,
    )


# The rebalance


def _rebalance_or_complete(groups: Groups, group: ClassicGroup, draft: _Draft) -> None:
    """Begin a rebalance after a member joined or changed, or complete the one under way if no member is missing."""
    if group.state is not State.PREPARING_REBALANCE:
        _prepare_rebalance(groups, group, draft)
    elif group.all_joined and not group.initial_rebalance:
        _complete_join(group, draft)


def _prepare_rebalance(groups: Groups, group: ClassicGroup, draft: _Draft) -> None:
    """Begin a rebalance of a group with members: all of them must rejoin."""
    if group.state is State.COMPLETING_REBALANCE:
        _reset_assignments(group, errors.REBALANCE_IN_PROGRESS, draft)
    draft.timers.append(Timer(expire_sync, (group.group_id,), None))
    join_over = (group.group_id,)
    if group.is_empty:
        group.initial_rebalance = True
        group.joined_meanwhile = False
        group.initial_delay_ms = groups.settings.initial_rebalance_delay_ms
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - group.initial_delay_ms, 0)
        group.state = State.PREPARING_REBALANCE
        draft.timers.append(Timer(end_join, join_over, group.initial_delay_ms))
        return
    group.state = State.PREPARING_REBALANCE
    if group.all_joined:
        _complete_join(group, draft)
    else:
        draft.timers.append(Timer(end_join, join_over, group.rebalance_timeout_ms))


def _reset_assignments(group: ClassicGroup, code: int, draft: _Draft) -> None:
    """Clear all assignments, and answer the parked SyncGroup requests with `code`."""
    for member in group.members.values():
        member.assignment = b""
        if member.sync is not None:
            draft.answer(member.sync, SyncGroupResponse(error_code=code))
            member.sync = None
            draft.session(group, member)


def end_join(groups: Groups, group_id: str, now: Millis) -> Result:
    """End the time to rejoin. The first rebalance is extended while members keep coming, within their rebalance timeout."""
    group = groups.get(group_id)
    if group is None or group.state is not State.PREPARING_REBALANCE:
        return NOTHING
    if group.initial_rebalance and group.joined_meanwhile and group.initial_remaining_ms > 0:
        delay = min(groups.settings.initial_rebalance_delay_ms, group.initial_remaining_ms)
        group.joined_meanwhile = False
        group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
        group.initial_delay_ms = delay
        return Result(timers=(Timer(end_join, (group_id,), delay),))
    absent = [m.member_id for m in group.members.values() if m.join is None and m.instance_id is None]
    draft = _Draft()
    if len(absent) == len(group.members):
        return _empty(group, draft, now, retry=Timer(end_join, (group_id,), _RETRY_MS))
    for member_id in absent:
        _drop(group, member_id, draft)
    _complete_join(group, draft)
    return draft.result()


def _complete_join(group: ClassicGroup, draft: _Draft) -> None:
    """Begin a new generation after all of its members have joined; the leader is asked for assignments."""
    join_over = (group.group_id,)
    draft.timers.append(Timer(end_join, join_over, None))
    if not group.elect_joined_leader():
        # Only static members are left, and none of them rejoined: wait until they do, or their sessions end.
        draft.timers.append(Timer(end_join, join_over, group.rebalance_timeout_ms))
        return
    group.begin_generation()
    for member in group.members.values():
        if member.join is not None:
            is_leader = member.member_id == group.leader
            draft.answer(member.join, _join_response(group, member, with_members=is_leader))
            member.join = None
        member.is_new = False
        draft.session(group, member)
    draft.timers.append(Timer(expire_sync, join_over, group.rebalance_timeout_ms))


# SyncGroup


def _refuse_sync(request: SyncGroupRequest, code: int) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


def _check_sync(request: SyncGroupRequest) -> int:
    if request.context.version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return errors.INCONSISTENT_GROUP_PROTOCOL  # KIP-559 made them mandatory
    return _names_group(request)


@operation(_refuse_sync, _check_sync)
def sync(groups: Groups, request: SyncGroupRequest, now: Millis) -> Result:
    """Handle SyncGroup: return the member's assignment; the leader's request contains all assignments."""
    group = groups.get(request.group_id)
    code = _sync_error(group, request)
    if code != errors.NONE or group is None:
        return Result(answers=((request, _refuse_sync(request, code)),))
    member = group.members[request.member_id]
    if group.state is State.COMPLETING_REBALANCE and group.leader == member.member_id:
        assignments = {assignment.member_id: assignment.assignment for assignment in request.assignments}
        return Result(
            records=(stable_group(group, assignments, now),),
            then=partial(_answer_syncs, request),
            refused=partial(_not_assigned, request),
        )
    draft = _Draft()
    _note_sync(group, member, draft)
    if group.state is State.STABLE:
        draft.session(group, member)
        draft.answer(request, _sync_response(group, member))
    else:
        if member.sync is not None:
            draft.answer(member.sync, _refuse_sync(member.sync, errors.REBALANCE_IN_PROGRESS))
        member.sync = request
    return draft.result()


def _sync_error(group: ClassicGroup | None, request: SyncGroupRequest) -> int:
    if group is None:
        return errors.UNKNOWN_MEMBER_ID
    code = group.check_member(request.member_id, request.group_instance_id)
    if code != errors.NONE:
        return code
    if request.generation_id != group.generation:
        return errors.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (None, group.protocol):
        return errors.INCONSISTENT_GROUP_PROTOCOL
    return errors.REBALANCE_IN_PROGRESS if group.state is State.PREPARING_REBALANCE else errors.NONE


def _note_sync(group: ClassicGroup, member: Member, draft: _Draft) -> None:
    group.pending_sync.discard(member.member_id)
    if not group.pending_sync:
        draft.timers.append(Timer(expire_sync, (group.group_id,), None))


def _sync_response(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )


def _answer_syncs(request: SyncGroupRequest, groups: Groups, now: Millis) -> Result:
    """Answer all parked SyncGroup requests; the assignments are in the log."""
    group = groups.groups[request.group_id]
    draft = _Draft()
    leader = group.members[request.member_id]
    if leader.sync is not None:
        draft.answer(leader.sync, _refuse_sync(leader.sync, errors.REBALANCE_IN_PROGRESS))
    leader.sync = request
    _note_sync(group, leader, draft)
    for member in group.members.values():
        if member.sync is not None:
            draft.answer(member.sync, _sync_response(group, member))
            member.sync = None
            draft.session(group, member)
    return draft.result()


def _not_assigned(request: SyncGroupRequest, groups: Groups, code: int, now: Millis) -> Result:
    """Answer all parked SyncGroup requests with the error of the append, and rebalance again."""
    group = groups.groups[request.group_id]
    draft = _Draft()
    draft.answer(request, _refuse_sync(request, code))
    _reset_assignments(group, code, draft)
    _prepare_rebalance(groups, group, draft)
    return draft.result()


def expire_sync(groups: Groups, group_id: str, now: Millis) -> Result:
    """Remove members that joined the generation and never sent SyncGroup (KAFKA-13435, related to KIP-394)."""
    group = groups.get(group_id)
    if group is None or group.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not group.pending_sync:
        return NOTHING
    late = sorted(group.pending_sync)
    return _depart(groups, group, late, _Draft(), now, retry=Timer(expire_sync, (group_id,), _RETRY_MS))


# Heartbeat


def _refuse_heartbeat(request: HeartbeatRequest, code: int) -> HeartbeatResponse:
    if code == errors.COORDINATOR_LOAD_IN_PROGRESS:
        code = errors.NONE  # the state is not loaded yet; the member continues as it is
    return HeartbeatResponse(error_code=code)


@operation(_refuse_heartbeat, _names_group)
def heartbeat(groups: Groups, request: HeartbeatRequest, now: Millis) -> Result:
    """Renew the member's session, and return whether it must rejoin."""
    group = groups.groups.get(request.group_id)
    if group is None:
        return Result(answers=((request, HeartbeatResponse(error_code=errors.UNKNOWN_MEMBER_ID)),))
    code = group.check_member(request.member_id, request.group_instance_id)
    if code == errors.NONE and request.generation_id != group.generation:
        code = errors.ILLEGAL_GENERATION
    if code != errors.NONE:
        return Result(answers=((request, HeartbeatResponse(error_code=code)),))
    member = group.members[request.member_id]
    if group.state is State.PREPARING_REBALANCE:
        code = errors.REBALANCE_IN_PROGRESS
    return Result(
        answers=((request, HeartbeatResponse(error_code=code)),),
        timers=(Timer(expire_session, (group.group_id, member.member_id), member.session_timeout_ms),),
    )


def expire_session(groups: Groups, group_id: str, member_id: str, now: Millis) -> Result:
    """Remove a member without a heartbeat in its session timeout, or with a member id that was never used."""
    group = groups.get(group_id)
    if group is None:
        return NOTHING
    if member_id in group.pending_members:
        return _depart(groups, group, (member_id,), _Draft(), now)
    member = group.members.get(member_id)
    if member is None or member.is_waiting:
        return NOTHING
    retry = Timer(expire_session, (group_id, member_id), _RETRY_MS)
    return _depart(groups, group, (member_id,), _Draft(), now, retry=retry)


# LeaveGroup


def leaving_members(request: LeaveGroupRequest) -> list[MemberIdentity]:
    """Return the members that leave; before version 3 the request names a single one."""
    return request.members if request.context.version >= 3 else [MemberIdentity(member_id=request.member_id)]


def _refuse_leave(request: LeaveGroupRequest, code: int) -> LeaveGroupResponse:
    if code == errors.UNKNOWN_MEMBER_ID:
        return leave_response(request, [code] * len(leaving_members(request)))
    return LeaveGroupResponse(error_code=code)


def leave_response(request: LeaveGroupRequest, codes: list[int]) -> LeaveGroupResponse:
    """Return the response with the error of each member; before version 3 it has a single error."""
    if request.context.version < 3:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=who.member_id, group_instance_id=who.group_instance_id, error_code=code)
            for who, code in zip(request.members, codes, strict=True)
        ]
    )


@operation(_refuse_leave, _names_group)
def leave(groups: Groups, request: LeaveGroupRequest, now: Millis) -> Result:
    """Handle LeaveGroup: members leave, or an operator removes static ones by their instance id."""
    group = groups.get(request.group_id)
    if group is None:
        return Result(answers=((request, _refuse_leave(request, errors.UNKNOWN_MEMBER_ID)),))
    codes: list[int] = []
    leaving: list[str] = []
    for who in leaving_members(request):
        member_id = who.member_id
        static = None if who.group_instance_id is None else group.static_member(who.group_instance_id)
        if not member_id and static is not None:
            member_id = static.member_id
        code = errors.NONE
        if member_id in leaving or (static is not None and static.member_id in leaving):
            code = errors.UNKNOWN_MEMBER_ID  # a member that is named twice is removed already
        elif member_id not in group.pending_members:
            code = group.check_member(member_id, who.group_instance_id)
        if code == errors.NONE:
            leaving.append(member_id)
        codes.append(code)
    draft = _Draft()
    draft.answer(request, leave_response(request, codes))
    return _depart(groups, group, leaving, draft, now) if leaving else draft.result()


# Members leave


def _depart(
    groups: Groups,
    group: ClassicGroup,
    leaving: Collection[str],
    draft: _Draft,
    now: Millis,
    retry: Timer | None = None,
) -> Result:
    """Remove members (or unused member ids) and let the others rebalance. When no member is left, the record is written first.

    draft  answers and timers for after the removal
    retry  timer to set when the append fails
    """
    gone = [member_id for member_id in leaving if member_id in group.members]
    if gone and len(gone) == len(group.members) and not group.initial_rebalance:
        return _empty(group, draft, now, retry=retry)
    for member_id in leaving:
        _drop(group, member_id, draft)
    if group.state is State.PREPARING_REBALANCE:
        if group.members and group.all_joined and not group.initial_rebalance:
            _complete_join(group, draft)
    elif gone:
        _prepare_rebalance(groups, group, draft)
    return draft.result()


def _drop(group: ClassicGroup, member_id: str, draft: _Draft) -> None:
    """Remove a member; its parked request is answered with UNKNOWN_MEMBER_ID, so that it may join again."""
    draft.cancel_session(group, member_id)
    member = group.remove(member_id)
    if member is not None:
        _dismiss(member, draft)


def _dismiss(member: Member, draft: _Draft) -> None:
    if member.join is not None:
        draft.answer(member.join, _not_joined(member.join, errors.UNKNOWN_MEMBER_ID, ""))
    if member.sync is not None:
        draft.answer(member.sync, SyncGroupResponse(error_code=errors.UNKNOWN_MEMBER_ID))
    member.join = member.sync = None


def _empty(group: ClassicGroup, draft: _Draft, now: Millis, retry: Timer | None = None) -> Result:
    """Begin a generation without members after the last one left. Replay of the record empties the group."""
    gone = list(group.members.values())

    def dismiss_members(groups: Groups, now: Millis) -> Result:
        for member in gone:
            draft.cancel_session(group, member.member_id)
            _dismiss(member, draft)
        draft.timers.append(Timer(end_join, (group.group_id,), None))
        draft.timers.append(Timer(expire_sync, (group.group_id,), None))
        return draft.result()

    def retry_later(groups: Groups, code: int, now: Millis) -> Result:
        return Result(timers=(retry,) if retry else ())

    record = empty_group(group, group.generation + 1, now)
    return Result(records=(record,), then=dismiss_members, refused=retry_later if retry else None)
