"""Clients of the queue: producers of numbered values, and members of a share group that acknowledge each record."""

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import AcknowledgeType as LibrdkafkaKind
from confluent_kafka import KafkaException, Producer
from confluent_kafka import ShareConsumer as LibrdkafkaShareConsumer

from ottla import AcknowledgeType, Delivered, ShareConsumer
from ottla import KafkaError as OttlaError
from ottla import Producer as OttlaProducer
from tests.crash.replicated_load import Worker

from .deliveries import ACCEPT, ACKNOWLEDGE, LEAVE, POLL, PRODUCE, REJECT, RELEASE
from .operations import FAIL, OK, UNKNOWN, History

TOPIC: Final = "queue"
GROUP: Final = "workers"
PARTITIONS: Final = 4
LIMIT: Final = 10
"""Deliveries of a record."""
_POISON: Final = 200
"""Every value that this number divides is always released, until it is archived."""
_WITHIN_S: Final = 120
_ERRORS: Final = (KafkaException, OttlaError)
Row = tuple[int, int, int, int]
"""Partition, offset, value and delivery count of a record."""


def durable_producer(servers: str, *, is_ottla: bool) -> Producer | OttlaProducer:
    """Return an idempotent producer that repeats requests for ten minutes."""
    if is_ottla:
        return OttlaProducer(bootstrap_servers=servers, delivery_timeout_ms=600_000, linger_ms=1)
    return Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            # More than one would meet librdkafka issue 4953: see replicated_load.
            "max.in.flight.requests.per.connection": 1,
            "message.timeout.ms": 600_000,
            "linger.ms": 1,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 10,
            "retry.backoff.max.ms": 100,
            "log_level": 0,
        }
    )


def position_of(message: Any) -> tuple[int, int]:
    """Return partition and offset of a delivered record, for both clients."""
    if isinstance(message, Delivered):
        return message.partition, message.offset
    return message.partition(), message.offset()


class QueueProducer(Worker):
    """Idempotent producer of unique values."""

    def __init__(self, servers: str, history: History, number: int, rate: float) -> None:
        super().__init__()
        self._servers = servers
        self._history = history
        self._is_ottla = number % 2 == 0
        self._name = f"{'ottla' if self._is_ottla else 'librdkafka'}-{number}"
        self._value = number * 10_000_000
        self._pause_s = 1 / rate
        self.acknowledged: set[int] = set()
        self.start()

    def _delivered(self, number: int, value: int, error: object, message: Any) -> None:
        if error is not None:
            self._history.complete(number, PRODUCE, UNKNOWN, error=str(error))
        else:
            partition, offset = position_of(message)
            self._history.complete(number, PRODUCE, OK, partition=partition, offset=offset)
            self.acknowledged.add(value)

    def work(self) -> None:
        producer = durable_producer(self._servers, is_ottla=self._is_ottla)
        while not self.over.is_set():
            self._value += 1
            number = self._history.invoke(self._name, PRODUCE, value=self._value)
            delivered = partial(self._delivered, number, self._value)
            producer.produce(TOPIC, b"%d" % self._value, partition=self._value % PARTITIONS, on_delivery=delivered)
            producer.poll(0)
            self.over.wait(self._pause_s)
        assert producer.flush(_WITHIN_S) == 0, "records without an answer"
        if isinstance(producer, OttlaProducer):
            producer.close()


class OttlaMember:
    """Ottla's share consumer."""

    KINDS: Final = {ACCEPT: AcknowledgeType.ACCEPT, RELEASE: AcknowledgeType.RELEASE, REJECT: AcknowledgeType.REJECT}

    def __init__(self, servers: str) -> None:
        self._consumer = ShareConsumer(
            bootstrap_servers=servers,
            group_id=GROUP,
            share_acknowledgement_mode="explicit",
            max_poll_records=50,
            request_timeout_ms=10_000,
        )
        self._consumer.subscribe([TOPIC])
        self._records: Sequence[Any] = ()

    def poll(self) -> list[Row]:
        self._records = self._consumer.poll(0.5)
        return [(one.partition, one.offset, int(one.value or b""), one.origin.delivery_count) for one in self._records]

    def acknowledge(self, kinds: Sequence[str]) -> list[int]:
        """Acknowledge the records of the last poll; return the partitions that confirm it."""
        for record, kind in zip(self._records, kinds, strict=True):
            self._consumer.acknowledge(record, self.KINDS[kind])
        results = self._consumer.commit(20)
        return [place.partition for place, error in results.items() if error is None]

    def close(self) -> None:
        self._consumer.close(5)


