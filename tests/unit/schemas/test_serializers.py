"""Serializers and deserializers beside confluent-kafka's: the same bytes, each reads what the other writes."""

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import schema_registry as theirs
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry import avro as their_avro
from confluent_kafka.schema_registry import json_schema as their_json
from confluent_kafka.schema_registry import protobuf as their_protobuf
from confluent_kafka.serialization import MessageField
from confluent_kafka.serialization import SerializationContext as TheirContext
from google.protobuf import message_factory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.schemas import (
    VALUE,
    AvroDeserializer,
    AvroSerializer,
    BadRecord,
    JSONDeserializer,
    JSONSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Reference,
    Schema,
    SchemaNotFound,
    SchemaRegistry,
    SerializationContext,
    UnsupportedSchema,
    protobuf,
    record_subject,
    topic_record_subject,
)
from tests.spark.schema_registry import Registry, serving

ORDERS = SerializationContext("orders", VALUE)
THEIRS = TheirContext("orders", MessageField.VALUE)
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "tags", "type": {"type": "map", "values": ["null", "string", "double"]}},
        ],
    }
)
ORDER_JSON = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer", "minimum": 0}, "name": {"type": "string"}},
        "required": ["id"],
    }
)
COMMON = 'syntax = "proto3"; package common; message Money { int64 cents = 1; string currency = 2; }'
PROTO = """syntax = "proto3";
package shop;
import "common/money.proto";
import "google/protobuf/timestamp.proto";
message Customer { string name = 1; }
message Order {
  int64 id = 1;
  common.Money price = 2;
  google.protobuf.Timestamp at = 3;
  message Line { string what = 1; }
  repeated Line lines = 4;
}
"""


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving() as running:
        yield running


@pytest.fixture
def client(registry: Registry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.address})


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "at": datetime(2026, 3, 1, 12, 0, 0, 123000, UTC),
        "day": date(2026, 3, 1) if number % 2 else None,
        "price": Decimal("12.50"),
        "token": uuid.UUID(int=number),
        "tags": {"a": None, "b": "x", "c": 1.5},
    }


@pytest.fixture(scope="module")
def messages() -> dict[str, Any]:
    """Classes of the messages of PROTO, as protoc would generate them."""
    file = protobuf.file_of(PROTO, {"common/money.proto": COMMON})
    names = ("shop.Customer", "shop.Order", "shop.Order.Line")
    return {name: message_factory.GetMessageClass(file.pool.FindMessageTypeByName(name)) for name in names}


# -- the same bytes --


def test_avro_has_the_bytes_of_confluent_s_serializer(registry: Registry, client: SchemaRegistryClient) -> None:
    ours, their = AvroSerializer(registry.address, ORDER), their_avro.AvroSerializer(client, ORDER)
    frames = [ours(order(number), ORDERS) for number in range(4)]
    assert frames == [their(order(number), THEIRS) for number in range(4)]
    assert len(registry.schemas) == 1  # one schema, whoever registered it
    read, their_read = AvroDeserializer(registry.address), their_avro.AvroDeserializer(client)
    assert [read(frame, ORDERS) for frame in frames] == [order(number) for number in range(4)]
    assert [their_read(frame, THEIRS) for frame in frames] == [order(number) for number in range(4)]


@pytest.mark.parametrize("schema", ['"bytes"', '{"type": "bytes"}', '"string"'])
def test_a_plain_value_has_the_bytes_of_confluent_s_serializer(
    registry: Registry, client: SchemaRegistryClient, schema: str
) -> None:
    """Bytes have no length before them: Java's serializer writes them as they are, too."""
    value = "text" if "string" in schema else b"raw"
    frame = AvroSerializer(registry.address, schema)(value, ORDERS)
    theirs_frame = their_avro.AvroSerializer(client, schema)(value, THEIRS)
    assert frame is not None
    assert theirs_frame is not None
    assert frame[5:] == theirs_frame[5:]
    assert AvroDeserializer(registry.address)(frame, ORDERS) == value == their_avro.AvroDeserializer(client)(frame)


