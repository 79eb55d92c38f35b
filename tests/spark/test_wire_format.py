"""from_wire and to_wire in Spark: columns, types, streams through topics, errors; what the codecs do is tested beside them."""
# ruff: noqa: E402 - an older PySpark lacks what is imported

import json
import uuid
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.spark import skip_module_before

skip_module_before("4.1")
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from ottla.schemas.registry import Schema
from ottla.spark.functions import SchemaNotFound, SchemaRegistry, from_wire, to_wire
from ottla.testing import Kafka
from tests.spark.conftest import Cluster, Reading, Sent
from tests.spark.schema_registry import Registry, serving

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
            {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {
                "name": "lines",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Line",
                        "fields": [{"name": "what", "type": ["null", "string"]}],
                    },
                },
            },
            {"name": "counts", "type": {"type": "map", "values": "int"}},
        ],
    }
)
TYPES = (
    "struct<id:bigint,at:timestamp,local:timestamp_ntz,day:date,price:decimal(9,2),"
    "lines:array<struct<what:string>>,counts:map<string,int>>"
)


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with serving() as running:
        yield running


def order(number: int) -> dict[str, object]:
    return {
        "id": number,
        "at": 1_700_000_000_000 + number,
        "local": 1_700_000_000_000_000 + number,
        "day": None if number % 2 else date(2026, 3, 1),
        "price": Decimal(number) / 4,
        "lines": [{"what": None}, {"what": "x"}],
        "counts": {"a": number},
    }


def test_avro_from_a_topic_and_back(
    spark: SparkSession, cluster: Cluster, reading: Reading, registry: Registry
) -> None:
    client = SchemaRegistryClient({"url": registry.address})
    context = SerializationContext("orders", MessageField.VALUE)
    serialize = AvroSerializer(client, ORDER)
    frames = [serialize(order(number), context) for number in range(300)]
    topic = cluster.topic([*(Sent(frame) for frame in frames), Sent(None), Sent(b"\0")])
    orders = reading.batch(subscribe=topic).select(
        "offset", from_wire("value", subject="orders-value", registry=registry.address).alias("order")
    )
    assert orders.schema["order"].dataType.simpleString() == TYPES
    rows = orders.where("order IS NOT NULL").orderBy("offset").collect()
    assert [row.order.id for row in rows] == list(range(300))
    assert rows[3].order.asDict(recursive=True) == {
        **order(3),
        "at": datetime.fromtimestamp(1_700_000_000.003),  # noqa: DTZ006  (what Spark gives: local time)
        "local": datetime(2023, 11, 14, 22, 13, 20, 3),  # noqa: DTZ001
    }
    copy = cluster.topic()
    (
        orders.select(to_wire("order", subject="orders-value", registry=registry.address).alias("value"))
        .coalesce(1)
        .write.format("ottla")
        .option("kafka.bootstrap.servers", cluster.servers)
        .option("topic", copy)
        .mode("append")
        .save()
    )
    again = [record.value for record in cluster.records(copy)]
    assert again == [*frames, None, None]
    assert AvroDeserializer(client)(again[7] or b"", context)["price"] == Decimal("1.75")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            "avro",
            '{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"name","type":["null","string"]}]}',
        ),
        ("json", '{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string"}}}'),
        ("protobuf", 'syntax = "proto3"; message R { int64 id = 1; optional string name = 2; }'),
    ],
)
def test_the_reverse_in_every_format_with_a_directory(
    kind: str, text: str, spark: SparkSession, tmp_path: Path
) -> None:
    location = (
        tmp_path / kind
    )  # pytest may use the path of a test that has passed again, and executors keep its schemas
    location.mkdir()
    registry = SchemaRegistry(location=str(location))
    rows = spark.range(1000).selectExpr("struct(id, IF(id % 3 = 0, NULL, concat('n', id)) AS name) AS r")
    with pytest.raises(SchemaNotFound, match="register=True"):
        to_wire("r", text, subject="r-value", registry=registry, format=kind)
    wire = rows.select(
        "r", to_wire("r", text, subject="r-value", registry=registry, format=kind, register=True).alias("w")
    )
    back = wire.select("r", "w", from_wire("w", subject="r-value", registry=registry, mode="FAILFAST").alias("b"))
    assert back.where("r = b").count() == 1000
    assert back.where("hex(substr(w, 1, 5)) = '0000000001'").count() == 1000


