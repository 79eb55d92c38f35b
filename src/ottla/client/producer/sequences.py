"""Which batch of a partition goes next, under which sequence, and what an answer means for it: decisions only.

Strategy: a partition's batches carry consecutive sequences (KIP-98), and a broker takes them in that order or not at all, so
up to five may be on their way at once. When one fails for a passing reason, those behind it fail too (out of order) or were
taken before it, so nothing more is sent until all that is on its way is answered; then the failed ones go out again, oldest
first, with the sequences they had. One that had been appended although its answer was lost is recognised by the broker and
acknowledged without being appended twice.
"""

from bisect import insort
from collections import deque
from enum import Enum
from typing import Final

from ottla.client.topics import TopicPartition
from ottla.protocol import errors as table

MOST_IN_FLIGHT: Final = 5
_SEQUENCES: Final = 2**31


class Verdict(Enum):
    """What an answer means for a batch."""

    ACKNOWLEDGED = "appended, now or by an earlier attempt"
    AGAIN = "send it again in its turn"
    REFUSED = "never"


class Batch:
    """One batch on its way.

    number    position among all batches of its partition, never reused; of halves in between
    sequence  -1 until it is first sent
    deadline  clock ms after which it is not sent again (delivery.timeout.ms)
    """

    __slots__ = ("count", "data", "deadline", "number", "partition", "sequence")

    def __init__(self, partition: TopicPartition, data: bytes, count: int, deadline: int) -> None:
        self.partition = partition
        self.data = data
        self.count = count
        self.deadline = deadline
        self.number: float = -1
        self.sequence = -1


class PartitionQueue:
    """The batches of one partition: those that wait, in order, and those on their way, in order."""

    def __init__(self, *, idempotent: bool, limit: int = MOST_IN_FLIGHT) -> None:
        self.waiting: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self._idempotent = idempotent
        self._limit = limit
        self._numbers = 0
        self._next_sequence = 0
        self._draining = False

    def __len__(self) -> int:
        return len(self.waiting) + len(self.in_flight)

    def add(self, batch: Batch) -> None:
        batch.number = self._numbers
        self._numbers += 1
        self.waiting.append(batch)

    def next(self) -> Batch | None:
        """The batch that may be sent now, left where it is."""
        if not self.waiting or (self._draining and self.in_flight):
            return None
        head = self.waiting[0]
        # Counted from the oldest that is open: a broker remembers a producer's last five batches, and one that it appended
        # without our hearing of it must still be among them when it goes out again.
        return head if not self.in_flight or head.number - self.in_flight[0].number < self._limit else None

    def take(self) -> Batch:
        """The batch of `next`, on its way from now on."""
        batch = self.waiting.popleft()
        self._draining = False
        if self._idempotent and batch.sequence < 0:
            batch.sequence = self._next_sequence
            self._next_sequence = (self._next_sequence + batch.count) % _SEQUENCES
        self.in_flight.append(batch)
        return batch

    def verdict(self, batch: Batch, code: int) -> Verdict:
        """What `code` means for a batch on its way."""
        if code in (table.NONE, table.DUPLICATE_SEQUENCE_NUMBER):
            return Verdict.ACKNOWLEDGED
        if code == table.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # Expected behind one that failed; by itself it means that the broker lost what it had acknowledged.
            return Verdict.AGAIN if self._is_behind(batch) else Verdict.REFUSED
        return Verdict.AGAIN if table.error(code).retriable else Verdict.REFUSED

    def _is_behind(self, batch: Batch) -> bool:
        return any(other.number < batch.number for other in (*self.in_flight, *self.waiting))

    def done(self, batch: Batch) -> None:
        """It was acknowledged."""
        self.in_flight.remove(batch)

    def divide(self, batch: Batch, halves: tuple[Batch, Batch]) -> None:
        """In place of a batch that was too large for the broker its halves go out, under the sequences that it had."""
        first, second = halves
        first.sequence = batch.sequence
        second.sequence = (batch.sequence + first.count) % _SEQUENCES if batch.sequence >= 0 else -1
        behind = [other.number for other in (*self.in_flight, *self.waiting) if other.number > batch.number]
        following = min(behind, default=batch.number + 1)
        first.number, second.number = batch.number, (batch.number + following) / 2
        self.in_flight.remove(batch)
        self._draining = True
        ordered = list(self.waiting)
        for half in halves:
            insort(ordered, half, key=lambda other: other.number)
        self.waiting = deque(ordered)

    def again(self, batch: Batch) -> None:
        """It goes out once more, in its turn."""
        self.in_flight.remove(batch)
        self._draining = True
        ordered = list(self.waiting)
        insort(ordered, batch, key=lambda other: other.number)
        self.waiting = deque(ordered)

    def restart(self) -> None:
        """Another id or epoch: number anew what is not on its way."""
        self._next_sequence = 0
        for batch in self.waiting:
            batch.sequence = -1

    def forget_sequences(self) -> None:
        """The brokers know no sequences: nothing is numbered any more."""
        self._idempotent = False
        self.restart()
