"""Order and sequence numbers of a partition's batches, and the outcome of responses for them: decisions only, no I/O.

Strategy: a partition's batches have consecutive sequences (KIP-98), and a broker appends them in that order only, so up to
five may be in flight at once. When one fails with a retriable error, the ones behind it fail as well (out of order), so no
further batch is sent until all batches in flight are answered. Then the failed ones are sent again, oldest first, with their
old sequences. A batch that was appended although its response was lost is recognised by the broker as a duplicate, and
acknowledged without a second append.

This requires that the broker has state of the producer in the partition. Without it a broker accepts any first sequence: it
could append the second batch without the first, which could not be appended afterwards. So only one batch is in flight until
the first one is acknowledged; likewise in a recreated topic.

A batch that fails for good leaves a hole in the sequences of its partition, which only a new epoch closes (KIP-360). A batch
keeps producer id, epoch and sequence as long as it may be in the log: renumbered it could be appended twice.

    refused, all attempts answered     it is not in the log; the batches behind it are renumbered. One of them whose response
                                       was lost is sent under its old sequence first: a broker without state of the producer
                                       (first batch in a partition, or expired state) accepts any first sequence, so that
                                       batch may be in the log although the one before it is not
    expired, or refused after an       it may be in the log (unresolved): batches sent behind it keep their sequences. An
    attempt without a response         acknowledgement of one of them shows that there is no hole, an out-of-order error that
                                       there is one. New batches wait until then.

Other partitions keep their epoch until all their batches in flight are answered.
"""

from bisect import insort
from collections import deque
from enum import Enum
from typing import Final

from ottla.client.topics import TopicPartition
from ottla.protocol import errors as table

MOST_IN_FLIGHT: Final = 5
_SEQUENCES: Final = 2**31


Identity = tuple[int, int]
"""Producer id and epoch."""
NO_IDENTITY: Final[Identity] = (-1, -1)

_UNCERTAIN: Final = frozenset(
    {
        table.UNKNOWN_SERVER_ERROR,
        table.REQUEST_TIMED_OUT,
        table.NETWORK_EXCEPTION,
        table.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        table.KAFKA_STORAGE_ERROR,
    }
)
"""Error codes after which a batch may be in the log nevertheless."""


class BatchVerdict(Enum):
    """Consequence of an error code for a batch."""

    ACKNOWLEDGED = "appended, now or by an earlier attempt"
    AGAIN = "send it again in its turn"
    REFUSED = "never"


class SequencedBatch:
    """Batch with its position in the sequences of a partition.

    number     position among all batches of its partition, never reused; halves of a batch get numbers in between
    sequence   -1 until it is first sent
    identity   producer id and epoch of the sequence
    uncertain  whether it may be in the log although it was never acknowledged; such a batch is never renumbered
    deadline   time (clock ms) after which it is not sent again (delivery.timeout.ms)
    """

    __slots__ = ("count", "data", "deadline", "identity", "number", "partition", "sequence", "uncertain")

    def __init__(self, partition: TopicPartition, data: bytes, count: int, deadline: int) -> None:
        self.partition = partition
        self.data = data
        self.count = count
        self.deadline = deadline
        self.number: float = -1.0
        self.sequence = -1
        self.identity = NO_IDENTITY
        self.uncertain = False


