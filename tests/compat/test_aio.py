"""One program for each part of the asyncio clients, run with both libraries: what they show must be equal."""

import asyncio
import gc
import importlib
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.testing import Kafka

from .libraries import Program, compare

Scenario = Callable[[Any, Any, dict[str, Any], str], Coroutine[Any, Any, list[Any]]]
"""(library, its module aio, configs, topic) -> what the program shows."""


def running(scenario: Scenario) -> Program:
    """Return a scenario as a program."""

    def program(library: Any, servers: str, topic: str) -> list[Any]:
        module = importlib.import_module(f"{library.__name__}.aio")
        return asyncio.run(scenario(library, module, {"bootstrap.servers": servers}, topic))

    program.__name__ = scenario.__name__
    return program


def shown(message: Any) -> Any:
    """Return the fields of a message."""
    return message.topic(), message.partition(), message.offset(), message.key(), message.value(), message.error()


async def raised(call: Callable[[], Coroutine[Any, Any, Any]]) -> str:
    """Return the class and text of the error of a call."""
    try:
        return repr(await call())
    except Exception as error:  # noqa: BLE001  (its class is shown)
        return f"{type(error).__name__}: {error}"


async def produced(library: Any, module: Any, config: dict[str, Any], topic: str) -> list[Any]:
    producer = module.AIOProducer(config, batch_size=3, buffer_timeout=0.1)
    deliveries = [await producer.produce(topic, f"v{number}", "k", partition=number % 2) for number in range(5)]
    result: list[Any] = [await producer.flush(), len(producer)]
    result += [shown(await delivery) for delivery in deliveries]
    lost = await producer.produce(topic, "x", partition=99)
    await producer.flush()
    result.append(await raised(lambda: asyncio.wait_for(lost, 5)))
    large = await producer.produce(topic, b"x" * 2_000_000, partition=1)
    await producer.flush()
    result.append(await raised(lambda: asyncio.wait_for(large, 5)))
    unflushed = await producer.produce(topic, "y", partition=3)
    result += [shown(await asyncio.wait_for(unflushed, 10)), await producer.poll()]
    topics = await producer.list_topics(topic, timeout=10)
    result += [len(topics.topics[topic].partitions), type(await producer.cluster_id(timeout=10)).__name__]
    await producer.close()
    result.append(len(producer))
    async with module.AIOProducer(config) as other:
        delivery = await other.produce(topic, "z", partition=2)
    return [*result, shown(await delivery)]


async def transaction(library: Any, module: Any, config: dict[str, Any], topic: str) -> list[Any]:
    own = {**config, "transactional.id": f"{topic}-{library.__name__}"}
    async with module.AIOProducer(own) as producer:
        result = [await raised(producer.begin_transaction), await producer.init_transactions(20)]
        for end in (producer.commit_transaction, producer.abort_transaction):
            await producer.begin_transaction()
            delivery = await producer.produce(topic, end.__name__, partition=0)
            await producer.flush()
            result += [shown(await delivery)[4], await end()]
    return result


async def group(library: Any, module: Any, config: dict[str, Any], topic: str) -> list[Any]:
    events: list[Any] = []

    async def on_assign(consumer: Any, partitions: list[Any]) -> None:
        assert isinstance(consumer, module.AIOConsumer)
        await consumer.assign(
            [library.TopicPartition(partition.topic, partition.partition, 1) for partition in partitions]
        )
        assigned = await consumer.assignment()
        await asyncio.sleep(0.01)
        positions = await consumer.committed(partitions, timeout=10)
        events.append(("assign", len(partitions), len(assigned), [position.offset for position in positions]))

    async def on_revoke(consumer: Any, partitions: list[Any]) -> None:
        await consumer.commit(asynchronous=False)
        events.append(("revoke", len(partitions)))

    async def on_commit(error: Any, partitions: list[Any]) -> None:
        events.append(("commit", error, [partition.offset for partition in partitions]))

    with library.Producer(config) as producer:
        for number in range(8):
            producer.produce(topic, f"v{number}", partition=number % 4)
    own = {**config, "group.id": f"{topic}-{library.__name__}", "auto.offset.reset": "earliest"}
    consumer = module.AIOConsumer({**own, "enable.auto.commit": False, "on_commit": on_commit})
    await consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
    messages: list[Any] = []
    while len(messages) < 4:
        message = await consumer.poll(5)
        messages.append(message)
    result: list[Any] = [sorted(shown(message)[1:] for message in messages), await consumer.poll(0.2)]
    result.append(sorted(position.offset for position in await consumer.position(await consumer.assignment())))
    await consumer.seek(library.TopicPartition(topic, 2, 0))
    result += [[shown(message)[1:] for message in await consumer.consume(2, 5)], await consumer.consume(2, 0.2)]
    await consumer.pause([library.TopicPartition(topic, 1)])
    await consumer.resume([library.TopicPartition(topic, 1)])
    result.append(await consumer.get_watermark_offsets(library.TopicPartition(topic, 1), timeout=10))
    await consumer.close()
    result += [events, await raised(lambda: consumer.poll(0)), await raised(consumer.assignment)]
    return result


