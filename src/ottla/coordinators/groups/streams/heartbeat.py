"""StreamsGroupHeartbeat (KIP-1071): the request by which a member joins, stays in and leaves a streams group.

Most heartbeats change nothing: they cost one check of the group and one timer (`_is_quiet`).
"""

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from ottla.coordinators.groups.heartbeat_interval import interval_ms, settling_ms
from ottla.coordinators.groups.member_checks import check_epoch, check_instance, check_released, check_room
from ottla.coordinators.groups.records import group_tombstone
from ottla.coordinators.groups.state import Groups
from ottla.coordinators.groups.streams.endpoints import endpoint_table
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.member import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    Current,
    Description,
    Offsets,
    StreamsMember,
)
from ottla.coordinators.groups.streams.reconciliation import is_within
from ottla.coordinators.groups.streams.records import member_current
from ottla.coordinators.groups.streams.subtopologies import GroupTopology, InternalTopic
from ottla.coordinators.groups.streams.targets import missing_tags
from ottla.coordinators.groups.streams.tasks import Tasks, TaskSet, in_order, tasks_of
from ottla.coordinators.groups.streams.timers import end_session, fence
from ottla.coordinators.groups.streams.update import Update
from ottla.coordinators.records import CoordinatorRecord
from ottla.coordinators.runtime import NOTHING, Millis, Result, Timer, operation
from ottla.metadata.refusal import Refused
from ottla.protocol import errors
from ottla.protocol.messages.streams_group_heartbeat import (
    EndpointToPartitions,
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TaskOffset,
)
from ottla.protocol.messages.streams_group_heartbeat import Topology as TopologyRow

STALE_TOPOLOGY: Final = 0
SHUTDOWN_APPLICATION: Final = 4
ASSIGNMENT_DELAYED: Final = 5
MISSING_CLIENT_TAGS: Final = 6
_FIRST_WITH_TAGS: Final = 1
"""First version with status MISSING_CLIENT_TAGS, and with requests for a description of the topology."""
_FIRST_PAUSE_MS: Final = 30_000
_LONGEST_PAUSE_MS: Final = 3_600_000


class Outcome(NamedTuple):
    """Response to a heartbeat, and internal topics that the requester's broker must create."""

    response: StreamsGroupHeartbeatResponse
    missing: Sequence[InternalTopic] = ()


def refuse(
    request: StreamsGroupHeartbeatRequest,  # noqa: ARG001 - a refusal's signature
    code: int,
    message: str | None = None,
) -> Outcome:
    """Return an error response."""
    return Outcome(StreamsGroupHeartbeatResponse(error_code=code, error_message=message, status=[]))


def request_error(request: StreamsGroupHeartbeatRequest) -> tuple[int, str | None] | None:
    """Return code and message of an error that does not depend on the group; None if there is no such error."""
    topology = request.topology
    if topology is not None and any(row.source_topic_regex for row in topology.subtopologies):
        return errors.INVALID_REQUEST, "Regular expressions for source topics are not supported yet."
    for name, value in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            return errors.INVALID_REQUEST, f"{name} can't be empty."
    text = _epoch_error(request)
    if text is not None:
        return errors.INVALID_REQUEST, text
    for offsets in (request.task_offsets, request.task_end_offsets):
        names = [(offset.subtopology_id, offset.partition) for offset in offsets or ()]
        if len(set(names)) < len(names):
            return errors.INVALID_REQUEST, "TaskOffsets must not contain a task twice."
    return None if topology is None else _topology_error(topology)


def _epoch_error(request: StreamsGroupHeartbeatRequest) -> str | None:
    epoch = request.member_epoch
    lists = (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    )
    if epoch == JOINING:
        if request.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs must be provided in first request."
        for name, tasks in lists:
            if tasks is None or tasks:
                return f"{name} must be empty when (re-)joining."
        return "Topology must be non-null when (re-)joining." if request.topology is None else None
    if epoch == LEAVING_FOR_A_WHILE and request.instance_id is None:
        return "InstanceId can't be null."
    if epoch < LEAVING_FOR_A_WHILE:
        return f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
    if len({tasks is None for _, tasks in lists}) > 1:
        return "If one task-type is non-null, all must be non-null."
    return "Topology can only be provided when (re-)joining." if request.topology is not None else None


def _topology_error(topology: TopologyRow) -> tuple[int, str | None] | None:
    for subtopology in topology.subtopologies:
        for changelog in subtopology.state_changelog_topics:
            if changelog.partitions:
                return (
                    errors.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {changelog.name} must have an undefined partition count, "
                    f"but it is set to {changelog.partitions}.",
                )
    ids = [subtopology.subtopology_id for subtopology in topology.subtopologies]
    if topology.epoch < 0 or len(set(ids)) < len(ids) or not all(map(_has_its_indexes, topology.subtopologies)):
        return errors.UNKNOWN_SERVER_ERROR, None  # exceptions that Kafka does not catch
    return None


