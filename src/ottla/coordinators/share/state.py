"""State of one partition of __share_group_state, and the operations on it, each for one share partition (KIP-932).

    initialize_state   reset the state to a start offset of the group; the previous state is dropped
    read_state         return the whole state to the leader of the data partition, which may write from then on
    write_state        apply changes: batches, start offset, number of completed records
    summarize_state    return the group's position, without batches
    delete_state       drop the state

Epochs fence late requests. The leader epoch belongs to the data partition's leader, and rises when a new leader reads the
state; the state epoch belongs to the group, and rises when the state is initialised again. Neither ever decreases (Kafka:
ShareCoordinatorShard).

Most writes are small updates; after several hundred of them the whole state is written as a snapshot, so that older records can
be pruned. An idle share partition gets a snapshot by time, because its old one would keep the log from being pruned.
"""
# ruff: noqa: ARG001, ARG005 - operations and refusals have one signature each, whatever they need of it

import base64
from functools import lru_cache
from typing import Final, NamedTuple

from ottla.coordinators.records import CoordinatorRecord
from ottla.coordinators.runtime import Millis, Result, Timer, operation
from ottla.coordinators.share import records
from ottla.coordinators.share.records import SharePartitionKey
from ottla.coordinators.share.state_batches import StateBatch, merge, merge_into_new
from ottla.coordinators.topology import Topology
from ottla.metadata.configs import BrokerValues
from ottla.protocol import errors
from ottla.protocol.messages.share_snapshot_record import ShareSnapshotKey, ShareSnapshotValue
from ottla.protocol.messages.share_update_record import ShareUpdateKey, ShareUpdateValue

UNKNOWN: Final = -1
"""An unknown start offset or count."""


@lru_cache(maxsize=20_000)
def share_key(group_id: str, topic_id: bytes, partition: int) -> str:
    """Return the key of a share partition, which determines its coordinator, in Kafka's format."""
    return f"{group_id}:{base64.urlsafe_b64encode(topic_id).rstrip(b'=').decode()}:{partition}"


class ShareCoordinatorSettings(NamedTuple):
    """Broker configs of the share coordinator; times in ms."""

    updates_per_snapshot: int = 500
    cold_snapshot_ms: Millis = 300_000
    prune_ms: Millis = 300_000

    @classmethod
    def of(cls, values: BrokerValues) -> "ShareCoordinatorSettings":
        """Return the settings in a broker's configs."""
        return cls(
            updates_per_snapshot=values.integer("share.coordinator.snapshot.update.records.per.snapshot"),
            cold_snapshot_ms=values.integer("share.coordinator.cold.partition.snapshot.interval.ms"),
            prune_ms=values.integer("share.coordinator.state.topic.prune.interval.ms"),
        )


# Requests and responses.


class InitializeState(NamedTuple):
    """Request to begin a state at `start_offset` (inclusive); -1 to apply share.auto.offset.reset."""

    group_id: str
    topic_id: bytes
    partition: int
    state_epoch: int
    start_offset: int


class ReadState(NamedTuple):
    """Request of the leader of a data partition for the state."""

    group_id: str
    topic_id: bytes
    partition: int
    leader_epoch: int


class WriteState(NamedTuple):
    """Request to write changes; `start_offset` and `delivery_complete_count` are -1 if unchanged."""

    group_id: str
    topic_id: bytes
    partition: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: list[StateBatch]


class DeleteState(NamedTuple):
    """Request to delete the state after its group or topic was deleted."""

    group_id: str
    topic_id: bytes
    partition: int


class SummarizeState(NamedTuple):
    """Request for the group's position in a partition."""

    group_id: str
    topic_id: bytes
    partition: int


class StateOutcome(NamedTuple):
    """Result of an operation without data."""

    error_code: int = errors.NONE
    error_message: str | None = None


class StateRead(NamedTuple):
    """State of a share partition; `start_offset` is inclusive, -1 to apply share.auto.offset.reset."""

    error_code: int
    error_message: str | None
    state_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = UNKNOWN
    batches: list[StateBatch] = []  # noqa: RUF012  a tuple's default, never modified


class StateSummary(NamedTuple):
    """State of a share partition without batches; offset and count are -1 if it is not initialised."""

    error_code: int
    error_message: str | None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = UNKNOWN


class StateReset(NamedTuple):
    """Outgoing message of the runtime: the state of a share partition was initialised again or deleted."""

    group_id: str
    topic_id: bytes
    partition: int


class Prune(NamedTuple):
    """Outgoing message of the runtime: records below `offset` of the partition's log are no longer needed."""

    offset: int


