"""Loading of a partition: pieces of batches, records of transactions, and runs that are replayed together."""

from collections.abc import Sequence

import pytest

from ottla.coordinators.groups.records import decode_record
from ottla.coordinators.loading import Loader
from ottla.coordinators.log import LoggedBatch
from ottla.coordinators.records import CoordinatorRecord
from ottla.protocol.messages.offset_commit_record import OffsetCommitKey
from ottla.records.record import Record

PRODUCER = 7


class Replayed:
    """A state that lists what has been replayed, as partition, or partition and producer id."""

    def __init__(self) -> None:
        self.records: list[object] = []

    def replay(self, record: CoordinatorRecord) -> None:
        self.records.append(self._partition(record))

    def replay_pending(self, record: CoordinatorRecord, producer_id: int) -> None:
        self.records.append((self._partition(record), producer_id))

    def replay_end(self, producer_id: int, *, commit: bool) -> None:
        self.records.append(("commit" if commit else "abort", producer_id))

    @staticmethod
    def _partition(record: CoordinatorRecord) -> int:
        assert isinstance(record.key, OffsetCommitKey)
        return record.key.partition


def records(*partitions: int) -> list[Record]:
    """Tombstones of committed offsets; the partition is the offset in the log too."""
    return [
        Record(
            partition,
            -1,
            *CoordinatorRecord(OffsetCommitKey(group="g", topic="t", partition=partition), None).encoded(),
        )
        for partition in partitions
    ]


def loader(state: Replayed, *batches: LoggedBatch, runs: list[tuple[int, int]] | None = None) -> Loader[Replayed]:
    """A loader without runs, or one whose runs are all records up to the next one with an odd offset, noted in `runs`."""

    def run(replayed: Replayed, some: Sequence[Record], start: int, end: int) -> int:
        assert runs is not None
        at = start
        while at < end and some[at].offset % 2 == 0:
            replayed.records.append(some[at].offset)
            at += 1
        runs.append((start, at))
        return at

    return Loader(state, iter(batches), decode_record, None, None if runs is None else run)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("with_runs", [False, True])
def test_pieces_end_within_batches(count: int, with_runs: bool) -> None:
    state = Replayed()
    loading = loader(
        state,
        LoggedBatch(records(0, 2, 4, 5, 6)),
        LoggedBatch(()),
        LoggedBatch(records(7)),
        runs=[] if with_runs else None,
    )
    for _ in range(100):
        before = len(state.records)
        is_loaded = loading.replay(count)
        assert len(state.records) - before <= count
        if is_loaded:
            break
        assert len(state.records) - before == count
    assert state.records == [0, 2, 4, 5, 6, 7]


def test_records_of_a_transaction_are_no_run() -> None:
    runs: list[tuple[int, int]] = []
    state = Replayed()
    batches = [
        LoggedBatch(records(0)),
        LoggedBatch(records(2, 4), PRODUCER),
        LoggedBatch((), PRODUCER, commit=True),
        LoggedBatch(records(6, 8)),
        LoggedBatch((), PRODUCER, commit=False),
    ]
    assert loader(state, *batches, runs=runs).replay(100)
    assert state.records == [0, (2, PRODUCER), (4, PRODUCER), ("commit", PRODUCER), 6, 8, ("abort", PRODUCER)]
    assert runs == [(0, 1), (0, 2)]


def test_records_behind_a_run_are_replayed_one_by_one() -> None:
    runs: list[tuple[int, int]] = []
    state = Replayed()
    assert loader(state, LoggedBatch(records(1, 2, 4, 5, 6)), runs=runs).replay(100)
    assert state.records == [1, 2, 4, 5, 6]
    assert runs == [(0, 0), (1, 3), (3, 3), (4, 5)]
