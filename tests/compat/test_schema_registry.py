"""One program for each part of the schema registry's module, run with both libraries: what they show must be equal."""

import asyncio
import importlib
import io
import json
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from google.protobuf import message_factory

from ottla.schemas import protobuf as descriptors
from ottla.testing import Kafka

from .libraries import LIBRARIES

ODD = ("x", 5.5, True, "NONE", "TOPIC", "topic_record")
Program = Callable[[Any, str], list[Any]]
"""(library, address of an empty registry) -> what the program shows."""

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": ""}],
    }
)
JSON = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]})
COMMON = 'syntax = "proto3"; package common; message Money { int64 cents = 1; }'
PROTO = """syntax = "proto3";
package shop;
import "common/money.proto";
message Other { int64 id = 1; }
message Order { int64 id = 1; common.Money price = 2; message Line { string what = 1; } }
"""


def module(library: Any, name: str) -> Any:
    return importlib.import_module(f"{library.__name__}.{name}".rstrip("."))


opened: list[Any] = []


def client_of(library: Any, url: str) -> Any:
    """Return a client, which is closed at the end of the test."""
    opened.append(module(library, "schema_registry").SchemaRegistryClient({"url": url, "max.retries": 0}))
    return opened[-1]


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    yield
    while opened:
        opened.pop().close()


def context(library: Any, topic: str = "orders", field: str = "value", headers: Any = None) -> Any:
    serialization = module(library, "serialization")
    return serialization.SerializationContext(topic, serialization.MessageField(field), headers)


def failed(function: Callable[[], Any]) -> str:
    """Return the result of a call, or the class of its error with the text where the libraries agree on it."""
    try:
        return repr(function())
    except (TypeError, ValueError) as error:
        return f"{'ValueError' if isinstance(error, ValueError) else 'TypeError'}: {error}"


def configs_of_the_client(library: Any, url: str) -> list[Any]:
    wrong: list[dict[str, Any]] = [
        {},
        {"url": 5},
        {"url": "nope"},
        {"url": url, "nope": 1},
        {"url": url, "timeout": 5, "basic.auth.user.info": "ab"},
        {"url": "http://a:b@127.0.0.1:1", "basic.auth.user.info": "a:b"},
        {"url": url, "ssl.key.location": "x"},
        {"url": url, "max.retries": "x"},
        {"url": url, "cache.capacity": "x"},
        {"url": url, "cache.latest.ttl.sec": "x"},
        {"url": url, "retries.wait.ms": "x"},
        {"url": url, "retries.max.wait.ms": "x"},
        {"url": url, "bearer.auth.credentials.source": "STATIC_TOKEN"},
    ]
    make = module(library, "schema_registry").SchemaRegistryClient
    return [failed(lambda conf=conf: bool(make(conf))) for conf in wrong]  # type: ignore[misc]  # a default argument