class PartitionQueue:
    """Batches of one partition: those waiting and those in flight, both in order.

    identity  producer id and epoch of the sequences assigned now
    topic_id  id of the topic that batches are sent to, None before the first batch
    by_id     whether batches are sent by topic id, so that none can reach another topic of the same name
    """

    def __init__(self, *, idempotent: bool, limit: int = MOST_IN_FLIGHT) -> None:
        self.waiting: deque[SequencedBatch] = deque()
        self.in_flight: list[SequencedBatch] = []
        self.identity = NO_IDENTITY
        self.topic_id: bytes | None = None
        self.by_id = True
        self._idempotent = idempotent
        self._has_state = not idempotent
        """True if the broker has state of the producer, as it has acknowledged a batch with a sequence."""
        self._limit = limit
        self._numbers = 0.0
        self._next_sequence = 0
        self._draining = False
        self._acknowledged: tuple[float, int] = (-1, 0)
        """Number of the newest acknowledged batch, and the sequence that follows it."""
        self._unresolved = False
        self._hole: float | None = None
        """Number of the first batch behind a hole: batches from it on, except uncertain ones, must be renumbered. None without
        a hole."""

    def __len__(self) -> int:
        return len(self.waiting) + len(self.in_flight)

    def add(self, batch: SequencedBatch) -> None:
        batch.number = self._numbers
        self._numbers += 1.0
        self.waiting.append(batch)

    def next(self, identity: Identity) -> SequencedBatch | None:
        """Return the batch that may be sent now by a producer of this identity, without removing it; None if all must wait."""
        if not self.waiting or (self.in_flight and (self._draining or not self._has_state)):
            return None
        head = self.waiting[0]
        if self._hole is not None and head.number >= self._hole:
            # Only uncertain batches are sent: their responses show whether they are in the log.
            uncertain = self._first_uncertain()
            if uncertain is None:
                return None
            head = uncertain
        # Sequence 0 of a new epoch could overtake batches in flight; behind an unresolved batch the next sequence is unknown.
        must_wait = self._unresolved or (self.in_flight and identity != self.identity)
        if head.sequence < 0 and self._idempotent and must_wait:
            return None
        # Counted from the oldest that is open: a broker remembers a producer's last five batches, and one that it appended
        # without our hearing of it must still be among them when it goes out again.
        return head if not self.in_flight or head.number - self.in_flight[0].number < self._limit else None

    def begin_topic(self, topic_id: bytes) -> None:
        """Switch to the recreated topic, which has no state of the producer; only while no batch is in flight."""
        self.topic_id = topic_id
        self._has_state = not self._idempotent
        if self.by_id:
            for batch in self.waiting:
                batch.uncertain = False  # it may be in the log of the topic that was deleted
        self.by_id = True

    def take(self, identity: Identity) -> SequencedBatch:
        """Move the batch of `next` from waiting to in flight, and return it."""
        batch = self.waiting[0]
        if self._hole is not None and batch.number >= self._hole:
            batch = self._first_uncertain() or batch
        self.waiting.remove(batch)  # usually the first one
        self._draining = False
        if self._idempotent and batch.sequence < 0:
            if identity != self.identity:
                self._begin(identity)
            batch.identity = identity
            batch.sequence = self._next_sequence
            self._next_sequence = (self._next_sequence + batch.count) % _SEQUENCES
        self.in_flight.append(batch)
        return batch

    def _first_uncertain(self) -> SequencedBatch | None:
        return next((batch for batch in self.waiting if batch.uncertain), None)

    def verdict(self, batch: SequencedBatch, code: int) -> BatchVerdict:
        """Return the outcome that an error code means for a batch in flight."""
        if code in (table.NONE, table.DUPLICATE_SEQUENCE_NUMBER):
            return BatchVerdict.ACKNOWLEDGED
        if code == table.OUT_OF_ORDER_SEQUENCE_NUMBER:
            batch.uncertain = False  # it is not in the log: the broker would have reported a duplicate
            if self._is_behind(batch) or (self._hole is not None and batch.number >= self._hole):
                return BatchVerdict.AGAIN
            if self._unresolved:
                self._open_hole(batch.number)
                return BatchVerdict.AGAIN
            return BatchVerdict.REFUSED  # the broker lost batches that it had acknowledged
        if code in _UNCERTAIN:
            batch.uncertain = True
        return BatchVerdict.AGAIN if table.error(code).retriable else BatchVerdict.REFUSED

    def _is_behind(self, batch: SequencedBatch) -> bool:
        return any(other.number < batch.number for other in (*self.in_flight, *self.waiting))

    def remove_acknowledged(self, batch: SequencedBatch) -> None:
        """Remove a batch that was acknowledged."""
        self.in_flight.remove(batch)
        self._has_state = True
        if batch.sequence >= 0 and batch.number > self._acknowledged[0]:
            self._acknowledged = batch.number, (batch.sequence + batch.count) % _SEQUENCES

    def give_up(self, batch: SequencedBatch) -> None:
        """Give up a batch that is in flight or was removed from `waiting`."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)
        if batch.sequence < 0 or not self._idempotent:
            return
        if batch.uncertain:
            self._unresolved = True
        else:
            self._open_hole(batch.number)

    def _open_hole(self, number: float) -> None:
        self._hole = number if self._hole is None else min(number, self._hole)

    @property
    def is_broken(self) -> bool:
        """Return True if the sequences have a hole or an unresolved batch."""
        return self._unresolved or self._hole is not None

    def wants_identity(self) -> bool:
        """Return True if waiting batches must be renumbered under a new epoch before any is sent."""
        if self.in_flight or not self.is_broken:
            return False
        head = self.waiting[0] if self.waiting else None
        if head is not None and head.sequence >= 0 and (self._hole is None or head.number < self._hole):
            return False  # its response comes first
        if self._first_uncertain() is not None:
            return False  # likewise
        if self._hole is None and self._acknowledged[1] == self._next_sequence:
            self._unresolved = False  # the unresolved one was appended: a later batch was acknowledged
            return False
        return True

    def renumber(self, identity: Identity) -> None:
        """Renumber the waiting batches under a new identity; only if `wants_identity`, or if none of them was sent before."""
        self._begin(identity)
        for batch in self.waiting:
            batch.sequence = -1
            batch.uncertain = False

    def _begin(self, identity: Identity) -> None:
        if identity[0] != self.identity[0]:
            self._has_state = not self._idempotent
        self.identity = identity
        self._next_sequence = 0
        self._acknowledged = self._acknowledged[0], 0
        self._unresolved = False
        self._hole = None

    def divide(self, batch: SequencedBatch, parts: tuple[SequencedBatch, SequencedBatch]) -> None:
        """Replace a batch that was too large for the broker by its halves, under the same sequences."""
        first, second = parts
        first.sequence = batch.sequence
        second.sequence = (batch.sequence + first.count) % _SEQUENCES if batch.sequence >= 0 else -1
        behind = [other.number for other in (*self.in_flight, *self.waiting) if other.number > batch.number]
        following = min(behind, default=batch.number + 1)
        first.number, second.number = batch.number, (batch.number + following) / 2
        for part in parts:
            part.identity, part.uncertain = batch.identity, batch.uncertain
        self.in_flight.remove(batch)
        self._draining = True
        self._put_back(*parts)

    def again(self, batch: SequencedBatch) -> None:
        """Return a batch from in flight to waiting, at its position in the order."""
        self.in_flight.remove(batch)
        self._draining = True
        self._put_back(batch)

    def _put_back(self, *batches: SequencedBatch) -> None:
        ordered = list(self.waiting)
        for batch in batches:
            insort(ordered, batch, key=lambda other: other.number)
        self.waiting = deque(ordered)

    def forget_sequences(self) -> None:
        """Stop numbering batches, for brokers that do not support idempotent producers."""
        self._idempotent = False
        self.renumber(NO_IDENTITY)
