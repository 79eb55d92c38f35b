"""GUIDs of schemas in headers of records, with confluent-kafka's serializers beside, over a topic."""

from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    avro,
    header_schema_id_serializer,
    json_schema,
    protobuf,
)
from confluent_kafka.serialization import MessageField
from confluent_kafka.serialization import SerializationContext as TheirContext
from google.protobuf import message_factory

import ottla
from ottla.schemas import (
    VALUE,
    AvroDeserializer,
    AvroSerializer,
    BadRecord,
    JSONDeserializer,
    JSONSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    SerializationContext,
)
from ottla.schemas import protobuf as descriptors
from ottla.testing import Kafka
from tests.registry.client import Registry
from tests.registry.schemas import ONE

SCHEMA = '{"title":"Order","type":"object","properties":{"id":{"type":"integer"}}}'
PROTO = (
    'syntax = "proto3"; package shop; message Other {} message Order { int64 id = 1; message Line { int64 id = 1; } }'
)
HEADER: dict[str, Any] = {"schema.id.serializer": header_schema_id_serializer}


def message_class(name: str) -> Any:
    file = descriptors.file_of(PROTO, {})
    return message_factory.GetMessageClass(file.pool.FindMessageTypeByName(name))


ORDER, LINE = message_class("shop.Order"), message_class("shop.Order.Line")
CASES: dict[str, tuple[Any, Any, Any, Any, Any]] = {
    "avro": (
        {"id": 1 << 60},  # their deserializer refuses payloads below six bytes
        lambda url: AvroSerializer(url, ONE, schema_id_in="header"),
        lambda url: AvroDeserializer(url),
        lambda client: avro.AvroSerializer(client, ONE, conf=HEADER),
        lambda client: avro.AvroDeserializer(client),
    ),
    "json": (
        {"id": 7},
        lambda url: JSONSerializer(url, SCHEMA, schema_id_in="header"),
        lambda url: JSONDeserializer(registry=url),
        lambda client: json_schema.JSONSerializer(SCHEMA, client, conf=HEADER),
        lambda client: json_schema.JSONDeserializer(None, schema_registry_client=client),
    ),
    "protobuf": (
        ORDER(id=7),
        lambda url: ProtobufSerializer(ORDER, url, schema_id_in="header"),
        lambda url: ProtobufDeserializer(ORDER, registry=url),
        lambda client: protobuf.ProtobufSerializer(ORDER, client, conf=HEADER),
        lambda client: protobuf.ProtobufDeserializer(ORDER, schema_registry_client=client),
    ),
    "nested protobuf": (
        LINE(id=7),
        lambda url: ProtobufSerializer(LINE, url, schema_id_in="header"),
        lambda url: ProtobufDeserializer(LINE, registry=url),
        lambda client: protobuf.ProtobufSerializer(LINE, client, conf=HEADER),
        lambda client: protobuf.ProtobufDeserializer(LINE, schema_registry_client=client),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_headers_and_payloads_are_those_of_confluents_serializers(registry: Registry, subject: str, name: str) -> None:
    value, ours, read, theirs, their_read = CASES[name]
    client = SchemaRegistryClient({"url": registry.url})
    headers: list[tuple[str, bytes | None]] = [("a", b"b")]
    their_headers: list[tuple[str, str | bytes | None]] = [("a", b"b")]
    context = SerializationContext(subject, VALUE, headers)
    their_context = TheirContext(subject, MessageField.VALUE, their_headers)
    data = ours(registry.url)(value, context)
    assert data == theirs(client)(value, their_context)
    client.close()
    client = SchemaRegistryClient({"url": registry.url})
    assert list[object](headers) == list[object](their_headers)
    assert headers[1][0] == "__value_schema_id"
    assert read(registry.url)(data, context) == value
    assert their_read(client)(data, their_context) == value
    client.close()


def test_id_in_a_header_is_read_too(registry: Registry, subject: str) -> None:
    number = registry.register(f"{subject}-value", ONE)
    headers: list[tuple[str, bytes | None]] = [("__value_schema_id", b"\0" + number.to_bytes(4, "big"))]
    context = SerializationContext(subject, VALUE, headers)
    assert AvroDeserializer(registry.url)(b"\x0e", context) == {"id": 7}


@pytest.mark.parametrize("header", [b"", b"\0\0", b"\x01" + bytes(15), b"\x02" + bytes(16)])
def test_malformed_header_is_a_bad_record(registry: Registry, subject: str, header: bytes) -> None:
    context = SerializationContext(subject, VALUE, [("__value_schema_id", header)])
    with pytest.raises(BadRecord, match="header of the schema"):
        AvroDeserializer(registry.url)(b"\x0e", context)


def test_wrong_place_is_refused(registry: Registry) -> None:
    with pytest.raises(ValueError, match="schema_id_in"):
        AvroSerializer(registry.url, ONE, schema_id_in="middle")
    with pytest.raises(TypeError, match="as a list"):
        AvroSerializer(registry.url, ONE, schema_id_in="header")({"id": 1}, SerializationContext("orders", VALUE))


def test_records_over_a_topic(kafka: Kafka) -> None:
    url = kafka.schema_registry_url
    own = [("trace", b"1")]
    with ottla.Producer(
        kafka.client_config,
        key_serializer=AvroSerializer(url, "long", schema_id_in="header"),
        value_serializer=AvroSerializer(url, ONE, schema_id_in="header"),
    ) as producer:
        producer.produce("orders", {"id": 1}, key=5, headers=own)
        producer.produce("orders", {"id": 2}, key=6)
    assert own == [("trace", b"1")]
    first, second = kafka.records("orders")
    assert (first.key, first.value, second.value) == (b"\x0a", b"\x02", b"\x04")
    assert [name for name, _ in first.headers] == ["trace", "__key_schema_id", "__value_schema_id"]
    with ottla.Consumer(
        {**kafka.client_config, "group.id": "g", "auto.offset.reset": "earliest"},
        key_deserializer=AvroDeserializer(url),
        value_deserializer=AvroDeserializer(url),
    ) as consumer:
        consumer.subscribe(["orders"])
        records: list[Any] = [consumer.poll(10), consumer.poll(10)]
    assert [(record.key, record.value) for record in records] == [(5, {"id": 1}), (6, {"id": 2})]
