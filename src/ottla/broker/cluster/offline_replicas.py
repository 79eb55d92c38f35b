"""The log directories of this broker's replicas in the metadata (KIP-858): where each log is, and which are offline or damaged.

A replica is assigned to the directory that its log was opened in: at its creation, at the first start of this release, or after
a log was moved by hand. Topics on brokers with one directory are created with it, and need no further change.

The broker that loses a log directory writes it itself, for each partition in it: its replica leaves the ISR, is listed as
offline, and another member of the ISR is elected if it led. The entry is removed when the partition has a log here again, after
a restart. A partition without a leader is left to the controller.

A replica that cannot read its log although the disk works leaves the ISR, if another member leads or can lead: as a follower
outside of it it cuts the damage, and fetches the rest again. (Apache Kafka goes on serving what it can read.) With this a new
leader epoch begins, also if the leader stays, and for a replica outside of the ISR: in the old one the leader may count on
what is about to be cut, and might have added the replica to the ISR already.

In the last two cases the replica leaves the ELR, too (KIP-966).
"""

import logging
from collections.abc import Callable
from typing import Final

from ottla.environment import Cancellable
from ottla.metadata import changes
from ottla.metadata.changes.elections import ElectionRules, remove_damaged, remove_from_isr
from ottla.metadata.image import NO_LEADER, Delta, PartitionImage, TopicImage
from ottla.metadata.metadata import Metadata
from ottla.metadata.store import Change, keys
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.tasks.scheduler import Scheduler

_logger = logging.getLogger("ottla.replication")
_PARTITIONS_A_CHANGE: Final = 40
"""Each is compared with its topic, and etcd takes 128 comparisons."""
_PARTITIONS_A_STEP: Final = 500
"""Number of partitions that are examined in one step of a few milliseconds."""
_RETRY_MS: Final = 200
_FENCED_RETRY_MS: Final = 2_000
_DAMAGED_RETRY_MS: Final = 2_000
"""Interval at which a damaged replica looks whether the partition can do without it."""


