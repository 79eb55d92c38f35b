"""The partitions of a consumer: where it is in each, and what may be fetched.

A position is that of the next record for the application. `version` changes whenever the position is set from outside (a
seek, a reset, a new assignment): what was fetched for an older version is thrown away.
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
    buffered        bytes that are fetched and not taken yet
    preferred       the node to fetch from in place of the leader, and until when (KIP-392)
    """

    __slots__ = (
        "buffered",
        "fetch_position",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "log_start",
        "not_before",
        "partition",
        "paused",
        "position",
        "preferred",
        "reset",
        "version",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.position = UNKNOWN
        self.fetch_position = UNKNOWN
        self.leader_epoch = -1
        self.paused = False
        self.reset: int | None = None
        self.buffered = 0
        self.version = 0
        self.not_before = 0
        self.preferred: tuple[int, int] | None = None
        self.high_watermark = self.last_stable_offset = self.log_start = UNKNOWN

    def seek(self, offset: int, leader_epoch: int = -1) -> None:
        """Go on at an offset."""
        self.position = self.fetch_position = offset
        self.leader_epoch = leader_epoch
        self.reset = None
        self.buffered = 0
        self.version += 1

    def look_up(self, moment: int) -> None:
        """Go on where a moment is, once that is known."""
        self.position = self.fetch_position = UNKNOWN
        self.reset = moment
        self.buffered = 0
        self.version += 1


class Positions:
    """All assigned partitions; changed on the core's thread only."""

    def __init__(self) -> None:
        self.states: dict[TopicPartition, PartitionState] = {}

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """These and no others; what was known of those that stay is kept."""
        wanted = dict.fromkeys(partitions)
        self.states = {each: self.states.get(each) or PartitionState(each) for each in wanted}

    def lacking(self) -> list[PartitionState]:
        """Those without a position and without an order to look one up."""
        return [each for each in self.states.values() if each.position == UNKNOWN and each.reset is None]

    def resetting(self) -> list[PartitionState]:
        """Those whose position is to be looked up."""
        return [each for each in self.states.values() if each.reset is not None]

    def known(self) -> dict[TopicPartition, PartitionState]:
        """Those with a position."""
        return {part: state for part, state in self.states.items() if state.position != UNKNOWN}
