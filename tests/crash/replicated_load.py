"""Clients that work while replicas fail, and keep what was acknowledged to them.

    Numbered      an idempotent producer: librdkafka's
    OttlaNumbered the same with Ottla's own client
    Transactions  a transactional producer: each transaction writes its number to all partitions
    Group         the members of a consumer group, which commit what they have read
    Shares        a member of a share group that accepts what it has read

Each runs on a thread of its own until `end`. `check` raises AssertionError for what was lost, duplicated, reordered or torn.
"""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla import Delivered, ShareConsumer
from ottla import KafkaError as OttlaError
from ottla import Producer as OttlaProducer

PARTITIONS: Final = 6
COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"
_WITHIN_S: Final = 120
_SLOW_S: Final = 3.0
_READERS: Final = "readers"
_QUICK: Final = {
    "linger.ms": 1,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 100,
    "log_level": 0,
}
Row = tuple[int, bytes]
"""Offset and value of a record."""


def create(servers: str, *topics: str) -> None:
    """Create topics with three replicas, of which two must have what is acknowledged."""
    admin = AdminClient({"bootstrap.servers": servers})
    rows = [NewTopic(topic, PARTITIONS, 3, config={"min.insync.replicas": "2"}) for topic in topics]
    for created in admin.create_topics(rows).values():
        created.result(30)


def read(servers: str, topic: str, *, committed: bool = False) -> list[list[Row]]:
    """Return all records of a topic by partition, in the order in which they are read."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    rows: list[list[Row]] = [[] for _ in range(PARTITIONS)]
    at_end: set[int] = set()
    deadline = time.monotonic() + _WITHIN_S
    while len(at_end) < PARTITIONS:
        assert time.monotonic() < deadline, f"{topic} cannot be read to its end"
        for message in consumer.consume(1000, 0.2):
            index, offset, value, error = message.partition(), message.offset(), message.value(), message.error()
            assert index is not None
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                at_end.add(index)
                continue
            assert offset is not None
            assert value is not None
            rows[index].append((offset, value))
    consumer.close()
    return rows


class Worker(threading.Thread):
    """Thread that works until `end`; `failure` is what ended it early."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as failure:  # noqa: BLE001  (`end` raises it)
            self.failure = failure

    def work(self) -> None:
        """Work until `over` is set."""
        raise NotImplementedError

    def end(self) -> None:
        """Finish the work that was begun."""
        self.over.set()
        self.join(2 * _WITHIN_S)
        assert not self.is_alive(), f"{type(self).__name__} does not end"
        if self.failure is not None:
            raise self.failure


class Numbered(Worker):
    """Idempotent producer of 0, 1, 2, ... to the partitions in turn."""

    def __init__(self, servers: str, topic: str, rate: float) -> None:
        super().__init__()
        self._servers = servers
        self._topic = topic
        self._pause_s = 10 / rate
        self._failures: list[object] = []
        self.sent = 0
        self.acknowledged: list[dict[int, bytes]] = [{} for _ in range(PARTITIONS)]
        self._longest_s = 0.0
        self._last = time.monotonic()
        self.start()

    @property
    def count(self) -> int:
        """Number of acknowledged records."""
        return sum(map(len, self.acknowledged))

    @property
    def longest_s(self) -> float:
        """Longest time between two acknowledgements."""
        return self._longest_s

    def _delivered(self, value: bytes, error: object, message: Any) -> None:
        if error is not None:
            self._failures.append(error)
            return
        now = time.monotonic()
        self._longest_s, self._last = max(self._longest_s, now - self._last), now
        index, offset = (
            (message.partition, message.offset)
            if isinstance(message, Delivered)
            else (message.partition(), message.offset())
        )
        self.acknowledged[index][offset] = value

    def _producer(self) -> Producer | OttlaProducer:
        # One request in flight: after a refused request the next one is out of order. librdkafka then raises the producer
        # epoch for all partitions, and batches of other partitions which were appended but not acknowledged are written
        # again (librdkafka issue 4953, also on Apache Kafka; its transactional producer aborts instead).
        one = {"max.in.flight.requests.per.connection": 1}
        durable = {"enable.idempotence": True, "message.timeout.ms": 600_000}
        return Producer({"bootstrap.servers": self._servers, **durable, **one, **_QUICK})

    def work(self) -> None:
        producer = self._producer()
        try:
            self._write(producer)
        finally:
            if isinstance(producer, OttlaProducer):
                producer.close(0)

    def _write(self, producer: Producer | OttlaProducer) -> None:
        while not self.over.is_set():
            for _ in range(10):
                value = b"%d" % self.sent
                delivered = partial(self._delivered, value)
                producer.produce(self._topic, value, partition=self.sent % PARTITIONS, on_delivery=delivered)
                self.sent += 1
            producer.poll(0)
            assert self._failures == []
            self.over.wait(self._pause_s)
        assert producer.flush(_WITHIN_S) == 0, "records without an answer"
        assert self._failures == []

    def check(self, rows: list[list[Row]]) -> None:
        """Compare the records of the topic with those that were acknowledged."""
        assert self.count == self.sent
        for index, records in enumerate(rows):
            by_offset = dict(records)
            lost = {offset for offset, value in self.acknowledged[index].items() if by_offset.get(offset) != value}
            assert not lost, f"{self._topic}-{index}: acknowledged records are lost at {sorted(lost)[:10]}"
            values = [int(value) for _, value in records]
            expected = list(range(index, self.sent, PARTITIONS))
            pairs = zip(records, expected, strict=False)
            wrong = [(offset, value) for (offset, value), number in pairs if int(value) != number]
            assert values == expected, f"{self._topic}-{index}: duplicates or another order, from {wrong[:3]} on"


