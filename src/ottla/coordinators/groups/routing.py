"""Route a classic-protocol request to the implementation of the group's current type.

A consumer group serves the JoinGroup of a classic member; an empty consumer group becomes a classic one instead. The upgrade of
a classic group by a ConsumerGroupHeartbeat is in consumer/heartbeat.py. A share group rejects all of
these requests, and so does a streams group with members; an empty one becomes a classic group.
"""

from ottla.coordinators.groups.classic import membership as classic
from ottla.coordinators.groups.migration import classic_members as consumer_classic
from ottla.coordinators.groups.state import Groups
from ottla.coordinators.runtime import Millis, Operation, Result
from ottla.protocol import errors
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest
from ottla.protocol.messages.sync_group import SyncGroupRequest


def _join(groups: Groups, request: JoinGroupRequest, now: Millis) -> Result:
    streams = groups.streams_groups.get(request.group_id)
    if streams is not None:
        if not streams.is_empty:
            return classic.reject(request, errors.INCONSISTENT_GROUP_PROTOCOL, member_id="")
        return classic.join_in_place(groups, request, streams.tombstones(), now)
    group = groups.consumer_groups.get(request.group_id)
    if group is None:
        return classic.join(groups, request, now)
    if not group.is_empty:
        return consumer_classic.join(groups, group, request, now)
    return classic.join_in_place(groups, request, group.tombstones(), now)


def _sync(groups: Groups, request: SyncGroupRequest, now: Millis) -> Result:
    group = groups.consumer_groups.get(request.group_id)
    if request.group_id in groups.share_groups or request.group_id in groups.streams_groups:
        return Result(answers=((request, classic.sync.refuse(request, errors.UNKNOWN_MEMBER_ID)),))
    if group is None:
        return classic.sync(groups, request, now)
    return consumer_classic.sync(groups, group, request, now)


def _heartbeat(groups: Groups, request: HeartbeatRequest, now: Millis) -> Result:
    group = groups.consumer_groups.get(request.group_id)
    if group is None:
        return classic.heartbeat(groups, request, now)
    return consumer_classic.heartbeat(groups, group, request, now)


def _leave(groups: Groups, request: LeaveGroupRequest, now: Millis) -> Result:
    group = groups.consumer_groups.get(request.group_id)
    if group is None:
        return classic.leave(groups, request, now)
    return consumer_classic.leave(groups, group, request, now)


join = Operation(_join, classic.join.refuse, classic.join.check)
sync = Operation(_sync, classic.sync.refuse, classic.sync.check)
heartbeat = Operation(_heartbeat, classic.heartbeat.refuse, classic.heartbeat.check)
leave = Operation(_leave, classic.leave.refuse, classic.leave.check)
