"""Update of a streams group for one member that joins or sends a heartbeat, in five steps:

    1 enrol      identify the member: a new one, a known one, or a static one that replaces another
    2 describe   apply what it declares: its description, and the topology of the first member
    3 measure    compute the sizes of the topology when topics have changed; whatever changes the assignment begins a new epoch
    4 retarget   compute targets for a new group epoch: after the initial delay, and not more often than the assignment interval
    5 reconcile  move the member towards its target

The update changes no state: it collects records, which replay applies once they are in the log, and changes of memory, which
`remember` applies after that.
"""

from collections.abc import Mapping

from ottla.coordinators.groups.heartbeat_interval import interval_ms, settling_ms, tenth_ms
from ottla.coordinators.groups.state import Groups
from ottla.coordinators.groups.streams.assignors import AssignorFailed
from ottla.coordinators.groups.streams.group import NO_EPOCH, StreamsGroup
from ottla.coordinators.groups.streams.internal_topics import size
from ottla.coordinators.groups.streams.member import (
    Current,
    Description,
    MemberState,
    Offsets,
    StreamsMember,
)
from ottla.coordinators.groups.streams.reconciliation import Goal, next_step
from ottla.coordinators.groups.streams.records import (
    group_epoch,
    group_topology,
    member_current,
    member_description,
    member_target,
    member_tombstones,
    target_epoch,
)
from ottla.coordinators.groups.streams.subtopologies import GroupTopology
from ottla.coordinators.groups.streams.targets import compute_targets, target_records
from ottla.coordinators.groups.streams.tasks import EpochTasks, Tasks, TaskSet
from ottla.coordinators.groups.streams.timers import end_initial_delay, end_revocation
from ottla.coordinators.records import CoordinatorRecord
from ottla.coordinators.runtime import Millis, Timer
from ottla.metadata.refusal import Refused
from ottla.protocol import errors


