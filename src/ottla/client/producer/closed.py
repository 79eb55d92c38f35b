"""Closed batches: encoded records to send, and the listeners for their outcomes."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from ottla.client.errors import KafkaError, UnsupportedVersion
from ottla.client.producer.accumulator import OpenBatch
from ottla.client.producer.sequences import SequencedBatch
from ottla.client.topics import TopicPartition
from ottla.protocol.api import PRODUCE
from ottla.protocol.errors import UNSUPPORTED_COMPRESSION_TYPE, UNSUPPORTED_VERSION
from ottla.protocol.releases import first_release
from ottla.records.batch import TRANSACTIONAL, BatchHeader, records_of, seal
from ottla.records.codec_names import ZSTD
from ottla.records.compression import compress
from ottla.records.legacy import for_old_client
from ottla.records.record import Record

_OLD_LIMIT: Final = 2**31 - 1
_FIRST_WITH_ZSTD: Final = 7
"""First version of Produce whose batches may be compressed with zstd (KIP-110)."""
_FIRST_WITH_HEADERS: Final = 3
"""First version of Produce with batches of magic 2 (KIP-82, KIP-98)."""


class Delivered(NamedTuple):
    """Position of an appended record; offset -1 with acks=0, timestamp in ms (set by the broker with LogAppendTime)."""

    topic: str
    partition: int
    offset: int
    timestamp: int


Listener = Callable[[KafkaError | None, Delivered | None], object]
"""Callback for the outcome of a record: (error, None) or (None, Delivered)."""


class DeliveryCounter(Protocol):
    """Interface of a counter for the outcomes of many records."""

    def count_outcome(self, partition: TopicPartition, count: int, error: KafkaError | None, base_offset: int) -> None:
        """Count `count` records that were appended from `base_offset` on (-1: unknown), or failed with `error`."""


class BatchCompression(NamedTuple):
    """Codec and level for the compression of batches; level None is Kafka's default."""

    codec: int
    level: int | None


class ClosedBatch(SequencedBatch):
    """Closed batch of a producer.

    size      bytes that it occupies of buffer.memory
    is_named  whether the partition of some record was given by the caller
    opened_ms  time of its first record, by the monotonic clock
    retried_because  error of the last attempt, None before the first one that failed
    """

    __slots__ = (
        "header",
        "is_named",
        "listeners",
        "opened_ms",
        "payload",
        "retried_because",
        "size",
        "spans",
        "transactional",
    )

    def __init__(
        self,
        partition: TopicPartition,
        batch: OpenBatch,
        compression: BatchCompression,
        deadline: int,
        *,
        transactional: bool,
    ) -> None:
        super().__init__(partition, b"", batch.count, deadline)
        self.size = batch.size
        self.is_named = batch.is_named
        self.opened_ms: int = batch.opened_ms
        self.retried_because: KafkaError | None = None
        self.listeners = batch.listeners
        self.spans: list[tuple[int, int, DeliveryCounter]] = batch.spans()
        self.transactional = transactional
        payload = batch.payload()
        self.payload = compress(compression.codec, payload, compression.level) if compression.codec else payload
        header = self.header = BatchHeader()
        header.attributes = compression.codec | (TRANSACTIONAL if transactional else 0)
        header.last_offset_delta = batch.count - 1
        header.base_timestamp = batch.base_timestamp
        header.max_timestamp = batch.max_timestamp
        header.count = batch.count

    def halves(self) -> "tuple[ClosedBatch, ClosedBatch]":
        """Split the batch into two with half of the records each (KIP-126)."""
        middle = self.count // 2
        first, second = self._parts([0] * middle + [1] * (self.count - middle), [self.partition] * 2)
        return first, second

    def spread(self, choose: Callable[[bytes | None], int]) -> "list[ClosedBatch]":
        """Split the batch of a partition that no longer exists into batches for the partitions that `choose(key)` returns."""
        chosen = [choose(record.key) for record in self._records()]
        topic = self.partition.topic
        numbers = {partition: number for number, partition in enumerate(dict.fromkeys(chosen))}
        targets = [TopicPartition(topic, partition) for partition in numbers]
        return self._parts([numbers[partition] for partition in chosen], targets)

    def _records(self) -> list[Record]:
        return records_of(seal(self.header, self.payload))

    def _parts(self, part_of: list[int], targets: list[TopicPartition]) -> "list[ClosedBatch]":
        """Split the batch; `part_of` returns the target batch of each record."""
        records = self._records()
        listeners: dict[int, list[tuple[int, Any]]] = {}
        for index, timestamp, listener in self.listeners or ():
            listeners.setdefault(index, []).append((timestamp, listener))
        counters = {index: counter for begin, end, counter in self.spans for index in range(begin, end)}
        opened: dict[int, OpenBatch] = {}
        for index, record in enumerate(records):
            number = part_of[index]
            part = opened.get(number)
            if part is None:
                part = opened[number] = OpenBatch(targets[number].partition, 0, record.timestamp)
            place = part.count
            part.add(record.timestamp, record.key, record.value, record.headers)
            for timestamp, listener in listeners.get(index, ()):
                part.listen(place, timestamp, listener)
            if index in counters:
                part.count_for(place, counters[index])
        compression = BatchCompression(self.header.compression, None)
        parts = [
            ClosedBatch(targets[number], batch, compression, self.deadline, transactional=self.transactional)
            for number, batch in sorted(opened.items())
        ]
        # The parts together occupy as much of buffer.memory as the whole batch did.
        for closed in parts:
            closed.size = self.size // len(parts)
            closed.is_named = self.is_named
            closed.opened_ms = self.opened_ms
            closed.retried_because = self.retried_because
        parts[0].size += self.size - sum(closed.size for closed in parts)
        return parts

    def seal(self, version: int) -> bytes:
        """Return the bytes for a Produce request of this version, with the producer id, epoch and sequence of the batch.

        Raises KafkaError for a codec that brokers with this version cannot read, UnsupportedVersion for record headers that
        would be lost.
        """
        header = self.header
        if header.compression == ZSTD and version < _FIRST_WITH_ZSTD:
            raise KafkaError(
                f"produce to {self.partition}: Kafka before {first_release(PRODUCE, _FIRST_WITH_ZSTD)} has no zstd, "
                "set another compression.type",
                UNSUPPORTED_COMPRESSION_TYPE,
            )
        header.producer_id, header.producer_epoch = self.identity
        header.base_sequence = self.sequence
        data = seal(header, self.payload)
        if version >= _FIRST_WITH_HEADERS:
            return data
        if any(record.headers for record in records_of(data)):
            least = first_release(PRODUCE, _FIRST_WITH_HEADERS)
            raise UnsupportedVersion(
                f"produce to {self.partition}: record headers need Kafka {least} or newer", UNSUPPORTED_VERSION
            )
        return for_old_client(data, 1 if version == 2 else 0, 0, _OLD_LIMIT)

    def complete(self, error: KafkaError | None, base_offset: int = -1, append_time: int = -1) -> None:
        """Report the outcome to the listeners and counters of the records."""
        for begin, end, counter in self.spans:
            counter.count_outcome(self.partition, end - begin, error, base_offset + begin if base_offset >= 0 else -1)
        topic, partition = self.partition
        for index, timestamp, listener in self.listeners or ():
            if error is not None:
                listener(error, None)
                continue
            offset = base_offset + index if base_offset >= 0 else -1
            listener(None, Delivered(topic, partition, offset, append_time if append_time >= 0 else timestamp))