async def statistics(library: Any, module: Any, config: dict[str, Any], topic: str) -> list[Any]:
    called: list[str] = []

    async def stats_cb(text: str) -> None:
        await asyncio.sleep(0)
        called.append(type(text).__name__)

    own = {**config, "statistics.interval.ms": 50, "stats_cb": stats_cb}
    async with module.AIOProducer(own) as producer:
        end = time.monotonic() + 10
        while not called and time.monotonic() < end:
            await producer.poll(0.1)
    return called[:1]


async def serialized(library: Any, module: Any, config: dict[str, Any], topic: str) -> list[Any]:
    serialization = importlib.import_module(f"{library.__name__}.serialization")
    text, number = serialization.StringSerializer(), serialization.IntegerSerializer()

    async def serialize(value: Any, context: Any) -> bytes:
        await asyncio.sleep(0)
        return f"{context.topic}-{context.field}-{value}".encode()

    producer = await module.AsyncSerializingProducer[int, str](
        {**config, "key.serializer": number, "value.serializer": serialize}
    )
    delivery = await producer.produce(topic, 7, "v", partition=0)
    await producer.flush()
    result: list[Any] = [shown(await delivery), isinstance(producer, module.AsyncSerializingProducer)]
    result.append(await raised(lambda: producer.produce(topic, "no number", "v")))
    await producer.close()
    result.append(await raised(lambda: producer.produce(topic, 1, "v")))
    both = {**config, "key.serializer": text, "key.serializer.builder": text}
    result.append(await raised(lambda: module.AsyncSerializingProducer(both)))
    readers = {"key.deserializer": serialization.IntegerDeserializer(), "value.deserializer": serialize}
    own = {**config, "group.id": f"s-{library.__name__}", **readers}
    async with await module.AsyncDeserializingConsumer(own) as consumer:
        await consumer.assign([library.TopicPartition(topic, 0, 0)])
        message = await consumer.poll(10)
        result += [message.key(), message.value()]
        await consumer.seek(library.TopicPartition(topic, 0, 0))
        result += [consumed.key() for consumed in await consumer.consume(1, 10)]
    return result


@pytest.mark.parametrize("scenario", [produced, transaction, group, statistics, serialized])
def test_a_program_shows_the_same_with_both_libraries(scenario: Scenario, kafka: Kafka) -> None:
    compare(running(scenario), kafka)


def test_a_poll_that_is_cancelled_loses_no_message(kafka: Kafka) -> None:
    from ottla.compat.confluent_kafka import TopicPartition
    from ottla.compat.confluent_kafka.aio import AIOConsumer

    kafka.create_topic("orders")

    async def scenario() -> list[Any]:
        own = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        async with AIOConsumer(own) as consumer:
            await consumer.assign([TopicPartition("orders", 0, 0)])
            await consumer.poll(0.5)
            messages: list[Any] = []
            for number in range(40):
                poll = asyncio.create_task(consumer.poll(5))
                await asyncio.sleep(0.002 * (number % 7))
                kafka.produce("orders", str(number))
                await asyncio.sleep(0.001 * (number % 5))
                poll.cancel()
                for message in await asyncio.gather(poll, return_exceptions=True):
                    messages += [] if isinstance(message, BaseException) else [message]
            messages += await consumer.consume(40 - len(messages), 5)
            return [int(message.value()) for message in messages]

    assert asyncio.run(scenario()) == list(range(40))
    gc.collect()
