"""State of the assigned partitions of a consumer: positions, fetch positions and leader epochs.

The position is the offset of the next record for the application. `version` changes whenever the position is set explicitly
(a seek, a reset, a new assignment): chunks fetched for an older version are dropped.

Each position has the leader epoch of the record before it, by which a new leader can check that its log has that record
(KIP-320, validation.py). Epochs are stored at the offsets where they change, for every position between `position` and
`fetch_position`:

    batches   | epoch 3 | epoch 3 | epoch 5 | epoch 5 |        epochs  (0, 3) (20, 5)
    offsets   0         10        20        30        40       before 20: 3; before 21: 5
"""

from collections.abc import Iterable
from typing import Final

from ottla.client.topics import TopicInfo, TopicPartition

UNKNOWN: Final = -1


class PartitionState:
    """State of one assigned partition.

    position        offset of the next record for the application, UNKNOWN before it was looked up
    fetch_position  offset of the next fetch, after all fetched records
    reset           timestamp (EARLIEST, LATEST, ...) to look the position up by; None if no lookup is pending
    valid_epoch     leader epoch of the partition under which the fetch position was validated; -1 for none
    validating      True while a validation is in flight
    buffered        bytes that are fetched and not yet read by the application
    topic_id        id of the topic that the position belongs to, None before it was looked up
    preferred       read replica to fetch from in place of the leader, and its expiry time (KIP-392)
    fetch_metadata  metadata of the topic with which the fetch in flight was sent; None without one
    """

    __slots__ = (
        "buffered",
        "epochs",
        "fetch_metadata",
        "fetch_position",
        "high_watermark",
        "last_stable_offset",
        "log_start",
        "not_before",
        "partition",
        "paused",
        "position",
        "preferred",
        "reset",
        "topic_id",
        "valid_epoch",
        "validating",
        "version",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.position = UNKNOWN
        self.fetch_position = UNKNOWN
        self.epochs: list[tuple[int, int]] = []
        self.valid_epoch = -1
        self.validating = False
        self.paused = False
        self.reset: int | None = None
        self.buffered = 0
        self.version = 0
        self.not_before = 0
        self.topic_id: bytes | None = None
        self.preferred: tuple[int, int] | None = None
        self.fetch_metadata: TopicInfo | None = None
        self.high_watermark = self.last_stable_offset = self.log_start = UNKNOWN

    def seek(self, offset: int, leader_epoch: int = -1) -> None:
        """Set the position; `leader_epoch` is that of the record before it, -1 if unknown."""
        self.position = self.fetch_position = offset
        self.epochs = [(UNKNOWN, leader_epoch)]
        self.valid_epoch = -1
        self.reset = None
        self.buffered = 0
        self.version += 1

    def note_epoch(self, offset: int, leader_epoch: int) -> None:
        """Record the leader epoch of a fetched batch at this offset."""
        if self.epochs and self.epochs[-1][1] == leader_epoch:
            return
        following = [*self.epochs, (offset, leader_epoch)]
        while len(following) > 1 and following[1][0] < self.position:
            del following[0]
        self.epochs = following

    def epoch_before(self, offset: int) -> int:
        """Return the leader epoch of the record before an offset between `position` and `fetch_position`; -1 if unknown."""
        for begin, epoch in reversed(self.epochs):
            if begin < offset:
                return epoch
        return -1

    def begin_after(self, leader_epoch: int) -> int:
        """Return the first fetched offset with a newer epoch; UNKNOWN without one."""
        return next((begin for begin, epoch in self.epochs if epoch > leader_epoch), UNKNOWN)

    def look_up(self, moment: int) -> None:
        """Have the position looked up by timestamp; it is UNKNOWN until then."""
        self.position = self.fetch_position = UNKNOWN
        self.reset = moment
        self.buffered = 0
        self.version += 1


class ConsumerPositions:
    """States of all assigned partitions; changed on the core's thread only.

    topic_ids  topic id under which each partition was last read, also for partitions no longer assigned
    """

    def __init__(self) -> None:
        self.states: dict[TopicPartition, PartitionState] = {}
        self.topic_ids: dict[TopicPartition, bytes] = {}

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assigned partitions; the states of partitions that stay are kept."""
        assigned = dict.fromkeys(partitions)
        self.states = {partition: self.states.get(partition) or PartitionState(partition) for partition in assigned}

    def lacking(self) -> list[PartitionState]:
        """Return the partitions without a position and without a pending lookup by timestamp."""
        return [state for state in self.states.values() if state.position == UNKNOWN and state.reset is None]

    def resetting(self) -> list[PartitionState]:
        """Return the partitions with a pending lookup by timestamp."""
        return [state for state in self.states.values() if state.reset is not None]

    def known(self) -> dict[TopicPartition, PartitionState]:
        """Return the partitions with a position."""
        return {part: state for part, state in self.states.items() if state.position != UNKNOWN}
