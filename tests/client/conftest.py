"""Ottla's own clients and commands, against Ottla or (`--broker HOST:PORT`) Apache Kafka."""

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla import LATEST, Admin, Consumer, NewTopic, Producer, Record, TopicPartition
from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import Wire
from tests.conformance.members import wait_for

from .commands import Commands

Produce = Callable[..., int]
Read = Callable[..., list[Record]]

QUICK = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "100",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.min.record.lock.duration.ms": "1000",
    "log.initial.task.delay.ms": "86400000",
}
"""Configs of the broker, Apache Kafka too, that make tests fast: the default heartbeat interval is five seconds."""


@pytest.fixture(scope="session")
def bootstrap_servers(request: pytest.FixtureRequest) -> Iterator[str]:
    address: str | None = request.config.getoption("--broker")
    if address:
        yield address
        return
    with EmbeddedBroker(QUICK) as embedded:
        yield embedded.bootstrap_servers


@pytest.fixture
def admin(bootstrap_servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap_servers) as client:
        yield client


def fresh(prefix: str = "t") -> str:
    """Return a unique name."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic(admin: Admin) -> str:
    """A topic with two partitions."""
    name = fresh()
    admin.create_topics([NewTopic(name, 2, 1)]).check()
    # Apache Kafka answers before its brokers know of the topic and have made its partitions.
    places = {TopicPartition(name, index): LATEST for index in range(2)}
    wait_for(lambda: not admin.list_offsets(places).errors)
    return name


@pytest.fixture
def share_group(admin: Admin, topic: str) -> str:
    """A share group that reads the topic from its beginning."""
    name = fresh("s")
    offsets = {TopicPartition(topic, index): 0 for index in range(2)}
    deadline = time.monotonic() + 10
    while admin.alter_share_group_offsets(name, offsets).errors:  # Apache Kafka's coordinator learns of a topic later
        assert time.monotonic() < deadline
    return name


@pytest.fixture
def produce(bootstrap_servers: str) -> Iterator[Produce]:
    """produce(topic, count, partition): records k0: v0, k1: v1, ...; returns the first offset."""
    with Producer(bootstrap_servers=bootstrap_servers) as producer:

        def append(topic: str, count: int = 1, partition: int = 0) -> int:
            futures = [producer.send(topic, f"v{number}", f"k{number}", partition) for number in range(count)]
            assert producer.flush(30) == 0
            return futures[0].result().offset

        yield append


@pytest.fixture
def wire(bootstrap_servers: str, request: pytest.FixtureRequest) -> Iterator[Wire]:
    """A connection of one's own, for members and producers that do what they are told."""
    host, _, port = bootstrap_servers.rpartition(":")
    own = Wire((host, int(port)), is_kafka=request.config.getoption("--broker") is not None)
    yield own
    own.close()


@pytest.fixture
def commands(bootstrap_servers: str) -> Commands:
    """The command line."""
    return Commands(bootstrap_servers)


@pytest.fixture
def read(bootstrap_servers: str) -> Read:
    """read(topic, count, **configs): the first records of all its partitions, in the order of their partitions."""

    def all_of(topic: str, count: int, **configs: Any) -> list[Record]:
        with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", **configs) as consumer:
            consumer.assign([TopicPartition(topic, index) for index in range(2)])
            records: list[Record] = []
            while len(records) < count:
                more = consumer.consume(count - len(records), timeout=10)
                assert more, records
                records += more
            assert consumer.consume(1, timeout=0.2) == []
        return sorted(records, key=lambda record: (record.partition, record.offset))

    return all_of