class TopicIdsDeleted(NamedTuple):
    """Request to drop the state of deleted topics."""

    topic_ids: frozenset[bytes]


# The state.


class SharePartitionState:
    """State of one share partition: its last snapshot with the updates since then."""

    __slots__ = (
        "batches",
        "created",
        "delivery_complete_count",
        "fencing_epoch",
        "leader_epoch",
        "snapshot_at",
        "snapshot_epoch",
        "start_offset",
        "state_epoch",
        "updates",
        "written",
    )

    def __init__(self) -> None:
        self.snapshot_epoch = 0
        self.state_epoch = 0
        self.leader_epoch = 0
        self.fencing_epoch = 0
        """The highest leader epoch so far: it fences old leaders even after a new state has begun at epoch 0."""
        self.start_offset = UNKNOWN
        self.delivery_complete_count = UNKNOWN
        self.batches: list[StateBatch] = []
        self.updates = 0
        """Number of updates since the snapshot."""
        self.snapshot_at = 0
        """The offset of the snapshot in the coordinator's log."""
        self.created = 0
        self.written = 0
        """Time of the last change in the snapshot, and time of writing the snapshot, in ms since the epoch."""

    def restore(self, value: ShareSnapshotValue, offset: int) -> None:
        """Replace the state by a snapshot at `offset`."""
        self.snapshot_epoch = value.snapshot_epoch
        self.state_epoch = value.state_epoch
        self.leader_epoch = value.leader_epoch
        self.fencing_epoch = max(self.fencing_epoch, value.leader_epoch)
        self.start_offset = value.start_offset
        self.delivery_complete_count = value.delivery_complete_count
        self.batches = [
            StateBatch(
                state_batch.first_offset,
                state_batch.last_offset,
                state_batch.delivery_state,
                state_batch.delivery_count,
            )
            for state_batch in value.state_batches
        ]
        self.updates = 0
        self.snapshot_at = offset
        self.created, self.written = value.create_timestamp, value.write_timestamp

    def update(self, value: ShareUpdateValue) -> None:
        """Apply the changes of a write."""
        self.leader_epoch = value.leader_epoch
        self.fencing_epoch = max(self.fencing_epoch, value.leader_epoch)
        self.start_offset, self.delivery_complete_count = self.position_after(
            value.start_offset, value.delivery_complete_count
        )
        coming = [
            StateBatch(
                state_batch.first_offset,
                state_batch.last_offset,
                state_batch.delivery_state,
                state_batch.delivery_count,
            )
            for state_batch in value.state_batches
        ]
        merge(self.batches, coming, self.start_offset)
        self.updates += 1

    def position_after(self, start_offset: int, delivery_complete_count: int) -> tuple[int, int]:
        """Return start offset and count after a write of these values; those of an older start offset are ignored."""
        if start_offset > self.start_offset:
            return start_offset, delivery_complete_count
        if start_offset in (UNKNOWN, self.start_offset):
            return self.start_offset, max(self.delivery_complete_count, delivery_complete_count)
        return self.start_offset, self.delivery_complete_count


