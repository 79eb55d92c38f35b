"""What one partition of __consumer_offsets adds up to: the groups and committed offsets whose coordinator this broker is."""

from typing import NamedTuple

from ottla.coordinators.groups.group import ClassicGroup
from ottla.coordinators.groups.records import OffsetCommitValue
from ottla.coordinators.runtime import Record
from ottla.environment import Random
from ottla.metadata.configs import BrokerValues
from ottla.protocol.messages.group_metadata_record import GroupMetadataKey, GroupMetadataValue
from ottla.protocol.messages.offset_commit_record import LegacyOffsetCommitKey, OffsetCommitKey


class GroupSettings(NamedTuple):
    """The broker configs that classic groups and offsets obey."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 86_400_000
    offsets_retention_check_ms: int = 600_000
    new_member_join_timeout_ms: int = 300_000
    """How long a member without a member id of its own may stay parked; no config in Kafka either."""

    @classmethod
    def of(cls, values: BrokerValues) -> "GroupSettings":
        """The settings that a broker's configs say."""
        return cls(
            min_session_timeout_ms=values.integer("group.min.session.timeout.ms"),
            max_session_timeout_ms=values.integer("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=values.integer("group.initial.rebalance.delay.ms"),
            max_size=values.integer("group.max.size"),
            offset_metadata_max_bytes=values.integer("offset.metadata.max.bytes"),
            offsets_retention_ms=values.integer("offsets.retention.minutes") * 60_000,
            offsets_retention_check_ms=values.integer("offsets.retention.check.interval.ms"),
        )


Offsets = dict[str, dict[int, OffsetCommitValue]]
"""Topic -> partition -> what was committed last."""


class Groups:
    """The state of one partition of __consumer_offsets."""

    def __init__(self, settings: GroupSettings, random: Random) -> None:
        self.settings = settings
        self.random = random
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets: dict[str, Offsets] = {}

    def get(self, group_id: str) -> ClassicGroup | None:
        """The group, if there is one."""
        return self.groups.get(group_id)

    def replay(self, record: Record) -> None:
        """Take in one record."""
        key, value = record.key, record.value
        if isinstance(key, (OffsetCommitKey, LegacyOffsetCommitKey)):
            self._replay_offset(key, value if isinstance(value, OffsetCommitValue) else None)
        elif isinstance(key, GroupMetadataKey):
            if isinstance(value, GroupMetadataValue):
                self._group(key.group).replay(value)
            else:
                self.groups.pop(key.group, None)

    def _group(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id)
        return group

    def _replay_offset(self, key: OffsetCommitKey | LegacyOffsetCommitKey, value: OffsetCommitValue | None) -> None:
        offsets = self.offsets.get(key.group)
        if value is not None:
            if offsets is None:
                offsets = self.offsets[key.group] = {}
                self._group(key.group)  # a consumer that only commits has a group all the same
            partitions = offsets.get(key.topic)
            if partitions is None:
                partitions = offsets[key.topic] = {}
            partitions[key.partition] = value
        elif offsets is not None and key.topic in offsets:
            offsets[key.topic].pop(key.partition, None)
            if not offsets[key.topic]:
                del offsets[key.topic]
                if not offsets:
                    del self.offsets[key.group]
