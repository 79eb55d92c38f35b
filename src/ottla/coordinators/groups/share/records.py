"""Records that share groups write to __consumer_offsets, in Kafka's types: 10 to 15 (KIP-932)."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.coordinators.groups.consumer.member import Target
from ottla.coordinators.records import CoordinatorRecord
from ottla.protocol.messages.share_group_current_member_assignment_record import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from ottla.protocol.messages.share_group_member_metadata_record import (
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
)
from ottla.protocol.messages.share_group_metadata_record import ShareGroupMetadataKey, ShareGroupMetadataValue
from ottla.protocol.messages.share_group_state_partition_metadata_record import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)
from ottla.protocol.messages.share_group_target_assignment_member_record import (
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from ottla.protocol.messages.share_group_target_assignment_metadata_record import (
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.schema import Message

KEYS: Final = (
    ShareGroupMetadataKey,
    ShareGroupMemberMetadataKey,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupStatePartitionMetadataKey,
)
"""Key classes of the records of a share group."""

MESSAGES: Final[dict[int, tuple[type[Message], type[Message]]]] = {
    key.API: (key, value)
    for key, value in (
        (ShareGroupMetadataKey, ShareGroupMetadataValue),
        (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
        (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
        (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
        (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
        (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
    )
}
"""Type of record -> key and value."""

NamedPartitions = Mapping[bytes, tuple[str, frozenset[int]]]
"""Topic id -> its name and partitions."""


class ShareDescription(NamedTuple):
    """Properties that a member has declared in its heartbeats: rack, client and subscription."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """Return the record of a group's new epoch, which requires new targets."""
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(ShareGroupMetadataKey(group_id=group_id), value)


def member_description(group_id: str, member_id: str, description: ShareDescription) -> CoordinatorRecord:
    """Return the record of a member's description."""
    value = ShareGroupMemberMetadataValue(
        rack_id=description.rack_id,
        client_id=description.client_id,
        client_host=description.client_host,
        subscribed_topic_names=sorted(description.topics),
    )
    return CoordinatorRecord(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), value)


def target_epoch(group_id: str, epoch: int, timestamp: int) -> CoordinatorRecord:
    """Return the record of the targets' epoch; `timestamp` is the time of the computation in ms since the epoch."""
    value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp)
    return CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def member_target(group_id: str, member_id: str, target: Target) -> CoordinatorRecord:
    """Return the record of a member's target."""
    partitions = [TopicPartition(topic_id=topic_id, partitions=sorted(parts)) for topic_id, parts in target.items()]
    value = ShareGroupTargetAssignmentMemberValue(topic_partitions=partitions)
    return CoordinatorRecord(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def member_current(
    group_id: str, member_id: str, epoch: int, previous_epoch: int, assigned: Target
) -> CoordinatorRecord:
    """Return the record of a member's current assignment and its epochs."""
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=epoch,
        previous_member_epoch=previous_epoch,
        state=0,
        assigned_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(parts)) for topic_id, parts in assigned.items()
        ],
    )
    return CoordinatorRecord(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), value)


def state_partitions(
    group_id: str, initializing: NamedPartitions, initialized: NamedPartitions, deleting: Mapping[bytes, str]
) -> CoordinatorRecord:
    """Return the record of the partitions whose state at the share coordinator exists, is being created or being deleted."""
    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=_infos(initializing),
        initialized_topics=_infos(initialized),
        deleting_topics=[TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in deleting.items()],
    )
    return CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), value)


def _infos(topics: NamedPartitions) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=topic_id, topic_name=name, partitions=sorted(partitions))
        for topic_id, (name, partitions) in topics.items()
    ]


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the tombstones of a member."""
    return [
        CoordinatorRecord(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str) -> list[CoordinatorRecord]:
    """Return the tombstones of a share group without members."""
    return [
        CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), None),
        CoordinatorRecord(ShareGroupMetadataKey(group_id=group_id), None),
    ]