class ShareStates:
    """Share partitions of one partition of __share_group_state; only replay changes `states`.

    cluster  metadata, to check that topics exist
    offset   offset of the next record to replay, set by the runtime
    """

    __slots__ = ("offset", "settings", "states", "topology")

    def __init__(self, settings: ShareCoordinatorSettings, topology: Topology) -> None:
        self.settings = settings
        self.topology = topology
        self.offset = 0
        self.states: dict[SharePartitionKey, SharePartitionState] = {}

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply a record."""
        key, value = record.key, record.value
        assert isinstance(key, (ShareSnapshotKey, ShareUpdateKey))
        where = key.group_id, key.topic_id, key.partition
        if value is None:
            self.states.pop(where, None)
            return
        state = self.states.get(where)
        if state is None:
            state = self.states[where] = SharePartitionState()
            state.snapshot_at = self.offset
        if isinstance(value, ShareSnapshotValue):
            state.restore(value, self.offset)
        else:
            assert isinstance(value, ShareUpdateValue)
            state.update(value)

    def replay_pending(self, record: CoordinatorRecord, producer_id: int) -> None:  # noqa: ARG002
        """Apply the record at once: no transaction of the broker writes into this topic, but another client may."""
        self.replay(record)

    def replay_end(self, producer_id: int, *, commit: bool) -> None:
        """Ignore the marker: no state depends on it."""

    def hosts(self, topic_id: bytes, partition: int) -> bool:
        """Return whether the partition exists."""
        topic = self.topology.image.topics_by_id.get(topic_id)
        return topic is not None and partition < len(topic.partitions)


# Operations. The checks are in Kafka's order.

_NO_SUCH_PARTITION: Final = errors.error(errors.UNKNOWN_TOPIC_OR_PARTITION).message
_NEGATIVE: Final = "The {} cannot be a negative number."
_UNINITIALIZED: Final = "{} operation on uninitialized share partition not allowed."


def _refusal(code: int, message: str | None = None) -> tuple[int, str]:
    return code, errors.error(code).message if message is None else message


def _negative(partition: int, *, leader_epoch: int = 0, state_epoch: int = 0) -> tuple[int, str] | None:
    for name, value in (("partition id", partition), ("leader epoch", leader_epoch), ("state epoch", state_epoch)):
        if value < 0:
            return _refusal(errors.INVALID_REQUEST, _NEGATIVE.format(name))
    return None


def _refuse_to(verb: str, code: int) -> StateOutcome:
    return StateOutcome(code, f"Unable to {verb} share group state: {errors.error(code).message}")


@operation(lambda request, code: _refuse_to("initialize", code))
def initialize_state(states: ShareStates, request: InitializeState, now: Millis) -> Result:
    """Reset the state to a start offset."""
    where = request.group_id, request.topic_id, request.partition
    state = states.states.get(where)
    refused = _negative(request.partition, state_epoch=request.state_epoch)
    if refused is None and state is not None and state.state_epoch > request.state_epoch:
        refused = _refusal(errors.FENCED_STATE_EPOCH)
    if refused is None and not states.hosts(request.topic_id, request.partition):
        refused = _refusal(errors.UNKNOWN_TOPIC_OR_PARTITION)
    if refused is not None:
        return Result(answers=[(request, StateOutcome(*refused))])
    record = records.snapshot(
        where,
        snapshot_epoch=0 if state is None else state.snapshot_epoch + 1,
        state_epoch=request.state_epoch,
        leader_epoch=0,
        start_offset=request.start_offset,
        delivery_complete_count=UNKNOWN if request.start_offset == UNKNOWN else 0,
        batches=(),
        created=now,
        now=now,
    )
    return Result([record], [(request, StateOutcome())], outgoing=[StateReset(*where)])


@operation(lambda request, code: StateRead(*_refuse_to("read", code)))
def read_state(states: ShareStates, request: ReadState, now: Millis) -> Result:
    """Return all of a share partition's state. A reader with the highest leader epoch so far becomes its leader."""
    where = request.group_id, request.topic_id, request.partition
    state = states.states.get(where)
    refused = _negative(request.partition, leader_epoch=request.leader_epoch)
    if refused is None and state is None:
        refused = _refusal(errors.INVALID_REQUEST, _UNINITIALIZED.format("Read"))
    if refused is None and state is not None and state.fencing_epoch > request.leader_epoch:
        refused = _refusal(errors.FENCED_LEADER_EPOCH)
    if refused is None and not states.hosts(request.topic_id, request.partition):
        refused = _refusal(errors.UNKNOWN_TOPIC_OR_PARTITION)
    if refused is not None or state is None:
        return Result(answers=[(request, StateRead(*(refused or _refusal(errors.INVALID_REQUEST))))])
    answer = StateRead(
        errors.NONE,
        None,
        state.state_epoch,
        state.start_offset,
        state.delivery_complete_count,
        list(state.batches),
    )
    if state.fencing_epoch == request.leader_epoch:
        return Result(answers=[(request, answer)])
    nothing = WriteState(*where, state.state_epoch, request.leader_epoch, UNKNOWN, UNKNOWN, [])
    return Result([_record_of(states, state, nothing, request.leader_epoch, now)], [(request, answer)])


@operation(lambda request, code: _refuse_to("write", code))
def write_state(states: ShareStates, request: WriteState, now: Millis) -> Result:
    """Apply changes; the response is sent once they are committed. A write never raises an epoch."""
    where = request.group_id, request.topic_id, request.partition
    state = states.states.get(where)
    refused = _negative(request.partition, leader_epoch=request.leader_epoch, state_epoch=request.state_epoch)
    if refused is None and state is None:
        refused = _refusal(errors.INVALID_REQUEST, _UNINITIALIZED.format("Write"))
    if refused is None and state is not None:
        if state.fencing_epoch > request.leader_epoch:
            refused = _refusal(errors.FENCED_LEADER_EPOCH)
        elif state.state_epoch > request.state_epoch:
            refused = _refusal(errors.FENCED_STATE_EPOCH)
    if refused is None and not states.hosts(request.topic_id, request.partition):
        refused = _refusal(errors.UNKNOWN_TOPIC_OR_PARTITION)
    if refused is None and any(batch.first_offset > batch.last_offset for batch in request.batches):
        refused = _refusal(errors.INVALID_REQUEST, "A state batch cannot end before it begins.")
    if refused is not None or state is None:
        return Result(answers=[(request, StateOutcome(*(refused or _refusal(errors.INVALID_REQUEST))))])
    return Result([_record_of(states, state, request, state.leader_epoch, now)], [(request, StateOutcome())])