def schemas(library: Any, url: str) -> list[Any]:
    registry, client = module(library, "schema_registry"), client_of(library, url)
    metadata = registry.Metadata(None, registry.MetadataProperties({"owner": "ada"}), None)
    reference = registry.SchemaReference("shop.Order", "orders-value", 1)
    values = [
        registry.Schema(AVRO),
        registry.Schema(JSON, "JSON", metadata=metadata),
        registry.Schema('{"type":"array","items":"shop.Order"}', "AVRO", [reference]),
    ]
    result: list[Any] = [
        [value, value.to_dict(), value == registry.Schema.from_dict(value.to_dict())] for value in values
    ]
    result.append(len({hash(value) for value in values}))
    for number, value in enumerate(values):
        subject = ("orders-value", "orders-json", "lists")[number]
        result += [client.register_schema(subject, value), client.lookup_schema(subject, value)]
        result += [client.get_latest_version(subject), client.get_version(subject, 1), client.get_versions(subject)]
    registered = client.register_schema_full_response("orders-value", values[0])
    result += [
        registered.schema_id,
        client.get_schema(1),
        client.get_schema_by_guid(client.get_version("lists", 1).guid),
    ]
    result += [
        client.get_referenced_by("orders-value", 1),
        client.get_latest_with_metadata("orders-json", {"owner": "ada"}),
    ]
    result += [client.get_subjects("orders"), client.get_schema_versions(1), client.delete_version("lists", 1)]
    result += [client.get_subjects(deleted_only=True), client.delete_subject("orders-json"), client.get_subjects()]
    config = registry.ServerConfig(compatibility=registry.ConfigCompatibilityLevel.FULL)
    result += [client.set_config("orders-value", config), client.get_config("orders-value")]
    result += [client.set_compatibility(level="none"), client.get_compatibility(), client.delete_config("orders-value")]
    result += [client.get_global_mode(), client.update_mode("a", "READONLY", force=True), client.delete_mode("a")]
    for call in (client.set_config, client.set_compatibility, partial(client.get_schema, 99)):
        result.append(registry_error(library, call))
    for call in (partial(client.get_version, "a", 7), partial(client.register_schema, "a", registry.Schema("{"))):
        result.append(registry_error(library, call))
    return [shown(element) for element in result]


def shown(value: Any) -> str:
    """Return a value as text: of a version without its GUID, which some requests do not return, and the spaces of its text."""
    if not hasattr(value, "schema_id"):
        return str(value)
    row = value.to_dict()
    row |= {"schema": json.loads(row["schema"]), "guid": None, "metadata": bool(row.get("metadata"))}
    return str(sorted(row.items()))


def registry_error(library: Any, call: Callable[[], Any]) -> Any:
    try:
        call()
    except module(library, "schema_registry.error").SchemaRegistryError as error:
        return error.http_status_code, error.error_code, str(error)
    except ValueError as error:
        return str(error)
    raise AssertionError("no error")


def classes() -> tuple[Any, Any, Any]:
    """Return the classes of three messages: the second one in its file, one inside of it, the first one."""
    file = descriptors.file_of(PROTO, {"common/money.proto": COMMON})
    names = ("shop.Order", "shop.Order.Line", "shop.Other")
    order, line, other = (message_factory.GetMessageClass(file.pool.FindMessageTypeByName(name)) for name in names)
    return order, line, other


def formats(library: Any, client: Any) -> list[tuple[Any, Any, Any]]:
    """Return for each format its serializer, its deserializer, and a value; each takes configs."""
    avro, documents = module(library, "schema_registry.avro"), module(library, "schema_registry.json_schema")
    protobuf, (order, line, _) = module(library, "schema_registry.protobuf"), classes()
    return [
        (
            lambda conf=None, **more: avro.AvroSerializer(client, AVRO, conf=conf, **more),
            lambda conf=None, **more: avro.AvroDeserializer(client, conf=conf, **more),
            {"id": 7, "note": "a note"},
        ),
        (
            lambda conf=None, **more: documents.JSONSerializer(JSON, client, conf=conf, **more),
            lambda conf=None, **more: documents.JSONDeserializer(None, None, client, conf, **more),
            {"id": 7},
        ),
        (
            lambda conf=None, **more: protobuf.ProtobufSerializer(order, client, conf, **more),
            lambda conf=None, **more: protobuf.ProtobufDeserializer(order, conf, client, **more),
            order(id=7),
        ),
        (
            lambda conf=None, **more: protobuf.ProtobufSerializer(line, client, conf, **more),
            lambda conf=None, **more: protobuf.ProtobufDeserializer(line, conf, client, **more),
            line(what="x"),
        ),
    ]


