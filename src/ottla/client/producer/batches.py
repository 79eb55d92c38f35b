"""An idempotent producer of whole batches: what is acknowledged is in the log once, and in the order it was given.

Strategy: `sequences.py` decides per partition, this module moves bytes. Batches arrive without a producer id; id, epoch and
sequence are written into the header when a batch is first sent, and stay when it is sent again. One request carries at most
one batch of each partition that its broker leads; up to max.in.flight.requests.per.connection requests are open per broker.
The first batch that is refused ends the producer: what came after it cannot be in order any more.
"""

from collections import deque

from ottla.client.cluster import Cluster
from ottla.client.errors import KafkaError, RecordTooLarge, RequestTimedOut, SequenceLost, error_for
from ottla.client.pool import Connection
from ottla.client.producer.sequences import Batch, PartitionQueue, Verdict
from ottla.client.topics import TopicPartition
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
from ottla.records.batch import HEADER_SIZE, read_header, seal_header

_NEWEST_WITHOUT_IDS = 12


class _Link:
    """A connection to one leader and what is open on it, oldest first: batches, and the ids of their topics."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.open: deque[tuple[list[Batch], dict[str, bytes | None]]] = deque()


class BatchProducer:
    """Writes record batches to any partition of a cluster. Not for two threads at once.

    records, bytes  what has been acknowledged so far
    """

    def __init__(self, cluster: Cluster) -> None:
        self.records = 0
        self.bytes = 0
        self._cluster = cluster
        self._config = cluster.config
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._links: dict[int, _Link] = {}
        self._buffered = 0
        self._failures = 0
        self._failed: KafkaError | None = None
        self._producer_id, self._epoch = -1, -1
        self._idempotent = bool(self._config["enable.idempotence"])

    def send(self, partition: TopicPartition, batch: bytes) -> None:
        """Take one whole v2 batch (base offset 0, no producer id) on its way; waits while buffer.memory is full.

        Raises what `flush` raises, for this batch or an earlier one.
        """
        if self._failed is not None:
            raise self._failed
        header = read_header(batch, 0)
        queue = self._queues.get(partition)
        if queue is None:
            limit = self._config["max.in.flight.requests.per.connection"]
            queue = self._queues[partition] = PartitionQueue(idempotent=self._idempotent, limit=min(limit, 5))
        deadline = self._cluster.clock.now_ms() + self._config["delivery.timeout.ms"]
        queue.add(Batch(partition, batch, header.count, deadline))
        self._buffered += len(batch)
        self._run(self._config["buffer.memory"])

    def flush(self) -> None:
        """Wait until everything is acknowledged.

        Raises RequestTimedOut after delivery.timeout.ms, RecordTooLarge, UnknownTopic, NotAuthorized, FencedError,
        SequenceLost, BrokersUnreachable: the producer cannot be used any more then.
        """
        if self._failed is not None:
            raise self._failed
        self._run(-1)

    def _run(self, allowed: int) -> None:
        """Send what can be sent; wait for answers until at most `allowed` bytes are left."""
        try:
            while True:
                sent = self._send_ready()
                if self._buffered <= allowed or (allowed < 0 and not any(self._queues.values())):
                    return
                if any(link.open for link in self._links.values()):
                    self._receive_one()
                elif not sent:
                    self._wait_a_little()
        except KafkaError as error:
            self._failed = error
            self.close()
            raise

    def _wait_a_little(self) -> None:
        self._give_up_the_late()
        self._cluster.pause(self._cluster.backoff_ms(max(self._failures, 1)))

    def _give_up_the_late(self) -> None:
        now = self._cluster.clock.now_ms()
        for partition, queue in self._queues.items():
            if queue.waiting and queue.waiting[0].deadline <= now:
                limit = self._config["delivery.timeout.ms"]
                raise RequestTimedOut(
                    f"produce to {partition}: not acknowledged within {limit} ms (delivery.timeout.ms)"
                )

    # -- sending --

    def _send_ready(self) -> bool:
        """Fill the connections as far as they may be filled; whether anything was sent."""
        if self._idempotent and self._producer_id < 0:
            self._init_producer_id()
        sent = False
        while True:
            requests = self._requests()
            if not requests:
                return sent
            for node, partitions in requests.items():
                sent = self._send(node, partitions) or sent

    def _requests(self) -> dict[int, list[TopicPartition]]:
        """For every leader with room, the partitions whose next batch goes into one request."""
        limit = self._config["max.in.flight.requests.per.connection"]
        room = self._config["max.request.size"]
        chosen: dict[int, list[TopicPartition]] = {}
        sizes: dict[int, int] = {}
        for partition, queue in self._queues.items():
            batch = queue.next()
            if batch is None:
                continue
            node = self._leader(partition)
            link = self._links.get(node)
            if node < 0 or (link is not None and len(link.open) >= limit):
                continue
            if node in chosen and sizes[node] + len(batch.data) > room:
                continue
            chosen.setdefault(node, []).append(partition)
            sizes[node] = sizes.get(node, 0) + len(batch.data)
        return chosen

    def _leader(self, partition: TopicPartition) -> int:
        """The node that leads, -1 while that cannot be said."""
        cluster = self._cluster
        try:
            cluster.topic(partition.topic, create=self._config["allow.auto.create.topics"])
            return cluster.leader(partition)
        except KafkaError as error:
            if not error.retriable:
                raise
            self._failures += 1
            self._give_up_the_late()
            return -1

    def _send(self, node: int, partitions: list[TopicPartition]) -> bool:
        cluster = self._cluster
        try:
            link = self._links.get(node)
            if link is None:
                link = self._links[node] = _Link(cluster.pool.broker(node, "produce"))
            topics: dict[str, TopicProduceData] = {}
            ids = {part.topic: cluster.topic_id(part.topic) for part in partitions}
            newest = 32767 if all(ids.values()) else _NEWEST_WITHOUT_IDS
            version = link.connection.version(ProduceRequest, newest)
        except KafkaError as error:
            if not error.retriable:
                raise
            self._lost(node)
            return False
        batches = [self._stamped(self._queues[part].take()) for part in partitions]
        for batch in batches:
            name = batch.partition.topic
            topic = topics.setdefault(name, TopicProduceData(name=name, topic_id=ids[name] or ZERO_UUID))
            topic.partition_data.append(PartitionProduceData(index=batch.partition.partition, records=batch.data))
        acks = self._config["acks"]
        request = ProduceRequest(
            acks=acks, timeout_ms=self._config["request.timeout.ms"], topic_data=list(topics.values())
        )
        link.open.append((batches, ids))
        try:
            link.connection.send(request, version, expect_answer=acks != 0)
        except KafkaError as error:
            if not error.retriable:
                raise
            self._lost(node)
            return False
        if acks == 0:
            for batch in link.open.pop()[0]:
                self._acknowledged(batch)
        return True

    def _stamped(self, batch: Batch) -> Batch:
        """Producer id, epoch and sequence go into the header the first time; a second attempt carries the same."""
        header = read_header(batch.data, 0)
        if self._idempotent and header.producer_id != self._producer_id:
            header.producer_id = self._producer_id
            header.producer_epoch = self._epoch
            header.base_sequence = batch.sequence
            payload = memoryview(batch.data)[HEADER_SIZE:]
            batch.data = b"".join((seal_header(header, payload), payload))
        return batch

    def _init_producer_id(self) -> None:
        cluster = self._cluster

        def attempt() -> InitProducerIdResponse:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
            answer: InitProducerIdResponse = cluster.ask(cluster.pool.any_broker(), request)
            if answer.error_code != table.NONE:
                raise error_for(answer.error_code, "a producer id")
            return answer

        answer = cluster.retrying("a producer id", attempt, self._config["max.block.ms"])
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    # -- answers --

    def _receive_one(self) -> None:
        """Take in one answer of whichever broker has one."""
        nodes = [node for node, link in self._links.items() if link.open]
        while True:
            for node in nodes:
                link = self._links[node]
                if len(nodes) > 1 and not link.connection.readable(5):
                    continue
                try:
                    answer = link.connection.receive(self._cluster.deadline())
                except KafkaError as error:
                    if not error.retriable:
                        raise
                    self._lost(node)
                else:
                    self._answered(*link.open.popleft(), answer)
                return

    def _answered(self, batches: list[Batch], ids: dict[str, bytes | None], answer: ProduceResponse) -> None:
        rows: dict[tuple[str | bytes, int], PartitionProduceResponse] = {}
        for topic in answer.responses:
            for row in topic.partition_responses:
                rows[topic.name or topic.topic_id, row.index] = row
        for batch in batches:
            name, number = batch.partition
            found = rows.get((name, number)) or rows.get((ids[name] or name, number))
            if found is None:
                found = PartitionProduceResponse(index=number, error_code=table.NETWORK_EXCEPTION)
            self._judge(batch, found)

    def _judge(self, batch: Batch, row: PartitionProduceResponse) -> None:
        queue = self._queues[batch.partition]
        verdict = queue.verdict(batch, row.error_code)
        if verdict is Verdict.ACKNOWLEDGED:
            self._acknowledged(batch)
        elif verdict is Verdict.AGAIN:
            self._failures += 1
            self._cluster.forget(batch.partition.topic)
            queue.again(batch)
            self._give_up_the_late()
            if not queue.in_flight:
                self._cluster.pause(self._cluster.backoff_ms(self._failures))
        else:
            raise self._refusal(batch, row)

    def _acknowledged(self, batch: Batch) -> None:
        self._queues[batch.partition].done(batch)
        self._failures = 0
        self._buffered -= len(batch.data)
        self.records += batch.count
        self.bytes += len(batch.data)

    def _refusal(self, batch: Batch, row: PartitionProduceResponse) -> KafkaError:
        about = f"produce to {batch.partition}"
        error = error_for(row.error_code, about, row.error_message)
        if isinstance(error, RecordTooLarge):
            return RecordTooLarge(
                f"{about}: a batch of {batch.count} records, {len(batch.data)} bytes, is above the topic's "
                f"max.message.bytes or the broker's message.max.bytes; raise those or lower batch.size",
                row.error_code,
            )
        if isinstance(error, SequenceLost):
            return SequenceLost(f"{about}: {error.name}: batches it had acknowledged are gone", row.error_code)
        if row.record_errors and row.record_errors[0].batch_index_error_message:
            return type(error)(f"{error}: {row.record_errors[0].batch_index_error_message}", row.error_code)
        return error

    def _lost(self, node: int) -> None:
        """The connection to a node is gone: what was open on it goes out again, as nobody knows what was appended."""
        link = self._links.pop(node, None)
        self._failures += 1
        if link is not None:
            link.connection.close()
            for batch in [batch for request, _ in link.open for batch in request]:
                self._queues[batch.partition].again(batch)
        self._cluster.forget()
        self._give_up_the_late()
        self._cluster.pause(self._cluster.backoff_ms(self._failures))

    def close(self) -> None:
        """Give up what is not acknowledged; `flush` first."""
        for link in self._links.values():
            if link.open:
                link.connection.close()
        self._links.clear()
        self._queues.clear()
        self._buffered = 0
