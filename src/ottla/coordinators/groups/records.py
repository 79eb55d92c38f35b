"""Records of __consumer_offsets: bytes to records, and the ones that classic groups and offsets write."""

from collections.abc import Callable
from typing import Any, Final

from ottla.coordinators.groups.classic.group import ClassicGroup
from ottla.coordinators.groups.consumer import records as consumer_records
from ottla.coordinators.groups.share import records as share_records
from ottla.coordinators.runtime import CoordinatorRecord
from ottla.protocol.codec import reader
from ottla.protocol.messages.group_metadata_record import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from ottla.protocol.messages.offset_commit_record import (
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.schema import Message

GROUP_METADATA_VERSION: Final = 3
OFFSET_COMMIT_VERSION: Final = 4
OFFSET_COMMIT_VERSION_WITH_EXPIRY: Final = 1
"""The only version with the expiry time of an offset (RetentionTimeMs of OffsetCommit 2 to 4)."""

_MESSAGES: Final[dict[int, tuple[type[Message], type[Message]]]] = {
    LegacyOffsetCommitKey.API: (LegacyOffsetCommitKey, OffsetCommitValue),
    OffsetCommitKey.API: (OffsetCommitKey, OffsetCommitValue),
    GroupMetadataKey.API: (GroupMetadataKey, GroupMetadataValue),
    **consumer_records.MESSAGES,
    **share_records.MESSAGES,
}
"""Type of record -> key and value. Kafka reads the values of type 0 and type 1 alike."""


_Reader = Callable[[bytes, int], Any]
_KEYS: Final[dict[bytes, _Reader]] = {}
"""The first two bytes of a key -> how to read it; filled as they come."""
_READERS: Final[dict[bytes, tuple[_Reader, _Reader, int]]] = {}
"""The first two bytes of a key and of its value -> how to read the two, and the value's version."""


def decode_record(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """The record of (key, value); None for a type or version that a newer release wrote, which is left alone. Raises
    PeerError.

    A restart does this with every record there is: functions are looked up by the bytes as they stand.
    """
    if value is None:
        read = _KEYS.get(key[:2]) or _key_reader(key[:2])
        return None if read is None else CoordinatorRecord(read(key, 2), None)
    readers = _READERS.get(key[:2] + value[:2]) or _readers(key[:2], value[:2])
    if readers is None:
        return None
    read_key, read_value, version = readers
    return CoordinatorRecord(read_key(key, 2), read_value(value, 2), version)


def _key_reader(kind: bytes) -> _Reader | None:
    messages = _MESSAGES.get(int.from_bytes(kind, "big", signed=True))
    if messages is None:
        return None
    if kind not in _KEYS:
        _KEYS[kind] = reader(messages[0], 0)
    return _KEYS[kind]


def _readers(kind: bytes, written: bytes) -> tuple[_Reader, _Reader, int] | None:
    read_key = _key_reader(kind)
    if read_key is None:
        return None
    message = _MESSAGES[int.from_bytes(kind, "big", signed=True)][1]
    version = int.from_bytes(written, "big", signed=True)
    if version not in message.VERSIONS:
        return None
    made = _READERS[kind + written] = read_key, reader(message, version), version
    return made


def empty_group(group: ClassicGroup, generation: int, now: int) -> CoordinatorRecord:
    """The snapshot of `group` without members."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=generation,
        protocol=None,
        leader=None,
        current_state_timestamp=now,
    )
    return CoordinatorRecord(GroupMetadataKey(group=group.group_id), value, GROUP_METADATA_VERSION)


def stable_group(group: ClassicGroup, assignments: dict[str, bytes], now: int) -> CoordinatorRecord:
    """The snapshot of `group` with its members and `assignments` by member id."""
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
    """The end of a group."""
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None)


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """The end of a committed offset."""
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


__all__ = [
    "GROUP_METADATA_VERSION",
    "OFFSET_COMMIT_VERSION",
    "OFFSET_COMMIT_VERSION_WITH_EXPIRY",
    "LegacyOffsetCommitKey",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "decode_record",
    "empty_group",
    "group_tombstone",
    "offset_tombstone",
    "stable_group",
]