def _has_its_indexes(subtopology: Subtopology) -> bool:
    """Return whether the copartition groups of a subtopology name topics that it has."""
    sources, repartitioned = len(subtopology.source_topics), len(subtopology.repartition_source_topics)
    return all(
        0 <= index < count
        for group in subtopology.copartition_groups
        for indexes, count in ((group.source_topics, sources), (group.repartition_source_topics, repartitioned))
        for index in indexes
    )


@operation(refuse)
def heartbeat(groups: Groups, request: StreamsGroupHeartbeatRequest, now: Millis) -> Result:
    """Handle StreamsGroupHeartbeat."""
    group = groups.streams_groups.get(request.group_id)
    if group is not None:
        member = group.members.get(request.member_id)
        if member is not None and _is_quiet(groups, group, member, request):
            response = _response(groups, group.group_id, member.member_id, member.current.epoch)
            config_ms = response.heartbeat_interval_ms
            response.heartbeat_interval_ms = interval_ms(config_ms, settling_ms(config_ms, group.target_timestamp, now))
            response.endpoint_information_epoch = group.endpoint_epoch
            session = _session(groups, group.group_id, member.member_id)
            return Result(answers=((request, Outcome(response)),), timers=(session,))
    try:
        if request.member_epoch in (LEAVING, LEAVING_FOR_A_WHILE):
            return _leave(groups, request)
        return _update(groups, request, now)
    except Refused as refused:
        return Result(answers=((request, refuse(request, refused.code, refused.message)),))


def _is_quiet(
    groups: Groups, group: StreamsGroup, member: StreamsMember, request: StreamsGroupHeartbeatRequest
) -> bool:
    """Return whether the heartbeat changes nothing, and there is nothing to report: the member has its target."""
    current, description, context = member.current, member.description, request.context
    return (
        request.member_epoch == current.epoch == group.target_epoch == group.epoch
        and current.state == 1
        and group.is_ready
        and not group.is_stale
        and group.shutdown_by is None
        and not group.delay_runs
        and request.endpoint_information_epoch == group.endpoint_epoch
        and not request.shutdown_application
        and request.active_tasks is None
        and request.topology is None
        and request.rebalance_timeout_ms == -1
        and request.process_id is None
        and request.user_endpoint is None
        and request.client_tags is None
        and request.task_offsets is None
        and request.task_end_offsets is None
        and request.rack_id is None
        and request.instance_id == description.instance_id
        and (context.client_id or "") == description.client_id
        and context.client_host == description.client_host
        and not groups.settings.streams.describes_topologies
        and len(group.configs) == 1  # no tags that may be missing
        and groups.streams_assignor_configs(group.group_id) == group.configs
    )


def _response(groups: Groups, group_id: str, member_id: str, epoch: int) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=epoch,
        heartbeat_interval_ms=groups.streams_heartbeat_interval_ms(group_id),
        task_offset_interval_ms=groups.streams_task_offset_interval_ms(group_id),
        acceptable_recovery_lag=groups.streams_acceptable_recovery_lag(group_id),
        status=[],
    )


def _session(groups: Groups, group_id: str, member_id: str) -> Timer:
    return Timer(end_session, (group_id, member_id), groups.streams_session_timeout_ms(group_id))


def _update(groups: Groups, request: StreamsGroupHeartbeatRequest, now: Millis) -> Result:
    joins = request.member_epoch == JOINING
    group, converts = _group_of(groups, request.group_id, joins=joins)
    update = _begin_update(groups, group, request, now)
    owned = _tasks_from(request)
    check_epoch(update.current, "streams", request.member_epoch, is_behind=is_within(owned, update.current))
    before = update.current.assigned
    begins = update.describe(_description(update.description, request), says_instance=request.instance_id is not None)
    if request.topology is not None:
        update.declare(GroupTopology.of(request.topology))
    update.offsets = _offsets(request.task_offsets, update.offsets)
    update.measure(begins=begins)
    update.check_owned(owned)
    update.retarget()
    update.reconcile(owned)
    response = _response(groups, group.group_id, update.member_id, update.current.epoch)
    response.heartbeat_interval_ms = update.heartbeat_interval_ms()
    tasks = update.current.assigned
    if joins or tasks != before:
        response.active_tasks, response.standby_tasks, response.warmup_tasks = map(_rows, tasks)
    memory = _InMemoryChanges(update, request, moved=tasks != before, now=now)
    response.endpoint_information_epoch = memory.endpoint_epoch
    if request.endpoint_information_epoch != memory.table_epoch:
        response.partitions_by_user_endpoint = _endpoints(update)
    response.status = _statuses(update, request, memory.shutdown_by)
    if memory.asks_description(response.status):
        response.topology_description_required = True
    missing = update.sized.missing if update.sized is not None else ()
    return Result(
        [*converts, *update.records],
        ((request, Outcome(response, missing)),),
        (*update.timers, _session(groups, group.group_id, update.member_id)),
        then=partial(_apply_in_memory, memory),
    )


