"""Clients of all kinds that work while brokers are restarted one after the other; an error that reaches them ends them.

Unlike those of `replicated_load`, which go on after the errors of a killed broker, these accept none: not of a producer, not of
a transaction, not of a poll or commit. Each runs on a thread of its own until `end`.
"""

import contextlib
import time
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from ottla import Consumer as OttlaConsumer
from ottla import Producer as OttlaProducer
from ottla import ShareConsumer

from .brokers import wait_until
from .replicated_load import PARTITIONS, Numbered, OttlaNumbered, Row, Worker, read

_WITHIN_S: Final = 60
_READ_WITHIN_S: Final = 30
_PAUSE_S: Final = 0.02


class LibrdkafkaNumbered(Numbered):
    """librdkafka's idempotent producer, with its own retry and reconnection settings."""

    def _producer(self) -> Producer:
        # One request in flight, for the reason named in `Numbered`.
        one = {"max.in.flight.requests.per.connection": 1}
        return Producer({"bootstrap.servers": self._servers, "enable.idempotence": True, "linger.ms": 1, **one})


class OttlaDefaultNumbered(OttlaNumbered):
    """Ottla's idempotent producer with default settings."""

    def _producer(self) -> OttlaProducer:
        return OttlaProducer(bootstrap_servers=self._servers, linger_ms=1)


class Ledger(Worker):
    """Producer of transactions, each of which writes its number to all partitions."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__()
        self._servers = servers
        self._topic = topic
        self.count = 0
        self.start()

    def check(self, rows: list[list[Row]]) -> None:
        """Compare the committed records of the topic with the transactions, each of which was committed."""
        for index, records in enumerate(rows):
            values = [int(value) for _, value in records]
            assert values == list(range(self.count)), f"{self._topic}-{index} differs from {self.count} transactions"


class OttlaLedger(Ledger):
    """Transactions of Ottla's producer."""

    def work(self) -> None:
        with OttlaProducer(bootstrap_servers=self._servers, transactional_id="ottla", linger_ms=1) as producer:
            producer.init_transactions(_WITHIN_S)
            while not self.over.is_set():
                producer.begin_transaction()
                for index in range(PARTITIONS):
                    producer.produce(self._topic, b"%d" % self.count, partition=index)
                producer.commit_transaction(_WITHIN_S)
                self.count += 1
                self.over.wait(_PAUSE_S)


class LibrdkafkaLedger(Ledger):
    """Transactions of librdkafka's producer."""

    def work(self) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "transactional.id": "librdkafka", "linger.ms": 1})
        producer.init_transactions(_WITHIN_S)
        while not self.over.is_set():
            producer.begin_transaction()
            for index in range(PARTITIONS):
                producer.produce(self._topic, b"%d" % self.count, partition=index)
            producer.commit_transaction(_WITHIN_S)
            self.count += 1
            self.over.wait(_PAUSE_S)


class Reader(Worker):
    """Member of a group of its own that reads a topic from the beginning, and commits what it has read.

    read  values by partition, in the order in which they were read
    """

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__()
        self._servers = servers
        self._topic = topic
        self.read: list[list[Row]] = [[] for _ in range(PARTITIONS)]
        self.commits = 0
        self.start()

    def has_read(self, rows: list[list[Row]]) -> bool:
        """Return True when it has read as much as there is."""
        assert self.is_alive(), self.failure
        return all(len(own) >= len(records) for own, records in zip(self.read, rows, strict=True))

    def missing(self, rows: list[list[Row]]) -> list[int]:
        """Return how many records it has not read of each partition."""
        return [len(records) - len(own) for own, records in zip(self.read, rows, strict=True)]

    def check(self, rows: list[list[Row]]) -> None:
        """Compare what was read with the topic: each record once, and in order."""
        for index, (own, records) in enumerate(zip(self.read, rows, strict=True)):
            assert own == records, f"{self._topic}-{index}: {type(self).__name__} has read other records"
        assert self.commits > 0


class LibrdkafkaReader(Reader):
    """librdkafka's consumer, of the classic protocol."""

    def work(self) -> None:
        configs = {"group.id": "librdkafka", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self._servers, **configs})
        consumer.subscribe([self._topic])
        while not self.over.is_set():
            for message in consumer.consume(500, 0.1):
                index, offset, value, error = message.partition(), message.offset(), message.value(), message.error()
                assert error is None, error
                assert index is not None
                assert offset is not None
                assert value is not None
                self.read[index].append((offset, value))
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as cause:
                if cause.args[0].code() != KafkaError._NO_OFFSET:  # nothing was read yet
                    raise
            else:
                self.commits += 1
        consumer.close()


