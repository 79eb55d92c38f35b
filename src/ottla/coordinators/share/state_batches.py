"""Ranges of offsets with their delivery states, as the share coordinator keeps them for a share partition.

A list of batches is sorted, no two of them overlap, and neighbours with equal state and count are one:

    kept        0........9 2/1        15...20 0/1
    added              7.........16 0/2
    result      0....6 2/1   7...........16 0/2  17..20 0/1      state/count

Where two batches cover one offset, the higher delivery count wins, and of equal counts the higher state: a late write of an
older state never causes another delivery (Kafka: PersisterStateBatchCombiner).
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple


class StateBatch(NamedTuple):
    """Offsets `first_offset` to `last_offset`, both inclusive, in one state.

    delivery_state  0 available, 2 acknowledged, 3 archiving, 4 archived, as they are persisted
    delivery_count  number of deliveries of the records
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int

    @property
    def rank(self) -> tuple[int, int]:
        """Rank by which a batch wins an offset."""
        return self.delivery_count, self.delivery_state


def merge(batches: list[StateBatch], coming: Iterable[StateBatch], start_offset: int) -> None:
    """Merge `coming`, in any order, into the sorted `batches`, and drop offsets below `start_offset` (-1 drops nothing)."""
    for batch in coming:
        if batch.last_offset >= start_offset:
            _take(batches, batch)
    _cut(batches, start_offset)


def merge_into_new(coming: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Return `coming` merged into a new list."""
    batches: list[StateBatch] = []
    merge(batches, coming, start_offset)
    return batches


def _take(batches: list[StateBatch], batch: StateBatch) -> None:
    """Insert one batch by two binary searches; only its neighbours are changed."""
    first = bisect_left(batches, batch.first_offset - 1, key=lambda state_batch: state_batch.last_offset)
    end = bisect_left(batches, batch.last_offset + 2, lo=first, key=lambda state_batch: state_batch.first_offset)
    pieces: list[StateBatch] = []
    reached = batch.first_offset
    for kept in batches[first:end]:
        if kept.rank >= batch.rank:
            if reached < kept.first_offset:
                _join(pieces, batch._replace(first_offset=reached, last_offset=kept.first_offset - 1))
            _join(pieces, kept)
        else:
            if kept.first_offset < batch.first_offset:
                _join(pieces, kept._replace(last_offset=min(kept.last_offset, batch.first_offset - 1)))
            if kept.last_offset > batch.last_offset:
                if reached <= batch.last_offset:
                    _join(pieces, batch._replace(first_offset=reached))
                    reached = batch.last_offset + 1
                _join(pieces, kept._replace(first_offset=max(kept.first_offset, batch.last_offset + 1)))
            continue
        reached = max(reached, kept.last_offset + 1)
    if reached <= batch.last_offset:
        _join(pieces, batch._replace(first_offset=reached))
    batches[first:end] = pieces


def _join(pieces: list[StateBatch], batch: StateBatch) -> None:
    """Append a batch, or merge it into the last piece if state and count are equal."""
    if pieces and pieces[-1].last_offset + 1 == batch.first_offset and pieces[-1].rank == batch.rank:
        pieces[-1] = pieces[-1]._replace(last_offset=batch.last_offset)
    else:
        pieces.append(batch)


def _cut(batches: list[StateBatch], start_offset: int) -> None:
    """Drop all offsets below `start_offset`."""
    gone = bisect_left(batches, start_offset, key=lambda state_batch: state_batch.last_offset)
    if gone:
        del batches[:gone]
    if batches and batches[0].first_offset < start_offset:
        batches[0] = batches[0]._replace(first_offset=start_offset)