class OttlaNumbered(Numbered):
    """The same with Ottla's client, and five requests in flight."""

    def _producer(self) -> OttlaProducer:
        return OttlaProducer(
            bootstrap_servers=self._servers,
            enable_idempotence=True,
            max_in_flight_requests_per_connection=5,
            delivery_timeout_ms=600_000,
            linger_ms=1,
        )


class Transactions(Worker):
    """Producer of transactions, some of which are aborted."""

    def __init__(self, servers: str, topic: str, seed: int) -> None:
        super().__init__()
        self._servers = servers
        self._topic = topic
        self._dice = random.Random(seed)
        self._producer: Producer | None = None
        self._has_purged = False
        self.outcomes: list[str] = []
        self.start()

    def _ready(self) -> Producer:
        deadline = time.monotonic() + _WITHIN_S
        while self._producer is None:
            made = Producer(
                {
                    "bootstrap.servers": self._servers,
                    "transactional.id": "ledger",
                    "transaction.timeout.ms": 30_000,
                    **_QUICK,
                }
            )
            try:
                made.init_transactions(30)
            except KafkaException:
                assert time.monotonic() < deadline, "no transactional producer can be made"
            else:
                self._producer = made
        return self._producer

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self._has_purged |= error is not None

    def work(self) -> None:
        while not self.over.is_set():
            producer = self._ready()
            self.outcomes.append(UNKNOWN)
            value = b"%d" % (len(self.outcomes) - 1)
            try:
                producer.begin_transaction()
                for index in range(PARTITIONS):
                    producer.produce(self._topic, value, partition=index, on_delivery=self._delivered)
                if self._dice.random() < 0.2:
                    producer.flush(5)
                    self._repeat(producer.abort_transaction, ABORTED)
                else:
                    self._commit(producer)
            except KafkaException:
                self._producer = None  # unknown outcome: `init_transactions` of the next one decides it
            with contextlib.suppress(KafkaException):  # it raises a fatal error again
                producer.poll(0)
            if self._has_purged:
                # librdkafka gives the sequences of records that an abort has purged to the next transaction ("ADVBASE advancing
                # epoch base msgid" in its log), although brokers may have these records: they take the next ones for
                # repeated, and those are lost, on Apache Kafka 4.4 as well. The next producer has another epoch.
                self._producer, self._has_purged = None, False
            self.over.wait(0.01)
        self._ready()

    def _commit(self, producer: Producer) -> None:
        try:
            self._repeat(producer.commit_transaction, COMMITTED)
        except KafkaException as cause:
            if not cause.args[0].txn_requires_abort():
                raise
            self._repeat(producer.abort_transaction, ABORTED)

    def _repeat(self, action: Callable[[float], None], outcome: str) -> None:
        deadline = time.monotonic() + _WITHIN_S
        while True:
            try:
                action(10)
            except KafkaException as cause:
                if not cause.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                self.outcomes[-1] = outcome
                return

    def check(self, rows: list[list[Row]]) -> None:
        """Compare the committed records of the topic with the outcomes of the transactions."""
        check_transactions(self._topic, rows, self.outcomes)


def check_transactions(topic: str, rows: list[list[Row]], outcomes: Sequence[str]) -> None:
    """Compare committed records with the outcomes of transactions, of which each wrote its number to all partitions."""
    values = [[int(value) for _, value in records] for records in rows]
    assert all(records == values[0] for records in values), f"torn transactions: {_torn(values)}"
    assert values[0] == sorted(set(values[0])), f"{topic}: duplicates or another order"
    present = set(values[0])
    for number, outcome in enumerate(outcomes):
        if outcome != UNKNOWN:
            assert (number in present) == (outcome == COMMITTED), f"transaction {number} was {outcome}"


def _torn(values: list[list[int]]) -> list[int]:
    everywhere = set(values[0]).intersection(*values)
    return sorted({value for numbers in values for value in numbers} - everywhere)[:10]