def _group_of(groups: Groups, group_id: str, *, joins: bool) -> tuple[StreamsGroup, Sequence[CoordinatorRecord]]:
    """Return the group, and records that come first.

    A joining member creates a missing group, or converts an empty classic one.
    """
    group = groups.streams_groups.get(group_id)
    if group is not None:
        return group, ()
    classic = groups.groups.get(group_id)
    if classic is not None and joins and classic.is_empty:
        return StreamsGroup(group_id), (group_tombstone(group_id),)
    if groups.type_of(group_id) is not None:
        raise Refused(errors.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
    if not joins:
        raise Refused(errors.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")
    return StreamsGroup(group_id), ()


def _begin_update(groups: Groups, group: StreamsGroup, request: StreamsGroupHeartbeatRequest, now: Millis) -> Update:
    """Begin the update of the member that sent the request. Raises Refused."""
    member_id, joins = request.member_id, request.member_epoch == JOINING
    check_room(group, "streams", groups.settings.streams.max_size, member_id, request.instance_id)
    update = Update(groups, group, member_id, now)
    if request.instance_id is not None:
        old = group.static_member(request.instance_id)
        if not joins:
            check_instance(group, member_id, request.instance_id)
        elif old is not None:
            check_released(old, member_id, request.instance_id)
            if old.member_id != member_id:
                update.take_over(old)
    elif not joins and member_id not in group.members:
        raise Refused(errors.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
    return update


def _tasks_from(request: StreamsGroupHeartbeatRequest) -> TaskSet | None:
    """Return the tasks that the member reports to own; None without a report."""
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return TaskSet(tasks_of(request.active_tasks), tasks_of(request.standby_tasks), tasks_of(request.warmup_tasks))


def _description(before: Description, request: StreamsGroupHeartbeatRequest) -> Description:
    """Return the member's description after the request; fields that the request leaves out are unchanged."""
    endpoint = before.endpoint if request.member_epoch != JOINING else None
    if request.user_endpoint is not None:
        endpoint = request.user_endpoint.host, request.user_endpoint.port
    timeout, tags = request.rebalance_timeout_ms, request.client_tags
    return Description(
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.context.client_id or "",
        client_host=request.context.client_host,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout == -1 else timeout,
        topology_epoch=before.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=before.process_id if request.process_id is None else request.process_id,
        endpoint=endpoint,
        client_tags=before.client_tags if tags is None else tuple((tag.key, tag.value) for tag in tags),
    )


def _offsets(rows: Sequence[TaskOffset] | None, before: Offsets) -> Offsets:
    return before if rows is None else tuple((row.subtopology_id, row.partition, row.offset) for row in rows)


def _rows(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=partitions) for name, partitions in in_order(tasks)]


def _endpoints(update: Update) -> list[EndpointToPartitions]:
    """Return the endpoints of all members, the requesting one last."""
    members = [
        (member.description, member.current.assigned)
        for member in update.group.members.values()
        if member.member_id not in (update.member_id, update.replaced)
    ]
    members.append((update.description, update.current.assigned))
    topics = update.groups.topology.image.topics
    inputs = frozenset() if update.topology is None else update.topology.inputs
    sizes = {name: len(topics[name].partitions) for name in inputs if name in topics}
    return endpoint_table(members, update.topology, sizes)


def _statuses(update: Update, request: StreamsGroupHeartbeatRequest, shutdown_by: str | None) -> list[Status]:
    """Return what the member must know of its group, in Kafka's order."""
    statuses: list[tuple[int, str]] = []
    mine, known = update.description.topology_epoch, update.topology
    if known is not None and mine < known.epoch:
        text = f"The member's topology epoch {mine} is behind the group's topology epoch {known.epoch}."
        statuses.append((STALE_TOPOLOGY, text))
    if update.delayed is not None:
        statuses.append((ASSIGNMENT_DELAYED, update.delayed))
    if update.sized is not None and update.sized.problem is not None:
        statuses.append(update.sized.problem)
    if shutdown_by is not None:
        text = (
            f"Streams group member {shutdown_by} encountered a fatal error and requested a shutdown for the entire "
            "application."
        )
        statuses.append((SHUTDOWN_APPLICATION, text))
    if request.context.version >= _FIRST_WITH_TAGS:
        tags = missing_tags(update.configs, update.description)
        if tags:
            text = (
                f"Missing required client tags for rack-aware standby assignment: [{', '.join(tags)}]. "
                "Configure them via 'client.tag.<tagKey>' in your Streams config."
            )
            statuses.append((MISSING_CLIENT_TAGS, text))
    return [Status(status_code=code, status_detail=text) for code, text in statuses]


class _InMemoryChanges:
    """Changes of what a group has in memory only, to apply once the records of an update are in the log."""

    def __init__(self, update: Update, request: StreamsGroupHeartbeatRequest, *, moved: bool, now: Millis) -> None:
        group = update.group
        self._update = update
        self._version = request.context.version
        self._now = now
        self._is_known = group.group_id in update.groups.streams_groups
        self._end_offsets = _offsets(request.task_end_offsets, update.before.end_offsets)
        self.description_requests, self.next_description_ms = group.description_requests, group.next_description_ms
        self.shutdown_by = group.shutdown_by  # the first member that requests it is named until the group is empty
        if request.shutdown_application and self.shutdown_by is None:
            self.shutdown_by = request.member_id
        endpoint = update.description.endpoint
        changed = endpoint != update.before.description.endpoint or (endpoint is not None and moved)
        self.table_epoch = group.endpoint_epoch + changed
        # As in Kafka, a new streams group forgets what its first member sent beside the records, see `apply`. The response has
        # the new epoch of the endpoints only if the group was a classic one.
        is_new = update.groups.type_of(group.group_id) is None
        self.endpoint_epoch = group.endpoint_epoch if is_new else self.table_epoch

    @property
    def group_id(self) -> str:
        return self._update.group.group_id

    def asks_description(self, statuses: Sequence[Status]) -> bool:
        """Return whether the response asks for a description of the topology (KIP-1331), and plan the next time."""
        update, group, topology = self._update, self._update.group, self._update.topology
        if (
            not update.groups.settings.streams.describes_topologies
            or self._version < _FIRST_WITH_TAGS
            or topology is None
            or topology.epoch in (group.stored_description, group.failed_description)
            or any(status.status_code == STALE_TOPOLOGY for status in statuses)
            or self._now < group.next_description_ms
        ):
            return False
        pause_ms = min(_FIRST_PAUSE_MS << min(self.description_requests, 16), _LONGEST_PAUSE_MS)
        self.description_requests += 1
        jitter = update.groups.random.below(pause_ms * 2 // 5 + 1) - pause_ms // 5  # +-20 %
        self.next_description_ms = self._now + pause_ms + jitter
        return True

    def apply(self, group: StreamsGroup) -> None:
        """Apply the changes."""
        update = self._update
        group.sized, group.is_stale = update.sized, False
        group.delay_runs = update.delay_runs
        group.description_requests, group.next_description_ms = self.description_requests, self.next_description_ms
        if self._is_known:
            group.shutdown_by = self.shutdown_by
            group.endpoint_epoch = self.endpoint_epoch
            member = group.members[update.member_id]
            member.offsets, member.end_offsets = update.offsets, self._end_offsets


def _apply_in_memory(memory: _InMemoryChanges, groups: Groups, now: Millis) -> Result:  # noqa: ARG001
    memory.apply(groups.streams_groups[memory.group_id])
    return NOTHING


def _leave(groups: Groups, request: StreamsGroupHeartbeatRequest) -> Result:
    group_id, member_id, epoch = request.group_id, request.member_id, request.member_epoch
    group = groups.streams_groups.get(group_id)
    if group is None:
        is_other = groups.type_of(group_id) is not None
        text = f"Group {group_id} is not a streams group." if is_other else f"Group {group_id} not found."
        raise Refused(errors.GROUP_ID_NOT_FOUND, text)
    response = StreamsGroupHeartbeatResponse(member_id=member_id, member_epoch=epoch, status=[])
    answers = ((request, Outcome(response)),)
    then = partial(_shut_down, group_id, member_id) if request.shutdown_application else None
    if request.instance_id is not None:
        member = check_instance(group, member_id, request.instance_id)
        if epoch == LEAVING_FOR_A_WHILE:
            return Result((member_current(group_id, member_id, _away(member.current)),), answers, then=then)
    elif member_id not in group.members:
        raise Refused(errors.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")
    return fence(group, member_id, answers)._replace(then=then)


def _away(current: Current) -> Current:
    """Return the assignment of a static member that leaves for a while.

    Its tasks have epoch 0, so that they are valid with any epoch that it returns with.
    """
    return current._replace(
        epoch=LEAVING_FOR_A_WHILE,
        active={subtopology_id: dict.fromkeys(numbers, 0) for subtopology_id, numbers in current.active.items()},
        revoking_active={},
        revoking_standby={},
        revoking_warmup={},
    )


def _shut_down(group_id: str, member_id: str, groups: Groups, now: Millis) -> Result:  # noqa: ARG001
    group = groups.streams_groups.get(group_id)
    if group is not None and not group.is_empty and group.shutdown_by is None:
        group.shutdown_by = member_id
    return NOTHING
