"""The records that consumer groups write, in Kafka's types: 3, 5, 6, 7, 8 and 16.

Type 4 (the topics that a group knew) was written until 4.0; a hash in type 3 is in its place. Only its tombstone is still
written, when a group ends, so that nothing is left of a group that an older Kafka created.
"""

from typing import Final

from ottla.coordinators.groups.consumer.member import Current, Description, Owned, Target
from ottla.coordinators.runtime import CoordinatorRecord
from ottla.protocol.messages.consumer_group_current_member_assignment_record import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from ottla.protocol.messages.consumer_group_member_metadata_record import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from ottla.protocol.messages.consumer_group_metadata_record import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from ottla.protocol.messages.consumer_group_partition_metadata_record import (
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
)
from ottla.protocol.messages.consumer_group_regular_expression_record import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from ottla.protocol.messages.consumer_group_target_assignment_member_record import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from ottla.protocol.messages.consumer_group_target_assignment_metadata_record import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.schema import Message

MESSAGES: Final[dict[int, tuple[type[Message], type[Message]]]] = {
    key.API: (key, value)
    for key, value in (
        (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
        (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
        (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
        (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
        (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
    )
}
"""Type of record -> key and value."""


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The new epoch of a group, whose target must be computed again."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), value)


def member_description(group_id: str, member_id: str, description: Description) -> CoordinatorRecord:
    """The description of a member."""
    classic = description.classic
    value = ConsumerGroupMemberMetadataValue(
        instance_id=description.instance_id,
        rack_id=description.rack_id,
        client_id=description.client_id,
        client_host=description.client_host,
        subscribed_topic_names=sorted(description.topics),
        subscribed_topic_regex=description.regex,
        rebalance_timeout_ms=description.rebalance_timeout_ms,
        server_assignor=description.assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols],
        ),
    )
    return CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), value)


def target_epoch(group_id: str, epoch: int, now: int) -> CoordinatorRecord:
    """The epoch of the targets; computed at `now`, in ms since the epoch (0: not computed)."""
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now)
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def member_target(group_id: str, member_id: str, target: Target) -> CoordinatorRecord:
    """The target of a member."""
    topics = [
        TopicPartition(topic_id=topic_id, partitions=sorted(partitions)) for topic_id, partitions in target.items()
    ]
    value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics)
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def member_current(group_id: str, member_id: str, current: Current) -> CoordinatorRecord:
    """The current assignment of a member."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=int(current.state),
        assigned_partitions=_topics(current.assigned),
        partitions_pending_revocation=_topics(current.revoking),
    )
    return CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), value)


def _topics(owned: Owned) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=list(partitions), assignment_epochs=list(partitions.values()))
        for topic_id, partitions in owned.items()
    ]


def resolved_regex(group_id: str, regex: str, topics: frozenset[str], revision: int, now: int) -> CoordinatorRecord:
    """The topics that a regular expression stands for, at a revision of the metadata."""
    value = ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=revision, timestamp=now)
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), value)


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    """Remove a regular expression that no member subscribes to any more."""
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """The end of a member. What it owned goes first, so that a reader never sees partitions of an unknown member."""
    return [
        CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str, members: list[str], regexes: list[str]) -> list[CoordinatorRecord]:
    """The end of a consumer group."""
    return [
        *(record for member_id in members for record in member_tombstones(group_id, member_id)),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(regex_tombstone(group_id, regex) for regex in regexes),
        CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None),
        CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]
