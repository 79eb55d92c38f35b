"""ShareGroupHeartbeat (KIP-932): the request by which a member joins, stays in, changes and leaves a share group.

    1 describe      apply the member's description; a change of the subscription, or of the topics in it, begins a new group
                    epoch, and so do partitions that became ready to be assigned
    2 retarget      compute targets for a new group epoch, not more often than share.assignment.interval.ms
    3 follow        assign the member its target at once
    4 initialise    request a state for partitions that are new to the share coordinator; they are not assigned before
                    they have one

A heartbeat changes no state: it collects records, which replay applies. Most heartbeats change nothing (`_is_quiet`).
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from ottla.coordinators.groups.consumer.assignors import Subscriber
from ottla.coordinators.groups.consumer.member import JOINING, LEAVING, Target
from ottla.coordinators.groups.heartbeat_interval import SHORTEST_MS, interval_ms
from ottla.coordinators.groups.share import records as share_records
from ottla.coordinators.groups.share.assignor import assign_simply
from ottla.coordinators.groups.share.group import ShareGroup, ShareMember, union_of, without
from ottla.coordinators.groups.share.records import NamedPartitions, ShareDescription
from ottla.coordinators.groups.state import Groups
from ottla.coordinators.records import CoordinatorRecord
from ottla.coordinators.runtime import NOTHING, Millis, Result, Timer, operation
from ottla.metadata.refusal import Refused
from ottla.protocol import errors
from ottla.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

_RETRY_MS: Final = 1_000
"""Delay before a timer runs again after its records could not be appended."""
_BY_RESET: Final = -1
_FROM_THE_START: Final = 0


class InitializeShares(NamedTuple):
    """Outgoing message: initialise the state of these partitions. Its receiver then runs `finish_initialization`.

    start_offsets  topic id -> partition -> first offset of the group, -1 to apply share.auto.offset.reset
    """

    group_id: str
    state_epoch: int
    start_offsets: Mapping[bytes, Mapping[int, int]]


def refuse(
    request: ShareGroupHeartbeatRequest,  # noqa: ARG001 - a refusal's signature
    code: int,
    message: str | None = None,
) -> ShareGroupHeartbeatResponse:
    """Return an error response."""
    return ShareGroupHeartbeatResponse(error_code=code, error_message=message)


def request_error(request: ShareGroupHeartbeatRequest) -> str | None:
    """Return the message of an INVALID_REQUEST that does not depend on the group; None if there is no such error."""
    for name, value in (("MemberId", request.member_id), ("GroupId", request.group_id), ("RackId", request.rack_id)):
        if value is not None and not value.strip():
            return f"{name} can't be empty."
    if request.member_epoch == JOINING and not request.subscribed_topic_names:
        return "SubscribedTopicNames must be set in first request."
    return "MemberEpoch is invalid." if request.member_epoch < LEAVING else None


@operation(refuse)
def heartbeat(groups: Groups, request: ShareGroupHeartbeatRequest, now: Millis) -> Result:
    """Handle ShareGroupHeartbeat."""
    group = groups.share_groups.get(request.group_id)
    if group is not None:
        member = group.members.get(request.member_id)
        if member is not None and _is_quiet(group, member, request):
            return Result(
                answers=((request, _alive(groups, group, member.member_id, member.epoch)),),
                timers=(_session(groups, group.group_id, member.member_id),),
            )
    try:
        if request.member_epoch == LEAVING:
            return _leave(groups, request)
        return _update(groups, request, now)
    except Refused as refused:
        return Result(answers=((request, refuse(request, refused.code, refused.message)),))


def _is_quiet(group: ShareGroup, member: ShareMember, request: ShareGroupHeartbeatRequest) -> bool:
    """Return whether the heartbeat changes nothing: same description, target reached, and no pending work to start."""
    description, context = member.description, request.context
    return (
        request.member_epoch == member.epoch == group.target_epoch == group.epoch
        and not group.is_stale
        and request.subscribed_topic_names is None
        and request.rack_id is None
        and context.client_id == description.client_id
        and context.client_host == description.client_host
    )


def _alive(
    groups: Groups, group: ShareGroup, member_id: str, epoch: int, wait_ms: int | None = None
) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=epoch,
        heartbeat_interval_ms=interval_ms(groups.share_heartbeat_interval_ms(group.group_id), wait_ms),
    )


def _session(groups: Groups, group_id: str, member_id: str) -> Timer:
    return Timer(end_session, (group_id, member_id), groups.share_session_timeout_ms(group_id))


def share_group_of(groups: Groups, group_id: str, missing: str = "Group {} not found.") -> ShareGroup:
    """Return the share group. Raises Refused (GROUP_ID_NOT_FOUND) if it is missing or has another type."""
    group = groups.share_groups.get(group_id)
    if group is None:
        is_other = groups.type_of(group_id) is not None
        text = f"Group {group_id} is not a share group." if is_other else missing.format(group_id)
        raise Refused(errors.GROUP_ID_NOT_FOUND, text)
    return group


def share_group_or_new(groups: Groups, group_id: str) -> ShareGroup:
    """Return the share group, or a new one. Raises Refused (GROUP_ID_NOT_FOUND) for a group of another type."""
    if groups.type_of(group_id) not in (None, "share"):
        raise Refused(errors.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
    return groups.share_groups.get(group_id) or ShareGroup(group_id)


def _update(groups: Groups, request: ShareGroupHeartbeatRequest, now: Millis) -> Result:
    group_id, member_id, joins = request.group_id, request.member_id, request.member_epoch == JOINING
    missing = "Share group {} not found."
    group = share_group_or_new(groups, group_id) if joins else share_group_of(groups, group_id, missing)
    member = group.members.get(member_id)
    _check_room(groups, group, member)
    if member is None:
        if not joins:
            raise Refused(errors.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")
        member = ShareMember(member_id)
    _check_epoch(member, request.member_epoch)
    step = _Step(groups, group, member, now)
    step.describe(request)
    step.retarget()
    step.follow()
    outgoing = step.initialize()
    answer = _alive(groups, group, member_id, step.member_epoch, step.wait_ms(outgoing))
    if joins or request.subscribed_topic_names is not None or step.assigned != member.assigned:
        answer.assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(parts))
                for topic_id, parts in step.assigned.items()
            ]
        )
    if not step.records and step.epoch == group.target_epoch and not group.partitions.initializing:
        group.is_stale = False
    session = _session(groups, group_id, member_id)
    if not outgoing:
        return Result(step.records, ((request, answer),), (session,))
    then = partial(record_request, group_id, frozenset(outgoing[0].start_offsets))
    return Result(step.records, ((request, answer),), (session,), then=then, outgoing=outgoing)


def record_request(group_id: str, topic_ids: frozenset[bytes], groups: Groups, now: Millis) -> Result:
    """Record the time of the request to the share coordinator; it is repeated only if no answer comes in time."""
    groups.share_groups[group_id].asked_at.update(dict.fromkeys(topic_ids, now))
    return NOTHING


def _check_room(groups: Groups, group: ShareGroup, member: ShareMember | None) -> None:
    size = groups.settings.share.max_size
    if member is None and len(group.members) >= size:
        text = f"The share group has reached its maximum capacity of {size} members."
        raise Refused(errors.GROUP_MAX_SIZE_REACHED, text)


def _check_epoch(member: ShareMember, epoch: int) -> None:
    """Raise Refused (FENCED_MEMBER_EPOCH) unless the epoch is the member's, or the previous one because a response was lost."""
    if epoch in (JOINING, member.epoch) or (epoch < member.epoch and epoch == member.previous_epoch):
        return
    how, more = "greater", ""
    if epoch < member.epoch:
        how, more = "smaller", f", and it does not match the previous member epoch ({member.previous_epoch})"
    raise Refused(
        errors.FENCED_MEMBER_EPOCH,
        f"The share group member has a {how} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}){more}. The member must abandon all its partitions and rejoin.",
    )


