"""Real clients and the faults that a tester would ask for: what a program sees of them, and that it gets over them."""

import asyncio
import time
import warnings
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Message, Producer

from ottla.testing import Kafka

with warnings.catch_warnings():
    warnings.filterwarnings(
        "ignore", r"\w+_text is deprecated", DeprecationWarning
    )  # kafka-python reads its schemas so
    from kafka import KafkaConsumer, KafkaProducer


def values(kafka: Kafka, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in kafka.records(topic)]


@pytest.fixture
def reports() -> list[KafkaError | None]:
    return []


@pytest.fixture
def producer(kafka: Kafka, reports: list[KafkaError | None]) -> Iterator[Callable[[str], None]]:
    """Sends one record and waits for what becomes of it."""
    made = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True, "retry.backoff.ms": 10})

    def delivered(error: KafkaError | None, _: Message) -> None:
        reports.append(error)

    def send(value: str) -> None:
        made.produce("orders", value, callback=delivered)
        assert made.flush(30) == 0

    yield send
    made.purge()
    made.flush(5)


def confluent_consumer(kafka: Kafka, protocol: str = "classic") -> Consumer:
    """Of the consumer protocol the broker says how often a heartbeat is sent."""
    of_protocol = {"heartbeat.interval.ms": 100} if protocol == "classic" else {"group.protocol": "consumer"}
    made = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            **of_protocol,
        }
    )
    made.subscribe(["orders"])
    return made


def poll_messages(consumer: Consumer) -> bytes:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            return bytes(message.value() or b"")
    raise AssertionError("no record came")


# confluent-kafka (librdkafka).


def test_a_producer_gets_over_a_moved_leader(
    kafka: Kafka, producer: Callable[[str], None], reports: list[KafkaError | None]
) -> None:
    kafka.create_topic("orders")
    fault = kafka.fail("Produce", 2, error="NOT_LEADER_OR_FOLLOWER")
    producer("once")
    assert (fault.left, reports, values(kafka)) == (0, [None], [b"once"])


@pytest.mark.parametrize("carried_out", [False, True])
def test_an_idempotent_producer_writes_once_whatever_happened_to_the_answer(
    kafka: Kafka, producer: Callable[[str], None], reports: list[KafkaError | None], carried_out: bool
) -> None:
    kafka.create_topic("orders")
    producer("first")
    fault = kafka.drop("Produce", carried_out=carried_out)
    producer("second")
    assert (fault.hits, reports, values(kafka)) == (1, [None, None], [b"first", b"second"])


def test_a_producer_reports_an_error_that_is_not_retriable(
    kafka: Kafka, producer: Callable[[str], None], reports: list[KafkaError | None]
) -> None:
    kafka.create_topic("orders")
    kafka.fail("Produce", error="MESSAGE_TOO_LARGE")
    producer("too large, says the broker")
    assert reports[0] is not None
    assert reports[0].name() == "MSG_SIZE_TOO_LARGE"
    assert values(kafka) == []


def test_a_producer_waits_for_a_broker_that_was_killed(
    kafka: Kafka, producer: Callable[[str], None], reports: list[KafkaError | None]
) -> None:
    kafka.create_topic("orders")
    producer("before")
    kafka.kill()
    kafka.restart()
    producer("after")
    assert (reports, values(kafka)) == ([None, None], [b"before", b"after"])


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_gets_over_the_end_of_its_session(kafka: Kafka, protocol: str) -> None:
    kafka.produce("orders", "one")
    consumer = confluent_consumer(kafka, protocol)
    assert poll_messages(consumer) == b"one"
    consumer.commit(asynchronous=False)
    kafka.expire_session("billing")
    kafka.produce("orders", "two")
    assert poll_messages(consumer) == b"two"
    consumer.close()


def test_a_consumer_finds_its_coordinator_again(kafka: Kafka) -> None:
    kafka.produce("orders", "one")
    consumer = confluent_consumer(kafka)
    assert poll_messages(consumer) == b"one"
    kafka.move_coordinator("billing")
    consumer.commit(asynchronous=False)
    kafka.move_coordinator("billing")
    kafka.produce("orders", "two")
    assert poll_messages(consumer) == b"two"
    consumer.close()


def test_a_client_speaks_to_an_older_release(
    kafka: Kafka, producer: Callable[[str], None], reports: list[KafkaError | None]
) -> None:
    with kafka.pin_versions("2.8"):
        producer("old")
        consumer = confluent_consumer(kafka)
        assert poll_messages(consumer) == b"old"
        consumer.close()
    assert reports == [None]


def test_a_throttled_producer_is_slower(kafka: Kafka, producer: Callable[[str], None]) -> None:
    kafka.create_topic("orders")
    producer("at once")
    began = time.monotonic()
    with kafka.throttle(100):
        for number in range(3):
            producer(str(number))
    assert time.monotonic() - began > 0.2


# kafka-python.


@pytest.mark.usefixtures("sockets_of_kafka_python")
def test_kafka_python_gets_over_faults(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, retry_backoff_ms=10, reconnect_backoff_ms=10)
    producer.send("orders", b"one").get(timeout=30)
    kafka.fail("Produce", error="NOT_LEADER_OR_FOLLOWER")
    producer.send("orders", b"two").get(timeout=30)
    with kafka.refuse(), kafka.drop("Produce") as dropped:
        sent = producer.send("orders", b"three")
        dropped.wait()
    assert sent.get(timeout=30).offset == 2
    producer.close()
    consumer = KafkaConsumer(
        "orders", bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=5000
    )
    kafka.fail("Fetch", 2, error="NOT_LEADER_OR_FOLLOWER")
    assert [next(consumer).value for _ in range(3)] == [b"one", b"two", b"three"]
    consumer.close()


# aiokafka.


def test_aiokafka_gets_over_faults(kafka: Kafka) -> None:
    async def scenario() -> list[bytes]:
        producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, enable_idempotence=True)
        await producer.start()
        kafka.fail("Produce", 2, error="NOT_LEADER_OR_FOLLOWER")
        await producer.send_and_wait("orders", b"one")
        kafka.drop("Produce", carried_out=True)
        await producer.send_and_wait("orders", b"two")
        await producer.stop()
        consumer = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=kafka.bootstrap_servers,
            group_id="billing",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
        )
        await consumer.start()
        received = [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in range(2)]
        await consumer.commit()
        kafka.move_coordinator("billing")
        kafka.produce("orders", "three")
        received.append((await asyncio.wait_for(consumer.getone(), 30)).value)
        await asyncio.wait_for(consumer.commit(), 30)  # aiokafka does not look for its coordinator while it stops
        await consumer.stop()
        return received

    kafka.create_topic("orders")
    assert asyncio.run(scenario()) == [b"one", b"two", b"three"] == values(kafka)
