"""confluent-kafka's client and serializers with Ottla's registry: each method, each language, and records over a topic."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import schema_registry as theirs
from confluent_kafka.schema_registry import SchemaRegistryClient, ServerConfig, avro, json_schema, protobuf
from confluent_kafka.schema_registry.common.schema_registry_client import ConfigCompatibilityLevel
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory

from ottla.schemas import protobuf as descriptors
from ottla.testing import Kafka
from tests.registry.schemas import BROKEN, ONE, TWO

from .clients.environments import Jars
from .programs import command_of, interop_only

ORDERS = SerializationContext("orders", MessageField.VALUE)
SCHEMA = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]})
COMMON = 'syntax = "proto3"; package common; message Money { int64 cents = 1; string currency = 2; }'
PROTO = """syntax = "proto3";
package shop;
import "common/money.proto";
import "google/protobuf/timestamp.proto";
message Customer { string name = 1; }
message Order { int64 id = 1; common.Money price = 2; google.protobuf.Timestamp at = 3; }
"""


@pytest.fixture
def client(kafka: Kafka) -> Iterator[SchemaRegistryClient]:
    """A client that keeps nothing: each call is a request."""
    registry = SchemaRegistryClient({"url": kafka.schema_registry_url, "cache.capacity": 1, "max.retries": 0})
    yield registry
    registry.close()


def schema(text: str, kind: str = "AVRO", **more: Any) -> theirs.Schema:
    return theirs.Schema(text, kind, **more)


def test_methods_of_the_client(client: SchemaRegistryClient) -> None:
    assert client.get_subjects() == []
    registered = client.register_schema_full_response("orders-value", schema(ONE))
    number = client.register_schema("orders-value", schema(ONE))
    assert (registered.schema_id, registered.version) == (number, 1)
    assert client.get_schema(number).schema_str == ONE
    assert client.get_schema_by_guid(registered.guid or "").schema_str == ONE
    assert client.lookup_schema("orders-value", schema(ONE)).version == 1
    assert client.get_latest_version("orders-value").schema_id == number
    assert client.get_version("orders-value", 1).schema.schema_type == "AVRO"
    assert client.get_versions("orders-value") == [1]
    assert client.get_subjects_by_schema_id(number) == ["orders-value"]
    assert [(row.subject, row.version) for row in client.get_schema_versions(number)] == [("orders-value", 1)]
    assert set(client.get_schema_types()) == {"AVRO", "JSON", "PROTOBUF"}
    assert client.get_contexts() == ["."]
    assert client.test_compatibility("orders-value", schema(TWO))
    assert not client.test_compatibility("orders-value", schema(BROKEN))
    assert not client.test_compatibility_all_versions("orders-value", schema(BROKEN))
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("orders-value", schema(BROKEN))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    assert client.get_referenced_by("orders-value", 1) == []
    assert client.delete_version("orders-value", 1) == 1
    assert client.delete_version("orders-value", 1, permanent=True) == 1
    with pytest.raises(SchemaRegistryError) as missing:
        client.get_versions("orders-value")
    assert missing.value.error_code == 40401


def test_configs_and_modes_by_the_client(client: SchemaRegistryClient) -> None:
    assert client.get_compatibility() == "BACKWARD"
    client.set_compatibility("orders-value", "FULL")
    assert client.get_compatibility("orders-value") == "FULL"
    client.set_config(
        "orders-value", ServerConfig(compatibility=ConfigCompatibilityLevel.NONE, compatibility_group="major")
    )
    config = client.get_config("orders-value")
    assert (config.compatibility_level or config.compatibility, config.compatibility_group) == ("NONE", "major")
    client.delete_config("orders-value")
    assert client.get_global_mode() == "READWRITE"
    assert client.update_mode("orders-value", "READONLY") == "READONLY"
    assert client.get_mode("orders-value") == "READONLY"
    client.delete_mode("orders-value")
    assert client.update_global_mode("READONLY") == "READONLY"


def test_schema_by_metadata(client: SchemaRegistryClient) -> None:
    metadata = theirs.Metadata(tags=None, properties=theirs.MetadataProperties({"owner": "ada"}), sensitive=None)
    client.register_schema("orders-value", schema(ONE, metadata=metadata))
    latest = client.get_latest_with_metadata("orders-value", {"owner": "ada"})
    assert latest.schema.metadata is not None
    assert latest.schema.metadata.properties == metadata.properties


@pytest.mark.parametrize("conf", [{}, {"normalize.schemas": True}, {"auto.register.schemas": False}])
def test_avro_serializer(client: SchemaRegistryClient, conf: dict[str, Any]) -> None:
    if conf == {"auto.register.schemas": False}:
        client.register_schema("orders-value", schema(ONE))
    frame = avro.AvroSerializer(client, ONE, conf=conf)({"id": 7}, ORDERS)
    assert avro.AvroDeserializer(client)(frame, ORDERS) == {"id": 7}
    assert avro.AvroDeserializer(client, TWO)(frame, ORDERS) == {"id": 7, "note": 0}


def test_avro_serializer_with_the_latest_version_and_references(client: SchemaRegistryClient) -> None:
    money = '{"type":"record","name":"Money","fields":[{"name":"cents","type":"long"}]}'
    client.register_schema("money", schema(money))
    text = '{"type":"record","name":"Fare","fields":[{"name":"price","type":"Money"}]}'
    reference = theirs.SchemaReference("Money", "money", 1)
    client.register_schema("orders-value", schema(text, references=[reference]))
    conf = {"auto.register.schemas": False, "use.latest.version": True}
    frame = avro.AvroSerializer(client, conf=conf)({"price": {"cents": 5}}, ORDERS)
    assert avro.AvroDeserializer(client)(frame, ORDERS) == {"price": {"cents": 5}}


def test_json_serializer(client: SchemaRegistryClient) -> None:
    frame = json_schema.JSONSerializer(SCHEMA, client)({"id": 7}, ORDERS)
    assert json_schema.JSONDeserializer(None, schema_registry_client=client)(frame, ORDERS) == {"id": 7}


@pytest.mark.parametrize("conf", [{}, {"normalize.schemas": True}])
def test_protobuf_serializer_registers_imports_as_references(
    client: SchemaRegistryClient, conf: dict[str, Any]
) -> None:
    file = descriptors.file_of(PROTO, {"common/money.proto": COMMON})
    order = message_factory.GetMessageClass(file.pool.FindMessageTypeByName("shop.Order"))
    message = order(id=7)
    message.price.cents = 5
    frame = protobuf.ProtobufSerializer(order, client, conf=conf)(message, ORDERS)
    assert protobuf.ProtobufSerializer(order, client, conf=conf)(message, ORDERS) == frame
    read = protobuf.ProtobufDeserializer(order, schema_registry_client=client)(frame, ORDERS)
    assert (read.id, read.price.cents) == (7, 5)
    assert client.get_subjects() == ["common/money.proto", "orders-value"]
    latest = client.get_latest_version("orders-value")
    assert [(row.name, row.subject, row.version) for row in latest.schema.references or ()] == [
        ("common/money.proto", "common/money.proto", 1)
    ]
    assert client.get_versions("orders-value") == [1]


def test_records_over_a_topic(kafka: Kafka, client: SchemaRegistryClient) -> None:
    serialize, deserialize = avro.AvroSerializer(client, ONE), avro.AvroDeserializer(client)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(10):
        producer.produce("orders", serialize({"id": number}, ORDERS))
    producer.flush()
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    values: list[object] = []
    while len(values) < 10:
        message = consumer.poll(10)
        assert message is not None
        assert message.error() is None
        values.append(deserialize(message.value(), ORDERS))
    consumer.close()
    assert values == [{"id": number} for number in range(10)]


def test_client_retries_while_the_registry_fails(kafka: Kafka) -> None:
    registry = SchemaRegistryClient({"url": kafka.schema_registry_url, "retries.wait.ms": 10})
    kafka.registry.fail(status=503, count=2)
    assert registry.register_schema("orders-value", schema(ONE)) == 1
    registry.close()


JAVA = Jars(
    ("org.apache.flink:flink-sql-avro-confluent-registry:2.0.0", "org.slf4j:slf4j-nop:1.7.36"), ("SchemaClient",)
)


def test_client_of_java(kafka: Kafka, request: pytest.FixtureRequest) -> None:
    """It compares texts byte for byte, and expects JSON in errors."""
    interop_only(request, "Maven fetches the client")
    done = subprocess.run(
        [*command_of(JAVA), kafka.schema_registry_url], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "registered 1",
        "same text true",
        "looked up true",
        "compatible false",
        "refused 409",
        "latest 2 true",
        "versions [1, 2]",
        "subjects [orders-value]",
        "level FULL",
        "level FULL",
        "mode READWRITE",
        "deleted [1, 2]",
        "missing 40401",
    ]
