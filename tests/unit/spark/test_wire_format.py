"""Codecs of the Confluent wire format, without Spark: beside confluent-kafka's serializers, and for what they do not do."""
# ruff: noqa: E402 - an older PySpark lacks what is imported

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.spark import skip_module_before

skip_module_before("4.1")
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.schemas import protobuf
from ottla.schemas.framing import BadRecord, head, indexes_written, message_indexes, schema_id
from ottla.schemas.registry import Reference, RegistryError, Schema, SchemaNotFound, SchemaRegistry, UnsupportedSchema
from ottla.spark.wire.codec import DecodingPlan, EncodingPlan, SchemaPlan
from tests.spark.schema_registry import Registry, serving

VALUE = SerializationContext("orders", MessageField.VALUE)
NOON = datetime(2026, 3, 1, 12, 0, 0, 123000, UTC)


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def client(registry: Registry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.address})


def reading(kind: str, text: str, registry: Registry | None, *, permissive: bool = False, **plan: Any) -> DecodingPlan:
    place = SchemaRegistry(location=registry.address) if registry else None
    return DecodingPlan(plan=SchemaPlan(kind=kind, text=text, **plan), registry=place, permissive=permissive)


def read(frames: list[bytes | None], asked: DecodingPlan) -> list[Any]:
    values: list[Any] = asked.column(pa.array(frames, pa.binary())).to_pylist(maps_as_pydicts="strict")
    return values


def encode(column: Any, kind: str, text: str, number: int, **plan: Any) -> list[bytes | None]:
    frames: list[bytes | None] = (
        EncodingPlan(plan=SchemaPlan(kind=kind, text=text, **plan), id=number).column(column).to_pylist()
    )
    return frames


def avro(*fields: dict[str, Any], name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": list(fields)})


ORDER = avro(
    {"name": "id", "type": "long"},
    {"name": "name", "type": ["null", "string"], "default": None},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "exactly", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "counts", "type": {"type": "map", "values": "int"}},
    {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}},
    {"name": "ratio", "type": "float"},
    {"name": "good", "type": "boolean"},
    {
        "name": "inner",
        "type": ["null", {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "double"}]}],
    },
)
ORDERS: list[dict[str, Any]] = [
    {
        "id": number,
        "name": None if number % 2 else f"n{number}",
        "day": date(2026, 3, number + 1),
        "at": NOON,
        "exactly": None if number % 2 else NOON.replace(microsecond=123456),
        "price": Decimal("12.50") + number,
        "state": "PAID",
        "tags": ["a"] * number,
        "counts": {"x": number},
        "mark": b"\x00\xff",
        "ratio": 0.5,
        "good": number == 1,
        "inner": {"x": 1.25} if number else None,
    }
    for number in range(3)
]


def test_avro_is_compatible_with_confluents_serializers(registry: Registry, client: SchemaRegistryClient) -> None:
    frames = [AvroSerializer(client, ORDER)(order, VALUE) for order in ORDERS]
    assert read([*frames, None], reading("AVRO", ORDER, registry)) == [*ORDERS, None]
    column = reading("AVRO", ORDER, registry).column(pa.array([None, *frames], pa.binary()))
    again = encode(column, "AVRO", ORDER, schema_id(frames[0] or b""))
    assert again == [None, *frames]
    assert [AvroDeserializer(client)(frame, VALUE) for frame in again[1:]] == ORDERS
    assert encode(column.slice(1, 2), "AVRO", ORDER, schema_id(frames[0] or b"")) == frames[:2]


def test_avro_is_resolved_to_the_readers_schema(registry: Registry) -> None:
    old = avro({"name": "id", "type": "int"}, {"name": "gone", "type": "string"})
    new = avro(
        {"name": "number", "type": "long", "aliases": ["id"]},
        {"name": "note", "type": "string", "default": "none"},
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
        {
            "name": "sum",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            "default": "\u0001",
        },
    )
    column = pa.array([{"id": 7, "gone": "x"}], pa.struct([("id", pa.int32()), ("gone", pa.string())]))
    frames = encode(column, "AVRO", old, registry.add("resolved", old))
    assert read(frames, reading("AVRO", new, registry)) == [
        {"number": 7, "note": "none", "raw": b"\xff", "sum": Decimal("0.01")}
    ]


