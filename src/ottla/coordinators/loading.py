"""Loading of a partition of an internal topic: its log is replayed piece by piece, between other work."""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from ottla.coordinators.log import LoggedBatch
from ottla.coordinators.records import CoordinatorRecord, CoordinatorState
from ottla.records.record import Record

S = TypeVar("S", bound=CoordinatorState)

ReplayRun = Callable[[S, Sequence[Record], int, int], int]
"""Replays together what it can of records[start:end], from the start on, and returns the index (exclusive) that it has reached.

It is called with (state, records, start, end) for records outside of transactions. Those that it leaves are decoded and
replayed one by one.
"""


class Loader(Generic[S]):
    """Reads the log of a partition into its state.

    batches  see `CoordinatorLog.read`
    others   see `Runtime`
    """

    __slots__ = ("_at", "_batches", "_decode", "_locate", "_producer_id", "_records", "_replay_run", "_state")

    def __init__(
        self,
        state: S,
        batches: Iterator[LoggedBatch],
        decode: Callable[[bytes, bytes | None], CoordinatorRecord | None],
        locate: Callable[[S, int], None] | None,
        replay_run: ReplayRun[S] | None,
    ) -> None:
        self._state = state
        self._batches = batches
        self._decode = decode
        self._locate = locate
        self._replay_run = replay_run
        self._records: Sequence[Record] = ()
        self._at = 0
        """Index of the next record of the current batch."""
        self._producer_id = -1

    def replay(self, count: int) -> bool:
        """Replay up to `count` more records and markers; returns True at the end of the log.

        Raises PeerError for a malformed record, StorageError for a log that cannot be read.
        """
        while count > 0:
            if self._at < len(self._records):
                end = min(len(self._records), self._at + count)
                count -= end - self._at
                self._replay_up_to(end)
                continue
            batch = next(self._batches, None)
            if batch is None:
                return True
            self._records, self._producer_id, self._at = batch.records, batch.producer_id, 0
            if batch.commit is not None:
                count -= 1
                self._state.replay_end(batch.producer_id, commit=batch.commit)
        return False

    def _replay_up_to(self, end: int) -> None:
        """Replay records of the current batch, up to the index `end` (exclusive)."""
        state, records, locate = self._state, self._records, self._locate
        at, run = self._at, self._replay_run if self._producer_id < 0 else None
        while at < end:
            if run is not None and (reached := run(state, records, at, end)) > at:
                at = reached
                continue
            logged = records[at]
            at += 1
            record = self._decode(logged.key, logged.value) if logged.key is not None else None
            if record is None:
                continue
            if locate is not None:
                locate(state, logged.offset)
            if self._producer_id < 0:
                state.replay(record)
            else:
                state.replay_pending(record, self._producer_id)
        self._at = end