class LibrdkafkaMember:
    """librdkafka's share consumer."""

    KINDS: Final = {ACCEPT: LibrdkafkaKind.ACCEPT, RELEASE: LibrdkafkaKind.RELEASE, REJECT: LibrdkafkaKind.REJECT}

    def __init__(self, servers: str) -> None:
        self._consumer = LibrdkafkaShareConsumer(
            {
                "bootstrap.servers": servers,
                "group.id": GROUP,
                "share.acknowledgement.mode": "explicit",
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([TOPIC])
        self._messages: list[Any] = []

    def poll(self) -> list[Row]:
        self._messages = [one for one in self._consumer.poll(0.5) if one.error() is None]
        return [
            (one.partition(), one.offset(), int(one.value() or b""), one.delivery_count() or 1)
            for one in self._messages
        ]

    def acknowledge(self, kinds: Sequence[str]) -> list[int]:
        """Acknowledge the records of the last poll; return the partitions that confirm it."""
        for message, kind in zip(self._messages, kinds, strict=True):
            self._consumer.acknowledge(message, self.KINDS[kind])
        results = self._consumer.commit_sync(20)
        return [place.partition for place, error in results.items() if error is None]

    def close(self) -> None:
        self._consumer.close()


class QueueMember(Worker):
    """Member of the share group; after an error, and sometimes without one, another member takes its place."""

    def __init__(self, servers: str, history: History, number: int, dice: random.Random) -> None:
        super().__init__()
        self._servers = servers
        self._history = history
        self._made: Callable[[str], OttlaMember | LibrdkafkaMember] = (
            OttlaMember if number % 2 == 0 else LibrdkafkaMember
        )
        self._name = f"{'ottla' if number % 2 == 0 else 'librdkafka'}-member-{number}"
        self._dice = dice
        self.last_delivery = time.monotonic()
        self.delivered: set[int] = set()
        self.start()

    def work(self) -> None:
        while not self.over.is_set():
            member = self._made(self._servers)
            try:
                while not self.over.is_set() and self._take(member):
                    pass
            except _ERRORS:
                pass  # it is in the history
            self._leave(member)

    def _leave(self, member: OttlaMember | LibrdkafkaMember) -> None:
        """Close a member; one that cannot leave keeps its partitions until its session ends."""
        number = self._history.invoke(self._name, LEAVE)
        try:
            member.close()
        except _ERRORS as cause:
            self._history.complete(number, LEAVE, UNKNOWN, error=str(cause))
        else:
            self._history.complete(number, LEAVE, OK)

    def _take(self, member: OttlaMember | LibrdkafkaMember) -> bool:
        """Poll once, and acknowledge; return False to leave without an acknowledgement."""
        number = self._history.invoke(self._name, POLL)
        try:
            records = member.poll()
        except _ERRORS as cause:
            self._history.complete(number, POLL, FAIL, error=str(cause))
            raise
        self._history.complete(number, POLL, OK, records=records)
        if not records:
            return True
        self.last_delivery = time.monotonic()
        self.delivered.update(value for _, _, value, _ in records)
        if self._dice.random() < 0.005:
            return False
        kinds = [self._kind(value) for _, _, value, _ in records]
        rows = [(partition, offset, kind) for (partition, offset, _, _), kind in zip(records, kinds, strict=True)]
        number = self._history.invoke(self._name, ACKNOWLEDGE, records=rows)
        try:
            partitions = member.acknowledge(kinds)
        except _ERRORS as cause:
            self._history.complete(number, ACKNOWLEDGE, UNKNOWN, error=str(cause))
            raise
        self._history.complete(number, ACKNOWLEDGE, OK, partitions=partitions)
        return True

    def _kind(self, value: int) -> str:
        if value % _POISON == 0:
            return RELEASE
        return self._dice.choices((ACCEPT, RELEASE, REJECT), (85, 12, 3))[0]