def test_failfast_says_what_is_wrong_in_one_line(spark: SparkSession, registry: Registry) -> None:
    number = registry.add("fails", '"long"')
    frames = spark.createDataFrame(
        [(bytes([0, 0, 0, 0, number]) + b"\x02",), (bytes([0, 0, 0, 0, number]),)], "f binary"
    )
    null = frames.select(from_wire("f", number, registry=registry.address).alias("n"))
    assert [row.n for row in null.collect()] == [1, None]
    failing = frames.select(from_wire("f", number, registry=registry.address, mode="failfast"))
    with pytest.raises(
        PythonException, match=f"BadRecord: cannot decode a value, schema id {number}: malformed Avro payload"
    ):
        failing.collect()


def test_a_stream_meets_a_schema_that_is_newer_than_itself(
    spark: SparkSession, cluster: Cluster, reading: Reading, registry: Registry, tmp_path: Path
) -> None:
    def schema(*fields: str) -> str:
        return json.dumps({"type": "record", "name": "E", "fields": [{"name": f, "type": "int"} for f in fields]})

    old = registry.add("events-value", schema("a"))
    topic = cluster.topic([Sent(bytes([0, 0, 0, 0, old]) + b"\x02")])
    events = reading.stream(subscribe=topic, startingOffsets="earliest").select(
        from_wire("value", subject="events-value", registry=registry.address, mode="FAILFAST").alias("e")
    )
    query = (
        events.select("e.*")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start(str(tmp_path / "out"))
    )
    try:
        query.processAllAvailable()
        new = registry.add("events-value", schema("b", "a"))
        cluster.send(topic, [Sent(bytes([0, 0, 0, 0, new]) + b"\x06\x04")])
        query.processAllAvailable()
    finally:
        query.stop()
    frame = spark.read.parquet(str(tmp_path / "out"))
    assert (frame.columns, sorted(row.a for row in frame.collect())) == (["a"], [1, 2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"schema": '"long"'}, "Avro needs a registry"),
        ({"registry": "."}, "no schema: pass its text"),
        ({"schema": '"long"', "registry": ".", "format": "xml"}, "format xml: must be one of avro, json, protobuf"),
        ({"schema": '"long"', "registry": ".", "mode": "LAX"}, "mode LAX"),
        ({"schema": '"long"', "registry": ".", "message": "M"}, "only for Protobuf schemas"),
        ({"schema": b"", "format": "avro"}, "not a FileDescriptorSet"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, str], message: str, spark: SparkSession) -> None:
    with pytest.raises(ValueError, match=message):
        from_wire(col("value"), **arguments)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    ("kind", "text", "row"),
    [
        ("avro", '{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}', {"id": 7}),
        ("json", '{"type":"object","properties":{"id":{"type":"integer"}}}', {"id": 7}),
        ("protobuf", 'syntax = "proto3"; message A { string x = 1; } message R { int64 id = 1; }', {"id": 7}),
    ],
)
def test_schemas_in_headers_are_read(spark: SparkSession, kind: str, text: str, row: dict[str, int]) -> None:
    """Values of two serializers in one topic: the id in the value, and the GUID in a header."""
    with Kafka() as kafka:
        registry = SchemaRegistry(location=kafka.schema_registry_url)
        schema = Schema(kind.upper(), text)
        number = registry.register("t-value", schema)
        more: dict[str, Any] = {"message": "R"} if kind == "protobuf" else {}
        frames = spark.range(1).selectExpr(f"named_struct('id', CAST({row['id']} AS BIGINT)) AS r")
        framed = frames.select(to_wire("r", number, registry=registry, **more).alias("v")).collect()[0].v
        indexes = bytes(framed[5:7]) if kind == "protobuf" else b""
        guid = b"\1" + uuid.UUID(registry.guid_of(number)).bytes + indexes
        payload = bytes(framed[5 + len(indexes) :])
        other, odd = ("a", b"b"), ("__value_schema_id", b"?")
        header = ("__value_schema_id", guid)
        rows: list[Any] = [
            (bytes(framed), [other]),
            (payload, [other, header]),
            (bytes(framed), None),
            (payload, [odd]),
        ]
        rows += [(payload, [("__key_schema_id", guid)]), (None, [header])]
        types = "value binary, headers array<struct<key: string, value: binary>>"
        records = spark.createDataFrame(rows, types).coalesce(1)
        read = from_wire("value", number, registry=registry, headers="headers", **more).alias("r")
        values = [None if record.r is None else record.r.asDict() for record in records.select(read).collect()]
        assert values == [row, row, row, None, None, None]
        of_keys = from_wire("value", number, registry=registry, headers=col("headers"), field="key", **more).alias("r")
        keys = [None if record.r is None else record.r.asDict() for record in records.select(of_keys).collect()]
        assert keys[4] == row
        with pytest.raises(ValueError, match="must be one of key, value"):
            from_wire("value", number, registry=registry, field="header")
