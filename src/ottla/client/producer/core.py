"""Core of a producer, on which `ottla.Producer` and `ottla.aio.Producer` are built.

`append` may be called from any thread. It appends a record at once if its topic is known and memory is free; otherwise the
caller uses `append_later`, which waits on the core's thread. All other methods run on the core's thread as well.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.client.config import CONFIGS
from ottla.client.core import Core
from ottla.client.errors import BufferExhausted, IllegalState, NotAuthorized, RecordTooLarge, UnknownTopic
from ottla.client.groups import GroupMetadata, OffsetAndMetadata
from ottla.client.metrics import MetricValues
from ottla.client.producer.accumulator import (
    APPENDED,
    CLOSED,
    NEGATIVE_TIMESTAMP,
    NO_PARTITION,
    TOO_LARGE,
    WAKE,
    Accumulator,
    TopicBuffers,
)
from ottla.client.producer.closed import DeliveryCounter, Listener
from ottla.client.producer.partitioners import Partitioner, partitioner
from ottla.client.producer.sender import Sender
from ottla.client.producer.transactions import ProducerTransactions
from ottla.client.topics import TopicPartition
from ottla.records.columns import RowEncoder
from ottla.records.record import Header
from ottla.tasks.deferred import Deferred

_STICKY_BYTES: Final = 16_384
"""Bytes for which records without a key stick to a partition with the default of batch.size, as with Kafka's default: a few
records should reach several partitions, too."""


class ProducerCore:
    """Core of one producer.

    wake    called when the sender must run, on the thread that appends
    choose  partitioner for records without a partition (ANY)
    """

    def __init__(self, core: Core, lock: Any, wake: Callable[[], None], choose: Partitioner | None = None) -> None:
        config = core.config
        self.core = core
        core.metadata.operation = "Read"
        batch_size: int = config["batch.size"]
        sticky_bytes = _STICKY_BYTES if batch_size == CONFIGS["batch.size"].default else batch_size
        choose = choose or partitioner(
            config["partitioner"], core.random, sticky_bytes, ignore_keys=config["partitioner.ignore.keys"]
        )
        self._largest: int = config["max.request.size"]
        self.accumulator = Accumulator(
            batch_size,
            config["buffer.memory"],
            self._largest,
            lock,
            choose,
            core.clock.now_ms,
        )
        self.sender = Sender(core, self.accumulator)
        self.transactions: ProducerTransactions | None = None
        if config["transactional.id"] is not None:
            self.transactions = ProducerTransactions(core, self.sender, config["transactional.id"])
        self._wake = wake
        self._clock = core.clock
        core.observe(self.metrics, _no_member_id)

    # -- records --

    def append(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header] | None,
        listener: Listener | None,
    ) -> bool:
        """Append a record. Return False if its topic is not known yet or memory is full. Any thread.

        Raises RecordTooLarge, UnknownTopic for a missing partition, IllegalState.
        """
        if self.transactions is not None:
            self.transactions.check_open()
        taken = self.accumulator.append(topic, partition, timestamp, key, value, headers, listener)
        return taken == APPENDED or self.check_append_result(taken, topic, partition, key, value)

    def check_append_result(
        self, taken: int, topic: str, partition: int, key: bytes | None, value: bytes | None
    ) -> bool:
        """Convert the accumulator's result for a record to the result or the error of `append`."""
        if taken == WAKE:
            self._wake()
            return True
        if taken == TOO_LARGE:
            size = len(key or b"") + len(value or b"")
            raise RecordTooLarge(f"a record of {size} bytes is above max.request.size ({self._largest})")
        if taken == NO_PARTITION:
            raise UnknownTopic(f"topic {topic} has no partition {partition}")
        if taken == NEGATIVE_TIMESTAMP:
            raise ValueError("the timestamp of a record is negative: it is in ms since the epoch")
        if taken == CLOSED:
            raise IllegalState("the producer is closed")
        return taken == APPENDED

    def append_rows(
        self,
        topic: str,
        rows: RowEncoder,
        selection: bytes | None,
        begin: int,
        partition: int,
        row_partitions: bytes | None,
        counter: DeliveryCounter,
    ) -> tuple[int, int]:
        """Append rows of a table by `Accumulator.append_rows`. Return their number, and UNKNOWN_TOPIC or NO_ROOM if the caller
        has to wait. Any thread.

        Raises RecordTooLarge, UnknownTopic for a missing partition, IllegalState; rows before the failed one are appended.
        """
        if self.transactions is not None:
            self.transactions.check_open()
        taken, outcome = self.accumulator.append_rows(topic, rows, selection, begin, partition, row_partitions, counter)
        if taken:
            self._wake()
        if outcome == TOO_LARGE:
            raise RecordTooLarge(f"row {begin + taken} for {topic} is above max.request.size ({self._largest})")
        if outcome == NO_PARTITION:
            raise UnknownTopic(f"row {begin + taken} names a partition that topic {topic} does not have")
        if outcome == CLOSED:
            raise IllegalState("the producer is closed")
        return taken, outcome

    async def append_later(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header] | None,
        listener: Listener | None,
    ) -> None:
        """Append a record as soon as its topic is known and memory is free.

        Raises UnknownTopic, BufferExhausted after max.block.ms, and the errors of `append`.
        """
        deadline = self.block_deadline()
        await self.learn(topic, deadline)
        while not self.append(topic, partition, timestamp, key, value, headers, listener):
            await self.wait_for_room(deadline)

    def block_deadline(self) -> int:
        """Return the deadline of a blocking call that begins now (max.block.ms), by the core's clock."""
        return self._clock.now_ms() + int(self.core.config["max.block.ms"])

    async def learn(self, topic: str, deadline: int) -> None:
        """Wait until a topic is known; the broker creates it if allowed. Raises UnknownTopic.

        A denied topic fails the open transaction, as its record would be missing there.
        """
        if topic not in self.accumulator.topics:
            try:
                info = await self.core.metadata.topic(topic, create=True, deadline=deadline)
            except NotAuthorized as error:
                if self.transactions is not None:
                    self.transactions.on_failed(error)
                raise
            self.accumulator.topics.setdefault(topic, TopicBuffers(topic, len(info.leaders)))

    async def wait_for_room(self, deadline: int, room: Deferred[None] | None = None) -> None:
        """Wait until memory is released (`room`: signal obtained before, kept once memory is free). Raises BufferExhausted."""
        self.sender.close_all()
        left = deadline - self._clock.now_ms()
        if left <= 0:
            size, limit = self.core.config["buffer.memory"], self.core.config["max.block.ms"]
            raise BufferExhausted(f"buffer.memory ({size} bytes) was full for {limit} ms (max.block.ms)")
        await self.core.scheduler.within(room or self.sender.room.wait(), left)

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic."""
        info = await self.core.metadata.topic(topic, create=True)
        return sorted(info.leaders)

    # -- flush and close --

    async def flush(self, timeout_ms: int) -> int:
        """Send all records and wait for their outcomes; return how many have none after `timeout_ms`."""
        return await self.sender.drain(self._clock.now_ms() + timeout_ms)

    async def close(self, timeout_ms: int) -> None:
        """Flush for up to `timeout_ms`; records that are not delivered by then fail."""
        if self.accumulator.ended:
            return
        deadline = self._clock.now_ms() + timeout_ms
        try:
            if self.transactions is None:
                await self.flush(timeout_ms)
            await self.core.push_last(max(deadline - self._clock.now_ms(), 0))
        finally:
            self.accumulator.ended = True
            self.sender.refuse(IllegalState("the producer was closed before this was sent"))
            self.sender.close()
            self.core.close()

    # -- transactions --

    def transactional(self) -> ProducerTransactions:
        """Return the transactions of the producer. Raises IllegalState without transactional.id."""
        if self.transactions is None:
            raise IllegalState("transactions need the config transactional.id")
        return self.transactions

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group: GroupMetadata, timeout_ms: int | None
    ) -> None:
        """Add the offsets of a consumer group to the transaction."""
        whole = {TopicPartition.of(partition): OffsetAndMetadata.of(offset) for partition, offset in offsets.items()}
        await self.transactional().send_offsets(whole, group, timeout_ms)

    @property
    def identity(self) -> tuple[int, int]:
        """Return producer id and epoch, -1 before they are known."""
        return self.sender.producer_id, self.sender.epoch

    def metrics(self) -> MetricValues:
        """Return the metrics of the producer."""
        client_id = str(self.core.config["client.id"])
        values = self.sender.sensors.values(client_id, self.core.clock.now_ms())
        total, used = int(self.core.config["buffer.memory"]), int(self.accumulator.buffered)
        values.put(
            "producer-metrics",
            (("client-id", client_id),),
            [
                ("buffer-total-bytes", total),
                ("buffer-available-bytes", total - used),
                ("buffer-used-bytes", used),
                ("requests-in-flight", self.sender.in_flight),
                *self.core.connection_metrics(),
            ],
        )
        return values


def _no_member_id() -> str:
    return ""