class _Step:
    """Result of a heartbeat under construction.

    member        the member before the heartbeat; a blank one if it is new
    description   the member's description after the heartbeat
    epoch         the group epoch after the heartbeat
    assigned      the member's assignment after the heartbeat
    member_epoch  the member epoch after the heartbeat
    records       records to append
    """

    __slots__ = (
        "assigned",
        "description",
        "descriptions",
        "epoch",
        "group",
        "groups",
        "member",
        "member_epoch",
        "now",
        "records",
        "resubscribed",
        "target",
        "target_epoch",
    )

    def __init__(self, groups: Groups, group: ShareGroup, member: ShareMember, now: Millis) -> None:
        self.groups = groups
        self.group = group
        self.member = member
        self.now = now
        self.description = member.description
        self.descriptions: dict[str, ShareDescription] = {}
        self.epoch = group.epoch
        self.target_epoch = group.target_epoch
        self.target: Target = group.targets.get(member.member_id, {})
        self.assigned: Target = member.assigned
        self.member_epoch = member.epoch
        self.resubscribed = False
        self.records: list[CoordinatorRecord] = []

    # 1

    def describe(self, request: ShareGroupHeartbeatRequest) -> None:
        """Apply the member's description."""
        group, old, names = self.group, self.member.description, request.subscribed_topic_names
        self.description = new = ShareDescription(
            old.rack_id if request.rack_id is None else request.rack_id,
            request.context.client_id or "",
            request.context.client_host,
            old.topics if names is None else frozenset(names),
        )
        self.descriptions = {member.member_id: member.description for member in group.members.values()}
        self.descriptions[self.member.member_id] = new
        if new != old:
            self.records.append(share_records.member_description(group.group_id, self.member.member_id, new))
        self.resubscribed = new.topics != old.topics
        hash_now = self.groups.topology.metadata_hash(self._names())
        waits = group.epoch == group.target_epoch and self._has_unassigned()
        if self.resubscribed or hash_now != group.metadata_hash or waits:
            self.epoch += 1
            self.records.append(share_records.group_epoch(group.group_id, self.epoch, hash_now))

    def _names(self) -> set[str]:
        return set().union(*(description.topics for description in self.descriptions.values()))

    def _topic_ids(self) -> frozenset[bytes]:
        return self.groups.topology.topic_ids(self._names())

    def _has_unassigned(self) -> bool:
        """Return whether some initialised partitions are not assigned to any member yet."""
        assigned: dict[bytes, set[int]] = {}
        for target in self.group.targets.values():
            for topic_id, parts in target.items():
                assigned.setdefault(topic_id, set()).update(parts)
        partitions = self.group.partitions
        return any(partitions.partitions(topic_id) - assigned.get(topic_id, set()) for topic_id in self._topic_ids())

    # 2

    def retarget(self) -> None:
        """Compute the targets of a new epoch, unless the interval since the last computation is still running.

        In that case the old targets stay in force, and a later heartbeat computes the new ones (KIP-1263)."""
        group, groups = self.group, self.groups
        if self.epoch <= group.target_epoch or groups.until_share_assignment_ms(group, self.now):
            return
        cluster = groups.topology
        subscribers = {
            member_id: Subscriber(cluster.topic_ids(description.topics), group.targets.get(member_id, {}))
            for member_id, description in self.descriptions.items()
        }
        ready = {topic_id: group.partitions.partitions(topic_id) for topic_id in self._topic_ids()}
        targets = assign_simply(subscribers, ready)
        for member_id, target in targets.items():
            if member_id not in group.targets or target != group.targets[member_id]:
                self.records.append(share_records.member_target(group.group_id, member_id, target))
        self.records.append(share_records.target_epoch(group.group_id, self.epoch, self.now))
        self.target, self.target_epoch = targets[self.member.member_id], self.epoch

    # 3

    def follow(self) -> None:
        """Assign the member its target, without topics that it no longer reads or that were deleted.

        Deleted topics are left out at once, even if the next target has to wait for the interval.
        """
        member = self.member
        topics = self.groups.topology.topic_ids(self.description.topics)
        if member.epoch == self.target_epoch and not self.resubscribed and topics >= member.assigned.keys():
            return
        self.assigned = {topic_id: parts for topic_id, parts in self.target.items() if topic_id in topics}
        self.member_epoch = self.target_epoch
        if self.member_epoch == member.epoch and self.assigned == member.assigned:
            return
        previous = member.previous_epoch if self.member_epoch == member.epoch else member.epoch
        group_id = self.group.group_id
        self.records.append(
            share_records.member_current(group_id, member.member_id, self.member_epoch, previous, self.assigned)
        )

    # 4

    def initialize(self) -> Sequence[InitializeShares]:
        """Return the requests to initialise partitions that have no state at the share coordinator."""
        group, retry_ms = self.group, self.groups.settings.share.initialize_retry_ms
        topics = self.groups.topology.image.topics_by_id
        offsets: dict[bytes, dict[int, int]] = {}
        uninitialized: dict[bytes, tuple[str, frozenset[int]]] = {}
        for topic_id in sorted(self._topic_ids()):
            ready = group.partitions.partitions(topic_id)
            missing = frozenset(range(len(topics[topic_id].partitions))) - ready
            if not missing or self.now - group.asked_at.get(topic_id, 0) < retry_ms:
                continue
            # New partitions of a topic that the group has read begin at their start, so that nothing is lost (KAFKA-20742).
            offsets[topic_id] = dict.fromkeys(sorted(missing), _FROM_THE_START if ready else _BY_RESET)
            uninitialized[topic_id] = topics[topic_id].name, missing
        if not uninitialized:
            return ()
        before = group.partitions
        initializing = union_of(before.initializing, uninitialized)
        if initializing != before.initializing:
            self.records.append(
                share_records.state_partitions(group.group_id, initializing, before.initialized, before.deleting)
            )
        return (InitializeShares(group.group_id, self.epoch, offsets),)

    def wait_ms(self, outgoing: Sequence[InitializeShares]) -> int | None:
        """Return the time that the member waits for partitions, in ms; None if it does not.

        A state that is not there after a heartbeat interval will take longer: the share coordinator is not available.
        """
        group, groups = self.group, self.groups
        if self.epoch > self.target_epoch:
            return groups.until_share_assignment_ms(group, self.now)
        limit_ms = groups.share_heartbeat_interval_ms(group.group_id)
        asked_at = (group.asked_at.get(topic_id, 0) for topic_id in group.partitions.initializing)
        if outgoing or any(self.now - time < limit_ms for time in asked_at):
            return SHORTEST_MS
        return None


