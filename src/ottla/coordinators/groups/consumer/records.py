"""Records that consumer groups write to __consumer_offsets, in Kafka's types: 3, 5, 6, 7, 8 and 16.

Type 4 (a group's topics) was written until Kafka 4.0; a hash in type 3 has replaced it. Only its tombstone is still written,
when a group ends, to delete the records of a group that an older Kafka created.
"""

from typing import Final

from ottla.coordinators.groups.consumer.member import Current, Description, Owned, Target
from ottla.coordinators.records import CoordinatorRecord
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
    """Return the record of a group's new epoch, which requires new targets."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), value)


def member_description(group_id: str, member_id: str, description: Description) -> CoordinatorRecord:
    """Return the record of a member's description."""
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
    """Return the record of the targets' epoch; `now` is the time of the computation in ms since the epoch, 0 without one."""
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now)
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def member_target(group_id: str, member_id: str, target: Target) -> CoordinatorRecord:
    """Return the record of a member's target."""
    topics = [
        TopicPartition(topic_id=topic_id, partitions=sorted(partitions)) for topic_id, partitions in target.items()
    ]
    value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics)
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def member_current(group_id: str, member_id: str, current: Current) -> CoordinatorRecord:
    """Return the record of a member's current assignment."""
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
    """Return the record of the topics that match a regular expression at a revision of the metadata."""
    value = ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=revision, timestamp=now)
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), value)


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    """Return the tombstone of a regular expression without subscribed members."""
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the tombstones of a member; its partitions come first, so that replay never sees those of an unknown member."""
    return [
        CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str, members: list[str], regexes: list[str]) -> list[CoordinatorRecord]:
    """Return the tombstones of a consumer group."""
    return [
        *(record for member_id in members for record in member_tombstones(group_id, member_id)),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(regex_tombstone(group_id, regex) for regex in regexes),
        CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None),
        CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]
