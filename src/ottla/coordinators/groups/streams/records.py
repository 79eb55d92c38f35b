"""Records that streams groups write to __consumer_offsets, in Kafka's types: 17 and 19 to 23."""

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.coordinators.groups.streams.member import Current, Description
from ottla.coordinators.groups.streams.subtopologies import GroupTopology
from ottla.coordinators.groups.streams.tasks import EpochTasks, Tasks, TaskSet, in_order
from ottla.coordinators.records import CoordinatorRecord
from ottla.protocol.messages.streams_group_current_member_assignment_record import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
)
from ottla.protocol.messages.streams_group_current_member_assignment_record import TaskIds as AssignedTasks
from ottla.protocol.messages.streams_group_member_metadata_record import (
    Endpoint,
    KeyValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
)
from ottla.protocol.messages.streams_group_metadata_record import (
    LastAssignmentConfig,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
)
from ottla.protocol.messages.streams_group_target_assignment_member_record import (
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    TaskIds,
)
from ottla.protocol.messages.streams_group_target_assignment_metadata_record import (
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.messages.streams_group_topology_record import StreamsGroupTopologyKey, StreamsGroupTopologyValue
from ottla.protocol.schema import Message

MESSAGES: Final[dict[int, tuple[type[Message], type[Message]]]] = {
    key.API: (key, value)
    for key, value in (
        (StreamsGroupMetadataKey, StreamsGroupMetadataValue),
        (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
        (StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
        (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
        (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
        (StreamsGroupTopologyKey, StreamsGroupTopologyValue),
    )
}
"""Type of record -> key and value."""
KEYS: Final = (
    StreamsGroupMetadataKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupTopologyKey,
)
"""Key classes of the records of a streams group."""


def group_epoch(
    group_id: str,
    epoch: int,
    metadata_hash: int,
    validated_epoch: int,
    configs: Mapping[str, str],
    descriptions: tuple[int, int],
) -> CoordinatorRecord:
    """Return the record of a group's epoch.

    validated_epoch  epoch of the topology, if all its topics are right, else -1
    configs          configs of the assignor at that epoch
    descriptions     topology epochs of the stored description and of the failed one, -1 without
    """
    value = StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_epoch,
        last_assignment_configs=[LastAssignmentConfig(key=key, value=text) for key, text in configs.items()],
        stored_description_topology_epoch=descriptions[0],
        failed_description_topology_epoch=descriptions[1],
    )
    return CoordinatorRecord(StreamsGroupMetadataKey(group_id=group_id), value)


def group_topology(group_id: str, topology: GroupTopology) -> CoordinatorRecord:
    """Return the record of a group's topology."""
    return CoordinatorRecord(StreamsGroupTopologyKey(group_id=group_id), topology.record())


def member_description(group_id: str, member_id: str, description: Description) -> CoordinatorRecord:
    """Return the record of a member's description."""
    endpoint = description.endpoint
    value = StreamsGroupMemberMetadataValue(
        instance_id=description.instance_id,
        rack_id=description.rack_id,
        client_id=description.client_id,
        client_host=description.client_host,
        rebalance_timeout_ms=description.rebalance_timeout_ms,
        topology_epoch=description.topology_epoch,
        process_id=description.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=[KeyValue(key=key, value=text) for key, text in description.client_tags],
    )
    return CoordinatorRecord(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), value)


def target_epoch(group_id: str, epoch: int, now: int) -> CoordinatorRecord:
    """Return the record of the targets' epoch; `now` is the time of the computation in ms since the epoch, 0 without one."""
    value = StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now)
    return CoordinatorRecord(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def member_target(group_id: str, member_id: str, target: TaskSet) -> CoordinatorRecord:
    """Return the record of a member's target."""
    value = StreamsGroupTargetAssignmentMemberValue(
        active_tasks=_target_rows(target.active),
        standby_tasks=_target_rows(target.standby),
        warmup_tasks=_target_rows(target.warmup),
    )
    return CoordinatorRecord(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def _target_rows(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=partitions) for name, partitions in in_order(tasks)]


def member_current(group_id: str, member_id: str, current: Current) -> CoordinatorRecord:
    """Return the record of a member's current assignment."""
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=int(current.state),
        active_tasks=_active_rows(current.active),
        standby_tasks=_rows(current.standby),
        warmup_tasks=_rows(current.warmup),
        active_tasks_pending_revocation=_active_rows(current.revoking_active),
        standby_tasks_pending_revocation=_rows(current.revoking_standby),
        warmup_tasks_pending_revocation=_rows(current.revoking_warmup),
    )
    return CoordinatorRecord(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), value)


def _active_rows(tasks: EpochTasks) -> list[AssignedTasks]:
    return [
        AssignedTasks(
            subtopology_id=name, partitions=partitions, assignment_epochs=[tasks[name][number] for number in partitions]
        )
        for name, partitions in in_order(tasks)
    ]


def _rows(tasks: Tasks) -> list[AssignedTasks]:
    return [AssignedTasks(subtopology_id=name, partitions=partitions) for name, partitions in in_order(tasks)]


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the tombstones of a member; its tasks come first, so that replay never sees those of an unknown member."""
    return [
        CoordinatorRecord(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str, members: Iterable[str]) -> list[CoordinatorRecord]:
    """Return the tombstones of a streams group."""
    return [
        *(record for member_id in members for record in member_tombstones(group_id, member_id)),
        CoordinatorRecord(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        CoordinatorRecord(StreamsGroupMetadataKey(group_id=group_id), None),
        CoordinatorRecord(StreamsGroupTopologyKey(group_id=group_id), None),
    ]