FAR: Final = avro(
    {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "us", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
)


def test_undecodable_values_are_null_or_an_error(registry: Registry) -> None:
    """Another record type, a branch that the reader lacks, and times beyond microseconds, which became some in 1969."""
    other = registry.add("other", avro({"name": "a", "type": "string"}, name="Other"))
    branch = registry.add("branch", avro({"name": "ms", "type": ["string", "long"]}))
    far = registry.add("far", FAR)
    longest = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # -2^63
    bad = [
        head(other) + b"\x02x",
        head(branch) + b"\x00\x02x",
        head(far) + longest + b"\x00\x00\x00",
        head(far) + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00\x00\x00",  # 2^62 - 1
        head(far) + b"\x00\x00" + longest + b"\x00",
        head(far) + b"\x00",
    ]
    good = head(far) + b"\x00" * 4
    values = read([*bad, good], reading("AVRO", FAR, registry, permissive=True))
    assert values[:-1] == [None] * len(bad)
    assert values[-1]["ms"].year == 1970
    for frame in bad:
        with pytest.raises(BadRecord, match="cannot decode a value"):
            read([frame, good], reading("AVRO", FAR, registry))


def test_avro_with_a_schema_that_refers_to_another(registry: Registry) -> None:
    registry.add("money", avro({"name": "cents", "type": "long"}, name="Money"))
    text = avro({"name": "price", "type": "Money"}, {"name": "old", "type": ["null", "shop.Money"], "default": None})
    number = registry.add("priced", text, references=[{"name": "shop.Money", "subject": "money", "version": 1}])
    place = SchemaRegistry(location=registry.address)
    referred = tuple((name, schema.text) for name, schema in place.referred(place.by_id(number)).items())
    money = pa.struct([("cents", pa.int64())])
    column = pa.array([{"price": {"cents": 5}, "old": None}], pa.struct([("price", money), ("old", money)]))
    frames = encode(column, "AVRO", text, number, referred=referred)
    assert read(frames, reading("AVRO", text, registry, referred=referred)) == [{"price": {"cents": 5}, "old": None}]


def test_avro_unions_and_uuids(registry: Registry) -> None:
    text = avro(
        {
            "name": "either",
            "type": [
                "null",
                "int",
                "string",
                {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]},
            ],
        },
        {"name": "wide", "type": ["int", "null", "long"]},
        {"name": "one", "type": ["null", {"type": "enum", "name": "E", "symbols": ["A"]}]},
        {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "bytes", "type": {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}},
    )
    token = "123e4567-e89b-12d3-a456-426614174000"
    rows = [
        {"either": either, "wide": wide, "one": "A", "token": token, "bytes": token}
        for either, wide in (
            ({"member0": 5, "member1": None, "member2": None}, 2**40),
            ({"member0": None, "member1": "s", "member2": None}, None),
            ({"member0": None, "member1": None, "member2": {"x": 1}}, 1),
            (None, 1),
        )
    ]
    asked = reading("AVRO", text, registry)
    column = pa.array(rows, asked.plan.format().shape.column)
    assert read(encode(column, "AVRO", text, registry.add("unions", text)), asked) == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not an Avro schema"),
        ('"nothing"', "nothing is not defined"),
        (avro({"name": "next", "type": ["null", "Order"]}), "Order is recursive"),
        (avro({"name": "none", "type": "null"}), "null"),
        (avro(), "without fields"),
    ],
)
def test_avro_schemas_that_spark_cannot_have(text: str, message: str) -> None:
    with pytest.raises(UnsupportedSchema, match=message):
        SchemaPlan(kind="AVRO", text=text).format()


CUSTOMER = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Customer",
        "type": "object",
        "required": ["id", "nick"],
        "definitions": {"place": {"type": "object", "properties": {"city": {"type": "string", "minLength": 2}}}},
        "properties": {
            "id": {"type": "integer"},
            "nick": {"type": ["null", "string"]},
            "score": {"type": "number"},
            "home": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/place"}]},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "any": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        },
    }
)