def configs_of_serializers(library: Any, url: str) -> list[Any]:
    client = client_of(library, url)
    result: list[Any] = []
    names = ["auto.register.schemas", "normalize.schemas", "use.schema.id", "use.latest.version"]
    names += ["use.latest.with.metadata", "subject.name.strategy", "subject.name.strategy.type", "schema.id.serializer"]
    names += ["schema.id.deserializer", "validate", "validate.strict", "use.deprecated.format", "nope"]
    for pair in formats(library, client):
        for make in pair[:2]:
            for name in names:
                values = [value for value in ODD if (name, value) != ("use.schema.id", True)]
                result += [(name, value, failed(partial(made, make, {name: value}))) for value in values]
            both = {"use.latest.version": True, "auto.register.schemas": True}
            result += [failed(partial(made, make, both)), failed(partial(made, make, {"use.latest.version": True}))]
    return result


def made(make: Callable[[Any], Any], conf: dict[str, Any]) -> bool:
    """Make a serializer; return True."""
    return make(conf) is not None


def frames(library: Any, url: str) -> list[Any]:
    registry, client, result = module(library, "schema_registry"), client_of(library, url), []
    header, dual = registry.header_schema_id_serializer, registry.dual_schema_id_deserializer
    client.set_compatibility(level="NONE")  # the record names of three formats are one subject
    for number, (serializer, deserializer, value) in enumerate(formats(library, client)):
        place = partial(context, library, f"orders-{number}")
        for name in ("", "topic_subject", "topic_record_subject", "record_subject"):
            strategy = getattr(registry, f"{name}_name_strategy") if name else None
            frame = serializer({"subject.name.strategy": strategy})(value, place())
            result += [frame, str(deserializer()(frame, place())), sorted(client.get_subjects())]
        places: list[Any] = [[], {}, [("a", b"b")]]
        for headers in places:
            ctx = place(headers=headers)
            payload = serializer({"schema.id.serializer": header})(value, ctx)
            names = [str(name) for name in (headers if isinstance(headers, dict) else dict(headers))]
            result += [payload, names, str(deserializer({"schema.id.deserializer": dual})(payload, ctx))]
        frame = serializer({"schema.id.serializer": suffix_id})(value, place())
        result += [frame, str(deserializer({"schema.id.deserializer": read_suffix})(frame, place()))]
        result += [serializer()(None, place()), deserializer()(None, place())]
        result.append(str(deserializer({"use.latest.version": True})(serializer()(value, place()), place())))
        for ctx in (place(), None, place(headers=5)):
            result.append(refused(library, partial(serializer({"schema.id.serializer": header}), value, ctx)))
    return result


def suffix_id(payload: bytes, ctx: Any, schema_id: Any) -> bytes:
    """Write the id of a schema, and the indexes of a message, after the payload."""
    del ctx
    return payload + bytes(schema_id.id_to_bytes()[1:]).ljust(9, b"\xff")


def read_suffix(payload: bytes, ctx: Any, schema_id: Any) -> io.BytesIO:
    """Read what `suffix_id` has written."""
    del ctx
    schema_id.from_bytes(io.BytesIO(b"\0" + payload[-9:].rstrip(b"\xff")))
    return io.BytesIO(payload[:-9])


def values_that_do_not_fit(library: Any, url: str) -> list[Any]:
    result: list[Any] = []
    wrong: list[list[Any]] = [[{"id": "x"}, 5, {}], [{"id": "x"}, 5, {}], [{"id": 7}, 5, classes()[1]()], [5]]
    client = client_of(library, url)
    for number, (serializer, deserializer, value) in enumerate(formats(library, client)):
        ctx, values = context(library, f"orders-{number}"), wrong[number]
        serializer()(value, ctx)
        result += [refused(library, partial(serializer(), bad_value, ctx)) for bad_value in values]
        for data in (b"", b"\0", b"\0\0\0", b"\1\0\0\0\1\2\3", b"\0\0\0\0\1"):
            result.append(refused(library, partial(deserializer(), data, ctx)))
    return result


def refused(library: Any, call: Callable[[], Any]) -> str:
    """Return what a call returns, or that it raises an error of a value."""
    try:
        return repr(call())
    except (
        module(library, "serialization").SerializationError,
        TypeError,
        ValueError,
        AttributeError,
        EOFError,
        struct.error,
    ):
        return "error"


