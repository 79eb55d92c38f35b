"""Log of an internal topic's partition, as coordinators see it."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from ottla.records.record import Record


class CoordinatorAppend(NamedTuple):
    """Outcome of an append: `end_offset` (exclusive) when `error_code` is NONE."""

    error_code: int
    end_offset: int = -1


class LoggedBatch(NamedTuple):
    """Batch or marker read from the log: `producer_id` is that of its transaction, -1 without one. A marker has no records, and
    its `commit` is the outcome of the transaction.
    """

    records: Sequence[Record]
    producer_id: int = -1
    commit: bool | None = None


class Ending(NamedTuple):
    """End of a producer's transaction in a partition; `new_epoch` for markers with an epoch of their own (KIP-890)."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    new_epoch: bool


class CoordinatorLog(Protocol):
    """Interface of the runtime to a partition of its internal topic, implemented by the broker on its logs."""

    def append(
        self, records: Sequence[tuple[bytes, bytes | None]], producer: tuple[int, int] | None
    ) -> CoordinatorAppend:
        """Append (key, value) pairs as one batch, in the transaction of `producer` (id, epoch) unless that is None.

        The batch is not committed yet when this returns: see `committed_offset`.
        """

    def append_marker(self, ending: Ending) -> CoordinatorAppend:
        """Append the marker that ends a producer's transaction."""

    def committed_offset(self) -> int:
        """The high watermark (exclusive)."""

    def end_offset(self) -> int:
        """The end of the log (exclusive), whether committed or not."""

    def watch(self, committed: Callable[[], None]) -> None:
        """Call `committed` whenever the high watermark has moved, until `close`."""

    def close(self) -> None:
        """Stop calls of `committed`; the runtime has unloaded this partition, or loads it again."""

    def read(self) -> Iterator[LoggedBatch]:
        """Yield all batches and markers of the partition, oldest first."""
