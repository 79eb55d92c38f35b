"""The coordinators of this broker, connected to its partition logs, timers and metadata.

This broker coordinates a partition of an internal topic while the metadata names it as leader. The partition is loaded in
pieces between other work, so that a million committed offsets do not block the broker. Requests to a partition that is still
loading get COORDINATOR_LOAD_IN_PROGRESS.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from ottla.broker.cluster.other_brokers import OtherBrokers
from ottla.broker.coordination.markers import MarkerWriter
from ottla.broker.coordination.partition_log import PartitionLog
from ottla.broker.coordination.remote_verification import RemoteVerification
from ottla.broker.coordination.routing import CoordinatorRouting
from ottla.broker.coordination.share_state import ShareCoordinators, ShareStateKeeper, TopicIdPartition
from ottla.broker.coordination.verification import Verification
from ottla.coordinators.groups.coordinator import group_coordinator
from ottla.coordinators.groups.share.heartbeat import Initialized, InitializeShares, finish_initialization
from ottla.coordinators.groups.share.offsets import ShareTopicsDeleted, forget_share_topics
from ottla.coordinators.groups.streams.assignors import Assign
from ottla.coordinators.offsets import TopicsDeleted, forget_topics
from ottla.coordinators.runtime import Runtime
from ottla.coordinators.share.coordinator import share_coordinator
from ottla.coordinators.share.state import Prune, StateOutcome, StateReset, TopicIdsDeleted, forget_topic_ids
from ottla.coordinators.topology import Topology
from ottla.coordinators.transactions.coordinator import transaction_coordinator
from ottla.coordinators.transactions.ending import complete_transaction
from ottla.coordinators.transactions.state import Markers
from ottla.environment import Cancellable, Clock, Random
from ottla.log.log import StorageError
from ottla.metadata.configs import BrokerValues
from ottla.metadata.image import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC, Delta, Image, TopicImage
from ottla.protocol.errors import NONE
from ottla.protocol.wire import PeerError
from ottla.replication.replicas import Replicas
from ottla.tasks.deferred import Answer, awaitable
from ottla.tasks.due_work import DueWork
from ottla.tasks.scheduler import Scheduler

_logger = logging.getLogger("ottla.broker")
_RECORDS_A_TURN: Final = 500
"""Number of records replayed in one turn of the loop: this takes some milliseconds, in which no request is served."""


class Coordination:
    """The coordinators of this broker, with their timers and logs.

    groups        the group coordinator: `groups.run(group_id, operation, request)`
    transactions  the transaction coordinator: `transactions.run(transactional_id, operation, request)`
    shares        the share coordinator: `shares.run(share_key(group_id, topic_id, partition), operation, request)`
    verification  verification of transactional batches, here or at another broker's coordinator
    share_states  requests of the group coordinator to the share coordinator
    share_coordinators  the share coordinators of the cluster
    tasks         the broker's scheduler
    share_resets  called when a share partition's state was replaced or deleted
    """

    def __init__(
        self,
        *,
        node_id: int,
        values: BrokerValues,
        clock: Clock,
        random: Random,
        tasks: Scheduler,
        replicas: Replicas,
        transaction_version: Callable[[], int],
        new_producer_id: Callable[[], int],
        provide_topic: Callable[[str], Answer[bool]],
        peers: OtherBrokers,
        task_assignors: Mapping[str, Assign | None] | None = None,
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self.tasks = tasks
        self._replicas = replicas
        replicas.on_offline.append(self._went_offline)
        replicas.on_online.append(self._came_online)
        self._alarm = DueWork("a timer of the coordinators", self._run_due, clock, tasks)
        self._to_load: deque[tuple[str, int]] = deque()
        self._resigned: set[tuple[str, int]] = set()
        self._epochs: dict[tuple[str, int], int] = {}
        """The leader epoch in which each partition was loaded."""
        self._loading: Cancellable | None = None
        self._topology = Topology(node_id)
        self.groups = group_coordinator(
            values,
            clock,
            tasks,
            random,
            self._topology,
            self._alarm.set,
            self._on_group_message,
            task_assignors=task_assignors,
        )
        self.routing = CoordinatorRouting(node_id, lambda: self._topology.image)
        self.markers = MarkerWriter(
            replicas=replicas, groups=self.groups, clock=clock, tasks=tasks, routing=self.routing, peers=peers
        )
        self.transactions = transaction_coordinator(
            values, clock, tasks, transaction_version, new_producer_id, self._write_markers, self._alarm.set
        )
        self.shares = share_coordinator(values, clock, tasks, self._topology, self._on_share_message, self._alarm.set)
        self.verification = Verification(
            self.transactions,
            self.routing,
            RemoteVerification(peers, tasks),
            clock,
            tasks,
            longest_pause_ms=values.integer("add.partitions.to.txn.retry.backoff.ms"),
            limit_ms=min(
                values.integer("add.partitions.to.txn.retry.backoff.max.ms"), values.integer("request.timeout.ms")
            ),
        )
        self.share_coordinators = ShareCoordinators(self.shares, self.routing, peers, tasks)
        self.share_states = ShareStateKeeper(self.share_coordinators, tasks, partial(provide_topic, SHARE_STATE_TOPIC))
        self.share_resets: list[Callable[[StateReset], None]] = []
        self._runtimes: dict[str, Runtime[Any]] = {
            OFFSETS_TOPIC: self.groups,
            TRANSACTION_STATE_TOPIC: self.transactions,
            SHARE_STATE_TOPIC: self.shares,
        }

    @property
    def loading(self) -> int:
        """Number of partitions of internal topics that are being loaded."""
        return sum(runtime.loading_partitions for runtime in self._runtimes.values())

    def load(self, image: Image) -> None:
        """Load the partitions assigned at the start: offsets before transactions, whose markers may go to offset partitions."""
        self._topology.advance(image)
        for name in self._runtimes:
            if name in image.topics:
                self._lead(image.topics[name])

    def apply(self, delta: Delta) -> None:
        """Apply a change of the metadata."""
        changed = self._topology.advance(delta.image, (topic.name for topic in (*delta.changed, *delta.deleted)))
        for groups in self.groups.states() if changed else ():
            groups.topics_changed(changed)
        for topic in delta.deleted:
            if topic.name in self._runtimes:
                for index in range(len(topic.partitions)):
                    self._runtimes[topic.name].unload(index)
        gone = frozenset(topic.name for topic in delta.deleted)
        for index in self.groups.active_partitions() if gone else ():
            self.groups.run_on(index, forget_topics, TopicsDeleted(gone))
        gone_ids = frozenset(topic.id for topic in delta.deleted)
        for index in self.groups.active_partitions() if gone_ids else ():
            self.groups.run_on(index, forget_share_topics, ShareTopicsDeleted(gone_ids))
        for index in self.shares.active_partitions() if gone_ids else ():
            self.shares.run_on(index, forget_topic_ids, TopicIdsDeleted(gone_ids))
        for topic in delta.changed:
            if topic.name in self._runtimes:
                self._lead(topic)
        for name in self._runtimes:  # offsets before transactions, as in `load`
            if name in delta.moved:
                self._lead(delta.image.topics[name])

    def close(self) -> None:
        """Cancel all timers."""
        self.markers.close()
        if self._loading is not None:
            self._loading.cancel()
        self._alarm.close()

    def _write_markers(self, partition: int, markers: Markers) -> None:
        """Write the markers of a transaction whose end is decided, for a partition of __transaction_state."""
        place = TRANSACTION_STATE_TOPIC, partition
        epoch = self._epochs.get(place)
        if epoch is None:
            return

        def is_current() -> bool:
            return self.transactions.leads(partition) and self._epochs.get(place) == epoch

        def complete() -> Answer[int]:
            return self.transactions.run_on(partition, complete_transaction, markers)

        self.markers.write(markers, epoch, is_current, complete)

    def _on_group_message(self, partition: int, message: InitializeShares) -> None:  # noqa: ARG002
        """Initialise the state of a share group's partitions."""
        self.tasks.background(self._initialize_shares(message), "initialization of share state")

    async def _initialize_shares(self, message: InitializeShares) -> None:
        await self.tasks.sleep(0)  # the heartbeat that caused it is answered first
        offsets = {
            (topic_id, index): offset
            for topic_id, partitions in message.start_offsets.items()
            for index, offset in partitions.items()
        }
        outcomes = await awaitable(
            self.share_states.initialize(message.group_id, message.state_epoch, offsets), self.tasks
        )
        await awaitable(self.settle_shares(message.group_id, outcomes), self.tasks)

    def settle_shares(self, group_id: str, outcomes: Mapping[TopicIdPartition, StateOutcome]) -> Answer[int]:
        """Report to a share group the partitions that have a state now. The answer is an error code."""
        done: dict[bytes, tuple[str, frozenset[int]]] = {}
        failed: dict[bytes, tuple[str, frozenset[int]]] = {}
        for (topic_id, index), outcome in outcomes.items():
            topic = self._topology.image.topics_by_id.get(topic_id)
            name = "" if topic is None else topic.name
            outcomes_by_topic = done if outcome.error_code == NONE else failed
            outcomes_by_topic[topic_id] = (
                name,
                (outcomes_by_topic[topic_id][1] if topic_id in outcomes_by_topic else frozenset()) | {index},
            )
        return self.groups.run(group_id, finish_initialization, Initialized(group_id, done, failed))

    def _on_share_message(self, partition: int, message: Any) -> None:
        """Handle an outgoing message of the share coordinator."""
        if isinstance(message, StateReset):
            for reset in self.share_resets:
                reset(message)
        elif isinstance(message, Prune):
            log = self._replicas.find(SHARE_STATE_TOPIC, partition)
            if log is not None and message.offset > log.log.start_offset:
                try:
                    log.log.delete_records(message.offset)
                    log.wake()
                except StorageError as cause:
                    _logger.error("%s", cause)

    def _lead(self, topic: TopicImage) -> None:
        runtime = self._runtimes[topic.name]
        runtime.partitions = len(topic.partitions)
        for index, placed in enumerate(topic.partitions):
            partition = self._replicas.find(topic.name, index)
            if placed.leader != self._node_id or partition is None or (topic.name, index) in self._resigned:
                runtime.unload(index)
            elif not runtime.leads(index) or self._epochs[topic.name, index] != placed.leader_epoch:
                # Load also when this broker leads again in a new epoch: records not committed in the old one may be lost.
                self._epochs[topic.name, index] = placed.leader_epoch
                runtime.load(index, PartitionLog(partition, self._clock))
                if partition.log.start_offset == partition.log.end_offset:
                    runtime.load_more(index)  # ready at once: the request that created the topic runs next
                else:
                    self._to_load.append((topic.name, index))
        self._load_on()

    def _load_on(self) -> None:
        """Read a piece of the partition that has waited longest; the next piece follows in another turn of the loop."""
        if self._loading is None and self._to_load:
            self._loading = self.tasks.call_later(0, self._load_a_piece)

    def _load_a_piece(self) -> None:
        self._loading = None
        topic, index = self._to_load[0]
        runtime = self._runtimes[topic]
        try:
            if runtime.load_more(index, _RECORDS_A_TURN):
                self._to_load.popleft()
        except Exception as cause:  # an error must not stop the partitions that are queued behind
            is_expected = isinstance(cause, StorageError | PeerError)
            _logger.error("cannot load %s-%d: %s", topic, index, cause, exc_info=None if is_expected else cause)
            runtime.unload(index)
            self._to_load.popleft()
        self._load_on()

    def resign(self, topic: str, index: int) -> None:
        """Stop being the coordinator of a partition, as if another broker led it, until `take_back`."""
        self._resigned.add((topic, index))
        self._runtimes[topic].unload(index)

    def take_back(self, topic: TopicImage, index: int) -> None:
        """Become the coordinator again of a partition that was resigned."""
        self._resigned.discard((topic.name, index))
        self._lead(topic)

    def _went_offline(self, topic: str, index: int) -> None:
        """Resign as coordinator of a partition whose log failed, after the append that may have failed has returned."""
        if topic in self._runtimes:
            self.tasks.call_later(0, partial(self._runtimes[topic].unload, index))

    def _came_online(self, topic: TopicImage) -> None:
        if topic.name in self._runtimes:
            self._lead(topic)

    def _run_due(self) -> None:
        """Run all due work of every coordinator, even if another one fails. Raises the first error at the end."""
        failures = []
        for runtime in self._runtimes.values():
            try:
                runtime.advance(self._clock.now_ms())
            except Exception as cause:  # noqa: BLE001  raised below
                failures.append(cause)
        for runtime in self._runtimes.values():
            deadline = runtime.next_deadline()
            if deadline is not None:
                self._alarm.set(deadline)
        if failures:
            raise failures[0]