def _record_of(
    states: ShareStates, state: SharePartitionState, written: WriteState, leader_epoch: int, now: Millis
) -> CoordinatorRecord:
    """Return the record of a write: an update, or a snapshot after many updates."""
    where = written.group_id, written.topic_id, written.partition
    start_offset, complete = state.position_after(written.start_offset, written.delivery_complete_count)
    if state.updates < states.settings.updates_per_snapshot:
        return records.update(
            where,
            snapshot_epoch=state.snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=complete,
            batches=merge_into_new(written.batches, start_offset),
        )
    batches = list(state.batches)
    merge(batches, written.batches, start_offset)
    return records.snapshot(
        where,
        snapshot_epoch=state.snapshot_epoch + 1,
        state_epoch=state.state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=complete,
        batches=batches,
        created=now,
        now=now,
    )


@operation(lambda request, code: _refuse_to("delete", code))
def delete_state(states: ShareStates, request: DeleteState, now: Millis) -> Result:
    """Delete the state of a share partition; a missing state is not an error."""
    where = request.group_id, request.topic_id, request.partition
    refused = _negative(request.partition)
    if refused is None and not states.hosts(request.topic_id, request.partition):
        refused = _refusal(errors.UNKNOWN_TOPIC_OR_PARTITION)
    if refused is not None:
        return Result(answers=[(request, StateOutcome(*refused))])
    if where not in states.states:
        return Result(answers=[(request, StateOutcome())])
    return Result([records.tombstone(where)], [(request, StateOutcome())], outgoing=[StateReset(*where)])


def _refuse_summary(request: SummarizeState, code: int) -> StateSummary:
    return StateSummary(code, f"Unable to read share group state summary: {errors.error(code).message}")


@operation(_refuse_summary)
def summarize_state(states: ShareStates, request: SummarizeState, now: Millis) -> Result:
    """Return a group's position in a partition."""
    refused = _negative(request.partition)
    if refused is None and not states.hosts(request.topic_id, request.partition):
        refused = _refusal(errors.UNKNOWN_TOPIC_OR_PARTITION)
    if refused is not None:
        return Result(answers=[(request, StateSummary(*refused))])
    state = states.states.get((request.group_id, request.topic_id, request.partition))
    if state is None:
        answer = StateSummary(errors.NONE, None, start_offset=UNKNOWN)
    else:
        answer = StateSummary(
            errors.NONE,
            None,
            state.state_epoch,
            state.leader_epoch,
            state.start_offset,
            state.delivery_complete_count,
        )
    return Result(answers=[(request, answer)])


@operation(lambda request, code: code)
def forget_topic_ids(states: ShareStates, request: TopicIdsDeleted, now: Millis) -> Result:
    """Drop the state of deleted topics. The answer is an error code."""
    gone = [where for where in states.states if where[1] in request.topic_ids]
    return Result(
        [records.tombstone(where) for where in gone],
        [(request, errors.NONE)],
        outgoing=[StateReset(*where) for where in gone],
    )


# Timers.


def snapshot_cold(states: ShareStates, now: Millis) -> Result:
    """Write snapshots of idle share partitions; not if all are idle, as that would not shorten the log."""
    timer = Timer(snapshot_cold, (), states.settings.cold_snapshot_ms)
    if all(state.created != state.written for state in states.states.values()):
        return Result(timers=[timer])
    cold = [
        records.snapshot(
            where,
            snapshot_epoch=state.snapshot_epoch + 1,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            batches=state.batches,
            created=state.created,
            now=now,
        )
        for where, state in states.states.items()
        if now - state.written >= states.settings.cold_snapshot_ms
    ]
    return Result(cold, timers=[timer], refused=lambda states, code, now: Result(timers=[timer]))


def prune(states: ShareStates, now: Millis) -> Result:
    """Send Prune with the lowest offset of the share partitions' latest snapshots."""
    needed = min((state.snapshot_at for state in states.states.values()), default=states.offset)
    return Result(timers=[Timer(prune, (), states.settings.prune_ms)], outgoing=[Prune(needed)])