class OfflineReplicas:
    """Writes where the replicas of this broker are, and which are offline.

    rules  returns the settings for elections of a topic
    """

    def __init__(
        self,
        node_id: int,
        metadata: Metadata,
        replicas: Replicas,
        tasks: Scheduler,
        rules: Callable[[TopicImage], ElectionRules],
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._replicas = replicas
        self._tasks = tasks
        self._rules = rules
        self._due: dict[tuple[str, int], None] = {}
        self._damaged: dict[tuple[str, int], None] = {}
        """Partitions whose damage was reported; those that are repaired are removed at the next look."""
        self._timer: Cancellable | None = None
        self._retry: Cancellable | None = None
        self._is_writing = False
        self._has_begun = False
        self._is_closed = False

    def begin(self) -> None:
        """Compare the metadata with the replicas that could be opened, and write every later failure."""
        self._replicas.on_offline.append(self._look_at)
        self._replicas.on_online.append(self._look_at_all)
        self._replicas.on_damage.append(self._was_damaged)
        self._has_begun = True
        for topic in self._metadata.image.topics.values():
            self._look_at_all(topic)
        for partition in self._replicas.all():
            if partition.damaged_at >= 0:
                self._was_damaged(partition)

    def _was_damaged(self, partition: Partition) -> None:
        self._damaged[partition.topic, partition.index] = None
        self._look_at(partition.topic, partition.index)

    def apply(self, delta: Delta) -> None:
        """Look at the partitions whose state or log here may have changed."""
        if not self._has_begun:
            return
        for topic in delta.changed:
            self._look_at_all(topic)
        for name, indexes in delta.moved.items():
            topic = delta.image.topics[name]
            for index in indexes:
                if self._is_wrong(name, index, topic.partitions[index]):
                    self._look_at(name, index)
        self._look_at_affected(delta)

    def _look_at_affected(self, delta: Delta) -> None:
        """Look at the damaged partitions that a delta affects: they may be in the ISR again, or have another leader."""
        if not self._damaged:
            return
        changed = {topic.name for topic in delta.changed}
        for name, index in self._damaged:
            if delta.membership or name in changed or index in delta.moved.get(name, ()):
                self._look_at(name, index)

    def close(self) -> None:
        """Write nothing any more."""
        self._is_closed = True
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()

    def _look_at_all(self, topic: TopicImage) -> None:
        for index, partition in enumerate(topic.partitions):
            if self._is_wrong(topic.name, index, partition):
                self._look_at(topic.name, index)

    def _is_wrong(self, topic: str, index: int, partition: PartitionImage) -> bool:
        """Return True if a state does not say where the replica here is, or whether it is offline."""
        if self._node_id not in partition.replicas:
            return False
        is_offline = self._replicas.is_offline(topic, index)
        if is_offline != (self._node_id in partition.offline):
            return True
        replica = None if is_offline else self._replicas.find(topic, index)
        return replica is not None and partition.directory_of(self._node_id) != self._replicas.home_of(replica).id

    def _look_at(self, topic: str, index: int) -> None:
        self._due[topic, index] = None
        self._write_in(0)

    def _write_in(self, delay_ms: int) -> None:
        if self._timer is None and not self._is_writing and not self._is_closed:
            self._timer = self._tasks.call_later(delay_ms, self._write)

    def _write(self) -> None:
        self._timer = None
        if self._node_id not in self._metadata.image.live:
            self._write_in(_FENCED_RETRY_MS)  # fenced: every change would be refused
            return
        planned: list[tuple[TopicImage, int, PartitionImage]] = []
        waiting = False
        examined = 0
        while self._due and len(planned) < _PARTITIONS_A_CHANGE and examined < _PARTITIONS_A_STEP:
            examined += 1
            name, index = next(iter(self._due))
            del self._due[name, index]
            topic = self._metadata.image.topics.get(name)
            if topic is None or index >= len(topic.partitions):
                self._damaged.pop((name, index), None)
                continue
            before = topic.partitions[index]
            state = None
            if self._is_wrong(name, index, before):
                state = self._next_state(topic, index, before)
            elif self._awaits_epoch(name, index, before):
                state = self._give_up(before)
                waiting = waiting or state is None
            if state is not None:
                planned.append((topic, index, state))
        if waiting and self._retry is None:
            # Most changes for the better come with a delta. One timer for all: deltas come here as well.
            self._retry = self._tasks.call_later(_DAMAGED_RETRY_MS, self._look_at_damaged)
        if planned:
            self._submit(planned)
        elif self._due:
            self._write_in(0)

    def _look_at_damaged(self) -> None:
        self._retry = None
        for name, index in self._damaged:
            self._look_at(name, index)

    def _awaits_epoch(self, topic: str, index: int, placed: PartitionImage) -> bool:
        """Return True if a partition is damaged here, and this replica may not cut it yet."""
        partition = self._replicas.find(topic, index)
        if partition is None or partition.damaged_at < 0:
            self._damaged.pop((topic, index), None)
            return False
        return self._node_id in placed.replicas and not partition.may_cut_damage(placed, self._node_id)

    def _give_up(self, before: PartitionImage) -> PartitionImage | None:
        """Return the state of a partition, in a new leader epoch, in which this broker follows another one and may cut its log;
        None if no other member can lead.
        """
        image = self._metadata.image

        def acceptable(other: int) -> bool:
            if before.leader not in (self._node_id, other):
                return False  # to replace a leader that is not live is for the controller
            is_other = other != self._node_id and other not in before.offline
            return is_other and image.is_active(other)

        return remove_damaged(before, self._node_id, acceptable)

    def _next_state(self, topic: TopicImage, index: int, before: PartitionImage) -> PartitionImage:
        """Return the state of a partition whose replica here is offline now, is online again, or is in another directory."""
        node, image = self._node_id, self._metadata.image
        rules = self._rules(topic)._replace(allows_unclean=False)  # this, and any other election, is the controller's
        offline = tuple(other for other in before.offline if other != node)
        if self._replicas.is_offline(topic.name, index):
            offline = (*offline, node)

        def acceptable(other: int) -> bool:
            if before.leader != node:
                return other == before.leader  # if it is not live, its place is for the controller to fill
            return other not in offline and image.is_active(other)

        state = before._replace(offline=offline)
        replica = self._replicas.find(topic.name, index)
        if replica is not None:
            state = state.assigned(node, self._replicas.home_of(replica).id)
        if node in offline and node in (*state.isr, *state.elr):
            # Its directory may come back empty, on another disk.
            state = remove_from_isr(state, node, acceptable, rules, has_records=False) or state
        return state._replace(epoch=before.epoch + 1)

    def _submit(self, planned: list[tuple[TopicImage, int, PartitionImage]]) -> None:
        metadata = self._metadata
        live = [keys.live_key(self._node_id)]
        leaders = sorted({state.leader for _, _, state in planned if state.leader != NO_LEADER})
        live += [keys.live_key(leader) for leader in leaders if leader != self._node_id]
        change = changes.partition_states(
            metadata.image, planned, {key: metadata.image.created_of(key) for key in live}
        )
        registered = {key: metadata.image.revision_of(key) for key in map(keys.broker_key, leaders)}
        change = change._replace(expect={**change.expect, **registered})
        self._is_writing = True
        self._tasks.background(self._send(planned, change), "a record of log directories")

    async def _send(self, planned: list[tuple[TopicImage, int, PartitionImage]], change: Change) -> None:
        outcome = await self._metadata.submit(change)
        self._is_writing = False
        if outcome.revision:
            _logger.info("recorded the log directory of %d replicas, or that they are offline or damaged", len(planned))
        else:
            self._due.update(dict.fromkeys((topic.name, index) for topic, index, _ in planned))
        if outcome.error is not None:
            _logger.warning("cannot record the log directories of replicas: %s; this is retried", outcome.error)
        if self._due:
            self._write_in(0 if outcome.error is None else _RETRY_MS)