def test_strict_avro_serializer_rejects_other_fields(registry: Registry) -> None:
    value = {**order(1), "more": 1}
    assert AvroSerializer(registry.address, ORDER)(value, ORDERS) is not None
    with pytest.raises(BadRecord, match="more"):
        AvroSerializer(registry.address, ORDER, strict=True)(value, ORDERS)


def test_json_text_is_written_and_read_by_functions_of_the_application(registry: Registry) -> None:
    serialize = JSONSerializer(registry.address, ORDER_JSON, encode=lambda value: json.dumps(value, indent=1))
    frame = serialize({"id": 1}, ORDERS)
    assert frame is not None
    assert frame[5:] == b'{\n "id": 1\n}'
    read = JSONDeserializer(ORDER_JSON, decode=lambda text: json.loads(text) | {"id": 2})
    assert read(frame, ORDERS) == {"id": 2}


def test_an_error_has_the_response_of_the_registry(registry: Registry) -> None:
    with pytest.raises(SchemaNotFound) as caught:
        SchemaRegistry(location=registry.address).by_id(99)
    assert caught.value.response is not None
    assert caught.value.response.status == 404


def test_json_has_the_bytes_of_confluent_s_serializer(registry: Registry, client: SchemaRegistryClient) -> None:
    ours, their = JSONSerializer(registry.address, ORDER_JSON), their_json.JSONSerializer(ORDER_JSON, client)
    values = [{"id": 1, "name": "Zoë"}, {"id": 2}, {"name": 'a "b"', "id": 3}]
    frames = [ours(value, ORDERS) for value in values]
    assert frames == [their(value, THEIRS) for value in values]
    read = JSONDeserializer(ORDER_JSON)
    assert [read(frame, ORDERS) for frame in frames] == values
    assert [their_json.JSONDeserializer(ORDER_JSON)(frame, THEIRS) for frame in frames] == values


@pytest.mark.parametrize("name", ["shop.Customer", "shop.Order", "shop.Order.Line"])
def test_protobuf_has_the_bytes_of_confluent_s_serializer(
    registry: Registry, client: SchemaRegistryClient, messages: dict[str, Any], name: str
) -> None:
    kind = messages[name]
    cases: dict[str, list[dict[str, Any]]] = {
        "shop.Customer": [{"name": "ada"}, {}],
        "shop.Order": [{"id": 7, "price": {"cents": 250}, "at": {"seconds": 5}, "lines": [{"what": "x"}]}, {}],
        "shop.Order.Line": [{"what": "y"}],
    }
    values = cases[name]
    ours, their = ProtobufSerializer(kind, registry.address), their_protobuf.ProtobufSerializer(kind, client)
    frames = [ours(kind(**value), ORDERS) for value in values]
    assert frames == [their(kind(**value), THEIRS) for value in values]
    assert list(registry.subjects) == ["common/money.proto", "orders-value"]
    read, their_read = ProtobufDeserializer(kind, registry=registry.address), their_protobuf.ProtobufDeserializer(kind)
    assert [read(frame, ORDERS) for frame in frames] == [kind(**value) for value in values]
    assert [their_read(frame, THEIRS) for frame in frames] == [kind(**value) for value in values]


@given(value=st.fixed_dictionaries({"id": st.integers(0, 2**63 - 1)}, optional={"name": st.text()}))
@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_any_json_is_serialized_and_deserialized(tmp_path: Path, value: dict[str, Any]) -> None:
    write, read = JSONSerializer(str(tmp_path), ORDER_JSON), JSONDeserializer(registry=str(tmp_path))
    assert read(write(value, ORDERS), ORDERS) == value


# -- registries --


