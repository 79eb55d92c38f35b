"""Producers and consumers with serializers: objects through topics, beside confluent-kafka's own."""

import asyncio
import copy
import json
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import DeserializingConsumer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirDeserializer

from ottla import Consumer, Producer, TopicPartition, aio
from ottla.client.serialization import Deserializers, UnreadableRecord
from ottla.records.record import Origin, Record
from ottla.schemas import (
    VALUE,
    AvroDeserializer,
    AvroSerializer,
    BadRecord,
    JSONDeserializer,
    JSONSerializer,
    SerializationContext,
)
from tests.spark.schema_registry import serving

from .conftest import fresh

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
KEY = json.dumps({"title": "Key", "type": "object", "properties": {"who": {"type": "string"}}})


def test_orders_go_through_a_topic_as_objects(bootstrap_servers: str, topic: str) -> None:
    with serving() as registry:
        avro, keys = AvroSerializer(registry.address, ORDER), JSONSerializer(registry.address, KEY)
        with Producer(bootstrap_servers=bootstrap_servers, value_serializer=avro, key_serializer=keys) as producer:
            for number in range(3):
                producer.produce(topic, {"id": number}, {"who": "ada"}, partition=0)
            producer.send(topic, {"id": 3}, {"who": "bob"}, partition=0).result(20)
            producer.produce_many(topic, [{"id": 4}, None], keys=[None, {"who": "eve"}], partition=0)
            with pytest.raises(BadRecord, match="does not fit its Avro schema"):
                producer.produce(topic, {"id": "x"}, partition=0)
        assert set(registry.subjects) == {f"{topic}-value", f"{topic}-key"}
        with Consumer(
            bootstrap_servers=bootstrap_servers,
            auto_offset_reset="earliest",
            value_deserializer=AvroDeserializer(registry.address),
            key_deserializer=JSONDeserializer(registry=registry.address),
        ) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            first: Any = consumer.poll(20)
            assert first is not None
            assert (first.topic, first.partition, first.offset, first.value) == (topic, 0, 0, {"id": 0})
            records: list[Any] = [first]
            while len(records) < 6:
                records += consumer.consume(6 - len(records), 20)
        assert [record.value for record in records] == [{"id": number} for number in range(5)] + [None]
        whos = ["ada", "ada", "ada", "bob", None, "eve"]
        assert [record.key and record.key["who"] for record in records] == whos
        # Another client reads them by the same registry.
        settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": fresh(),
            "auto.offset.reset": "earliest",
            "value.deserializer": TheirDeserializer(SchemaRegistryClient({"url": registry.address})),
        }
        other = DeserializingConsumer(settings)
        other.subscribe([topic])
        theirs: list[Any] = []
        while len(theirs) < 6:
            message = other.poll(20)
            assert message is not None
            theirs.append(message.value())
        other.close()
        assert theirs == [record.value for record in records]


def test_a_record_that_cannot_be_read_is_named_and_the_next_poll_goes_on(
    bootstrap_servers: str, topic: str, tmp_path: Path
) -> None:
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        avro = AvroSerializer(str(tmp_path), ORDER)
        frames = [avro({"id": number}, SerializationContext(topic, VALUE)) for number in range(3)]
        for frame in (frames[0], frames[1], b"no frame", frames[2]):
            producer.produce(topic, frame, partition=0)
    with Consumer(
        bootstrap_servers=bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=AvroDeserializer(str(tmp_path)),
    ) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        records: list[Any] = []
        while len(records) < 2:  # the readable ones before it are not lost
            records += consumer.consume(10, 20)
        with pytest.raises(
            UnreadableRecord, match=rf"^{topic}-0, offset 2: value cannot be read: first byte 110"
        ) as bad:
            consumer.consume(10, 20)
        assert bad.value.record.value == b"no frame"
        records += consumer.consume(1, 20)
        assert [record.value["id"] for record in records] == [0, 1, 2]
        consumer.seek(partition, 2)
        with pytest.raises(UnreadableRecord):
            consumer.poll(20)


def test_any_function_is_a_serializer(bootstrap_servers: str, topic: str) -> None:
    def write(value: Any, context: Any) -> bytes:
        return f"{context.topic}/{context.field}/{value}".encode()

    with Producer(bootstrap_servers=bootstrap_servers, value_serializer=write) as producer:
        producer.produce(topic, 7, "key", partition=0)
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        record = consumer.poll(20)
        assert record is not None
        assert (record.key, record.value) == (b"key", f"{topic}/value/7".encode())


def test_objects_on_asyncio(bootstrap_servers: str, topic: str, tmp_path: Path) -> None:
    async def there_and_back() -> list[Any]:
        write, read = AvroSerializer(str(tmp_path), ORDER), AvroDeserializer(str(tmp_path))
        async with aio.Producer(bootstrap_servers=bootstrap_servers, value_serializer=write) as producer:
            for number in range(3):
                await producer.produce(topic, {"id": number}, partition=0)
        async with aio.Consumer(
            bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", value_deserializer=read
        ) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            first = await consumer.poll(20)
            records: list[Any] = [first]
            while len(records) < 3:
                records += await consumer.consume(3 - len(records), 20)
            return [record.value for record in records]

    assert asyncio.run(there_and_back()) == [{"id": 0}, {"id": 1}, {"id": 2}]


