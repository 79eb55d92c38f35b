"""A program of confluent-kafka's old module for Avro.

confluent-kafka's own needs the packages avro and requests: it runs where they are installed. What is expected was shown by
both.
"""

import importlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import Kafka

from .libraries import LIBRARIES

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
ORDER = json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]})
TWO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": "?"}],
    }
)
BROKEN = ORDER.replace("long", "string")


def modules() -> list[Any]:
    """Return the module of each library that can be imported."""
    imported = []
    for library in LIBRARIES:
        try:
            imported.append(importlib.import_module(f"{library.__name__}.avro"))
        except ImportError:
            assert library is LIBRARIES[0]
    return imported


def failed(call: Callable[[], Any]) -> str:
    """Return the result of a call, or its error without what the registry says."""
    try:
        return str(call())
    except Exception as error:  # noqa: BLE001  (its class is shown)
        return f"{type(error).__name__}: {str(error).partition(' message:')[0]}"


def records(avro: Any, kafka: Kafka) -> list[Any]:
    """Produce and consume records."""
    key, value = avro.loads('"string"'), avro.loads(ORDER)
    servers = {"bootstrap.servers": kafka.bootstrap_servers, "schema.registry.url": kafka.schema_registry_url}
    producer = avro.AvroProducer(servers, default_key_schema=key, default_value_schema=value)
    producer.produce(topic="orders", value={"id": 7}, key="k", partition=0)
    producer.produce(topic="orders", value={"id": 8}, partition=0)
    producer.produce(topic="texts", value="text", value_schema=key)
    result: list[Any] = [producer.flush(10)]
    bare = avro.AvroProducer(servers)
    wrong: list[dict[str, Any]] = [{}, {"topic": "t", "value": 5}, {"topic": "t", "key": 5}]
    result += [failed(partial(bare.produce, **arguments)) for arguments in wrong]
    client = avro.CachedSchemaRegistryClient({"url": kafka.schema_registry_url})
    result.append(failed(lambda: avro.AvroProducer(servers, schema_registry=client)))
    config = {**servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = avro.AvroConsumer(config, reader_value_schema=avro.loads(TWO))
    partition = importlib.import_module(avro.__name__.removesuffix(".avro")).TopicPartition
    consumer.assign([partition("orders", 0, 0)])
    for _ in range(2):
        message = consumer.poll(10)
        result.append((message.key(), message.value(), message.error()))
    kafka.produce("orders", b"no Avro", partition=2)
    consumer.assign([partition("orders", 2, 0)])
    result += [failed(lambda: consumer.poll(10)), consumer.poll(0)]
    consumer.close()
    return result


def registry(avro: Any, kafka: Kafka) -> list[Any]:
    """Call the methods of the client."""
    client = avro.CachedSchemaRegistryClient({"url": kafka.schema_registry_url})
    one, two, broken = avro.loads(ORDER), avro.loads(TWO), avro.loads(BROKEN)
    result: list[Any] = [client.register("a", one), client.register("a", two), client.check_registration("a", one)]
    result += [failed(lambda: client.register("a", broken)), failed(lambda: client.check_registration("b", one))]
    result += [json.loads(str(client.get_by_id(1))), client.get_by_id(99), client.get_by_version("a", 9)]
    number, schema, version = client.get_latest_schema("a")
    result += [number, json.loads(str(schema)), version, client.get_version("a", two), client.get_version("b", two)]
    result += [
        client.test_compatibility("a", two),
        client.test_compatibility("a", broken),
        client.test_compatibility("b", two),
    ]
    result += [client.get_compatibility(), client.update_compatibility("FULL", "a"), client.get_compatibility("a")]
    result += [failed(lambda: client.update_compatibility("nope")), failed(lambda: client.get_compatibility("b"))]
    result += [client.delete_subject("a"), failed(lambda: client.delete_subject("b"))]
    wrong: list[Any] = [{}, {"url": 5}, {"url": "x"}, {"url": "http://a", "basic.auth.credentials.source": "x"}]
    wrong += [{"url": "http://a", "ssl.key.location": "x"}, {"url": "http://a", "nope": 1}]
    result += [failed(lambda conf=conf: avro.CachedSchemaRegistryClient(conf)) for conf in wrong]  # type: ignore[misc]  # a default
    return result


def serializer(avro: Any, kafka: Kafka) -> list[Any]:
    """Encode and decode values, and parse schemas."""
    client = avro.CachedSchemaRegistryClient({"url": kafka.schema_registry_url})
    made = avro.MessageSerializer(client)
    frame = made.encode_record_with_schema("t", avro.loads(ORDER), {"id": 5})
    result: list[Any] = [frame, made.encode_record_with_schema_id(1, {"id": 6}), made.decode_message(frame)]
    result += [made.decode_message(None), failed(lambda: made.encode_record_with_schema_id(9, 5, True))]
    result += [failed(lambda data=data: made.decode_message(data)) for data in (b"12345", b"\1" * 9, b"\0\0\0\0\x63\1")]  # type: ignore[misc]  # a default
    schema = avro.loads(ORDER)
    result += [schema == avro.loads(ORDER), hash(schema) == hash(avro.loads(ORDER)), schema.name, schema.fullname]
    result += [schema.namespace, schema.type, json.loads(str(schema)) == json.loads(ORDER), avro.loads('"int"').type]
    result.append(failed(lambda: avro.loads("{")).partition(":")[0])
    error = avro.ClientError("m", 5)
    result += [
        str(error),
        repr(error),
        error.http_code,
        repr(avro.KeySerializerError("k")),
        str(avro.SerializerError("s")),
    ]
    return result


EXPECTED: dict[str, list[Any]] = {
    "records": [
        0,
        "ClientError: Topic name not specified.",
        "ValueSerializerError: Avro schema required for values",
        "KeySerializerError: Avro schema required for key",
        "ValueError: Cannot pass schema_registry along with schema.registry.url config",
        ("k", {"id": 7, "note": "?"}, None),
        (None, {"id": 8, "note": "?"}, None),
        "SerializerError: Message deserialization failed for message at orders [2] offset 0: message does not start with "
        "magic byte",
        None,
    ],
    "registry": [
        *(1, 2, 1, "ClientError: Incompatible Avro schema:409", "ClientError: Schema or subject not found:404"),
        *(json.loads(ORDER), None, (None, None, None)),
        *(2, json.loads(TWO), 2, 2, None, True, False, True),
        *("BACKWARD", "FULL", "FULL"),
        "ClientError: Invalid level specified: nope",
        "ClientError: Unable to fetch compatibility level. Error code: 404",
        [1, 2],
        "ClientError: Unable to delete subject: {'error_code': 40401, 'message': \"Subject 'b' not found.\"}",
        "ValueError: Invalid URL provided for Schema Registry",
        "TypeError: URL must be of type str",
        "ValueError: Invalid URL provided for Schema Registry",
        "ValueError: schema.registry.basic.auth.credentials.source must be one of ['URL', 'USER_INFO', 'SASL_INHERIT']",
        "ValueError: Both schema.registry.ssl.certificate.location and schema.registry.ssl.key.location must be set",
        "ValueError: Unrecognized configuration properties: dict_keys(['nope'])",
    ],
    "serializer": [
        *(b"\0\0\0\0\1\x0a", b"\0\0\0\0\1\x0c", {"id": 5}, None),
        "KeySerializerError: Schema does not exist",
        "SerializerError: message is too small to decode",
        "SerializerError: message does not start with magic byte",
        "SerializerError: unable to fetch schema with id 99",
        *(True, True, "Order", "shop.Order", "shop", "record", True, "int", "ClientError"),
        *("m", "ClientError(error=m)", 5, "KeySerializerError(error=k)", "s"),
    ],
}


@pytest.mark.parametrize("program", [records, registry, serializer])
def test_a_program_of_the_old_module(program: Any, kafka: Kafka) -> None:
    for avro in modules():
        kafka.create_topic("orders", 3)
        assert program(avro, kafka) == EXPECTED[program.__name__], avro
        kafka.clear()


def test_a_schema_is_loaded_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    path.write_text(ORDER)
    for avro in modules():
        assert avro.load(str(path)) == avro.loads(ORDER)