def test_json_is_compatible_with_confluents_serializers(registry: Registry, client: SchemaRegistryClient) -> None:
    rows: list[dict[str, Any]] = [
        {
            "id": 1,
            "nick": None,
            "score": 1.5,
            "home": {"city": "Göteborg"},
            "tags": ["a"],
            "counts": {"x": 2},
            "any": "s",
        },
        {"id": 2, "nick": "n", "any": 5},
    ]
    frames = [JSONSerializer(CUSTOMER, client)(row, VALUE) for row in rows]
    values = read(frames, reading("JSON", CUSTOMER, registry))
    assert values == [
        {**rows[0], "any": '"s"'},
        {**rows[1], "score": None, "home": None, "tags": None, "counts": None, "any": "5"},
    ]
    column = reading("JSON", CUSTOMER, registry).column(pa.array(frames, pa.binary()))
    again = encode(column, "JSON", CUSTOMER, schema_id(frames[0] or b""), validate=True)
    assert [JSONDeserializer(CUSTOMER, schema_registry_client=client)(frame, VALUE) for frame in again if frame] == rows


def test_json_is_validated_if_asked(registry: Registry) -> None:
    number = registry.add("customers", CUSTOMER, "JSON")
    frames: list[bytes | None] = [head(number) + b'{"id":1,"nick":"x","home":{"city":"X"}}', head(number) + b'{"id":2}']
    assert [row["id"] for row in read(frames, reading("JSON", CUSTOMER, registry))] == [1, 2]
    assert read(frames, reading("JSON", CUSTOMER, registry, permissive=True, validate=True)) == [None, None]
    with pytest.raises(BadRecord, match=r"at \$\.home: .* is not valid under any of the given schemas"):
        read(frames, reading("JSON", CUSTOMER, registry, validate=True))


def test_json_with_references_and_all_of(registry: Registry) -> None:
    text = json.dumps({"type": "object", "allOf": [{"$ref": "base.json"}], "properties": {"b": {"$ref": "base.json"}}})
    base = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}})
    asked = reading("JSON", text, None, referred=(("base.json", base),))
    assert read([head(1) + b'{"a":1,"b":{"a":2}}'], asked) == [{"a": 1, "b": {"a": 2}}]
    with pytest.raises(UnsupportedSchema, match="is recursive"):
        SchemaPlan(kind="JSON", text='{"properties": {"me": {"$ref": "#"}}}').format()


PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "common/money.proto";
message Order {
  enum State { NEW = 0; PAID = 1; }
  message Line { string what = 1; uint32 count = 2; }
  int64 id = 1;
  optional string name = 2;
  State state = 3;
  repeated Line lines = 4;
  map<string, Line> by_name = 5;
  google.protobuf.Timestamp at = 6;
  google.protobuf.Int32Value maybe = 7;
  Money price = 8;
  oneof how { string card = 9; bytes cash = 10; }
  repeated sint32 numbers = 11;
  uint64 big = 12;
  map<int32, google.protobuf.Timestamp> times = 13;
}
message Other { string text = 1; }
"""
MONEY = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'


@pytest.fixture(scope="module")
def compiled() -> Any:
    """The classes of PROTO as any Protobuf program has them."""
    pool = descriptor_pool.DescriptorPool()
    for file in protobuf.compile_files(PROTO, {"common/money.proto": MONEY}):
        pool.Add(file)
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def test_protobuf_is_compatible_with_confluents_serializers(
    registry: Registry, client: SchemaRegistryClient, compiled: Any
) -> None:
    order = compiled("shop.Order")
    full = order(
        id=1, name="n", state="PAID", lines=[{"what": "w", "count": 2**32 - 1}], price={"cents": 7}, cash=b"\0",
        numbers=[-1, 2], big=2**64 - 1,
    )  # fmt: skip
    full.by_name["l"].what = "x"
    full.at.FromDatetime(NOON.replace(tzinfo=None))
    full.times[3].FromDatetime(NOON.replace(tzinfo=None))
    full.maybe.value = 0
    serialize = ProtobufSerializer(order, client, {"use.deprecated.format": False})
    frames = [serialize(full, VALUE), serialize(order(), VALUE)]
    number = schema_id(frames[0] or b"")
    referred = (("common/money.proto", MONEY),)
    row = {
        "id": 1, "name": "n", "state": "PAID", "lines": [{"what": "w", "count": 2**32 - 1}],
        "by_name": {"l": {"what": "x", "count": 0}}, "at": NOON, "maybe": 0, "price": {"cents": 7}, "card": None,
        "cash": b"\0", "numbers": [-1, 2], "big": Decimal(2**64 - 1), "times": {3: NOON},
    }  # fmt: skip
    empty: dict[str, Any] = {
        "id": 0, "name": None, "state": "NEW", "lines": [], "by_name": {}, "at": None, "maybe": None, "price": None,
        "card": None, "cash": None, "numbers": [], "big": Decimal(0), "times": {},
    }  # fmt: skip
    asked = reading("PROTOBUF", PROTO, registry, referred=referred)
    assert read([*frames, None], asked) == [row, empty, None]
    again = encode(asked.column(pa.array(frames, pa.binary())), "PROTOBUF", PROTO, number, referred=referred)
    deserialize = ProtobufDeserializer(order, {"use.deprecated.format": False}, client)
    assert [deserialize(frame, VALUE) for frame in again] == [full, order()]


def test_protobuf_tells_messages_apart_by_their_indexes(registry: Registry) -> None:
    text = 'syntax = "proto3"; message A { message B { int32 x = 1; } int32 y = 1; } message C { int32 x = 1; }'
    number = registry.add("letters", text, "PROTOBUF")
    column = pa.array([{"x": 5}], pa.struct([("x", pa.int32())]))
    for message, indexes in (("A.B", (0, 0)), ("C", (1,))):
        [frame] = encode(column, "PROTOBUF", text, number, message=message)
        assert message_indexes(frame or b"")[0] == indexes
        assert read([frame], reading("PROTOBUF", text, registry, message=message)) == [{"x": 5}]
    with pytest.raises(BadRecord, match=rf"schema id {number}: holds C at indexes \[1\], not A"):
        read([frame], reading("PROTOBUF", text, registry))
    with pytest.raises(UnsupportedSchema, match=r"no message Z in the \.proto file: it has A, A\.B, C"):
        SchemaPlan(kind="PROTOBUF", text=text, message="Z").format()


def test_protobuf_of_a_compiled_set_needs_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    files = protobuf.compile_files(PROTO, {"common/money.proto": MONEY})
    text, referred = protobuf.files_of(FileDescriptorSet(file=files).SerializeToString())
    monkeypatch.setattr(protobuf, "compile_files", None)
    asked = reading("PROTOBUF", text, None, referred=tuple(referred.items()), message="Other")
    assert read([head(9) + indexes_written((1,)) + b"\x0a\x01t"], asked) == [{"text": "t"}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", r"not a \.proto file: schema\.proto:1:1"),
        ('syntax = "proto3"; message A { A a = 1; }', "A is recursive"),
        ('syntax = "proto3"; message A { }', "no field"),
        ('syntax = "proto3";', "has no message"),
    ],
)
def test_protobuf_schemas_that_spark_cannot_have(text: str, message: str) -> None:
    with pytest.raises(UnsupportedSchema, match=message):
        SchemaPlan(kind="PROTOBUF", text=text).format()


def test_bad_bytes_are_null_or_an_error_of_one_line(registry: Registry) -> None:
    text = avro({"name": "id", "type": "long"}, {"name": "name", "type": "string"})
    number = registry.add("bad", text)
    other = registry.add("bad-other", '{"type": "object"}', "JSON")
    good = head(number) + b"\x02\x02a"
    bad = {
        b"": "0 bytes, shorter than magic byte and schema id",
        b"\x01" + bytes(16): "first byte 1, not 0",
        good[:-1]: f"schema id {number}: malformed Avro payload",
        head(number) + b"\x02\x01": f"schema id {number}: malformed Avro payload",
        head(9999) + b"\x02\x02a": "schema id 9999: .*404 Schema 9999 not found",
        head(other) + b"{}": f"schema id {other}: written as JSON, not AVRO",
    }
    values = read([*bad, good], reading("AVRO", text, registry, permissive=True))
    assert values == [None] * len(bad) + [{"id": 1, "name": "a"}]
    for frame, message in bad.items():
        with pytest.raises(BadRecord, match=message) as failed:
            read([good, frame], reading("AVRO", text, registry))
        assert "\n" not in str(failed.value)


def test_a_value_of_another_type_is_bad_alone() -> None:
    text = '{"type": "object", "properties": {"n": {"type": "integer"}}}'
    frames: list[bytes | None] = [
        head(1) + payload for payload in (b'{"n":1}', b'{"n":"x"}', b"[1]", b'{"n":1e3}', b"{", b'{"n":NaN}')
    ]
    assert read(frames, reading("JSON", text, None, permissive=True))[:3] == [{"n": 1}, None, None]
    with pytest.raises(BadRecord, match="does not fit its schema"):
        read(frames[:2], reading("JSON", text, None))


def test_values_that_do_not_fit_the_schema_are_not_written() -> None:
    text = avro(
        {"name": "id", "type": "long"}, {"name": "state", "type": {"type": "enum", "name": "S", "symbols": ["A"]}}
    )
    ids, states = ("id", pa.int64()), ("state", pa.string())
    for row, kind, message in (
        ({"id": None, "state": "A"}, [ids, states], "does not fit its Avro schema"),
        ({"id": 1, "state": "B"}, [ids, states], "does not fit its Avro schema"),
        ({"id": 1}, [ids], "the struct has no field state"),
        ({"id": 1, "state": "A", "more": 1}, [ids, states, ("more", pa.int32())], "the schema has no field more"),
        ({"id": "x", "state": "A"}, [("id", pa.string()), states], "does not fit the schema"),
    ):
        with pytest.raises(BadRecord, match=message):
            encode(pa.array([row], pa.struct(kind)), "AVRO", text, 1)


def test_message_indexes_are_written_and_read() -> None:
    for indexes in ((0,), (1,), (0, 0), (3, 200, 1)):
        frame = head(1) + indexes_written(indexes) + b"payload"
        assert message_indexes(frame) == (indexes, len(frame) - 7)
    assert indexes_written((0,)) == b"\0"
    for cut in (b"", b"\x04\x02", b"\x80\x80\x80\x80\x80\x80", b"\x01"):
        with pytest.raises(BadRecord, match="indexes"):
            message_indexes(head(1) + cut)


def test_a_registry_is_asked_once_for_an_id(registry: Registry) -> None:
    text = avro({"name": "once", "type": "long"})
    number = registry.add("once", text)
    for permissive in (True, False):
        assert (
            read([head(number) + b"\x02"] * 3, reading("AVRO", text, registry, permissive=permissive))
            == [{"once": 1}] * 3
        )
    assert registry.asked.count(f"GET /schemas/ids/{number}") == 1


def test_a_registry_that_is_busy_is_asked_again_and_one_that_is_gone_is_named(registry: Registry) -> None:
    place = SchemaRegistry(location=f"http://127.0.0.1:1,{registry.address}", retries=2)
    text = avro({"name": "busy", "type": "long"})
    registry.failures = [503, 429]
    number = place.register("busy/subject", Schema("AVRO", text))
    assert (place.latest("busy/subject").id, place.look_up("busy/subject", Schema("AVRO", text))) == (number, number)
    registry.failures = [422]
    with pytest.raises(RegistryError, match="422 not now"):
        place.latest("busy/subject")
    with pytest.raises(SchemaNotFound, match="404 Subject not found"):
        place.latest("nobody")
    with pytest.raises(
        RegistryError, match=r"no schema registry answers: http://127\.0\.0\.1:1/schemas/ids/7: .*refused"
    ):
        SchemaRegistry(location="http://u:secret@127.0.0.1:1", retries=1).by_id(7)


def test_credentials_of_a_registry(registry: Registry) -> None:
    registry.user_info = "me:se cret"
    try:
        registry.add("kept", ORDER)
        explicit = SchemaRegistry(location=registry.address, user_info="me:se cret")
        inside = SchemaRegistry(location=registry.address.replace("//", "//me:se%20cret@"))
        assert explicit.latest("kept") == inside.latest("kept")
        assert "cret" not in repr(explicit)
        with pytest.raises(RegistryError, match="401 Unauthorized"):
            SchemaRegistry(location=registry.address).latest("kept")
    finally:
        registry.user_info = None


def test_a_directory_of_schemas(tmp_path: Path) -> None:
    place = SchemaRegistry(location=str(tmp_path))
    money = Schema("PROTOBUF", MONEY)
    order = Schema("PROTOBUF", PROTO, (Reference("common/money.proto", "money", 1),))
    assert place.register("money", money) == 1
    assert place.register("orders-value", order) == 2
    assert place.register("other", Schema("AVRO", ORDER)) == 3
    assert place.register("more", Schema("AVRO", ORDER)) == 3
    assert sorted(file.name for file in tmp_path.iterdir()) == ["1.proto", "2.proto", "3.avsc", "subjects.json"]
    assert place.latest("orders-value") == (2, order)
    assert place.referred(order) == {"common/money.proto": money}
    assert place.look_up("more", Schema("AVRO", ORDER)) == 3
    for ask in (lambda: place.latest("none"), lambda: place.by_id(4), lambda: place.look_up("money", order)):
        with pytest.raises(SchemaNotFound):
            ask()
    with pytest.raises(RegistryError, match="no directory of schemas"):
        SchemaRegistry(location=str(tmp_path / "none")).by_id(1)


PLANS = {
    "AVRO": (SchemaPlan(kind="AVRO", text=ORDER), head(1)),
    "JSON": (SchemaPlan(kind="JSON", text=CUSTOMER, validate=True), head(2)),
    "PROTOBUF": (SchemaPlan(kind="PROTOBUF", text=PROTO, referred=(("common/money.proto", MONEY),)), head(3) + b"\0"),
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> SchemaRegistry:
    folder = tmp_path_factory.mktemp("schemas")
    registry = SchemaRegistry(location=str(folder))
    money = (Reference("common/money.proto", "money", 1),)
    for number, (kind, (plan, _)) in enumerate(PLANS.items(), 1):
        references = money if kind == "PROTOBUF" else ()
        assert registry.register(kind, Schema(kind, plan.text, references)) == number
    registry.register("money", Schema("PROTOBUF", MONEY))
    for kind, text in MEMBER.items():
        registry.register(f"members-{kind}", Schema(kind, text))
    return registry


@pytest.mark.parametrize("kind", PLANS)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(payloads=st.lists(st.binary(max_size=60), max_size=5))
def test_no_bytes_break_a_permissive_reader(kind: str, kept: SchemaRegistry, payloads: list[bytes]) -> None:
    plan, start = PLANS[kind]
    frames = [start + payload for payload in payloads]
    decoded = DecodingPlan(plan=plan, registry=kept, permissive=True).column(pa.array(frames, pa.binary()))
    decoded.validate(full=True)
    assert len(decoded) == len(frames)


MEMBERS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "name": st.none() | st.text(max_size=5),
        "ratio": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "tags": st.lists(st.text(max_size=3), max_size=3),
        "counts": st.dictionaries(st.text(max_size=3), st.integers(-(2**31), 2**31 - 1), max_size=3),
    }
)
MEMBER = {
    "AVRO": avro(
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "ratio", "type": ["double", "null"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
    ),
    "JSON": json.dumps(
        {
            "type": "object",
            "properties": {
                "id": {"type": "integer"},
                "name": {"type": "string"},
                "ratio": {"type": ["number", "null"]},
                "tags": {"type": "array", "items": {"type": "string"}},
                "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            },
        }
    ),
    "PROTOBUF": """syntax = "proto3"; message M { int64 id = 1; optional string name = 2; optional double ratio = 3;
        repeated string tags = 4; map<string, int32> counts = 5; }""",
}


@pytest.mark.parametrize("kind", MEMBER)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(rows=st.lists(st.none() | MEMBERS, max_size=4), cut=st.integers(0, 2))
def test_to_wire_and_from_wire_are_each_others_reverse(
    kind: str, kept: SchemaRegistry, rows: list[Any], cut: int
) -> None:
    plan = SchemaPlan(kind=kind, text=MEMBER[kind])
    column = pa.array(rows, plan.format().shape.column).slice(cut)
    frames = EncodingPlan(plan=plan, id=kept.latest(f"members-{kind}").id).column(column)
    decoded = DecodingPlan(plan=plan, registry=kept, permissive=False).column(frames)
    assert decoded.to_pylist(maps_as_pydicts="strict") == rows[cut:]


def test_a_message_has_one_of_a_oneof() -> None:
    text = 'syntax = "proto3"; message M { oneof how { string card = 1; int64 cash = 2; } }'
    column = pa.array([{"card": "x", "cash": 0}], pa.struct([("card", pa.string()), ("cash", pa.int64())]))
    with pytest.raises(BadRecord, match="card and cash are both set, of oneof how"):
        encode(column, "PROTOBUF", text, 1)
