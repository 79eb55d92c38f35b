"""The partitions of a consumer: where it is in each, and what may be fetched.

A position is that of the next record for the application. `version` changes whenever the position is set from outside (a
seek, a reset, a new assignment): what was fetched for an older version is thrown away.

With a position goes the leader epoch of the record before it, by which a new leader can tell whether its log has that record
(KIP-320, validation.py). Epochs are noted where they change, so that every position between what is read and what is fetched
has its own:

    batches   | epoch 3 | epoch 3 | epoch 5 | epoch 5 |        epochs  (0, 3) (20, 5)
    offsets   0         10        20        30        40       before 20: 3; before 21: 5
"""

from collections.abc import Iterable
from typing import Final

from ottla.client.topics import TopicPartition

UNKNOWN: Final = -1


class PartitionState:
    """One assigned partition.

    position        offset of the next record for the application, UNKNOWN before it was found
    fetch_position  offset of the next fetch: past what is fetched already
    reset           EARLIEST, LATEST, ... when the position is to be looked up; None otherwise
    valid_epoch     the leader epoch of the partition under which the fetch position is known to lie in the log; -1 for none
    validating      True while a leader is being asked about it
    buffered        bytes that are fetched and not taken yet
    topic_id        of the topic that the position belongs to, None before it was looked up
    preferred       the node to fetch from in place of the leader, and until when (KIP-392)
    """

    __slots__ = (
        "buffered",
        "epochs",
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
        self.high_watermark = self.last_stable_offset = self.log_start = UNKNOWN

    def seek(self, offset: int, leader_epoch: int = -1) -> None:
        """Go on at an offset; `leader_epoch` is that of the record before it, -1 if unknown."""
        self.position = self.fetch_position = offset
        self.epochs = [(UNKNOWN, leader_epoch)]
        self.valid_epoch = -1
        self.reset = None
        self.buffered = 0
        self.version += 1

    def note_epoch(self, offset: int, leader_epoch: int) -> None:
        """A batch at this offset was fetched."""
        if self.epochs and self.epochs[-1][1] == leader_epoch:
            return
        following = [*self.epochs, (offset, leader_epoch)]
        while len(following) > 1 and following[1][0] < self.position:
            del following[0]
        self.epochs = following

    def epoch_before(self, offset: int) -> int:
        """Return the leader epoch of the record before an offset between `position` and `fetch_position`; -1 if unknown."""
        latest = -1
        for begin, epoch in self.epochs:
            if begin >= offset:
                break
            latest = epoch
        return latest

    def begin_after(self, leader_epoch: int) -> int:
        """The first offset that was fetched with a newer epoch; UNKNOWN when it was before all that was fetched."""
        return next((begin for begin, epoch in self.epochs if epoch > leader_epoch), UNKNOWN)

    def look_up(self, moment: int) -> None:
        """Go on where a moment is, once that is known."""
        self.position = self.fetch_position = UNKNOWN
        self.reset = moment
        self.buffered = 0
        self.version += 1


class ConsumerPositions:
    """All assigned partitions; changed on the core's thread only.

    topic_ids  of the topic in which each partition was last read, those that are not assigned any more too
    """

    def __init__(self) -> None:
        self.states: dict[TopicPartition, PartitionState] = {}
        self.topic_ids: dict[TopicPartition, bytes] = {}

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """These and no others; what was known of those that stay is kept."""
        assigned = dict.fromkeys(partitions)
        self.states = {partition: self.states.get(partition) or PartitionState(partition) for partition in assigned}

    def lacking(self) -> list[PartitionState]:
        """Those without a position and without an order to look one up."""
        return [state for state in self.states.values() if state.position == UNKNOWN and state.reset is None]

    def resetting(self) -> list[PartitionState]:
        """Those whose position is to be looked up."""
        return [state for state in self.states.values() if state.reset is not None]

    def known(self) -> dict[TopicPartition, PartitionState]:
        """Those with a position."""
        return {part: state for part, state in self.states.items() if state.position != UNKNOWN}
