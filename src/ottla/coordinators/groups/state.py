"""State of one partition of __consumer_offsets: the groups and committed offsets that this broker coordinates."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.coordinators.groups.classic.group import ClassicGroup
from ottla.coordinators.groups.committed_offset import CommittedOffset, committed_offset
from ottla.coordinators.groups.consumer.group import KEYS, ConsumerGroup
from ottla.coordinators.groups.records import OffsetCommitValue
from ottla.coordinators.groups.share.group import ShareGroup
from ottla.coordinators.groups.share.records import KEYS as SHARE_KEYS
from ottla.coordinators.groups.streams.assignor import STICKY
from ottla.coordinators.groups.streams.assignors import Assign
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.records import KEYS as STREAMS_KEYS
from ottla.coordinators.groups.streams.targets import assignor_configs
from ottla.coordinators.records import CoordinatorRecord
from ottla.coordinators.runtime import Millis
from ottla.coordinators.topology import Topology
from ottla.environment import Random
from ottla.metadata.configs import BrokerValues
from ottla.metadata.configs.alteration import GROUP
from ottla.protocol.messages.consumer_group_metadata_record import ConsumerGroupMetadataKey
from ottla.protocol.messages.group_metadata_record import GroupMetadataKey, GroupMetadataValue
from ottla.protocol.messages.offset_commit_record import LegacyOffsetCommitKey, OffsetCommitKey
from ottla.protocol.messages.share_group_metadata_record import ShareGroupMetadataKey
from ottla.protocol.messages.streams_group_topology_record import StreamsGroupTopologyKey


class Bounded(NamedTuple):
    """A config that a group may set for itself, with its bounds."""

    default: int
    lowest: int
    highest: int

    def clamp(self, value: int) -> int:
        """Return `value`, raised or lowered to the nearest bound."""
        return min(max(value, self.lowest), self.highest)


def _bounds_of(values: BrokerValues, name: str) -> Bounded:
    """Return the config `name` and its bounds; `name` has a placeholder for the prefix of the bounds, "min." or "max."."""
    return Bounded(*(values.integer(name.format(prefix)) for prefix in ("", "min.", "max.")))


def _short_name(assignor: str) -> str:
    """Return the name of an assignor, which a config may also name by Kafka's class (org...UniformAssignor)."""
    return assignor.rpartition(".")[2].removesuffix("Assignor").lower() if "." in assignor else assignor


class ConsumerSettings(NamedTuple):
    """Broker configs of consumer groups; times in ms."""

    session_timeout_ms: Bounded = Bounded(45_000, 45_000, 60_000)
    heartbeat_interval_ms: Bounded = Bounded(5_000, 5_000, 15_000)
    assignment_interval_ms: Bounded = Bounded(1_000, 0, 15_000)
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    """Names of the assignors; the first one is the default."""
    may_upgrade: bool = True
    may_downgrade: bool = True
    """From group.consumer.migration.policy: conversion of a classic group with members to a consumer group, and back."""
    regex_refresh_ms: int = 600_000

    @classmethod
    def of(cls, values: BrokerValues) -> "ConsumerSettings":
        """Return the settings in a broker's configs."""
        policy = values.text("group.consumer.migration.policy")
        return cls(
            session_timeout_ms=_bounds_of(values, "group.consumer.{}session.timeout.ms"),
            heartbeat_interval_ms=_bounds_of(values, "group.consumer.{}heartbeat.interval.ms"),
            assignment_interval_ms=_bounds_of(values, "group.consumer.{}assignment.interval.ms"),
            max_size=values.integer("group.consumer.max.size"),
            assignors=tuple(map(_short_name, values.items_of("group.consumer.assignors"))),
            may_upgrade=policy in ("bidirectional", "upgrade"),
            may_downgrade=policy in ("bidirectional", "downgrade"),
            regex_refresh_ms=values.integer("group.consumer.regex.refresh.interval.ms"),
        )


