"""Producers and consumers with serializers: objects through topics, beside confluent-kafka's own."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import DeserializingConsumer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirDeserializer

from ottla import Consumer, Producer, TopicPartition, aio
from ottla.client.serialization import UnreadableRecord
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
            found: list[Any] = [first]
            while len(found) < 6:
                found += consumer.consume(6 - len(found), 20)
        assert [record.value for record in found] == [{"id": number} for number in range(5)] + [None]
        whos = ["ada", "ada", "ada", "bob", None, "eve"]
        assert [record.key and record.key["who"] for record in found] == whos
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
        assert theirs == [record.value for record in found]


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
        found: list[Any] = []
        while len(found) < 2:  # the readable ones before it are not lost
            found += consumer.consume(10, 20)
        with pytest.raises(
            UnreadableRecord, match=rf"^{topic}-0, offset 2: value cannot be read: first byte 110"
        ) as bad:
            consumer.consume(10, 20)
        assert bad.value.record.value == b"no frame"
        found += consumer.consume(1, 20)
        assert [record.value["id"] for record in found] == [0, 1, 2]
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
            found: list[Any] = [first]
            while len(found) < 3:
                found += await consumer.consume(3 - len(found), 20)
            return [record.value for record in found]

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
                        values += [each.value for each in some]
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