def test_the_registry_is_asked_once(registry: Registry) -> None:
    write, read = AvroSerializer(registry.address, ORDER), AvroDeserializer(registry.address)
    for number in range(5):
        assert read(write(order(number), ORDERS), ORDERS) == order(number)
    assert registry.asked == ["POST /subjects/orders-value/versions", "GET /schemas/ids/1"]
    write(order(1), SerializationContext("returns", VALUE))
    assert registry.asked[2:] == ["POST /subjects/returns-value/versions"]


def test_subjects_are_named_as_confluent_names_them(registry: Registry, client: SchemaRegistryClient) -> None:
    for strategy, their_strategy in (
        (record_subject, theirs.record_subject_name_strategy),
        (topic_record_subject, theirs.topic_record_subject_name_strategy),
    ):
        registry.subjects.clear()
        AvroSerializer(registry.address, ORDER, subject_name_strategy=strategy)(order(1), ORDERS)
        (ours,) = registry.subjects
        registry.subjects.clear()
        their = their_avro.AvroSerializer(client, ORDER, conf={"subject.name.strategy": their_strategy})
        their(order(1), THEIRS)
        assert [ours] == list(registry.subjects)
    with pytest.raises(UnsupportedSchema, match="has no name"):
        AvroSerializer(registry.address, "string", subject_name_strategy=record_subject)("x", ORDERS)


def test_without_auto_register_an_unknown_schema_is_an_error(registry: Registry) -> None:
    write = AvroSerializer(registry.address, ORDER, auto_register_schemas=False)
    with pytest.raises(SchemaNotFound):
        write(order(1), ORDERS)
    number = registry.add("orders-value", ORDER)
    frame = write(order(1), ORDERS)
    assert frame is not None
    assert frame[:5] == b"\0" + number.to_bytes(4, "big")


def test_the_latest_version_of_a_subject_and_a_schema_by_its_id(registry: Registry) -> None:
    first = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
    second = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]})
    one, two = registry.add("orders-value", first), registry.add("orders-value", second)
    latest = AvroSerializer(registry.address, use_latest_version=True)({"a": "x"}, ORDERS)
    by_id = AvroSerializer(registry.address, use_schema_id=one)({"a": 5}, ORDERS)
    assert (latest, by_id) == (b"\0" + two.to_bytes(4, "big") + b"\2x", b"\0" + one.to_bytes(4, "big") + b"\n")
    with pytest.raises(ValueError, match="no schema: pass one"):
        AvroSerializer(registry.address)


def test_values_are_resolved_to_the_reader_s_schema(registry: Registry) -> None:
    old = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "string", "default": "none"}]
    new = json.dumps({"type": "record", "name": "R", "fields": fields})
    frame = AvroSerializer(registry.address, old)({"a": 5}, ORDERS)
    assert AvroDeserializer(registry.address, new)(frame, ORDERS) == {"a": 5, "b": "none"}


def test_schemas_that_refer_to_others(registry: Registry, client: SchemaRegistryClient) -> None:
    money = json.dumps(
        {"type": "record", "name": "Money", "namespace": "c", "fields": [{"name": "cents", "type": "long"}]}
    )
    bill = json.dumps(
        {"type": "record", "name": "Bill", "namespace": "s", "fields": [{"name": "sum", "type": "c.Money"}]}
    )
    registry.add("money", money)
    schema = Schema("AVRO", bill, (Reference("c.Money", "money", 1),))
    their_schema = theirs.Schema(bill, "AVRO", [theirs.SchemaReference("c.Money", "money", 1)])
    value = {"sum": {"cents": 250}}
    frame = AvroSerializer(registry.address, schema)(value, ORDERS)
    assert frame == their_avro.AvroSerializer(client, their_schema)(value, THEIRS)
    assert AvroDeserializer(registry.address)(frame, ORDERS) == value