class ShareSettings(NamedTuple):
    """Broker configs of share groups; times in ms."""

    session_timeout_ms: Bounded = Bounded(45_000, 45_000, 60_000)
    heartbeat_interval_ms: Bounded = Bounded(5_000, 5_000, 15_000)
    assignment_interval_ms: Bounded = Bounded(1_000, 0, 15_000)
    max_size: int = 200
    initialize_retry_ms: int = 30_000

    @classmethod
    def of(cls, values: BrokerValues) -> "ShareSettings":
        """Return the settings in a broker's configs."""
        return cls(
            session_timeout_ms=_bounds_of(values, "group.share.{}session.timeout.ms"),
            heartbeat_interval_ms=_bounds_of(values, "group.share.{}heartbeat.interval.ms"),
            assignment_interval_ms=_bounds_of(values, "group.share.{}assignment.interval.ms"),
            max_size=values.integer("group.share.max.size"),
            initialize_retry_ms=values.integer("group.share.initialize.retry.interval.ms"),
        )


class StreamsSettings(NamedTuple):
    """Broker configs of streams groups; times in ms.

    tags                  group.streams.rack.aware.assignment.tags, joined with commas
    describes_topologies  whether a plug-in stores descriptions of topologies (KIP-1331)
    assignors             assignors by name, the first one is the default; None for "sticky" (KIP-1357)
    """

    session_timeout_ms: Bounded = Bounded(45_000, 45_000, 60_000)
    heartbeat_interval_ms: Bounded = Bounded(5_000, 5_000, 15_000)
    assignment_interval_ms: Bounded = Bounded(1_000, 0, 15_000)
    task_offset_interval_ms: Bounded = Bounded(60_000, 15_000, 2**31 - 1)
    initial_rebalance_delay_ms: int = 3_000
    standby_replicas: Bounded = Bounded(0, 0, 2)
    acceptable_recovery_lag: int = 10_000
    max_size: int = 2**31 - 1
    tags: str = ""
    describes_topologies: bool = False
    assignors: Mapping[str, Assign | None] = {STICKY: None}

    @classmethod
    def of(cls, values: BrokerValues) -> "StreamsSettings":
        """Return the settings in a broker's configs."""
        least_offset_interval = values.integer("group.streams.min.task.offset.interval.ms")
        return cls(
            session_timeout_ms=_bounds_of(values, "group.streams.{}session.timeout.ms"),
            heartbeat_interval_ms=_bounds_of(values, "group.streams.{}heartbeat.interval.ms"),
            assignment_interval_ms=_bounds_of(values, "group.streams.{}assignment.interval.ms"),
            task_offset_interval_ms=Bounded(
                values.integer("group.streams.task.offset.interval.ms"), least_offset_interval, 2**31 - 1
            ),
            initial_rebalance_delay_ms=values.integer("group.streams.initial.rebalance.delay.ms"),
            standby_replicas=Bounded(
                values.integer("group.streams.num.standby.replicas"),
                0,
                values.integer("group.streams.max.standby.replicas"),
            ),
            acceptable_recovery_lag=values.integer("group.streams.acceptable.recovery.lag"),
            max_size=values.integer("group.streams.max.size"),
            tags=",".join(values.items_of("group.streams.rack.aware.assignment.tags")),
            describes_topologies=values.text("group.streams.topology.description.plugin.class") is not None,
        )


class GroupSettings(NamedTuple):
    """Broker configs of groups and offsets."""

    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 86_400_000
    offsets_retention_check_ms: int = 600_000
    new_member_join_timeout_ms: int = 300_000
    """Time that a member without a member id of its own may stay parked; no config in Kafka either."""
    consumer: ConsumerSettings = ConsumerSettings()
    share: ShareSettings = ShareSettings()
    streams: StreamsSettings = StreamsSettings()

    @classmethod
    def of(cls, values: BrokerValues) -> "GroupSettings":
        """Return the settings in a broker's configs."""
        return cls(
            initial_rebalance_delay_ms=values.integer("group.initial.rebalance.delay.ms"),
            max_size=values.integer("group.max.size"),
            offset_metadata_max_bytes=values.integer("offset.metadata.max.bytes"),
            offsets_retention_ms=values.integer("offsets.retention.minutes") * 60_000,
            offsets_retention_check_ms=values.integer("offsets.retention.check.interval.ms"),
            consumer=ConsumerSettings.of(values),
            share=ShareSettings.of(values),
            streams=StreamsSettings.of(values),
        )


Offsets = dict[str, dict[int, CommittedOffset]]
"""Topic -> partition -> last commit."""


