"""The producer state of a partition: deduplicates retried batches and tracks open transactions (KIP-98, KIP-890).

For every producer id: the epoch and the last five batches as (first sequence, last sequence, last offset, timestamp). A
batch whose sequences equal one of the five is a duplicate and is answered with its first offset; any other must continue
where the last one ended.

    epoch older than known                INVALID_PRODUCER_EPOCH
    new epoch, first sequence not 0       OUT_OF_ORDER_SEQUENCE_NUMBER
    same epoch, not last sequence + 1     OUT_OF_ORDER_SEQUENCE_NUMBER
    unknown producer                      any sequence is accepted (KIP-360); only 0 in a transaction of version 2
    plain batch, transaction open         INVALID_TXN_STATE
    after an unverified batch             OUT_OF_ORDER_SEQUENCE_NUMBER: the first batch of a transaction waits for the
                                          coordinator, or was refused by it, and must be appended first (KIP-890)

A transaction is open from its first batch to its marker. It is undecided until the marker is below the high watermark. The
last stable offset is the first offset of the oldest undecided transaction.

    marker of an older coordinator        TRANSACTION_COORDINATOR_FENCED
    marker of an older epoch              INVALID_PRODUCER_EPOCH; also of the known epoch in version 2, which raises the epoch
                                          with each marker, unless the marker is a repeated one

The state is derived from the log. Snapshots avoid reading the whole log at a start: one is written at every roll and clean
stop, and named by its end offset (exclusive).
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.protocol import codec
from ottla.protocol.errors import (
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    NONE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    TRANSACTION_COORDINATOR_FENCED,
)
from ottla.protocol.messages.producer_snapshot import ProducerEntry, ProducerSnapshot
from ottla.protocol.wire import PeerError
from ottla.records.batch import BatchHeader
from ottla.records.checksum import crc32c

_REMEMBERED: Final = 5
_MAX_SEQUENCE: Final = 0x7FFFFFFF
_SNAPSHOT_VERSION: Final = 1
_CRC_FROM: Final = 6  # int16 version and the CRC itself are not covered


class DamagedSnapshot(Exception):
    """Malformed snapshot file."""


class ProducerBatch(NamedTuple):
    """Sequences, last offset and newest timestamp (ms) of a batch; offsets and sequences are inclusive."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ActiveProducer(NamedTuple):
    """State of a producer as DescribeProducers returns it; the timestamp is that of its newest batch, in ms.
    `transaction_start` is the first offset of its open transaction, or -1."""

    producer_id: int
    epoch: int
    last_sequence: int
    timestamp: int
    coordinator_epoch: int
    transaction_start: int


class Ended(NamedTuple):
    """Transaction ended by a marker; `first_offset` and `marker_offset` are inclusive."""

    producer_id: int
    first_offset: int
    marker_offset: int


class _Unverified(NamedTuple):
    """First of the batches of a producer whose transaction has not been verified; `since_ms` is wall-clock time.

    begins_at_zero  whether the producer must begin with sequence 0 where it is unknown: transactions of version 2
    """

    epoch: int
    sequence: int
    since_ms: int
    begins_at_zero: bool