def test_a_directory_is_a_registry(tmp_path: Path, messages: dict[str, Any]) -> None:
    place = SchemaRegistry(location=str(tmp_path))
    kind = messages["shop.Order"]
    write, read = ProtobufSerializer(kind, place), ProtobufDeserializer(kind, registry=place)
    assert read(write(kind(id=7, price={"cents": 1}), ORDERS), ORDERS) == kind(id=7, price={"cents": 1})
    again = ProtobufSerializer(kind, place, auto_register_schemas=False)
    assert again(kind(id=7), ORDERS) == write(kind(id=7), ORDERS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.proto", "2.proto", "subjects.json"]


# -- objects and errors --


def test_functions_convert_objects_to_and_from_documents(tmp_path: Path) -> None:
    class Order:
        def __init__(self, number: int) -> None:
            self.number = number

    write = JSONSerializer(
        str(tmp_path), ORDER_JSON, lambda order, context: {"id": order.number, "name": context.topic}
    )
    read = JSONDeserializer(
        registry=str(tmp_path), from_dict=lambda document, context: Order(document["id"] + len(context.field))
    )
    assert read(write(Order(7), ORDERS), ORDERS).number == 12


def test_null_stays_null(tmp_path: Path) -> None:
    assert AvroSerializer(str(tmp_path), ORDER)(None, ORDERS) is None
    assert AvroDeserializer(str(tmp_path))(None, ORDERS) is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({**order(1), "id": "x"}, "does not fit its Avro schema"),
        ({"id": 1}, "does not fit its Avro schema"),
    ],
)
def test_a_value_that_does_not_fit_its_avro_schema(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(BadRecord, match=message):
        AvroSerializer(str(tmp_path), ORDER)(value, ORDERS)


def test_values_that_do_not_fit_json_and_protobuf(tmp_path: Path, messages: dict[str, Any]) -> None:
    write = JSONSerializer(str(tmp_path), ORDER_JSON)
    with pytest.raises(BadRecord, match=r"at \$\.id: -1 is less than the minimum of 0"):
        write({"id": -1}, ORDERS)
    with pytest.raises(BadRecord, match="the value has no JSON representation"):
        JSONSerializer(str(tmp_path), ORDER_JSON, validate=False)({"id": float("nan")}, ORDERS)
    with pytest.raises(BadRecord, match=r"a Customer is not a message shop\.Order"):
        ProtobufSerializer(messages["shop.Order"], str(tmp_path))(messages["shop.Customer"](), ORDERS)


def test_bytes_that_cannot_be_read(registry: Registry, messages: dict[str, Any]) -> None:
    read = AvroDeserializer(registry.address)
    with pytest.raises(BadRecord, match="shorter than magic byte"):
        read(b"\0", ORDERS)
    with pytest.raises(BadRecord, match="not in the wire format"):
        read(b'{"id": 1}', ORDERS)
    with pytest.raises(SchemaNotFound):
        read(b"\0\0\0\0\x63x", ORDERS)
    frame = AvroSerializer(registry.address, ORDER)(order(1), ORDERS)
    assert frame is not None
    with pytest.raises(BadRecord, match="malformed Avro payload"):
        read(frame[:9], ORDERS)
    with pytest.raises(BadRecord, match="is AVRO, not JSON"):
        JSONDeserializer(registry=registry.address)(frame, ORDERS)
    customer = ProtobufSerializer(messages["shop.Customer"], registry.address)(messages["shop.Customer"](), ORDERS)
    with pytest.raises(BadRecord, match=r"holds shop\.Customer at indexes \[0\], not shop\.Order"):
        ProtobufDeserializer(messages["shop.Order"], registry=registry.address)(customer, ORDERS)


@pytest.mark.parametrize("text", ["{", '{"type": "record"}', "[1]"])
def test_a_malformed_schema_is_refused_by_the_constructor(tmp_path: Path, text: str) -> None:
    with pytest.raises(UnsupportedSchema):
        AvroSerializer(str(tmp_path), text)
