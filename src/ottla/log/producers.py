"""What a partition remembers of its producers, so that a retried batch is appended once (KIP-98).

For every producer id: the epoch and the last five batches as (first sequence, last sequence, last offset, timestamp). A
batch whose sequences equal one of the five is a duplicate and is answered with its first offset; any other must continue
where the last one ended.

    epoch older than known                INVALID_PRODUCER_EPOCH
    new epoch, first sequence not 0       OUT_OF_ORDER_SEQUENCE_NUMBER
    same epoch, not last sequence + 1     OUT_OF_ORDER_SEQUENCE_NUMBER
    nothing known                         any sequence is taken (KIP-360)

The state is derived from the log. Snapshots spare a restart the reading: one is written with every roll and at a clean
stop, named by the offset up to which (exclusive) it holds.
"""

from collections import deque
from typing import Final, NamedTuple

from crc32c import crc32c

from ottla.protocol import codec
from ottla.protocol.errors import INVALID_PRODUCER_EPOCH, NONE, OUT_OF_ORDER_SEQUENCE_NUMBER
from ottla.protocol.messages.producer_snapshot import ProducerEntry, ProducerSnapshot
from ottla.protocol.wire import PeerError
from ottla.records.batch import BatchHeader

_REMEMBERED: Final = 5
_MAX_SEQUENCE: Final = 0x7FFFFFFF
_SNAPSHOT_VERSION: Final = 1
_CRC_FROM: Final = 6  # int16 version and the CRC itself are not covered


class DamagedSnapshot(Exception):
    """A snapshot file that does not hold what it should."""


class SequencedBatch(NamedTuple):
    """A batch as its producer numbered it; offsets and sequences are inclusive, the timestamp is its newest, in ms."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ActiveProducer(NamedTuple):
    """What DescribeProducers tells of a producer; the timestamp is that of its newest batch, in ms."""

    producer_id: int
    epoch: int
    last_sequence: int
    timestamp: int
    coordinator_epoch: int


class _Producer:
    __slots__ = ("batches", "coordinator_epoch", "epoch", "timestamp")

    def __init__(self, epoch: int, timestamp: int) -> None:
        self.epoch = epoch
        self.timestamp = timestamp
        self.coordinator_epoch = -1
        self.batches: deque[SequencedBatch] = deque(maxlen=_REMEMBERED)


class ProducerStates:
    """The producers of one partition."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader) -> tuple[int, SequencedBatch | None]:
        """Whether a batch of an idempotent producer may be appended: an error code, and the batch it repeats if any."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return NONE, None
        epoch, first = header.producer_epoch, header.base_sequence
        if epoch < producer.epoch:
            return INVALID_PRODUCER_EPOCH, None
        if epoch > producer.epoch or not producer.batches:
            known = bool(producer.batches) or epoch > producer.epoch
            return (OUT_OF_ORDER_SEQUENCE_NUMBER if first != 0 and known else NONE), None
        last = _after(first, header.last_offset_delta)
        for batch in producer.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return NONE, batch
        if first != _after(producer.batches[-1].last_sequence, 1):
            return OUT_OF_ORDER_SEQUENCE_NUMBER, None
        return NONE, None

    def appended(self, header: BatchHeader, base_offset: int) -> None:
        """Remember a batch that is in the log now."""
        producer = self._producers.get(header.producer_id)
        if producer is None or header.producer_epoch != producer.epoch:
            producer = self._producers[header.producer_id] = _Producer(header.producer_epoch, header.max_timestamp)
        producer.timestamp = header.max_timestamp
        if header.base_sequence < 0:
            return  # a control batch carries no sequence
        delta = header.last_offset_delta
        last_sequence = _after(header.base_sequence, delta)
        producer.batches.append(
            SequencedBatch(header.base_sequence, last_sequence, base_offset, base_offset + delta, header.max_timestamp)
        )

    def active(self) -> list[ActiveProducer]:
        """Every producer that is remembered."""
        return [
            ActiveProducer(
                pid,
                producer.epoch,
                producer.batches[-1].last_sequence if producer.batches else -1,
                producer.timestamp,
                producer.coordinator_epoch,
            )
            for pid, producer in self._producers.items()
        ]

    def last_offsets(self) -> dict[int, int]:
        """The last offset of each producer, by producer id."""
        return {pid: producer.batches[-1].last_offset for pid, producer in self._producers.items() if producer.batches}

    def expire(self, before_ms: int) -> None:
        """Forget producers whose last batch is older than `before_ms` (producer.id.expiration.ms)."""
        self._producers = {
            pid: producer for pid, producer in self._producers.items() if producer.timestamp >= before_ms
        }

    def snapshot(self) -> bytes:
        """The content of a .snapshot file: the last batch of every producer."""
        entries = []
        for producer_id, producer in self._producers.items():
            last = producer.batches[-1] if producer.batches else SequencedBatch(-1, -1, 0, -1, producer.timestamp)
            entry = ProducerEntry(
                producer_id=producer_id,
                epoch=producer.epoch,
                last_sequence=last.last_sequence,
                last_offset=last.last_offset,
                offset_delta=last.last_offset - last.first_offset,
                timestamp=producer.timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_first_offset=-1,
            )
            entries.append(entry)
        version = _SNAPSHOT_VERSION.to_bytes(2, "big")
        body = codec.encode(ProducerSnapshot(producer_entries=entries), _SNAPSHOT_VERSION)
        return version + crc32c(body[_CRC_FROM - 2 :]).to_bytes(4, "big") + body[_CRC_FROM - 2 :]

    @classmethod
    def from_snapshot(cls, data: bytes) -> "ProducerStates":
        """The producers that a .snapshot file holds. Raises DamagedSnapshot."""
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
            producer = states._producers[entry.producer_id] = _Producer(entry.epoch, entry.timestamp)
            producer.coordinator_epoch = entry.coordinator_epoch
            if entry.last_sequence >= 0:
                first = _after(entry.last_sequence, -entry.offset_delta)
                first_offset = entry.last_offset - entry.offset_delta
                producer.batches.append(
                    SequencedBatch(first, entry.last_sequence, first_offset, entry.last_offset, entry.timestamp)
                )
        return states


def _after(sequence: int, delta: int) -> int:
    """`sequence` moved by `delta`; sequences wrap from 2^31-1 to 0."""
    return (sequence + delta) & _MAX_SEQUENCE