# Removal.


def _leave(groups: Groups, request: ShareGroupHeartbeatRequest) -> Result:
    group = share_group_of(groups, request.group_id)
    if request.member_id not in group.members:
        text = f"Member {request.member_id} is not a member of group {request.group_id}."
        raise Refused(errors.UNKNOWN_MEMBER_ID, text)
    answer = ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVING)
    return _fence(groups, group, (request.member_id,), ((request, answer),))


def _fence(
    groups: Groups, group: ShareGroup, leaving: Collection[str], answers: Sequence[tuple[Any, Any]] = ()
) -> Result:
    """Remove members that leave or are fenced; `answers` are sent after the removal."""
    stays = [member.description for member in group.members.values() if member.member_id not in leaving]
    records = [record for member_id in leaving for record in share_records.member_tombstones(group.group_id, member_id)]
    names: set[str] = set().union(*(stay.topics for stay in stays))
    records.append(share_records.group_epoch(group.group_id, group.epoch + 1, groups.topology.metadata_hash(names)))
    if not stays:  # an empty group has no targets to compute, and its next member need not wait for the interval
        records.append(share_records.target_epoch(group.group_id, group.epoch + 1, 0))
    return Result(records, answers, [Timer(end_session, (group.group_id, member_id), None) for member_id in leaving])


