"""Records that this consumer has acquired from a share group, and their acknowledgements.

    response: acquired 10-19 (count 1), 30-39 (count 2); records 10 11 12 14 ... 19, 30 ... 39
                                                                ^ 13 was compacted away: a gap
    AcquiredBatch.take(5)  ->  the records 10 11 12 14 15, and a DeliveredBatch of the offsets 10-15
    acknowledgements  ->  runs: 10-12 accept, 13 gap, 14-15 accept

Offsets are inclusive on both ends, as in the protocol.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.client.topics import TopicPartition
from ottla.records.record import Record

GAP: Final = 0


class AcknowledgeType(IntEnum):
    """Acknowledgement of a record.

    ACCEPT   it was processed
    RELEASE  it may be delivered again, to any member
    REJECT   it cannot be processed and is not delivered again
    RENEW    it is still being processed: the lock is renewed (KIP-1222)
    """

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Run(NamedTuple):
    """Range of offsets with one acknowledgement: both ends inclusive, `kind` as in the protocol, 0 for a gap."""

    first: int
    last: int
    kind: int


class Home(NamedTuple):
    """Session in which records were acquired: they can be acknowledged in this session of this node only."""

    node: int
    session: int
    topic_id: bytes
    partition: TopicPartition


class DeliveredBatch:
    """Records that were returned to the application, with the acknowledgement of each."""

    __slots__ = ("_kinds", "_ranges", "home", "offsets")

    def __init__(self, home: Home, ranges: Sequence[tuple[int, int]], offsets: Sequence[int]) -> None:
        self.home = home
        self.offsets = set(offsets)
        """Offsets whose acknowledgements have no response yet."""
        self._ranges = ranges
        self._kinds: dict[int, int] = {}

    def acknowledge(self, offset: int, kind: int) -> bool:
        """Set the acknowledgement of a record. Return False if the record is not one of these."""
        if offset not in self.offsets and offset not in self._kinds:
            return False
        self._kinds[offset] = kind
        self.offsets.discard(offset)
        return True

    def acknowledge_all(self, kind: int) -> None:
        """Set the acknowledgement of all records that have none yet."""
        self._kinds.update(dict.fromkeys(self.offsets, kind))
        self.offsets.clear()

    @property
    def settled(self) -> bool:
        """True if every record has an acknowledgement."""
        return not self.offsets

    def collect(self) -> list[Run]:
        """Return the acknowledgements to send, as runs in order, and forget them. Gaps are sent with the first of them.
        Renewed records need another acknowledgement."""
        if not self._kinds and self.offsets:
            return []
        kinds = self._kinds
        self._kinds = {}
        renewed = [offset for offset, kind in kinds.items() if kind == AcknowledgeType.RENEW]
        kinds.update(dict.fromkeys(self._gaps(kinds), GAP))
        self._ranges = ()
        self.offsets.update(renewed)
        return list(runs(sorted(kinds.items())))

    def _gaps(self, kinds: dict[int, int]) -> list[int]:
        """Return the acquired offsets without a record."""
        if sum(last - first + 1 for first, last in self._ranges) == len(self.offsets) + len(kinds):
            return []
        return [
            offset
            for first, last in self._ranges
            for offset in range(first, last + 1)
            if offset not in self.offsets and offset not in kinds
        ]


def runs(kinds: Iterable[tuple[int, int]]) -> Iterator[Run]:
    """Join ordered (offset, kind) pairs to runs."""
    first = last = kind = -1
    for offset, its in kinds:
        if its == kind and offset == last + 1:
            last = offset
            continue
        if first >= 0:
            yield Run(first, last, kind)
        first, last, kind = offset, offset, its
    if first >= 0:
        yield Run(first, last, kind)


class AcquiredBatch:
    """Records of one partition acquired by one fetch, returned to the application in parts."""

    def __init__(self, home: Home, ranges: Sequence[tuple[int, int]], records: list[Record]) -> None:
        self.home = home
        self._ranges = list(ranges)
        self._records = records
        self._position = 0

    def __len__(self) -> int:
        return len(self._records) - self._position

    def take(self, most: int) -> tuple[list[Record], DeliveredBatch]:
        """Return up to `most` records, and a DeliveredBatch of the acquired offsets up to the last one, or of all remaining."""
        taken = self._records[self._position : self._position + most]
        self._position += len(taken)
        if self._position == len(self._records):
            ranges, self._ranges = self._ranges, []
        else:
            ranges = self._cut(taken[-1].offset)
        return taken, DeliveredBatch(self.home, ranges, [record.offset for record in taken])

    def _cut(self, last: int) -> list[tuple[int, int]]:
        """Remove and return the acquired ranges up to an offset."""
        before = [(first, min(end, last)) for first, end in self._ranges if first <= last]
        self._ranges = [(max(first, last + 1), end) for first, end in self._ranges if end > last]
        return before