def noted(names: list[Any], ctx: Any, name: Any) -> str:
    """Note the name of a record; return a subject."""
    del ctx
    names.append(name)
    return f"subject-{name}"


def objects(library: Any, url: str) -> list[Any]:
    client, avro = client_of(library, url), module(library, "schema_registry.avro")
    documents = module(library, "schema_registry.json_schema")
    seen: list[Any] = []

    def to_dict(value: Any, ctx: Any) -> Any:
        seen.append((ctx.topic, str(ctx.field)))
        return {"id": value, "note": "made"}

    frame = avro.AvroSerializer(client, AVRO, to_dict)(5, context(library))
    read = avro.AvroDeserializer(client, from_dict=lambda value, ctx: (value["id"], ctx.topic))
    result: list[Any] = [frame, read(frame, context(library)), seen]
    fields = [{"name": "x", "type": "int"}]
    union = json.dumps([{"type": "record", "name": name, "fields": fields} for name in "AB"])
    frame = avro.AvroSerializer(client, union)(("B", {"x": 1}), context(library, "unions"))
    result += [frame, avro.AvroDeserializer(client, return_record_name=True)(frame, context(library, "unions"))]
    for primitive, value in (('"string"', "a"), ('"long"', 5), ('{"type":"bytes"}', b"raw")):
        named: list[Any] = []
        conf = {"subject.name.strategy": partial(noted, named)}
        result += [avro.AvroSerializer(client, primitive, conf=conf)(value, context(library))[5:], named]
    strict = {"validate.strict": True}
    result.append(failed(lambda: avro.AvroSerializer(client, AVRO, conf=strict)({"id": 1}, context(library)))[:10])
    encoder = documents.JSONSerializer(JSON, client, json_encode=lambda value: json.dumps(value, indent=1))
    frame = encoder({"id": 1}, context(library, "documents"))
    decoder = documents.JSONDeserializer(JSON, json_decode=lambda text: json.loads(text) | {"id": 9})
    result += [frame, decoder(frame, context(library, "documents"))]
    unchecked = documents.JSONSerializer(JSON, client, conf={"validate": False})
    result.append(unchecked({"id": "x"}, context(library, "documents")))
    pinned = {"use.schema.id": 1, "auto.register.schemas": False}
    result.append(avro.AvroSerializer(client, conf=pinned)({"id": 1, "note": ""}, context(library)))
    unknown = avro.AvroSerializer(client, AVRO, conf={"auto.register.schemas": False})
    result.append(registry_error(library, partial(unknown, {"id": 1}, context(library, "unknown"))))
    return result


def builders(library: Any, url: str) -> list[Any]:
    avro, documents = module(library, "schema_registry.avro"), module(library, "schema_registry.json_schema")
    protobuf, client = module(library, "schema_registry.protobuf"), client_of(library, url)
    made: list[Any] = []
    order = classes()[0]
    pairs: list[tuple[Any, Any, Any]] = [
        (
            avro.AvroSerializerBuilder({"url": url}, schema=AVRO),
            avro.AvroDeserializerBuilder(None, client),
            {"id": 1, "note": "a"},
        ),
        (
            documents.JSONSerializerBuilder().set_schema(JSON).set_schema_registry_client(client),
            documents.JSONDeserializerBuilder(schema_registry_client=client, json_decode=json.loads),
            {"id": 2},
        ),
        (
            protobuf.ProtobufSerializerBuilder(message_type=order).set_schema_registry_config({"url": url}),
            protobuf.ProtobufDeserializerBuilder().set_message_type(order),
            order(id=3),
        ),
    ]
    result: list[Any] = []
    for number, (first, second, value) in enumerate(pairs):
        (serializer, left), (deserializer, _) = first.build({"a": 1}, False), second.build({}, True)
        frame = serializer(value, context(library, f"orders-{number}"))
        result += [
            frame,
            str(deserializer(frame, context(library, f"orders-{number}"))),
            left,
            type(serializer).__name__,
        ]
        serializer.close()
    avro.AvroSerializerBuilder(None, client, AVRO, serializer_init=made.append).build({}, False)
    result.append([type(instance).__name__ for instance in made])
    wrong: list[Any] = [
        avro.AvroSerializerBuilder({"url": url}, client),
        protobuf.ProtobufSerializerBuilder(None, client),
    ]
    result += [failed(partial(builder.build, {}, False)) for builder in wrong]
    return result