@pytest.mark.parametrize("by", ["poll", "consume"])
def test_a_poll_that_is_cancelled_loses_no_record(bootstrap_servers: str, topic: str, by: str) -> None:
    """Records that were being deserialized were gone."""

    def read(data: bytes | None, context: SerializationContext) -> int:
        del context
        time.sleep(0.05)
        return int(data or b"")

    async def polled() -> tuple[list[int], int, int]:
        values: list[int] = []
        cancelled = 0
        async with aio.Producer(bootstrap_servers=bootstrap_servers) as producer:
            for number in range(5):
                await producer.produce(topic, str(number), partition=0)
        async with aio.Consumer(
            bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", value_deserializer=read
        ) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            while len(values) < 5:
                limit = 0.03 if cancelled < 20 else 5
                assert cancelled < 22
                try:
                    if by == "poll":
                        record: Any = await asyncio.wait_for(consumer.poll(), limit)
                        values.append(record.value)
                    else:
                        some: list[Any] = await asyncio.wait_for(consumer.consume(2), limit)
                        values += [consumed.value for consumed in some]
                except TimeoutError:
                    cancelled += 1
            return values, cancelled, await consumer.position(TopicPartition(topic, 0))

    values, cancelled, position = asyncio.run(polled())
    assert values == list(range(5))
    assert cancelled
    assert position == 5


def test_a_seek_during_a_poll_counts(bootstrap_servers: str, topic: str) -> None:
    async def polled() -> list[int]:
        def read(data: bytes | None, context: SerializationContext) -> int:
            del context
            if not sought:
                sought.append(True)
                loop.call_soon_threadsafe(consumer.seek, TopicPartition(topic, 0), 3)
                time.sleep(0.1)
            return int(data or b"")

        sought: list[bool] = []
        loop = asyncio.get_running_loop()
        async with aio.Producer(bootstrap_servers=bootstrap_servers) as producer:
            for number in range(5):
                await producer.produce(topic, str(number), partition=0)
        async with aio.Consumer(
            bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", value_deserializer=read
        ) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            records: list[Any] = [await consumer.poll(20), await consumer.poll(20)]
            return [record.value for record in records]

    assert asyncio.run(polled()) == [3, 4]


def test_concurrent_sends_on_asyncio_keep_their_order(bootstrap_servers: str, topic: str) -> None:
    """Each was serialized in a thread of its own, and sent when that was done."""
    turns: set[int] = set()

    def write(value: int, context: SerializationContext) -> bytes:
        del context
        turns.add(threading.get_ident())
        time.sleep(0.002 * (7 - value % 7))
        if value == 5:
            raise ValueError("not five")
        return b"%d" % value

    async def sent() -> list[object]:
        async with aio.Producer(bootstrap_servers=bootstrap_servers, value_serializer=write) as producer:
            sends = [asyncio.create_task(producer.send(topic, number, partition=0)) for number in range(40)]
            await asyncio.sleep(0)
            sends[6].cancel()
            return await asyncio.gather(*sends, return_exceptions=True)

    outcomes = asyncio.run(sent())
    assert [number for number, outcome in enumerate(outcomes) if isinstance(outcome, BaseException)] == [5, 6]
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        numbers: list[int] = []
        while len(numbers) < 38 and (records := consumer.consume(40, 5)):
            numbers += [int(record.value or b"") for record in records]
    assert numbers == [number for number in range(40) if number not in (5, 6)]
    assert threading.get_ident() not in turns  # nothing holds the loop


@pytest.mark.parametrize("client", ["blocking", "aio"])
def test_headers_from_a_generator_are_there_for_the_serializer_and_the_record(
    bootstrap_servers: str, topic: str, client: str
) -> None:
    """The serializer used them up."""

    def write(value: str, context: SerializationContext) -> bytes:
        return f"{value} {list(context.headers or ())}".encode()

    def headers() -> Iterator[tuple[str, str]]:
        yield "trace", "7"

    async def sent() -> None:
        async with aio.Producer(bootstrap_servers=bootstrap_servers, value_serializer=write) as producer:
            await producer.produce(topic, "v", partition=0, headers=headers())
            with pytest.raises(TypeError, match="name of a header"):
                await producer.produce(topic, "v", partition=0, headers=[(1, "x")])  # type: ignore[list-item]

    if client == "aio":
        asyncio.run(sent())
    else:
        with Producer(bootstrap_servers=bootstrap_servers, value_serializer=write) as producer:
            producer.produce(topic, "v", partition=0, headers=headers())
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        record = consumer.poll(20)
        assert record is not None
        assert (record.value, record.headers) == (b"v [('trace', b'7')]", [("trace", b"7")])


def test_deserialized_records_and_their_errors_can_be_copied_and_pickled() -> None:
    """copy.copy and pickle.loads raised RecursionError."""
    record = Record(7, 8, b"k", b"5", [("h", b"1")], Origin("t", 1, 0, 3, 0))
    whole: Any = Deserializers(None, lambda data, _: int(data or b"")).record(record)
    for copied in (copy.copy(whole), copy.deepcopy(whole), pickle.loads(pickle.dumps(whole))):
        assert repr(copied) == repr(whole)
        assert (copied.topic, copied.offset, copied.key, copied.value, copied.headers) == (
            "t",
            7,
            b"k",
            5,
            [("h", b"1")],
        )
        assert copied.record.value == b"5"
    assert not hasattr(whole, "nothing")
    error = UnreadableRecord(record, "value", ValueError("no"))
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.record.offset) == (str(error), 7)