class OttlaReader(Reader):
    """Ottla's consumer, of the consumer protocol (KIP-848)."""

    def work(self) -> None:
        with OttlaConsumer(
            bootstrap_servers=self._servers,
            group_id="ottla",
            group_protocol="consumer",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            consumer.subscribe([self._topic])
            while not self.over.is_set():
                records = consumer.consume(500, 0.1)
                for record in records:
                    assert record.value is not None
                    self.read[record.partition].append((record.offset, record.value))
                if records:
                    consumer.commit()
                    self.commits += 1


class ShareReader(Worker):
    """Member of a share group, which accepts what it has read.

    accepted   places whose acceptance was confirmed
    delivered  places that were delivered
    """

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__()
        self._servers = servers
        self._topic = topic
        self.accepted: set[tuple[int, int]] = set()
        self.delivered: set[tuple[int, int]] = set()
        self.commits = 0
        self.again: list[tuple[int, int]] = []
        """Records that were delivered after they had been accepted."""
        self.start()

    def work(self) -> None:
        with ShareConsumer(bootstrap_servers=self._servers, group_id="workers") as consumer:
            consumer.subscribe([self._topic])
            while not self.over.is_set():
                places = [(record.partition, record.offset) for record in consumer.poll(0.1)]
                self.again += [place for place in places if place in self.accepted]
                self.delivered.update(places)
                # A partition whose leader has changed since has an error: its records are delivered again.
                good = {place.partition for place, error in consumer.commit(30).items() if error is None}
                self.commits += bool(good)
                self.accepted.update(place for place in places if place[0] in good)

    def has_read(self, rows: list[list[Row]]) -> bool:
        """Return True when it has got all there is."""
        assert self.is_alive(), self.failure
        return not self.missing(rows)

    def missing(self, rows: list[list[Row]]) -> set[tuple[int, int]]:
        """Return the records that were not delivered. An acknowledgement without an answer may have been written."""
        return {(index, offset) for index, records in enumerate(rows) for offset, _ in records} - self.delivered

    def check(self, rows: list[list[Row]]) -> None:
        """Compare what was delivered with the topic."""
        assert not self.again, f"delivered again after they were accepted: {self.again[:10]}"
        assert not self.missing(rows)
        assert len(self.accepted) > 0.9 * len(self.delivered)


class Load:
    """Clients of a run.

    producers, ledgers, readers  by topic
    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self.producers: dict[str, Numbered] = {}
        self.ledgers: dict[str, Ledger] = {}
        self.readers: dict[str, Reader | ShareReader] = {}

    def wait_until_working(self) -> None:
        """Wait until every client has done something."""
        wait_until(lambda: self.failures() or all(ledger.count for ledger in self.ledgers.values()), _WITHIN_S)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: self.failures() or all(reader.commits for reader in self.readers.values()), _WITHIN_S)
        idle = [topic for topic, reader in self.readers.items() if not reader.commits]
        sent = {topic: (producer.sent, producer.count) for topic, producer in self.producers.items()}
        assert self.failures() or not idle, f"readers of {idle} have committed nothing; sent and acknowledged: {sent}"

    def failures(self) -> list[BaseException | None]:
        """Return the errors that clients have seen."""
        workers = [*self.producers.values(), *self.ledgers.values(), *self.readers.values()]
        return [worker.failure for worker in workers if not worker.is_alive()]

    def check(self) -> None:
        """End all clients, and compare what they did with the topics."""
        for worker in (*self.producers.values(), *self.ledgers.values()):
            worker.end()
        for topic, producer in self.producers.items():
            rows, reader = read(self._servers, topic), self.readers[topic]
            producer.check(rows)
            deadline = time.monotonic() + _READ_WITHIN_S
            while not reader.has_read(rows):
                assert time.monotonic() < deadline, f"{type(reader).__name__} has not read all: {reader.missing(rows)}"
                time.sleep(0.02)
            reader.end()
            reader.check(rows)
        for topic, ledger in self.ledgers.items():
            ledger.check(read(self._servers, topic, committed=True))
