"""Sender of a producer: sends closed batches to the leaders of their partitions, and handles the responses.

Strategy. No function here blocks. Each event (a closed batch, a response, a ready connection, the end of a backoff) calls
`pump`, which sends everything that can be sent now: one batch of each partition in a request, and as many requests to a node
as max.in.flight.requests.per.connection allows. `sequences.py` decides for each partition which batch is next and what an
error code means, so that order and exactly-once delivery hold over retries (KIP-98).

A batch that fails for good leaves a hole in its partition's sequences. An idempotent producer raises its epoch (KIP-360);
batches behind the hole are sent under the new epoch once no batch of the partition is in flight. Other partitions adopt the
epoch when all their requests are answered. In a transaction a hole makes the transaction abortable only.

A batch past linger.ms is closed only when it can be sent, not while others of its partition are waiting: otherwise an outage
would produce a small batch every few milliseconds.

One file, because all parts read and change the same state: waiting partitions and requests in flight.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from ottla.client.core import Core, logger
from ottla.client.errors import (
    ConnectionLost,
    KafkaError,
    Permission,
    RecordTooLarge,
    RequestTimedOut,
    UnknownTopic,
    UnsupportedVersion,
    error_for,
)
from ottla.client.metrics import ProducerSensors
from ottla.client.producer.accumulator import Accumulator, TopicBuffers
from ottla.client.producer.closed import BatchCompression, ClosedBatch
from ottla.client.producer.sequences import BatchVerdict, Identity, PartitionQueue
from ottla.client.topics import TopicInfo, TopicPartition
from ottla.net.connection import Link
from ottla.protocol import errors as table
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.schema import ZERO_UUID
from ottla.records.codec_names import CODEC_NAMES
from ottla.tasks.alarm import Alarm
from ottla.tasks.deferred import Deferred
from ottla.tasks.signal import Signal

_PURPOSE: Final = "produce"
_NEWEST_WITHOUT_IDS: Final = 12
_NEWEST_WITHOUT_IMPLICIT_PARTITIONS: Final = 11
"""Newest Produce version for transaction version 1: from 12 on the broker adds partitions to the transaction (KIP-890)."""
_MOST_IN_FLIGHT: Final = 5
_LAST_EPOCH: Final = 32766
_ALL: Final = 1 << 62
"""Time later than the opening time of any batch: closes all batches."""


class Sender:
    """Sender of one producer.

    producer_id, epoch  producer id and epoch, -1 before they are known
    room                signal: memory was released
    drained             signal: no batch is waiting or in flight
    admit               returns whether a partition may be written to now (transactions)
    failed              listeners, called with the error of a batch that failed for good
    refused             error for batches that are not in flight (the transaction failed or is aborted); None: they are sent
    flushing            number of flushes in progress; batches do not linger meanwhile
    """

    def __init__(self, core: Core, accumulator: Accumulator) -> None:
        config = core.config
        self.producer_id, self.epoch = -1, -1
        self.room = Signal(core.scheduler)
        self.drained = Signal(core.scheduler)
        self.transactional_id: str | None = config["transactional.id"]
        self.transaction_version = 0
        self.admit: Callable[[TopicPartition], bool] = lambda partition: True  # noqa: ARG005
        self.on_failed: list[Callable[[KafkaError], None]] = []
        self.refused: KafkaError | None = None
        self.flushing = 0
        self.idempotent: bool = config["enable.idempotence"]
        self.sensors = ProducerSensors()
        self._core = core
        self._config = config.by_name
        self._clock = core.clock
        self._accumulator = accumulator
        codec = CODEC_NAMES.index(config["compression.type"])
        levels = {name: config[f"compression.{name}.level"] for name in ("gzip", "lz4", "zstd")}
        self._compression = BatchCompression(codec, levels.get(config["compression.type"]))
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._waiting: dict[TopicPartition, None] = {}
        """Partitions with waiting batches, in order."""
        self._not_before: dict[TopicPartition, int] = {}
        self._failures: dict[TopicPartition, int] = {}
        self._busy: dict[int, int] = {}
        """node -> number of requests in flight"""
        self._produced_ms: dict[str, int] = {}
        """topic -> time (clock ms) of its last batch, oldest first"""
        self._under_way: set[str] = set()
        """Names of the background tasks in progress, so that each runs once."""
        self._in_flight = 0
        self._pumping = self._pump_again = False
        self._alarm = Alarm(self._woken, core.clock, core.scheduler)
        self.closed = False

    # -- closed batches --

    def take_in(self) -> None:
        """Move closed batches to the queues of their partitions, then send."""
        self._close_late()
        self.pump()

    def close_all(self) -> None:
        """Close every open batch, whether its linger.ms has passed or not, and send."""
        self._accumulator.close_late(list(self._accumulator.topics.values()), _ALL, self._waiting)
        self._queue_closed()
        self.pump()

    def _close_late(self) -> None:
        now = self._clock.now_ms()
        linger = int(self._config["linger.ms"])
        limit = _ALL if self.flushing else now - linger + 1
        oldest = self._accumulator.close_late(list(self._accumulator.topics.values()), limit, self._waiting)
        if oldest >= 0:
            self._alarm.set(oldest + linger)
        self._queue_closed()

    def _queue_closed(self) -> None:
        limit = self._config["delivery.timeout.ms"]
        transactional = self.transactional_id is not None
        now = self._clock.now_ms()
        for topic, batch in self._accumulator.take_closed():
            self._forget_idle_topics(now)
            self._produced_ms.pop(topic, None)
            self._produced_ms[topic] = now
            deadline = batch.opened_ms + limit
            closed = ClosedBatch(
                TopicPartition(topic, batch.partition), batch, self._compression, deadline, transactional=transactional
            )
            self._queue(closed)

    def _forget_idle_topics(self, now: int) -> None:
        """Drop the metadata of topics without a batch for metadata.max.idle.ms; their next batch requests it again."""
        limit = self._config["metadata.max.idle.ms"]
        while self._produced_ms:
            topic = next(iter(self._produced_ms))
            if now - self._produced_ms[topic] < limit:
                return
            del self._produced_ms[topic]
            self._core.metadata.forget(topic)

    def _queue(self, batch: ClosedBatch) -> None:
        if self.refused is not None:
            self._release(batch)
            batch.complete(self.refused)
            return
        partition = batch.partition
        queue = self._queues.get(partition)
        if queue is None:
            limit = min(self._config["max.in.flight.requests.per.connection"], _MOST_IN_FLIGHT)
            queue = self._queues[partition] = PartitionQueue(idempotent=self.idempotent, limit=limit)
        queue.add(batch)
        self._waiting[partition] = None

    async def drain(self, deadline: int) -> int:
        """Send all records and wait for their outcomes, up to `deadline` by the core's clock; return how many records have no
        outcome."""
        self.flushing += 1
        try:
            self.close_all()
            while not self.empty:
                left = deadline - self._clock.now_ms()
                if left <= 0:
                    break
                await self._core.scheduler.within(self.drained.wait(), left)
        finally:
            self.flushing -= 1
        return self._accumulator.records

    @property
    def in_flight(self) -> int:
        """Number of requests without a response."""
        return self._in_flight

    @property
    def empty(self) -> bool:
        """True if no batch waits and no request is in flight."""
        return not self._waiting and not self._in_flight

    # -- sending --

    def pump(self) -> None:
        """Send all batches that can be sent now. A call during a run causes another run after it."""
        if self._pumping:
            self._pump_again = True
            return
        self._pumping = True
        try:
            self._pump_again = True
            while self._pump_again and not self.closed:
                self._pump_again = False
                self._pump()
        finally:
            self._pumping = False
        if self.empty:  # also when the last batches expired without a response
            self.drained.happen()

    def _pump(self) -> None:
        if self._accumulator.held:
            self._close_late()
        if not self._waiting:
            return
        now = self._clock.now_ms()
        self._expire(now)  # first: delivery.timeout.ms also applies without a producer id
        if not self.idempotent or self._has_producer_id():
            self._send_ready(now)
        if any(held not in self._waiting for held in self._accumulator.held):
            self._pump_again = True
        if self._waiting:
            self._alarm.set(now + 1000)

    def _send_ready(self, now: int) -> None:
        """Send the next batches of all partitions that are ready to nodes that accept more requests."""
        ready: dict[int, list[TopicPartition]] = {}
        infos: dict[str, TopicInfo] = {}
        for partition in list(self._waiting):
            node = self._node_for(partition, now, infos)
            if node >= 0:
                ready.setdefault(node, []).append(partition)
        if self.idempotent and self.producer_id < 0:
            return  # a partition used up the last epoch in this run: those before it wait for the new producer id, too
        for node, partitions in ready.items():
            self._send_to(node, partitions, infos)

    def _node_for(self, partition: TopicPartition, now: int, infos: dict[str, TopicInfo]) -> int:
        """Return the node to which the partition's next batch can be sent now; -1 if it has to wait."""
        queue = self._queues[partition]
        if not queue.waiting:
            self._waiting.pop(partition, None)  # missing if the transaction and its waiting batches failed in this run
            return -1
        not_before = self._not_before.get(partition, 0)
        if not_before > now:
            self._alarm.set(not_before)
            return -1
        # The order of the next checks matters. `_prepare_identity` comes first: it may raise the epoch or give up the
        # producer id, and renumbers waiting batches: `next` decides by the new numbers.
        if self.idempotent and not self._prepare_identity(queue):
            return -1
        # A partition before this one may have dropped the producer id in this run.
        if (self.idempotent and self.producer_id < 0) or queue.next(self._identity) is None:
            return -1
        # Only now, when there is a batch to send: `admit` adds the partition to the transaction.
        if not self.admit(partition):
            return -1
        # The leader last: a lookup is started only for a batch that could be sent.
        info = infos.get(partition.topic) or self._core.metadata.known(partition.topic)
        if info is None:
            self._run_once(f"topic {partition.topic}", self._look_up(partition.topic))
            return -1
        if info.id != queue.topic_id:
            if queue.in_flight and queue.topic_id is not None:
                return -1  # batches in flight to the deleted topic: wait for their responses
            queue.begin_topic(info.id)
        if partition.topic not in infos:
            infos[partition.topic] = info
            self._resize(info)
        node = info.leaders.get(partition.partition, -1)
        if partition.partition not in info.leaders:
            self._spread(partition, len(info.leaders))
        elif node not in self._core.network.brokers:  # no leader, or one that the metadata does not list
            node = -1
            self._core.metadata.forget(partition.topic)
            self._not_before[partition] = now + self._core.metadata.backoff_ms(1)
            self._alarm.set(self._not_before[partition])
        return node

    def _send_to(self, node: int, partitions: list[TopicPartition], infos: dict[str, TopicInfo]) -> None:
        """Send requests to a node up to its limit of requests in flight."""
        address = self._core.network.brokers.get(node)
        most = self._config["max.in.flight.requests.per.connection"]
        if address is None or self._busy.get(node, 0) >= most:
            return
        link = self._core.network.link_if_ready(address, _PURPOSE)
        if link is None:
            self._run_once(f"node {node}", self._connect(node))
            return
        left = partitions
        while left and self._busy.get(node, 0) < most:
            batches, left = self._one_request(left)
            if not batches:
                return
            self._send(node, link, batches, infos)

    def _one_request(self, partitions: list[TopicPartition]) -> tuple[list[ClosedBatch], list[TopicPartition]]:
        """Return one batch of each partition, up to max.request.size, and the partitions that may have further batches."""
        room: int = self._config["max.request.size"]
        batches: list[ClosedBatch] = []
        again = []
        for partition in partitions:
            queue = self._queues[partition]
            batch = queue.next(self._identity)
            if batch is None or not isinstance(batch, ClosedBatch):
                continue
            size = len(batch.payload)
            if batches and size > room:
                again.append(partition)
                continue
            queue.take(self._identity)
            room -= size
            batches.append(batch)
            if queue.waiting:
                again.append(partition)
            else:
                self._waiting.pop(partition, None)
        return batches, again

    def _send(self, node: int, link: Link, batches: list[ClosedBatch], infos: dict[str, TopicInfo]) -> None:
        ids = {batch.partition.topic: infos[batch.partition.topic].id for batch in batches}
        newest = 32767 if ZERO_UUID not in ids.values() else _NEWEST_WITHOUT_IDS
        if self.transactional_id is not None and self.transaction_version < 2:
            newest = _NEWEST_WITHOUT_IMPLICIT_PARTITIONS
        outcome: Deferred[ProduceResponse] | Deferred[None]
        try:
            version = link.version(ProduceRequest, newest)
        except UnsupportedVersion as error:
            outcome = Deferred(self._core.scheduler)
            outcome.fail(error)
        else:
            batches, topics = self._seal_batches(batches, ids, version)
            if not batches:
                self._pump_again = True
                return
            outcome = self._send_request(link, version, topics)
        self._busy[node] = self._busy.get(node, 0) + 1
        self._in_flight += 1
        sent_ms = self._clock.now_ms()
        self.sensors.requests.record(1, sent_ms)
        for batch in batches:
            if batch.retried_because is None:
                self.sensors.queue_time.record(sent_ms - batch.opened_ms, sent_ms)
        outcome.listen(partial(self._on_response, node, batches, ids, sent_ms))

    def _seal_batches(
        self, batches: list[ClosedBatch], ids: dict[str, bytes], version: int
    ) -> tuple[list[ClosedBatch], list[TopicProduceData]]:
        """Return the batches that can be sent, and the topics of their request; the others fail for good."""
        sendable: list[ClosedBatch] = []
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            name = batch.partition.topic
            if version <= _NEWEST_WITHOUT_IDS:
                self._queues[batch.partition].by_id = False
            try:
                data = batch.seal(version)
            except Exception as error:  # noqa: BLE001  (whatever it is, it would be raised again for ever)
                about = f"produce to {batch.partition}: the batch cannot be sent: {error!r}"
                self._reject_batch(batch, error if isinstance(error, KafkaError) else KafkaError(about))
                continue
            topic = topics.setdefault(name, TopicProduceData(name=name, topic_id=ids[name]))
            topic.partition_data.append(PartitionProduceData(index=batch.partition.partition, records=data))
            sendable.append(batch)
        return sendable, list(topics.values())

    def _send_request(
        self, link: Link, version: int, topics: list[TopicProduceData]
    ) -> "Deferred[ProduceResponse] | Deferred[None]":
        """Send a request; return its outcome."""
        acks = self._config["acks"]
        request = ProduceRequest(acks=acks, timeout_ms=self._config["request.timeout.ms"], topic_data=topics)
        if version >= 3:
            request.transactional_id = self.transactional_id
        return link.request(request, version) if acks != 0 else link.send_only(request, version)

    # -- responses --

    def _on_response(
        self,
        node: int,
        batches: list[ClosedBatch],
        ids: dict[str, bytes],
        sent_ms: int,
        promise: Deferred[ProduceResponse] | Deferred[None],
    ) -> None:
        self._busy[node] -= 1
        self._in_flight -= 1
        rows: dict[tuple[str | bytes, int], PartitionProduceResponse] = {}
        error = promise.error
        answer = None if error is not None else promise.result()
        if answer is not None:
            now_ms = self._clock.now_ms()
            self.sensors.latency.record(now_ms - sent_ms, now_ms)
            self.sensors.nodes.record(node, now_ms - sent_ms, now_ms)
            self.sensors.throttle.record(answer.throttle_time_ms, now_ms)
            for topic in answer.responses:
                for row in topic.partition_responses:
                    rows[topic.name or topic.topic_id, row.index] = row
        for batch in batches:
            name, number = batch.partition
            result = rows.get((name, number)) or rows.get((ids[name], number))
            if isinstance(error, KafkaError):
                self._handle_no_response(batch, error)
            elif answer is None and error is None:
                self._complete_batch(batch, -1, -1)  # acks=0: there is no response
            elif result is None:
                self._handle_no_response(
                    batch, ConnectionLost(f"produce to {batch.partition}: the answer is about something else")
                )
            else:
                self._handle_result(batch, result)
        self.pump()

    def _handle_no_response(self, batch: ClosedBatch, error: KafkaError) -> None:
        """Handle a missing response: the batch may have been appended or not."""
        batch.uncertain = batch.uncertain or not isinstance(error, UnsupportedVersion)
        if error.retriable:
            self._core.metadata.forget(batch.partition.topic)
            self._retry(batch, error)
        else:
            self._reject_batch(batch, error)

    def _handle_result(self, batch: ClosedBatch, row: PartitionProduceResponse) -> None:
        queue = self._queues[batch.partition]
        verdict = queue.verdict(batch, row.error_code)
        if verdict is BatchVerdict.ACKNOWLEDGED:
            self._complete_batch(batch, row.base_offset, row.log_append_time_ms)
        elif row.error_code == table.MESSAGE_TOO_LARGE and batch.count > 1 and self.refused is None:
            queue.divide(batch, batch.halves())
            self._waiting[batch.partition] = None
        elif verdict is BatchVerdict.AGAIN:
            if table.error(row.error_code).retriable:
                self._core.metadata.forget(batch.partition.topic)
            self._retry(batch, _refusal(batch, row))
        else:
            self._reject_batch(batch, _refusal(batch, row))

    def _complete_batch(self, batch: ClosedBatch, base_offset: int, append_time: int) -> None:
        queue = self._queues[batch.partition]
        queue.remove_acknowledged(batch)
        self._failures.pop(batch.partition, None)
        self._not_before.pop(batch.partition, None)
        self.sensors.record_acknowledged(batch.partition.topic, batch.count, len(batch.payload), self._clock.now_ms())
        self._release(batch)
        batch.complete(None, base_offset, append_time)
        if queue.waiting:
            self._waiting[batch.partition] = None

    def _retry(self, batch: ClosedBatch, error: KafkaError) -> None:
        partition = batch.partition
        batch.retried_because = error
        if self.refused is not None:
            self._queues[partition].give_up(batch)
            self._release(batch)
            batch.complete(self.refused)
            return
        self.sensors.retries.record(batch.count, self._clock.now_ms())
        self._queues[partition].again(batch)
        self._waiting[partition] = None
        now = self._clock.now_ms()
        if self._not_before.get(partition, 0) > now:
            return  # several batches fail when a connection is lost: that is one failure
        failures = self._failures[partition] = self._failures.get(partition, 0) + 1
        self._not_before[partition] = now + self._core.metadata.backoff_ms(failures)
        self._alarm.set(self._not_before[partition])

    def _reject_batch(self, batch: ClosedBatch, error: KafkaError) -> None:
        """Fail a batch that will not be appended."""
        queue = self._queues[batch.partition]
        queue.give_up(batch)
        if queue.waiting:
            self._waiting[batch.partition] = None
        self._fail(batch, error)

    def _fail(self, batch: ClosedBatch, error: KafkaError) -> None:
        self.sensors.errors.record(batch.count, self._clock.now_ms())
        self._release(batch)
        for listener in self.on_failed:
            listener(error)
        batch.complete(error)

    def _release(self, batch: ClosedBatch) -> None:
        self._accumulator.release(batch.size, batch.count)
        self.room.happen()

    def _expire(self, now: int) -> None:
        """Fail batches that were not delivered within delivery.timeout.ms."""
        limit = self._config["delivery.timeout.ms"]
        for partition in list(self._waiting):
            queue = self._queues[partition]
            while queue.waiting and queue.waiting[0].deadline <= now:
                batch = queue.waiting.popleft()
                assert isinstance(batch, ClosedBatch)
                queue.give_up(batch)
                late = RequestTimedOut(f"produce to {partition}: not acknowledged within {limit} ms{self._why(batch)}")
                late.__cause__ = batch.retried_because
                self._fail(batch, late)
            if not queue.waiting:
                self._waiting.pop(partition, None)

    def _why(self, batch: ClosedBatch) -> str:
        """Return the errors that kept a batch from being acknowledged, as the end of a sentence."""
        reasons = list(self._core.network.failures.values())
        if batch.retried_because is not None and str(batch.retried_because) not in reasons:
            reasons.append(str(batch.retried_because).removeprefix(f"produce to {batch.partition}: "))
        return f": {'; '.join(reasons)}" if reasons else ""

    def fail_waiting(self, error: KafkaError) -> None:
        """Fail all batches that are not in flight, for an aborted transaction or a closed producer."""
        for partition in list(self._waiting):
            queue = self._queues[partition]
            while queue.waiting:
                batch = queue.waiting.popleft()
                assert isinstance(batch, ClosedBatch)
                queue.give_up(batch)
                self._release(batch)
                batch.complete(error)
            del self._waiting[partition]
        if self.empty:
            self.drained.happen()

    def refuse(self, error: KafkaError) -> None:
        """Fail all batches that are not in flight, and those returned for a retry, until `refused` is None again."""
        self.refused = error
        self._accumulator.close_late(list(self._accumulator.topics.values()), _ALL, {})
        self._queue_closed()
        self.fail_waiting(error)

    # -- changes of the partitions --

    def _resize(self, info: TopicInfo) -> None:
        """Adapt to the number of partitions of a topic: it may have grown, or shrunk (deleted and recreated)."""
        buffers = self._accumulator.topics.get(info.name)
        if buffers is not None and buffers.partitions != len(info.leaders):
            self._accumulator.resize(buffers, len(info.leaders))
            self._queue_closed()

    def _spread(self, partition: TopicPartition, partitions: int) -> None:
        """Move the records of a partition that no longer exists to others; batches with a partition set by the caller fail."""
        queue = self._queues[partition]
        if queue.in_flight:
            return
        buffers = self._accumulator.topics[partition.topic]
        while queue.waiting:
            batch = queue.waiting.popleft()
            assert isinstance(batch, ClosedBatch)
            if batch.is_named:
                gone = f"topic {partition.topic} was created again and has no partition {partition.partition}"
                self._fail(batch, UnknownTopic(f"produce to {partition}: {gone}: it has {partitions}"))
                continue
            errors: dict[int, KafkaError] = {}
            for part in batch.spread(lambda key: self._choose(buffers, key, partitions, errors)):  # noqa: B023
                error = errors.get(part.partition.partition)
                if error is None:
                    self._queue(part)
                else:
                    self._fail(part, error)
        del self._queues[partition]
        self._waiting.pop(partition, None)
        self._pump_again = True

    def _choose(self, buffers: TopicBuffers, key: bytes | None, partitions: int, errors: dict[int, KafkaError]) -> int:
        """Choose a new partition for a record. If the partitioner fails or chooses a missing partition, add an error to
        `errors` and return its negative key: queued for a missing partition, the record would return here at once."""
        try:
            chosen = self._accumulator.partition_for(buffers, key)
        except Exception as reason:  # noqa: BLE001  (a partitioner of the application)
            error = KafkaError(f"produce to {buffers.name}: the partitioner failed: {reason!r}")
        else:
            if 0 <= chosen < partitions:
                return chosen
            error = UnknownTopic(
                f"produce to {buffers.name}: the partitioner chose partition {chosen}; the topic was created again and has "
                f"{partitions}"
            )
        number = -1 - len(errors)
        errors[number] = error
        return number

    # -- producer id and epoch --

    @property
    def _identity(self) -> Identity:
        return self.producer_id, self.epoch

    @property
    def is_broken(self) -> bool:
        """Return True if any partition has a hole or an unresolved batch in its sequences."""
        return any(queue.is_broken for queue in self._queues.values())

    def forget_batches(self) -> None:
        """Restart the sequences of all partitions at 0, between transactions."""
        for queue in self._queues.values():
            queue.renumber(self._identity)

    def new_identity(self, producer_id: int, epoch: int) -> None:
        """Set producer id and epoch; each partition adopts them when nothing of it is in flight."""
        self.producer_id, self.epoch = producer_id, epoch

    def _prepare_identity(self, queue: PartitionQueue) -> bool:
        """Return True if a partition may send. Raises the epoch if the partition's batches must be renumbered."""
        # 1. Renumber only if the sequences have a hole and no batch of the partition is in flight: batches that are in
        #    flight keep their epoch and sequence, since renumbered ones could be appended twice.
        if not queue.wants_identity():
            return True
        # 2. The epoch is raised once for all partitions. One that another partition has raised already is only adopted (3.).
        if queue.identity == self._identity:
            if self.transactional_id is not None:
                return False  # only an abort is possible now, which brings a new epoch
            # Epochs are int16, and the coordinator uses the last one for fencing: request another producer id.
            if self.epoch >= _LAST_EPOCH:
                self.new_identity(-1, -1)
                self._run_once("producer id", self._init_producer_id())
            else:
                self.new_identity(self.producer_id, self.epoch + 1)
        # 3. Without a producer id batches cannot be numbered; `pump` runs again when there is one.
        if self.producer_id < 0:
            return False
        queue.renumber(self._identity)
        return True

    def _has_producer_id(self) -> bool:
        """Return True if there is a producer id; request one otherwise."""
        if self.producer_id >= 0:
            return True
        if self.transactional_id is None:
            self._run_once("producer id", self._init_producer_id())
        return False

    async def _init_producer_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)

        async def attempt() -> InitProducerIdResponse:
            answer = await self._core.metadata.ask(-1, request)
            if answer.error_code != table.NONE:
                topics = tuple(sorted({partition.topic for partition in self._waiting}))
                raise error_for(
                    answer.error_code, "a producer id", None, Permission("Write", "topic", topics or ("NAME",))
                )
            return answer

        try:
            answer = await self._core.metadata.retrying("a producer id", attempt, self._config["max.block.ms"])
        except UnsupportedVersion:
            logger.info("the brokers are too old for idempotent producers: going on without")
            self.idempotent = False
            for queue in self._queues.values():
                queue.forget_sequences()
        except KafkaError as error:
            if not error.retriable:
                self.fail_waiting(error)
        else:
            self.new_identity(answer.producer_id, answer.producer_epoch)

    # -- background tasks --

    def _run_once(self, what: str, coroutine: Coroutine[Deferred[Any], Any, None]) -> None:
        """Run a coroutine in the background, unless one of this name is in progress, and call `pump` afterwards."""
        if what in self._under_way:
            coroutine.close()
            return
        self._under_way.add(what)

        async def run() -> None:
            try:
                await coroutine
            finally:
                self._under_way.discard(what)
            self.pump()

        self._core.scheduler.background(run(), what)

    async def _look_up(self, topic: str) -> None:
        try:
            info = await self._core.metadata.topic(topic, create=True, timeout_ms=self._config["request.timeout.ms"])
        except UnknownTopic as unknown:
            self._fail_topic(topic, unknown)
        except KafkaError as error:
            if not error.retriable:
                self._fail_topic(topic, error)
        else:
            self._resize(info)

    def _fail_topic(self, topic: str, error: KafkaError) -> None:
        for partition in [partition for partition in self._waiting if partition.topic == topic]:
            queue = self._queues[partition]
            while queue.waiting:
                batch = queue.waiting.popleft()
                assert isinstance(batch, ClosedBatch)
                queue.give_up(batch)
                self._fail(batch, error)
            self._waiting.pop(partition, None)

    async def _connect(self, node: int) -> None:
        try:
            await self._core.network.ready(node, _PURPOSE)
        except KafkaError:
            self._core.metadata.forget()
        else:
            return
        await self._core.scheduler.sleep(self._core.metadata.backoff_ms(1))

    def _woken(self) -> None:
        if not self.closed:
            self.take_in()

    def close(self) -> None:
        """Stop sending."""
        self.closed = True
        self._alarm.cancel()


def _refusal(batch: ClosedBatch, row: PartitionProduceResponse) -> KafkaError:
    about = f"produce to {batch.partition}"
    error = error_for(row.error_code, about, row.error_message, Permission("Write", "topic", (batch.partition.topic,)))
    if isinstance(error, RecordTooLarge):
        return RecordTooLarge(
            f"{about}: a batch of {batch.count} records, {len(batch.payload)} bytes, is above the topic's "
            f"max.message.bytes or the broker's message.max.bytes; raise those or lower batch.size",
            row.error_code,
        )
    if row.record_errors and row.record_errors[0].batch_index_error_message:
        return type(error)(f"{error}: {row.record_errors[0].batch_index_error_message}", row.error_code)
    return error
