"""throttle_cb, run with both libraries against a broker with quotas: what it gets must be equal."""

import importlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import ottla
from ottla.testing import Kafka

from .libraries import Program, compare, raised

QUOTA = 10_000
"""Bytes per second, over ten seconds: one record of half a second more throttles by about as long."""
RECORD = bytes(105 * QUOTA // 10)
DEADLINE_S = 20


def set_quota(servers: str, client_id: str, **quotas: float | None) -> None:
    """Set quotas of a client id, or remove them (None)."""
    with ottla.Admin(bootstrap_servers=servers) as admin:
        admin.alter_client_quotas({frozenset({("client-id", client_id)}): quotas}).check()


class Noted:
    """Throttle events of one client.

    events  the events
    """

    def __init__(self, servers: str) -> None:
        self.events: list[Any] = []
        self._threads: set[int] = set()
        self._servers = servers

    def __call__(self, event: Any) -> None:
        self.events.append(event)
        self._threads.add(threading.get_ident())

    def wait(self, is_throttled: bool, poll: Callable[[], object]) -> None:
        """Poll until the last event is one of a throttled client, or of one that is no longer throttled."""
        deadline = time.monotonic() + DEADLINE_S
        while not self.events or (self.events[-1].throttle_time > 0) != is_throttled:
            assert time.monotonic() < deadline
            poll()

    def shown(self) -> list[Any]:
        """Return the fields of the events of the broker, each once, and whether all came in this thread."""
        assert all(0 <= event.throttle_time <= 2 for event in self.events)
        rows = {
            (type(event).__name__, event.broker_name == self._servers, event.throttle_time > 0)
            for event in self.events
            if event.broker_id == 1  # the others are of connections to a bootstrap server
        }
        return [*sorted(rows), self._threads == {threading.get_ident()}]


def throttled_producer(library: Any, servers: str, topic: str) -> list[Any]:
    noted = Noted(servers)
    set_quota(servers, "p", producer_byte_rate=QUOTA)
    with library.Producer({"bootstrap.servers": servers, "client.id": "p", "throttle_cb": noted}) as producer:
        producer.produce(topic, RECORD, partition=0)
        producer.flush()
        noted.wait(True, lambda: producer.poll(0.1))
        set_quota(servers, "p", producer_byte_rate=None)
        producer.produce(topic, "x", partition=0)
        producer.flush()
        noted.wait(False, lambda: producer.poll(0.1))
    return noted.shown()


def throttled_consumer(library: Any, servers: str, topic: str) -> list[Any]:
    with library.Producer({"bootstrap.servers": servers}) as producer:
        for value in (RECORD, b"x"):
            producer.produce(topic, value, partition=0)
            producer.flush()
    noted = Noted(servers)
    set_quota(servers, "c", consumer_byte_rate=QUOTA)
    configs = {"group.id": f"{topic}-{library.__name__}", "client.id": "c", "throttle_cb": noted}
    with library.Consumer({"bootstrap.servers": servers, **configs}) as consumer:
        consumer.assign([library.TopicPartition(topic, 0, 0)])
        noted.wait(True, lambda: consumer.poll(0.1))
        set_quota(servers, "c", consumer_byte_rate=None)
        noted.wait(False, lambda: consumer.poll(0.1))
    return noted.shown()


def throttled_admin(library: Any, servers: str, topic: str) -> list[Any]:
    noted = Noted(servers)
    set_quota(servers, "a", request_percentage=0.001)
    admin = importlib.import_module(f"{library.__name__}.admin").AdminClient(
        {"bootstrap.servers": servers, "client.id": "a", "throttle_cb": noted}
    )
    resource = importlib.import_module(f"{library.__name__}.admin").ConfigResource("topic", topic)

    def describe() -> None:
        count = len(noted.events)
        for future in admin.describe_configs([resource]).values():
            future.result(DEADLINE_S)
        assert len(noted.events) == count  # events wait for a poll
        admin.poll(0.1)

    admin.list_topics(timeout=DEADLINE_S)  # so that the client knows the ids of brokers
    noted.wait(True, describe)
    set_quota(servers, "a", request_percentage=None)
    noted.wait(False, describe)
    return noted.shown()


def raising_callback(library: Any, servers: str, topic: str) -> list[Any]:
    def refuse(event: Any) -> None:
        raise ValueError("of the callback")

    set_quota(servers, "r", producer_byte_rate=QUOTA)
    producer = library.Producer({"bootstrap.servers": servers, "client.id": "r", "throttle_cb": refuse})
    producer.produce(topic, RECORD, partition=0)
    result = [raised(library, producer.flush), producer.flush(DEADLINE_S)]
    set_quota(servers, "r", producer_byte_rate=None)
    producer.close()
    return result


PROGRAMS: list[Program] = [throttled_producer, throttled_consumer, throttled_admin, raising_callback]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_throttle_cb_gets_the_same_from_both_libraries(program: Program, kafka: Kafka) -> None:
    compare(program, kafka)