def end_session(groups: Groups, group_id: str, member_id: str, now: Millis) -> Result:  # noqa: ARG001
    """Fence a member that sent no heartbeat in its session timeout."""
    group = groups.share_groups.get(group_id)
    if group is None or member_id not in group.members:
        return NOTHING
    retry = Timer(end_session, (group_id, member_id), _RETRY_MS)
    result = _fence(groups, group, (member_id,))
    return result._replace(refused=lambda groups, code, now: Result(timers=(retry,)))  # noqa: ARG005


def after_loading(groups: Groups, group: ShareGroup) -> list[Timer]:
    """Return the timers of a group loaded from the log: every member gets a full session timeout."""
    return [_session(groups, group.group_id, member_id) for member_id in group.members]


# Outcomes of the share coordinator.


class Initialized(NamedTuple):
    """Outcome of `InitializeShares`: the initialised partitions, and those that failed."""

    group_id: str
    done: NamedPartitions
    failed: NamedPartitions


@operation(lambda request, code: code)  # noqa: ARG005
def finish_initialization(groups: Groups, request: Initialized, now: Millis) -> Result:  # noqa: ARG001
    """Record the initialised partitions, which may be assigned now; a later heartbeat retries the failed ones."""
    group = groups.share_groups.get(request.group_id)
    if group is None:
        return Result(answers=((request, errors.GROUP_ID_NOT_FOUND),))
    before = group.partitions
    topics = groups.topology.image.topics_by_id
    done = {topic_id: named for topic_id, named in request.done.items() if topic_id in topics}
    record = share_records.state_partitions(
        group.group_id,
        without(without(before.initializing, request.done), request.failed),
        union_of(before.initialized, done),
        before.deleting,
    )
    return Result([record], ((request, errors.NONE),))