def asynchronous(library: Any, url: str) -> list[Any]:
    avro, registry = module(library, "schema_registry.avro"), module(library, "schema_registry")

    async def scenario() -> list[Any]:
        async with registry.AsyncSchemaRegistryClient({"url": url}) as client:
            serializer = await avro.AsyncAvroSerializer(client, AVRO)
            frame = await serializer({"id": 1, "note": "a"}, context(library))
            value = await (await avro.AsyncAvroDeserializer(client))(frame, context(library))
            built, left = await avro.AsyncAvroSerializerBuilder(schema_registry_client=client, schema=AVRO).build(
                {}, True
            )
            again = await built({"id": 1, "note": "a"}, context(library))
            subjects, version = await client.get_subjects(), await client.get_latest_version("orders-value")
            return [
                frame,
                value,
                again,
                left,
                subjects,
                version.version,
                isinstance(serializer, avro.AsyncAvroSerializer),
            ]

    return asyncio.run(scenario())


PROGRAMS: list[Program] = [
    builders,
    asynchronous,
    configs_of_the_client,
    schemas,
    configs_of_serializers,
    frames,
    values_that_do_not_fit,
    objects,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_shows_the_same_with_both_libraries(program: Program, kafka: Kafka) -> None:
    results = []
    for library in LIBRARIES:
        results.append(program(library, kafka.schema_registry_url))
        kafka.clear()
    rows = enumerate(zip(*results, strict=True))
    differences = [f"value {index}\n{theirs}\n{ours}" for index, (theirs, ours) in rows if theirs != ours]
    assert not differences, "\n".join(differences)


def test_rules_of_a_data_contract_are_an_error(kafka: Kafka) -> None:
    """They may encrypt fields, or reject values: a serializer that ignores them would be worse than none."""
    from ottla.compat.confluent_kafka import schema_registry as registry
    from ottla.compat.confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from ottla.compat.confluent_kafka.serialization import SerializationError

    client = registry.SchemaRegistryClient({"url": kafka.schema_registry_url})
    rule = registry.Rule(
        "hide",
        None,
        registry.RuleKind.TRANSFORM,
        registry.RuleMode.WRITE,
        "ENCRYPT",
        ["PII"],
        None,
        None,
        None,
        None,
        False,
    )
    client.register_schema("orders-value", registry.Schema(AVRO, rule_set=registry.RuleSet(None, [rule])))
    latest = {"use.latest.version": True, "auto.register.schemas": False}
    ctx = context(LIBRARIES[1])
    with pytest.raises(SerializationError, match="hide"):
        AvroSerializer(client, conf=latest)({"id": 1}, ctx)
    with pytest.raises(SerializationError, match="hide"):
        AvroDeserializer(client)(b"\0\0\0\0\1\2\0", ctx)
    with pytest.raises(ValueError, match="rule_registry"):
        AvroSerializer(client, AVRO, rule_registry=object())


def test_a_registry_that_does_not_answer_is_an_error() -> None:
    from ottla.compat.confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError

    client = SchemaRegistryClient({"url": "http://127.0.0.1:1", "max.retries": 1, "retries.wait.ms": 1})
    with pytest.raises(SchemaRegistryError, match="no schema registry answers"):
        client.get_subjects()
