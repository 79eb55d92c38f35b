"""Deserializers of share consumers: what can be read is returned, what cannot is released and its error raised."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla import AcknowledgeType, Producer, ShareConsumer, aio
from ottla.client.serialization import DeserializedRecord, UnreadableRecord

Join = Callable[..., ShareConsumer]
_EXPLICIT = {"share_acknowledgement_mode": "explicit"}


def number_of(data: bytes | None, context: Any) -> int | None:
    return None if data is None else int(data)


@pytest.fixture
def join(bootstrap_servers: str, topic: str, share_group: str) -> Iterator[Join]:
    """Makes consumers of the group that read numbers, which are closed at the end."""
    joined = []

    def make(**options: Any) -> ShareConsumer:
        consumer = ShareConsumer(
            bootstrap_servers=bootstrap_servers, group_id=share_group, value_deserializer=number_of, **options
        )
        consumer.subscribe([topic])
        joined.append(consumer)
        return consumer

    yield make
    for consumer in joined:
        consumer.close()


def produce(bootstrap_servers: str, topic: str, *values: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for value in values:
            producer.produce(topic, value, "key", partition=0)


def polls_until(consumer: ShareConsumer, count: int) -> tuple[list[Any], list[UnreadableRecord]]:
    """Poll until so many records and errors have come; acknowledge the records in explicit mode."""
    records: list[Any] = []
    errors: list[UnreadableRecord] = []
    deadline = time.monotonic() + 30
    while len(records) + len(errors) < count:
        assert time.monotonic() < deadline, (records, errors)
        try:
            polled = consumer.poll(1)
        except UnreadableRecord as error:
            errors.append(error)
            continue
        for record in polled if consumer.config["share.acknowledgement.mode"] == "explicit" else ():
            consumer.acknowledge(record)
        records += polled
    return records, errors


@pytest.mark.parametrize("options", [{}, _EXPLICIT], ids=["implicit", "explicit"])
def test_records_are_deserialized_and_accepted(
    join: Join, bootstrap_servers: str, topic: str, options: dict[str, Any]
) -> None:
    produce(bootstrap_servers, topic, "1", "2")
    consumer = join(**options)
    records, errors = polls_until(consumer, 2)
    assert not errors
    assert [(type(record), record.key, record.value, record.delivery_count) for record in records] == [
        (DeserializedRecord, b"key", 1, 1),
        (DeserializedRecord, b"key", 2, 1),
    ]
    consumer.close()
    assert join().poll(1) == []


@pytest.mark.parametrize("options", [{}, _EXPLICIT], ids=["implicit", "explicit"])
def test_an_unreadable_record_is_released_and_the_others_are_accepted(
    join: Join, bootstrap_servers: str, topic: str, options: dict[str, Any]
) -> None:
    produce(bootstrap_servers, topic, "0", "one", "2", "three")
    consumer = join(**options)
    records, errors = polls_until(consumer, 4)
    assert [record.value for record in records] == [0, 2]
    assert [error.record.value for error in errors] == [b"one", b"three"]
    assert str(errors[0]).startswith(f"{topic}-0, offset 1: value cannot be read")
    consumer.close()
    with ShareConsumer(bootstrap_servers=bootstrap_servers, group_id=consumer.config["group.id"]) as other:
        other.subscribe([topic])
        again: list[Any] = []
        while len(again) < 2:
            again += other.poll(30)
        assert [(record.offset, record.value) for record in again] == [(1, b"one"), (3, b"three")]
        assert all(record.delivery_count > 1 for record in again)


def test_a_poll_without_a_readable_record_raises_at_once(join: Join, bootstrap_servers: str, topic: str) -> None:
    produce(bootstrap_servers, topic, "none")
    consumer = join()
    with pytest.raises(UnreadableRecord, match="invalid literal"):
        consumer.poll(30)


def test_asyncio_deserializes_and_a_cancelled_poll_loses_nothing(
    bootstrap_servers: str, topic: str, share_group: str
) -> None:
    produce(bootstrap_servers, topic, "1", "two", "3")
    begun, may_end = threading.Event(), threading.Event()

    def slow_number_of(data: bytes | None, context: Any) -> int | None:
        begun.set()
        may_end.wait(30)
        return number_of(data, context)

    async def run() -> tuple[list[int], list[bytes | None]]:
        numbers: list[int] = []
        unreadable: list[bytes | None] = []
        async with aio.ShareConsumer(
            bootstrap_servers=bootstrap_servers, group_id=share_group, value_deserializer=slow_number_of, **_EXPLICIT
        ) as consumer:
            consumer.subscribe([topic])
            poll = asyncio.create_task(consumer.poll(30))
            await asyncio.to_thread(begun.wait, 30)
            poll.cancel()
            may_end.set()
            with pytest.raises(asyncio.CancelledError):
                await poll
            while len(numbers) + len(unreadable) < 3:
                try:
                    for record in await consumer.poll(30):
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT)
                        numbers.append(record.value)  # type: ignore[arg-type]
                        assert record.delivery_count == 2
                except UnreadableRecord as error:
                    unreadable.append(error.record.value)
        return numbers, unreadable

    assert asyncio.run(run()) == ([1, 3], [b"two"])