class Member(Worker):
    """Member of a consumer group.

    seen       by partition: offsets and values that members have read
    committed  by partition: the last offset that this member has committed
    assigned   partitions that this member owns
    """

    def __init__(self, servers: str, topic: str, protocol: str, seen: list[dict[int, bytes]]) -> None:
        super().__init__()
        self._servers = servers
        self._topic = topic
        self._protocol = protocol
        self.seen = seen
        self.committed: dict[int, int] = {}
        self.commits = 0
        self.assigned: frozenset[int] = frozenset()
        self.start()

    def work(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": _READERS,
                "group.protocol": self._protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        consumer.subscribe([self._topic])
        while not self.over.is_set():
            for message in consumer.consume(200, 0.2):
                index, offset, value = message.partition(), message.offset(), message.value()
                if message.error() is None and index is not None and offset is not None and value is not None:
                    before = self.seen[index].setdefault(offset, value)
                    assert before == value, f"{self._topic}-{index}: another record at {offset}"
            self.assigned = frozenset(place.partition for place in consumer.assignment())
            self._commit(consumer)
        consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        try:
            done = consumer.commit(asynchronous=False) or []
        except KafkaException:
            return  # nothing to commit, or the coordinator is away
        for row in done:
            if row.error is None and row.offset >= 0:  # below zero: nothing to commit since an assignment
                before = self.committed.get(row.partition, 0)
                assert row.offset >= before, f"{self._topic}-{row.partition}: {row.offset} is committed after {before}"
                self.committed[row.partition] = row.offset
                self.commits += 1


class Group:
    """Consumer group of two members, of the classic or the consumer protocol."""

    def __init__(self, servers: str, topic: str, protocol: str) -> None:
        self._servers = servers
        self._topic = topic
        self.seen: list[dict[int, bytes]] = [{} for _ in range(PARTITIONS)]
        self.members = [Member(servers, topic, protocol, self.seen) for _ in range(2)]

    @property
    def commits(self) -> int:
        """Number of offsets that were committed."""
        return sum(member.commits for member in self.members)

    def has_one_owner_each(self) -> bool:
        """Return True if the members own all partitions, and no two of them the same one."""
        for member in self.members:
            assert member.is_alive(), member.failure
        return sorted(index for member in self.members for index in member.assigned) == list(range(PARTITIONS))

    def end(self) -> None:
        """Let the members leave."""
        for member in self.members:
            member.end()

    def check(self, rows: list[list[Row]]) -> None:
        """Compare what was read with the topic, and the committed offsets with those that were acknowledged."""
        for index, records in enumerate(rows):
            by_offset = dict(records)
            gone = {offset for offset, value in self.seen[index].items() if by_offset.get(offset) != value}
            assert not gone, f"{self._topic}-{index}: a consumer has read what is lost at {sorted(gone)[:10]}"
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": _READERS})
        places = [TopicPartition(self._topic, index) for index in range(PARTITIONS)]
        offsets = {row.partition: row.offset for row in consumer.committed(places, 30)}
        consumer.close()
        committed = [pair for member in self.members for pair in member.committed.items()]
        lost = {index: (offset, offsets[index]) for index, offset in committed if offsets[index] < offset}
        assert not lost, f"committed offsets are lost: {lost}"


class Shares(Worker):
    """Member of a share group; its group begins at the start of the topic."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__()
        self._servers = servers
        self._topic = topic
        self.delivered: set[tuple[int, int]] = set()
        self.accepted: set[tuple[int, int]] = set()
        self.again: list[tuple[int, int]] = []
        """Records that were delivered after they had been accepted."""
        self.is_idle = threading.Event()
        self.events: list[str] = []
        """Calls that took long, with their times, and errors."""
        self._begun = self._called = time.monotonic()
        self.start()

    def _note(self, event: str) -> None:
        now = time.monotonic()
        if now - self._called > _SLOW_S or "error" in event:
            self.events.append(f"{self._called - self._begun:.1f} to {now - self._begun:.1f} s: {event}")
        self._called = now

    def work(self) -> None:
        while not self.over.is_set():
            with ShareConsumer(bootstrap_servers=self._servers, group_id="workers") as consumer:
                consumer.subscribe([self._topic])
                try:
                    while not self.over.is_set():
                        self._take(consumer)
                except OttlaError as error:
                    self._note(f"error: {error}")  # such as a timeout: a new member continues
            self._note("close")

    def _take(self, consumer: ShareConsumer) -> None:
        self._called = time.monotonic()
        places = [(record.partition, record.offset) for record in consumer.poll(0.5)]
        self._note("poll")
        self.is_idle.set() if not places else self.is_idle.clear()
        self.again += [place for place in places if place in self.accepted]
        self.delivered.update(places)
        results = consumer.commit(30)
        self._note("commit")
        good = {place.partition for place, error in results.items() if error is None}
        self.accepted.update(place for place in places if place[0] in good)

    def check(self, rows: list[list[Row]]) -> None:
        """Compare what was delivered with the topic."""
        assert not self.again, f"delivered again after they were accepted: {self.again[:10]}"
        expected = {(index, offset) for index, records in enumerate(rows) for offset, _ in records}
        assert self.delivered == expected, f"not delivered: {sorted(expected - self.delivered)[:10]}"