class Groups:
    """State of one partition of __consumer_offsets.

    A group id belongs to a group of one type: classic, consumer, share or streams. There is a dictionary for each type.
    """

    def __init__(self, settings: GroupSettings, random: Random, topology: Topology | None = None) -> None:
        self.settings = settings
        self.random = random
        self.topology = Topology() if topology is None else topology
        self.groups: dict[str, ClassicGroup] = {}
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        self.share_groups: dict[str, ShareGroup] = {}
        self.streams_groups: dict[str, StreamsGroup] = {}
        self.offsets: dict[str, Offsets] = {}
        self.pending: dict[int, dict[tuple[str, str, int], tuple[int, CoordinatorRecord]]] = {}
        """Producer id -> offset commits in its open transaction: (group, topic, partition) -> (order in the log, record)."""
        self._committed_at: dict[tuple[str, str, int], int] = {}
        """Order in the log of the last commit of an offset; kept while transactions are open."""
        self._replayed = 0
        self.rebalances = {"classic": 0, "consumer": 0, "share": 0, "streams": 0}
        """Generations and epochs of groups that have begun since this partition was loaded, by type of group."""

    def get(self, group_id: str) -> ClassicGroup | None:
        """The classic group, if there is one."""
        return self.groups.get(group_id)

    def type_of(self, group_id: str) -> str | None:
        """Return the type of a group: "classic", "consumer", "share" or "streams"; None for an unknown one."""
        for kind, groups in (
            ("classic", self.groups),
            ("consumer", self.consumer_groups),
            ("share", self.share_groups),
            ("streams", self.streams_groups),
        ):
            if group_id in groups:
                return kind
        return None

    # Configs in force for a group: its own within the broker's bounds, else the broker's.

    def session_timeout_ms(self, group_id: str) -> int:
        """Session timeout of the members of a consumer group, in ms."""
        return self._clamped_config(group_id, "consumer.session.timeout.ms", self.settings.consumer.session_timeout_ms)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Heartbeat interval of the members of a consumer group, in ms."""
        return self._clamped_config(
            group_id, "consumer.heartbeat.interval.ms", self.settings.consumer.heartbeat_interval_ms
        )

    def until_assignment_ms(self, group: ConsumerGroup, now: Millis) -> int:
        """Time until a consumer group's targets are old enough to be computed again, in ms (KIP-1263)."""
        config = self.settings.consumer.assignment_interval_ms
        interval = self._clamped_config(group.group_id, "consumer.assignment.interval.ms", config)
        return _left_ms(interval, group.target_timestamp, now)

    def share_session_timeout_ms(self, group_id: str) -> int:
        """Session timeout of the members of a share group, in ms."""
        return self._clamped_config(group_id, "share.session.timeout.ms", self.settings.share.session_timeout_ms)

    def share_heartbeat_interval_ms(self, group_id: str) -> int:
        """Heartbeat interval of the members of a share group, in ms."""
        return self._clamped_config(group_id, "share.heartbeat.interval.ms", self.settings.share.heartbeat_interval_ms)

    def until_share_assignment_ms(self, group: ShareGroup, now: Millis) -> int:
        """Time until a share group's targets are old enough to be computed again, in ms.

        Targets without a partition are: they were computed before the partitions had a state.
        """
        if not any(group.targets.values()):
            return 0
        config = self.settings.share.assignment_interval_ms
        interval = self._clamped_config(group.group_id, "share.assignment.interval.ms", config)
        return _left_ms(interval, group.target_timestamp, now)

    def streams_session_timeout_ms(self, group_id: str) -> int:
        """Session timeout of the members of a streams group, in ms."""
        return self._clamped_config(group_id, "streams.session.timeout.ms", self.settings.streams.session_timeout_ms)

    def streams_heartbeat_interval_ms(self, group_id: str) -> int:
        """Heartbeat interval of the members of a streams group, in ms."""
        return self._clamped_config(
            group_id, "streams.heartbeat.interval.ms", self.settings.streams.heartbeat_interval_ms
        )

    def streams_task_offset_interval_ms(self, group_id: str) -> int:
        """Interval at which the members of a streams group report the offsets of their state, in ms."""
        return self._clamped_config(
            group_id, "streams.task.offset.interval.ms", self.settings.streams.task_offset_interval_ms
        )

    def streams_acceptable_recovery_lag(self, group_id: str) -> int:
        """Lag of a state, in records, that does not keep a task from being active at once."""
        return self._integer(group_id, "streams.acceptable.recovery.lag", self.settings.streams.acceptable_recovery_lag)

    def streams_initial_delay_ms(self, group_id: str) -> int:
        """Time from the first member of a streams group to the first assignment, in ms."""
        delay_ms = self.settings.streams.initial_rebalance_delay_ms
        return self._integer(group_id, "streams.initial.rebalance.delay.ms", delay_ms)

    def streams_assignor_configs(self, group_id: str) -> dict[str, str]:
        """Return the configs of a streams group's assignor, as they are logged with the group's epoch."""
        settings = self.settings.streams
        replicas = self._clamped_config(group_id, "streams.num.standby.replicas", settings.standby_replicas)
        tags, name = settings.tags, "streams.rack.aware.assignment.tags"
        if self.topology.image.configs:
            tags = self.topology.image.configs_of(GROUP, group_id).get(name, tags)
        return assignor_configs(replicas, tags)

    def streams_assignor(self, group_id: str) -> tuple[str, Assign | None]:
        """Return the name of a streams group's assignor, and the assignor: the default one if the broker has not the one that
        the group's configs name. None for "sticky"."""
        assignors = self.settings.streams.assignors
        name = None
        if self.topology.image.configs:
            name = self.topology.image.configs_of(GROUP, group_id).get("streams.assignor.name")
        if name is None or name not in assignors:
            name = next(iter(assignors))
        return name, assignors[name]

    def until_task_assignment_ms(self, group: StreamsGroup, now: Millis) -> int:
        """Time until a streams group's targets are old enough to be computed again, in ms."""
        config = self.settings.streams.assignment_interval_ms
        interval = self._clamped_config(group.group_id, "streams.assignment.interval.ms", config)
        return _left_ms(interval, group.target_timestamp, now)

    def _integer(self, group_id: str, name: str, default: int) -> int:
        return self.topology.integer(group_id, name, f"group.{name}", default)

    def _clamped_config(self, group_id: str, name: str, config: Bounded) -> int:
        if not self.topology.image.configs:
            return config.default
        return config.clamp(self.topology.integer(group_id, name, f"group.{name}", config.default))

    def topics_changed(self, names: set[str]) -> None:
        """Mark the groups that read changed topics, or may read them, so that their next heartbeat checks its topics."""
        for group in self.consumer_groups.values():
            if not group.is_stale and any(group.is_subscribed(name) for name in names):
                group.is_stale = True
        for share_group in self.share_groups.values():
            if not share_group.is_stale and any(share_group.is_subscribed(name) for name in names):
                share_group.is_stale = True
        for streams_group in self.streams_groups.values():
            if not streams_group.is_stale and any(streams_group.depends_on(name) for name in names):
                streams_group.is_stale = True

    # Replay.

    def replay_offsets(self, group_id: str, topic: str, offsets: Iterable[tuple[int, CommittedOffset]]) -> None:
        """Apply committed offsets of a group in a topic, by partition; only while no transaction is open."""
        self._offsets_of(group_id, topic).update(offsets)

    def replay_pending(self, record: CoordinatorRecord, producer_id: int) -> None:
        """Apply the record of an offset in an open transaction: the offset is committed together with the transaction."""
        key = record.key
        if not isinstance(key, (OffsetCommitKey, LegacyOffsetCommitKey)):
            self.replay(record)  # not written by any coordinator; another client's record is applied as it is
            return
        self._replayed += 1
        at = key.group, key.topic, key.partition
        self.pending.setdefault(producer_id, {})[at] = self._replayed, record
        if self.type_of(key.group) is None:
            self._group(key.group)

    def replay_end(self, producer_id: int, *, commit: bool) -> None:
        """End a transaction. Of two commits of one offset the one written last wins, whichever transaction ends last."""
        for at, (order, record) in self.pending.pop(producer_id, {}).items():
            if commit and order > self._committed_at.get(at, 0):
                self._committed_at[at] = order
                key = record.key
                assert isinstance(key, (OffsetCommitKey, LegacyOffsetCommitKey))
                self._replay_offset(key, record.value if isinstance(record.value, OffsetCommitValue) else None)
        if not self.pending:
            self._committed_at.clear()

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Return whether an open transaction commits this offset."""
        at = group_id, topic, partition
        return any(at in offsets for offsets in self.pending.values())

    def pending_of(self, group_id: str) -> set[tuple[str, int]]:
        """Return (topic, partition) of the offsets that open transactions commit for a group."""
        return {
            (topic, index) for offsets in self.pending.values() for group, topic, index in offsets if group == group_id
        }

    def has_pending(self, group_id: str) -> bool:
        """Return whether an open transaction commits an offset of the group."""
        return any(at[0] == group_id for offsets in self.pending.values() for at in offsets)

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply one record."""
        key, value = record.key, record.value
        if isinstance(key, (OffsetCommitKey, LegacyOffsetCommitKey)):
            if self.pending:
                self._replayed += 1
                self._committed_at[key.group, key.topic, key.partition] = self._replayed
                if value is None:  # an open transaction does not restore a deleted offset
                    for pending in self.pending.values():
                        pending.pop((key.group, key.topic, key.partition), None)
            self._replay_offset(key, value if isinstance(value, OffsetCommitValue) else None)
        elif isinstance(key, GroupMetadataKey):
            if isinstance(value, GroupMetadataValue):
                classic = self._group(key.group)
                self.rebalances["classic"] += value.generation > classic.generation
                classic.replay(value)
            else:
                self.groups.pop(key.group, None)
        elif isinstance(key, KEYS):
            self._replay_consumer(key.group_id, record)
        elif isinstance(key, SHARE_KEYS):
            self._replay_share(key.group_id, record)
        elif isinstance(key, STREAMS_KEYS):
            self._replay_streams(key.group_id, record)

    def _replay_consumer(self, group_id: str, record: CoordinatorRecord) -> None:
        group = self.consumer_groups.get(group_id)
        if group is None:
            if record.value is None:
                return
            # While loading, offsets may come first: the classic group that they created is not a real one.
            self.groups.pop(group_id, None)
            group = self.consumer_groups[group_id] = ConsumerGroup(group_id)
        epoch = group.epoch
        group.replay(record)
        self.rebalances["consumer"] += group.epoch > epoch
        if record.value is None and isinstance(record.key, ConsumerGroupMetadataKey):
            del self.consumer_groups[group_id]
            if group_id in self.offsets:
                self._group(group_id)

    def _replay_share(self, group_id: str, record: CoordinatorRecord) -> None:
        group = self.share_groups.get(group_id)
        if group is None:
            if record.value is None:
                return
            group = self.share_groups[group_id] = ShareGroup(group_id)
        epoch = group.epoch
        group.replay(record)
        self.rebalances["share"] += group.epoch > epoch
        if record.value is None and isinstance(record.key, ShareGroupMetadataKey):
            del self.share_groups[group_id]

    def _replay_streams(self, group_id: str, record: CoordinatorRecord) -> None:
        group = self.streams_groups.get(group_id)
        if group is None:
            if record.value is None:
                return
            # While loading, offsets may come first: the classic group that they created is not a real one.
            self.groups.pop(group_id, None)
            group = self.streams_groups[group_id] = StreamsGroup(group_id)
        epoch = group.epoch
        group.replay(record)
        self.rebalances["streams"] += group.epoch > epoch
        if record.value is None and isinstance(record.key, StreamsGroupTopologyKey):  # the last tombstone of a group
            del self.streams_groups[group_id]
            if group_id in self.offsets:
                self._group(group_id)

    def _group(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id)
        return group

    def _offsets_of(self, group_id: str, topic: str) -> dict[int, CommittedOffset]:
        """Return the offsets of a group in a topic, by partition, which it creates without any."""
        offsets = self.offsets.get(group_id)
        if offsets is None:
            offsets = self.offsets[group_id] = {}
            if group_id not in self.consumer_groups and group_id not in self.streams_groups:
                self._group(group_id)  # consumers without membership have a group, too
        partitions = offsets.get(topic)
        if partitions is None:
            partitions = offsets[topic] = {}
        return partitions

    def _replay_offset(self, key: OffsetCommitKey | LegacyOffsetCommitKey, value: OffsetCommitValue | None) -> None:
        offsets = self.offsets.get(key.group)
        if value is not None:
            self._offsets_of(key.group, key.topic)[key.partition] = committed_offset(value)
        elif offsets is not None and key.topic in offsets:
            offsets[key.topic].pop(key.partition, None)
            if not offsets[key.topic]:
                del offsets[key.topic]
                if not offsets:
                    del self.offsets[key.group]


def _left_ms(interval: int, since: Millis, now: Millis) -> int:
    """Return what is left of an interval since a wall-clock time: 0 if the clock was set back to before that time."""
    return max(since + interval - now, 0) if 0 < since <= now else 0
