"""A closed batch on its way: its records as they will travel, and who wants to hear what becomes of them."""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from ottla.client.errors import KafkaError
from ottla.client.producer.accumulator import OpenBatch
from ottla.client.producer.sequences import Batch
from ottla.client.topics import TopicPartition
from ottla.records.batch import TRANSACTIONAL, BatchHeader, records_of, seal
from ottla.records.compression import compress
from ottla.records.legacy import for_old_client

_OLD_LIMIT: Final = 2**31 - 1


class Delivered(NamedTuple):
    """Where a record was appended; offset -1 with acks=0, timestamp in ms (the broker's with LogAppendTime)."""

    topic: str
    partition: int
    offset: int
    timestamp: int


Listener = Callable[[KafkaError | None, Delivered | None], object]
"""Called with why it failed, or with where it is."""


class Counter(Protocol):
    """Who counts what becomes of many records."""

    def told(self, partition: TopicPartition, count: int, error: KafkaError | None, base_offset: int) -> None:
        """So many records were appended from `base_offset` on (-1: nobody says where), or were not."""


class Packing(NamedTuple):
    """How batches are packed; level None is Kafka's default."""

    codec: int
    level: int | None


class ClosedBatch(Batch):
    """One batch of a producer that takes single records.

    size  what it holds of buffer.memory
    """

    __slots__ = ("header", "listeners", "payload", "size", "spans", "transactional")

    def __init__(
        self, partition: TopicPartition, batch: OpenBatch, packing: Packing, deadline: int, *, transactional: bool
    ) -> None:
        super().__init__(partition, b"", batch.count, deadline)
        self.size = batch.size
        self.listeners = batch.listeners
        self.spans: list[tuple[int, int, Counter]] = batch.spans()
        self.transactional = transactional
        payload = batch.payload()
        self.payload = compress(packing.codec, payload, packing.level) if packing.codec else payload
        header = self.header = BatchHeader()
        header.attributes = packing.codec | (TRANSACTIONAL if transactional else 0)
        header.last_offset_delta = batch.count - 1
        header.base_timestamp = batch.base_timestamp
        header.max_timestamp = batch.max_timestamp
        header.count = batch.count

    def halves(self) -> "tuple[ClosedBatch, ClosedBatch]":
        """Two batches with half of the records each (KIP-126)."""
        whole = records_of(seal(self.header, self.payload))
        middle = len(whole) // 2
        packing = Packing(self.header.compression, None)
        parts = []
        for first, records in ((0, whole[:middle]), (middle, whole[middle:])):
            part = OpenBatch(self.partition.partition, 0, records[0].timestamp)
            for record in records:
                part.add(record.timestamp, record.key, record.value, record.headers)
            for index, timestamp, listener in self.listeners or ():
                if first <= index < first + len(records):
                    part.listen(index - first, timestamp, listener)
            for begin, end, counter in self.spans:
                for index in range(max(begin, first), min(end, first + len(records))):
                    part.count_for(index - first, counter)
            parts.append(ClosedBatch(self.partition, part, packing, self.deadline, transactional=self.transactional))
        # What they hold of buffer.memory is what the whole held.
        parts[0].size, parts[1].size = self.size // 2, self.size - self.size // 2
        return parts[0], parts[1]

    def sealed(self, producer_id: int, epoch: int, version: int) -> bytes:
        """The bytes for a Produce of this version, in the producer's name (-1: nobody's)."""
        header = self.header
        header.producer_id = producer_id
        header.producer_epoch = epoch if producer_id >= 0 else -1
        header.base_sequence = self.sequence if producer_id >= 0 else -1
        data = seal(header, self.payload)
        if version >= 3:
            return data
        return for_old_client(data, 1 if version == 2 else 0, 0, _OLD_LIMIT)

    def tell(self, error: KafkaError | None, base_offset: int = -1, append_time: int = -1) -> None:
        """Say what became of the records to whoever wants to know."""
        for begin, end, counter in self.spans:
            counter.told(self.partition, end - begin, error, base_offset + begin if base_offset >= 0 else -1)
        topic, partition = self.partition
        for index, timestamp, listener in self.listeners or ():
            if error is not None:
                listener(error, None)
                continue
            offset = base_offset + index if base_offset >= 0 else -1
            listener(None, Delivered(topic, partition, offset, append_time if append_time >= 0 else timestamp))