class Update:
    """Update of a member under construction.

    group        the group before the update, or a new one
    before       the member before the update; a blank one if it is new
    description  the member's description after the update
    current      the member's current assignment; `reconcile` replaces it
    topology     the group's topology after the update
    sized        its sizes
    delayed      text of status ASSIGNMENT_DELAYED, None without a delay
    records      records to append
    timers       timers to set after the append
    """

    __slots__ = (
        "before",
        "configs",
        "current",
        "delay_runs",
        "delayed",
        "description",
        "epoch",
        "group",
        "groups",
        "member_id",
        "now",
        "offsets",
        "records",
        "replaced",
        "sized",
        "target",
        "target_epoch",
        "timers",
        "topology",
    )

    def __init__(self, groups: Groups, group: StreamsGroup, member_id: str, now: Millis) -> None:
        self.groups = groups
        self.group = group
        self.member_id = member_id
        self.now = now
        self.replaced: str | None = None
        self.before = group.members.get(member_id) or StreamsMember(member_id)
        self.description = self.before.description
        self.current = self.before.current
        self.offsets: Offsets = self.before.offsets
        self.topology = group.topology
        self.sized = group.sized
        self.configs: Mapping[str, str] = groups.streams_assignor_configs(group.group_id)
        self.epoch = group.epoch
        self.target = TaskSet()
        self.target_epoch = group.target_epoch
        self.delay_runs = group.delay_runs
        self.delayed: str | None = None
        self.records: list[CoordinatorRecord] = []
        self.timers: list[Timer] = []

    # 1

    def take_over(self, old: StreamsMember) -> None:
        """Take over the state, except for epochs, of a static member that rejoins under another member id."""
        group_id = self.group.group_id
        self.replaced = old.member_id
        self.before = StreamsMember(self.member_id)
        self.before.description = self.description = old.description
        self.before.current = self.current = old.current._replace(epoch=0, previous_epoch=0)
        self.offsets = old.offsets
        self.records += member_tombstones(group_id, old.member_id)
        self.records.append(member_description(group_id, self.member_id, old.description))
        self.records.append(
            member_target(group_id, self.member_id, self.group.target_of(old.member_id, old.description.instance_id))
        )
        self.records.append(member_current(group_id, self.member_id, self.current))

    @property
    def is_new(self) -> bool:
        """True if the member is neither known nor takes over an instance."""
        return self.replaced is None and self.member_id not in self.group.members

    # 2

    def describe(self, description: Description, *, says_instance: bool) -> bool:
        """Apply the member's description; returns whether it begins a new epoch.

        says_instance  whether the request has the member's instance id: without it Kafka handles a static member as any other
        """
        old = self.before.description
        self.description = description
        if description == old and not self.is_new:
            return False
        self.records.append(member_description(self.group.group_id, self.member_id, description))
        if self.is_new or not says_instance:
            return True
        # A static member may come back from another address without a rebalance.
        kept = description._replace(
            client_id=old.client_id,
            client_host=old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            endpoint=old.endpoint,
            instance_id=old.instance_id,
        )
        return kept != old

    def declare(self, topology: GroupTopology) -> None:
        """Set the topology of a group without one. Raises Refused for another topology than the group's, unless it is older."""
        known = self.group.topology
        if known is None:
            self.topology = topology
            self.sized = None
            self.records.append(group_topology(self.group.group_id, topology))
        elif topology != known and topology.epoch >= known.epoch:
            raise Refused(errors.INVALID_REQUEST, "Topology updates are not supported yet.")

    # 3

    def measure(self, *, begins: bool) -> None:
        """Compute the sizes of the topology if they may have changed, and begin a new epoch if anything did.

        begins  whether the member's description begins one

        Raises Refused (STREAMS_INVALID_TOPOLOGY).
        """
        group, topology = self.group, self.topology
        metadata_hash = group.metadata_hash
        if topology is not None and (self.sized is None or group.is_stale):
            self.sized = size(topology, self._partitions(topology))
            metadata_hash = self.groups.topology.metadata_hash(topology.read_or_logged)
        validated = topology.epoch if topology is not None and self.is_ready else NO_EPOCH
        if (
            begins
            or metadata_hash != group.metadata_hash
            or validated != group.validated_epoch
            or self.configs != group.configs
        ):
            self.epoch += 1
            descriptions = group.stored_description, group.failed_description
            self.records.append(
                group_epoch(group.group_id, self.epoch, metadata_hash, validated, self.configs, descriptions)
            )

    def _partitions(self, topology: GroupTopology) -> dict[str, int]:
        """Return the number of partitions of the topology's topics, as far as they exist."""
        topics = self.groups.topology.image.topics
        return {name: len(topics[name].partitions) for name in topology.read_or_logged if name in topics}

    @property
    def is_ready(self) -> bool:
        """True if all topics are right."""
        return self.sized is not None and self.sized.problem is None

    def check_owned(self, owned: TaskSet | None) -> None:
        """Raise Refused (INVALID_REQUEST) for an owned task that a topology with the right topics does not have."""
        if owned is None or self.sized is None or not self.is_ready:
            return
        for tasks in owned:
            for subtopology_id, partitions in tasks.items():
                count = self.sized.tasks.get(subtopology_id)
                if count is None:
                    text = f"Subtopology {subtopology_id} does not exist in the topology."
                    raise Refused(errors.INVALID_REQUEST, text)
                for partition in sorted(partitions):
                    if not 0 <= partition < count:
                        raise Refused(
                            errors.INVALID_REQUEST,
                            f"Task {partition} for subtopology {subtopology_id} is invalid. "
                            f"Number of tasks for this subtopology: {count}",
                        )

    # 4

    def retarget(self) -> None:
        """Compute the targets of a new epoch, unless the initial delay or the interval since the last computation runs."""
        group, groups = self.group, self.groups
        delay_ms = groups.streams_initial_delay_ms(group.group_id)
        if group.is_empty and delay_ms > 0 and not self.delay_runs:
            self.delay_runs = True
            self.timers.append(Timer(end_initial_delay, (group.group_id,), delay_ms))
        if self.delay_runs:
            self.delayed = "Assignment delayed due to the configured initial rebalance delay."
            return
        self.target = group.target_of(self.member_id, self.description.instance_id)
        if self.epoch <= group.target_epoch:
            return
        if groups.until_task_assignment_ms(group, self.now):
            self.delayed = "Assignment delayed due to the configured assignment interval."
            return
        members = {
            member_id: (member.description, member.current, member.offsets)
            for member_id, member in group.members.items()
            if member_id != self.replaced
        }
        members[self.member_id] = self.description, self.current, self.offsets
        _, assign = groups.streams_assignor(group.group_id)
        try:
            targets = compute_targets(members, self.sized, self.configs, assign)
        except AssignorFailed:
            raise Refused(errors.UNKNOWN_SERVER_ERROR, None) from None  # without a text, as in Kafka: it is logged
        successor = None if self.replaced is None else (self.member_id, self.replaced)
        self.records += target_records(group, targets, successor)
        self.records.append(target_epoch(group.group_id, self.epoch, self.now))
        self.target, self.target_epoch = targets[self.member_id], self.epoch

    # 5

    def reconcile(self, owned: TaskSet | None) -> None:
        """Move the member towards its target; `owned` are the tasks it reports. Raises Refused (FENCED_MEMBER_EPOCH)."""
        if self.current.state is MemberState.STABLE and self.current.epoch == self.target_epoch:
            return
        group, member_id = self.group, self.member_id
        siblings = [
            group.members[sibling].current
            for sibling in group.processes.get(self.description.process_id, ())
            if sibling not in (member_id, self.replaced)
        ]
        taken = _Taken(self, siblings)
        step = next_step(
            self.current, Goal(self.target_epoch, self.target, taken.is_active_taken, taken.is_copy_taken), owned
        )
        if step == self.current:
            return
        self.current = step
        self.records.append(member_current(group.group_id, member_id, step))
        waits = step.state is MemberState.UNREVOKED_TASKS
        timeout_ms = self.description.rebalance_timeout_ms if waits else None
        self.timers.append(Timer(end_revocation, (group.group_id, member_id), timeout_ms))

    def heartbeat_interval_ms(self) -> int:
        """Return the time until the member's next heartbeat."""
        group, config_ms = self.group, self.groups.streams_heartbeat_interval_ms(self.group.group_id)
        creates_topics = self.sized is not None and self.sized.missing
        if self.delay_runs or creates_topics or self.current.state is MemberState.UNRELEASED_TASKS:
            wait_ms: int | None = tenth_ms(config_ms)
        elif self.epoch > self.target_epoch:
            wait_ms = self.groups.until_task_assignment_ms(group, self.now)
        else:
            timestamp = self.now if self.target_epoch > group.target_epoch else group.target_timestamp
            wait_ms = settling_ms(config_ms, timestamp, self.now)
        return interval_ms(config_ms, wait_ms)


class _Taken:
    """Tasks that a member cannot have yet."""

    __slots__ = ("_owners", "_replaced", "_siblings")

    def __init__(self, update: Update, siblings: list[Current]) -> None:
        self._owners = update.group.owners
        self._replaced = update.replaced
        self._siblings = siblings

    def is_active_taken(self, task: tuple[str, int]) -> bool:
        owner = self._owners.get(task)
        if owner is not None and owner != self._replaced:
            return True
        return any(_has(tasks, task) for current in self._siblings for tasks in _copies(current))

    def is_copy_taken(self, task: tuple[str, int]) -> bool:
        return any(
            _has(current.active, task)
            or _has(current.revoking_active, task)
            or any(_has(tasks, task) for tasks in _copies(current))
            for current in self._siblings
        )


def _copies(current: Current) -> tuple[Tasks, ...]:
    return current.standby, current.warmup, current.revoking_standby, current.revoking_warmup


def _has(tasks: Tasks | EpochTasks, task: tuple[str, int]) -> bool:
    return task[1] in tasks.get(task[0], ())
