"""Partitions that a follower fetches, and the effects of responses on their logs, as values: see `fetching`."""

from typing import Any, Final, NamedTuple

LATEST: Final = -1
EARLIEST: Final = -2
BUSY: Final = 0
READY: Final = 1
PAUSED: Final = 2
STOPPED: Final = 3

Key = tuple[bytes, int]
"""Topic id and index of a partition."""


class Position(NamedTuple):
    """State of a follower's log: log end offset, epoch of the last record (-1 for none), log start offset."""

    offset: int
    epoch: int
    start_offset: int


class Asked(NamedTuple):
    """Values of a partition in a request."""

    leader_epoch: int
    position: Position


REFUSED: Final = Asked(-1, Position(-1, -1, -1))
"""Values of a partition whose position the leader did not record, or may have replaced by an older one: it is named again."""


class FollowedPartition:
    """Partition that is fetched from its leader; `key` is its topic id and index."""

    __slots__ = (
        "_aside",
        "_due_ms",
        "_failures",
        "_has_lost_offset",
        "_named",
        "_phase",
        "index",
        "is_in_sync",
        "key",
        "leader_epoch",
        "position",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int, leader_epoch: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.key: Key = topic_id, index
        self.leader_epoch = leader_epoch
        self.position = Position(0, -1, 0)
        self.is_in_sync = False
        """True if the log had everything up to the leader's high watermark at the last response."""
        self._phase = BUSY
        self._named: Asked | None = None
        """Values in the leader's session; None if the session does not have the partition."""
        self._aside: Asked | None = None
        """Values in the running request outside of the session."""
        self._failures = 0
        self._due_ms = 0
        self._has_lost_offset = False
        """True if the last row was OFFSET_OUT_OF_RANGE although the offset was in the range of the leader's log."""

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    def _asked(self) -> Asked:
        return Asked(self.leader_epoch, self.position)


class Begin(NamedTuple):
    """Report the position of the partition's log, with `resume`."""

    partition: FollowedPartition
    epoch: int


class Append(NamedTuple):
    """Append batches of leader epochs up to `epoch`, then take over the leader's high watermark and log start offset.

    records  as in the row of the response; None for a row without records
    """

    partition: FollowedPartition
    epoch: int
    records: Any
    high_watermark: int
    start_offset: int


class Diverge(NamedTuple):
    """Truncate the log, which diverges from the leader's: there `last_epoch`, the largest up to the own one, ends at
    `end_offset`.
    """

    partition: FollowedPartition
    epoch: int
    last_epoch: int
    end_offset: int


class Truncate(NamedTuple):
    """Truncate the log to `offset`, the end of the leader's log."""

    partition: FollowedPartition
    epoch: int
    offset: int


class Restart(NamedTuple):
    """Remove all records, and begin the log again at `offset`, where the leader's log starts."""

    partition: FollowedPartition
    epoch: int
    offset: int


class LookUp(NamedTuple):
    """Request the leader's offset of `timestamp`, LATEST (its log end) or EARLIEST (its log start)."""

    partition: FollowedPartition
    epoch: int
    timestamp: int


Effect = Begin | Append | Diverge | Truncate | Restart | LookUp
"""An effect is void if `Fetching.is_current` returns False for it: the partition was unfollowed, or has a newer epoch."""