class _ProducerEntry:
    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_marker", "timestamp", "transaction_start")

    def __init__(self, epoch: int, timestamp: int) -> None:
        self.epoch = epoch
        self.timestamp = timestamp
        self.coordinator_epoch = -1
        self.transaction_start = -1
        self.last_marker = -1
        """Offset of the last marker since the log was opened, -1 without one."""
        self.batches: list[ProducerBatch] = []
        """The last five batches, oldest first: a list, since most producers have few, and a deque is ten times as large."""

    def take_epoch(self, epoch: int) -> None:
        """Adopt an epoch; a new one resets the sequences."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class ProducerStates:
    """Producer states of one partition."""

    def __init__(self) -> None:
        self._producers: dict[int, _ProducerEntry] = {}
        self._open: dict[int, int] = {}
        """producer id -> first offset of its open transaction, oldest first"""
        self._undecided: deque[Ended] = deque()
        """Transactions whose marker may not be below the high watermark yet."""
        self._unverified: dict[int, _Unverified] = {}
        """By producer id, until a batch or the marker of the transaction is appended."""

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader) -> tuple[int, ProducerBatch | None]:
        """Check if a batch of an idempotent producer may be appended. Return an error code, and the batch it repeats if any."""
        producer = self._producers.get(header.producer_id)
        epoch, first = header.producer_epoch, header.base_sequence
        if producer is not None and epoch == producer.epoch:
            last = _after(first, header.last_offset_delta)
            for batch in producer.batches:
                if batch.first_sequence == first and batch.last_sequence == last:
                    return NONE, batch
        elif producer is not None and epoch < producer.epoch:
            return INVALID_PRODUCER_EPOCH, None
        unverified = self._unverified.get(header.producer_id) if self._unverified else None
        if unverified is not None and first > unverified.sequence:
            return OUT_OF_ORDER_SEQUENCE_NUMBER, None
        if producer is None:
            is_late = unverified is not None and unverified.begins_at_zero and first != 0
            return (OUT_OF_ORDER_SEQUENCE_NUMBER if is_late else NONE), None
        follows = _after(producer.batches[-1].last_sequence, 1) if epoch == producer.epoch and producer.batches else 0
        if first != follows:
            return OUT_OF_ORDER_SEQUENCE_NUMBER, None
        if producer.transaction_start >= 0 and not header.is_transactional:
            return INVALID_TXN_STATE, None
        return NONE, None

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, begins_at_zero: bool
    ) -> None:
        """Record that a batch is not appended before its transaction is verified. No batch with a higher sequence is appended
        before it, even if the producer is unknown here: it may have been sent after it.

        begins_at_zero  whether the transaction is of version 2; that of the first unverified batch remains in force, as in
                        Kafka
        """
        known = self._unverified.get(producer_id)
        if known is None:
            self._unverified[producer_id] = _Unverified(epoch, sequence, now_ms, begins_at_zero)
        elif epoch > known.epoch or (epoch == known.epoch and sequence < known.sequence):
            self._unverified[producer_id] = known._replace(epoch=epoch, sequence=sequence)

    def is_fenced(self, producer_id: int, epoch: int) -> bool:
        """Return True if a newer epoch of the producer is known."""
        producer = self._producers.get(producer_id)
        return producer is not None and epoch < producer.epoch

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, *, new_epoch: bool) -> int:
        """Check if the marker of a transaction may be appended. Return an error code.

        new_epoch  whether markers have an epoch of their own: transactions of version 2
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return NONE
        if coordinator_epoch < producer.coordinator_epoch:
            return TRANSACTION_COORDINATOR_FENCED
        is_repeated = epoch == producer.epoch and producer.transaction_start < 0
        if epoch < producer.epoch or (new_epoch and epoch == producer.epoch and not is_repeated):
            return INVALID_PRODUCER_EPOCH
        return NONE

    def _entry_of(self, header: BatchHeader) -> _ProducerEntry:
        """Return the entry of the producer of an appended batch, updated to the epoch of the batch."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = _ProducerEntry(header.producer_epoch, header.max_timestamp)
            self._producers[header.producer_id] = producer
        producer.take_epoch(header.producer_epoch)
        producer.timestamp = header.max_timestamp
        return producer

    def appended(self, header: BatchHeader, base_offset: int) -> None:
        """Record an appended data batch."""
        pid = header.producer_id
        producer = self._entry_of(header)
        delta = header.last_offset_delta
        last_sequence = _after(header.base_sequence, delta)
        batches = producer.batches
        if len(batches) == _REMEMBERED:
            del batches[0]
        batches.append(
            ProducerBatch(header.base_sequence, last_sequence, base_offset, base_offset + delta, header.max_timestamp)
        )
        if header.is_transactional and self._unverified:
            self._unverified.pop(pid, None)
        if header.is_transactional and producer.transaction_start < 0:
            producer.transaction_start = self._open[pid] = base_offset

    def recall(self, earlier: Iterable[BatchHeader]) -> None:
        """Remember batches before a snapshot, in the order of their offsets: it has only the last batch of each producer, and a
        repetition of one before that must be recognized after a restart as well.
        """
        recalled: dict[int, list[ProducerBatch]] = {}
        for header in earlier:
            producer = self._producers.get(header.producer_id)
            if producer is None or header.is_control or header.producer_epoch != producer.epoch or not producer.batches:
                continue
            first, delta = header.base_offset, header.last_offset_delta
            if first + delta < producer.batches[0].first_offset:
                last_sequence = _after(header.base_sequence, delta)
                batch = ProducerBatch(header.base_sequence, last_sequence, first, first + delta, header.max_timestamp)
                recalled.setdefault(header.producer_id, []).append(batch)
        for producer_id, batches in recalled.items():
            known = self._producers[producer_id].batches
            while (
                batches and len(known) < _REMEMBERED and _after(batches[-1].last_sequence, 1) == known[0].first_sequence
            ):
                known.insert(0, batches.pop())

    def ended(self, header: BatchHeader, offset: int, coordinator_epoch: int) -> Ended | None:
        """Record a marker appended at `offset`; return the transaction that it ended, None for an empty one."""
        pid = header.producer_id
        producer = self._entry_of(header)
        producer.coordinator_epoch = coordinator_epoch
        producer.transaction_start = -1
        producer.last_marker = offset
        self._unverified.pop(pid, None)
        first_offset = self._open.pop(pid, None)
        if first_offset is None:
            return None
        transaction = Ended(pid, first_offset, offset)
        self._undecided.append(transaction)
        return transaction

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return True if the producer has an open transaction of this epoch in the partition."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.transaction_start >= 0 and producer.epoch == epoch

    def last_marker(self, producer_id: int) -> int:
        """Return the offset of the last marker of a producer since the log was opened, -1 without one."""
        producer = self._producers.get(producer_id)
        return -1 if producer is None else producer.last_marker

    def undecided_from(self, high_watermark: int, otherwise: int) -> int:
        """Return the first offset of the oldest transaction that is open, or whose marker is not below `high_watermark`;
        `otherwise` if there is no such transaction."""
        self.forget_decided(high_watermark)
        undecided = self._undecided
        first = next(iter(self._open.values()), otherwise)
        return min(first, *(transaction.first_offset for transaction in undecided)) if undecided else first

    def forget_decided(self, high_watermark: int) -> None:
        """Forget the ended transactions whose marker is below the high watermark.

        Called for each marker: a log without readers of committed records would keep all of them.
        """
        undecided = self._undecided
        while undecided and undecided[0].marker_offset < high_watermark:
            undecided.popleft()

    def stable_after(self, ended: Ended) -> int:
        """Return the last stable offset (exclusive) once this marker is below the high watermark."""
        return next(iter(self._open.values()), ended.marker_offset + 1)

    @property
    def is_settled(self) -> bool:
        """True if no transaction is open or waits for its marker to be below the high watermark."""
        return not self._open and not self._undecided

    def active(self) -> list[ActiveProducer]:
        """Return all known producers."""
        return [
            ActiveProducer(
                pid,
                producer.epoch,
                producer.batches[-1].last_sequence if producer.batches else -1,
                producer.timestamp,
                producer.coordinator_epoch,
                producer.transaction_start,
            )
            for pid, producer in self._producers.items()
        ]

    def last_batches(self) -> dict[int, tuple[int, int]]:
        """Return by producer id the last offset of the producer's data, -1 if only a marker is left, and its epoch."""
        return {
            pid: (producer.batches[-1].last_offset if producer.batches else -1, producer.epoch)
            for pid, producer in self._producers.items()
        }

    def expire(self, before_ms: int) -> None:
        """Remove producers without an open transaction whose last batch is older than `before_ms`
        (producer.id.expiration.ms).
        """
        self._producers = {
            pid: producer
            for pid, producer in self._producers.items()
            if producer.timestamp >= before_ms or producer.transaction_start >= 0
        }
        self._unverified = {pid: batch for pid, batch in self._unverified.items() if batch.since_ms >= before_ms}

    def snapshot(self) -> bytes:
        """Encode the content of a .snapshot file: the last batch of every producer."""
        entries = []
        for producer_id, producer in self._producers.items():
            last = producer.batches[-1] if producer.batches else ProducerBatch(-1, -1, 0, -1, producer.timestamp)
            entry = ProducerEntry(
                producer_id=producer_id,
                epoch=producer.epoch,
                last_sequence=last.last_sequence,
                last_offset=last.last_offset,
                offset_delta=last.last_offset - last.first_offset,
                timestamp=producer.timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_first_offset=producer.transaction_start,
            )
            entries.append(entry)
        version = _SNAPSHOT_VERSION.to_bytes(2, "big")
        body = codec.encode(ProducerSnapshot(producer_entries=entries), _SNAPSHOT_VERSION)
        return version + crc32c(body[_CRC_FROM - 2 :]).to_bytes(4, "big") + body[_CRC_FROM - 2 :]

    @classmethod
    def from_snapshot(cls, data: bytes) -> "ProducerStates":
        """Decode the producers of a .snapshot file. Raises DamagedSnapshot."""
        if len(data) < _CRC_FROM or int.from_bytes(data[:2], "big") != _SNAPSHOT_VERSION:
            raise DamagedSnapshot("not a producer snapshot of version 1")
        if crc32c(data[_CRC_FROM:]) != int.from_bytes(data[2:_CRC_FROM], "big"):
            raise DamagedSnapshot("the CRC of the producer snapshot is wrong")
        try:
            snapshot, _ = codec.decode(ProducerSnapshot, _SNAPSHOT_VERSION, data, 2)
        except PeerError as cause:
            raise DamagedSnapshot(str(cause)) from None
        states = cls()
        for entry in snapshot.producer_entries:
            producer = states._producers[entry.producer_id] = _ProducerEntry(entry.epoch, entry.timestamp)
            producer.coordinator_epoch = entry.coordinator_epoch
            producer.transaction_start = entry.current_txn_first_offset
            if entry.last_sequence >= 0:
                first = _after(entry.last_sequence, -entry.offset_delta)
                first_offset = entry.last_offset - entry.offset_delta
                producer.batches.append(
                    ProducerBatch(first, entry.last_sequence, first_offset, entry.last_offset, entry.timestamp)
                )
        open_now = (
            (producer.transaction_start, pid)
            for pid, producer in states._producers.items()
            if producer.transaction_start >= 0
        )
        states._open = {pid: first_offset for first_offset, pid in sorted(open_now)}
        return states


def _after(sequence: int, delta: int) -> int:
    """Return `sequence` + `delta`; sequences wrap from 2^31-1 to 0."""
    return (sequence + delta) & _MAX_SEQUENCE
