"""The coordinators' place in the broker: their topic's partitions as logs, the loop's timer as their clock.

A coordinator's partition is ours when the metadata says that we lead it. It is read in pieces between other work, so that a
million committed offsets do not stop the broker; until then its requests answer COORDINATOR_LOAD_IN_PROGRESS.
"""

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from ottla.coordinators.groups.cluster import Cluster
from ottla.coordinators.groups.coordinator import TOPIC, group_coordinator
from ottla.coordinators.offsets import TopicsDeleted, forget_topics
from ottla.coordinators.runtime import Appended, Runtime
from ottla.environment import Cancellable, Clock, Random, Timers
from ottla.log.log import StorageError
from ottla.metadata.configs import BrokerValues
from ottla.metadata.image import Delta, Image, TopicImage
from ottla.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas

_logger = logging.getLogger("ottla.broker")
_RECORDS_A_TURN: Final = 2_000


class PartitionLog:
    """A partition of an internal topic, as a coordinator uses it."""

    def __init__(self, partition: Partition, clock: Clock) -> None:
        self._partition = partition
        self._clock = clock

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> Appended:
        """Append (key, value) pairs as one batch."""
        try:
            appended = self._partition.append_records(list(records), self._clock.wall_ms())
        except StorageError as cause:
            _logger.error("%s", cause)
            return Appended(KAFKA_STORAGE_ERROR)
        if appended.error_code != NONE:
            return Appended(appended.error_code)
        return Appended(NONE, self._partition.log.end_offset)

    def committed_offset(self) -> int:
        """The high watermark (exclusive)."""
        return self._partition.log.high_watermark

    def read(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Every record, oldest first."""
        return ((record.key, record.value) for record in self._partition.log.records())


class Coordination:
    """The coordinators of this broker, and what keeps them going.

    groups  the group coordinator: `groups.run(group_id, operation, request)`
    """

    def __init__(
        self, node_id: int, values: BrokerValues, clock: Clock, random: Random, timers: Timers, replicas: Replicas
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._timers = timers
        self._replicas = replicas
        self._alarm: Cancellable | None = None
        self._alarm_at = 0
        self._cluster = Cluster(node_id)
        self.groups = group_coordinator(values, clock, random, self._cluster, self._ring_at)

    def load(self, image: Image) -> None:
        """Take over what the metadata gives us at the start."""
        self._cluster.advance(image)
        topic = image.topics.get(TOPIC)
        if topic is not None:
            self._lead(topic)

    def apply(self, delta: Delta) -> None:
        """Follow a change of the metadata."""
        changed = self._cluster.advance(delta.image)
        for groups in self.groups.states() if changed else ():
            groups.topics_changed(changed)
        for topic in delta.deleted:
            if topic.name == TOPIC:
                for index in range(len(topic.partitions)):
                    self.groups.unload(index)
        gone = frozenset(topic.name for topic in delta.deleted)
        for index in self.groups.active_partitions() if gone else ():
            self.groups.run_on(index, forget_topics, TopicsDeleted(gone))
        for topic in delta.changed:
            if topic.name == TOPIC:
                self._lead(topic)

    def close(self) -> None:
        """No more timers."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _lead(self, topic: TopicImage) -> None:
        runtime = self.groups
        runtime.partitions = len(topic.partitions)
        for index, placed in enumerate(topic.partitions):
            partition = self._replicas.find(topic.name, index)
            if placed.leader != self._node_id or partition is None:
                runtime.unload(index)
            elif not runtime.leads(index):
                runtime.load(index, PartitionLog(partition, self._clock))
                partition.watchers.add(partial(runtime.committed, index))
                self._load_on(runtime, index)

    def _load_on(self, runtime: Runtime[Any], index: int) -> None:
        try:
            loaded = runtime.load_more(index, _RECORDS_A_TURN)
        except StorageError as cause:
            _logger.error("cannot load %s-%d: %s", TOPIC, index, cause)
            runtime.unload(index)
            return
        if not loaded:
            self._timers.call_later(0, partial(self._load_on, runtime, index))

    def _ring_at(self, deadline_ms: int) -> None:
        """See to it that `advance` runs at `deadline_ms`, of the clock that never goes back."""
        if self._alarm is not None:
            if self._alarm_at <= deadline_ms:
                return
            self._alarm.cancel()
        self._alarm_at = deadline_ms
        self._alarm = self._timers.call_later(max(0, deadline_ms - self._clock.now_ms()), self._ring)

    def _ring(self) -> None:
        self._alarm = None
        try:
            self.groups.advance(self._clock.now_ms())
        finally:
            deadline = self.groups.next_deadline()
            if deadline is not None:
                self._ring_at(deadline)
