"""Records of __consumer_offsets: their decoding, and the records that classic groups and offsets write."""

from typing import Final

from ottla.coordinators.decoding import record_decoder
from ottla.coordinators.groups.classic.group import ClassicGroup
from ottla.coordinators.groups.consumer import records as consumer_records
from ottla.coordinators.groups.share import records as share_records
from ottla.coordinators.groups.streams import records as streams_records
from ottla.coordinators.records import CoordinatorRecord
from ottla.protocol.messages.group_metadata_record import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from ottla.protocol.messages.offset_commit_record import (
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.schema import Message

GROUP_METADATA_VERSION: Final = 3

_MESSAGES: Final[dict[int, tuple[type[Message], type[Message]]]] = {
    LegacyOffsetCommitKey.API: (LegacyOffsetCommitKey, OffsetCommitValue),
    OffsetCommitKey.API: (OffsetCommitKey, OffsetCommitValue),
    GroupMetadataKey.API: (GroupMetadataKey, GroupMetadataValue),
    **consumer_records.MESSAGES,
    **share_records.MESSAGES,
    **streams_records.MESSAGES,
}
"""Type of record -> key and value. Kafka reads the values of type 0 and type 1 alike."""


decode_record: Final = record_decoder(_MESSAGES)


def empty_group(group: ClassicGroup, generation: int, now: int) -> CoordinatorRecord:
    """Return the snapshot of `group` without members."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=generation,
        protocol=None,
        leader=None,
        current_state_timestamp=now,
    )
    return CoordinatorRecord(GroupMetadataKey(group=group.group_id), value, GROUP_METADATA_VERSION)


def stable_group(group: ClassicGroup, assignments: dict[str, bytes], now: int) -> CoordinatorRecord:
    """Return the snapshot of `group` with its members and `assignments` by member id."""
    members = [
        MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(group.protocol or ""),
            assignment=assignments.get(member.member_id, b""),
        )
        for member in group.members.values()
    ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=now,
        members=members,
    )
    return CoordinatorRecord(GroupMetadataKey(group=group.group_id), value, GROUP_METADATA_VERSION)


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone of a group."""
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None)


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """Return the tombstone of a committed offset."""
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


__all__ = [
    "GROUP_METADATA_VERSION",
    "LegacyOffsetCommitKey",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "decode_record",
    "empty_group",
    "group_tombstone",
    "offset_tombstone",
    "stable_group",
]
