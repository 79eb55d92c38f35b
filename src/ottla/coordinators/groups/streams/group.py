"""A streams group (KIP-1071): the threads of a Kafka Streams application, its topology, and the assignment of its tasks.

Three epochs follow one another:

    group epoch        +1 when members, the topology's topics or the configs of the assignor change
    assignment epoch   the group epoch whose targets were computed last; behind it the group is Assigning
    member epochs      each member follows after giving back its revoked tasks; until all have, the group is Reconciling

While topics of the topology are missing or have wrong sizes, the group is NotReady, and its targets are empty.

This module has state and queries only. The state changes by `replay`, one record at a time, both in operation and after a
restart. State that is in memory only is marked as such.
"""

from collections.abc import Mapping
from typing import Final

from ottla.coordinators.groups.streams.internal_topics import SizedTopology
from ottla.coordinators.groups.streams.member import Current, Description, MemberState, StreamsMember
from ottla.coordinators.groups.streams.records import group_tombstones
from ottla.coordinators.groups.streams.subtopologies import GroupTopology
from ottla.coordinators.groups.streams.tasks import TaskSet, pairs, tasks_of
from ottla.coordinators.records import CoordinatorRecord
from ottla.coordinators.runtime import Millis
from ottla.protocol.messages.streams_group_current_member_assignment_record import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
)
from ottla.protocol.messages.streams_group_member_metadata_record import (
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
)
from ottla.protocol.messages.streams_group_metadata_record import StreamsGroupMetadataValue
from ottla.protocol.messages.streams_group_target_assignment_member_record import (
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
)
from ottla.protocol.messages.streams_group_target_assignment_metadata_record import (
    StreamsGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.messages.streams_group_topology_record import StreamsGroupTopologyKey, StreamsGroupTopologyValue
from ottla.protocol.schema import Message

STREAMS: Final = "streams"
"""Type and protocol type of a streams group, as ListGroups spells them."""
EMPTY: Final = "Empty"
NOT_READY: Final = "NotReady"
ASSIGNING: Final = "Assigning"
RECONCILING: Final = "Reconciling"
STABLE: Final = "Stable"
NO_EPOCH: Final = -1
Task = tuple[str, int]


class StreamsGroup:
    """State of a streams group and its members."""

    __slots__ = (
        "configs",
        "delay_runs",
        "description_requests",
        "endpoint_epoch",
        "epoch",
        "failed_description",
        "group_id",
        "is_stale",
        "members",
        "metadata_hash",
        "next_description_ms",
        "owners",
        "processes",
        "shutdown_by",
        "sized",
        "static",
        "stored_description",
        "target_epoch",
        "target_timestamp",
        "targets",
        "topology",
        "validated_epoch",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1
        self.metadata_hash = 0
        self.validated_epoch = NO_EPOCH
        """Epoch of the topology when all its topics were right, -1 when they were not."""
        self.configs: Mapping[str, str] = {}
        """Configs of the assignor at the group epoch."""
        self.stored_description = NO_EPOCH
        self.failed_description = NO_EPOCH
        """Topology epochs of the stored description of the topology, and of one that could not be stored (KIP-1331)."""
        self.target_epoch = 1
        self.target_timestamp = 0
        """Time of the last computation of the targets, in ms since the epoch; 0: never."""
        self.members: dict[str, StreamsMember] = {}
        """Members by id, in the order of joining."""
        self.static: dict[str, str] = {}
        """Instance id -> member id (KIP-345)."""
        self.targets: dict[str, TaskSet] = {}
        """Targets by member id."""
        self.topology: GroupTopology | None = None
        self.owners: dict[Task, str] = {}
        """Active task -> id of the member that has it, or has not given it back yet."""
        self.processes: dict[str, dict[str, None]] = {}
        """Process id -> ids of its members."""

        # In memory only.
        self.is_stale = True
        """True if the topics may differ from those that `sized` was computed from, as after a restart."""
        self.sized: SizedTopology | None = None
        self.delay_runs = False
        """True while the initial delay runs, in which nothing is assigned."""
        self.shutdown_by: str | None = None
        """Id of the member that wants the whole application to shut down."""
        self.endpoint_epoch = 0
        """+1 when endpoints of members, or the tasks behind them, change."""
        self.description_requests = 0
        """Number of requests for a description of the topology."""
        self.next_description_ms: Millis = 0
        """Time of the next one, in ms since the epoch."""

    # Replay.

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply one record of this group."""
        key, value = record.key, record.value
        if isinstance(key, StreamsGroupCurrentMemberAssignmentKey):
            stored = Current.from_record(value) if isinstance(value, StreamsGroupCurrentMemberAssignmentValue) else None
            self._set_current(key.member_id, stored)
        elif isinstance(key, StreamsGroupMemberMetadataKey):
            if isinstance(value, StreamsGroupMemberMetadataValue):
                self._describe(key.member_id, Description.from_record(value))
            else:
                self._remove(key.member_id)
        elif isinstance(key, StreamsGroupTargetAssignmentMemberKey):
            if isinstance(value, StreamsGroupTargetAssignmentMemberValue):
                self.targets[key.member_id] = TaskSet(
                    tasks_of(value.active_tasks), tasks_of(value.standby_tasks), tasks_of(value.warmup_tasks)
                )
            else:
                self.targets.pop(key.member_id, None)
        elif isinstance(key, StreamsGroupTopologyKey):
            self.topology = GroupTopology.of(value) if isinstance(value, StreamsGroupTopologyValue) else None
        else:
            self._replay_epoch(value)

    def _replay_epoch(self, value: Message | None) -> None:
        if isinstance(value, StreamsGroupMetadataValue):
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            self.validated_epoch = value.validated_topology_epoch
            self.configs = {config.key: config.value for config in value.last_assignment_configs or ()}
            self.stored_description = value.stored_description_topology_epoch
            self.failed_description = value.failed_description_topology_epoch
        elif isinstance(value, StreamsGroupTargetAssignmentMetadataValue):
            self.target_epoch, self.target_timestamp = value.assignment_epoch, value.assignment_timestamp

    def _describe(self, member_id: str, description: Description) -> None:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = StreamsMember(member_id)
        self._leave_process(member)
        self._release_instance(member)
        member.description = description
        self.processes.setdefault(description.process_id, {})[member_id] = None
        if description.instance_id is not None:
            self.static[description.instance_id] = member_id

    def _leave_process(self, member: StreamsMember) -> None:
        members = self.processes.get(member.description.process_id)
        if members is not None:
            members.pop(member.member_id, None)
            if not members:
                del self.processes[member.description.process_id]

    def _release_instance(self, member: StreamsMember) -> None:
        instance_id = member.description.instance_id
        if instance_id is not None and self.static.get(instance_id) == member.member_id:
            del self.static[instance_id]

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._disown(member)
        self._leave_process(member)
        self._release_instance(member)
        if not self.members:
            self.shutdown_by = None

    def _set_current(self, member_id: str, current: Current | None) -> None:
        member = self.members.get(member_id)
        if member is None:
            if current is None:
                return
            # Compaction keeps the newest record of each key: the assignment may come before the description.
            member = self.members[member_id] = StreamsMember(member_id)
        self._disown(member)
        member.current = Current() if current is None else current
        for tasks in (member.current.active, member.current.revoking_active):
            self.owners.update(dict.fromkeys(pairs(tasks), member_id))

    def _disown(self, member: StreamsMember) -> None:
        for tasks in (member.current.active, member.current.revoking_active):
            for task in pairs(tasks):
                if self.owners.get(task) == member.member_id:
                    del self.owners[task]

    # Queries.

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_ready(self) -> bool:
        """True if all topics of the topology are right, as far as that has been computed."""
        return self.topology is not None and self.validated_epoch == self.topology.epoch

    @property
    def state(self) -> str:
        """The state of the group, as Kafka names it."""
        if not self.members:
            return EMPTY
        if not self.is_ready:
            return NOT_READY
        if self.epoch > self.target_epoch:
            return ASSIGNING
        return STABLE if all(map(self.is_settled, self.members.values())) else RECONCILING

    def is_settled(self, member: StreamsMember) -> bool:
        """Return whether the member has its target."""
        return member.current.state is MemberState.STABLE and member.current.epoch == self.target_epoch

    def static_member(self, instance_id: str | None) -> StreamsMember | None:
        """The member with that group.instance.id."""
        return None if instance_id is None else self.members.get(self.static.get(instance_id, ""))

    def target_of(self, member_id: str, instance_id: str | None) -> TaskSet:
        """Return the target of a member; a member that takes over an instance id inherits that of the previous member."""
        target = self.targets.get(member_id)
        if target is None and instance_id is not None:
            target = self.targets.get(self.static.get(instance_id, ""))
        return TaskSet() if target is None else target

    def is_subscribed(self, topic: str) -> bool:
        """Return whether the group has members, and reads `topic`."""
        return bool(self.members) and self.topology is not None and topic in self.topology.inputs

    def depends_on(self, topic: str) -> bool:
        """Return whether the sizes of the topology depend on `topic`."""
        return self.topology is not None and topic in self.topology.read_or_logged

    def assignment_epoch(self, member: StreamsMember, topic: str, partition: int) -> int | None:
        """Return the epoch in which the task that reads a partition was assigned to a member; None if it does not have it."""
        for subtopology in () if self.topology is None else self.topology.subtopologies:
            if topic in subtopology.inputs:
                return member.current.assignment_epoch(subtopology.subtopology_id, partition)
        return None

    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that delete the group."""
        return group_tombstones(self.group_id, list(self.members))
