"""Avro payloads that end a process or fill its memory are refused before fastavro reads them."""

import io
import random
import tracemalloc
from typing import Any

import fastavro
import pytest

from ottla.schemas.avro import whole
from ottla.schemas.avro_payload import MOST_EMPTY_ITEMS, MOST_LEVELS, payload_check
from ottla.schemas.framing import BadRecord
from ottla.spark.wire.avro import Avro

LIST = {"type": "record", "name": "N", "namespace": "n", "fields": [{"name": "next", "type": ["null", "N"]}]}
TREE = {
    "type": "record",
    "name": "T",
    "fields": [
        {"name": "text", "type": "string"},
        {"name": "below", "type": {"type": "array", "items": "T"}},
        {"name": "named", "type": {"type": "map", "values": ["null", "T", "long"]}},
        {"name": "kind", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "size", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "ratio", "type": {"type": "double"}},
        {"name": "flag", "type": "boolean"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ],
}
NULLS = {"type": "array", "items": "null"}
EMPTY = {"type": "array", "items": {"type": "record", "name": "R", "fields": [{"name": "n", "type": "null"}]}}


def encode(schema: Any, value: Any) -> bytes:
    payload = io.BytesIO()
    fastavro.schemaless_writer(payload, fastavro.parse_schema(whole(json(schema), {})), value)
    return payload.getvalue()


def json(schema: Any) -> str:
    import json as text

    return text.dumps(schema)


def checked(schema: Any, payload: bytes) -> None:
    check = payload_check(whole(json(schema), {}))
    assert check is not None
    check(b"head" + payload, 4)


def test_deep_nesting_is_refused() -> None:
    for levels in (MOST_LEVELS + 1, 5_000, 1_000_000):
        with pytest.raises(BadRecord, match="records within each other"):
            checked(LIST, b"\x02" * levels + b"\0")
    checked(LIST, b"\x02" * (MOST_LEVELS - 1) + b"\0")


@pytest.mark.parametrize("schema", [NULLS, EMPTY], ids=["null", "record of nulls"])
@pytest.mark.parametrize(
    "payload", ["80b4891300", "ffffffffffffffffff0100", "01" + "00" * 9], ids=["many", "all", "block"]
)
def test_items_without_bytes_are_bounded(schema: Any, payload: str) -> None:
    tracemalloc.start()
    if payload.startswith("01"):
        checked(schema, bytes.fromhex(payload))
    else:
        with pytest.raises(BadRecord, match=f"more than {MOST_EMPTY_ITEMS} array items"):
            checked(schema, bytes.fromhex(payload))
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("schema", ["string", {"type": "array", "items": "int"}, ["null", "string"]])
def test_most_schemas_need_no_check(schema: Any) -> None:
    assert payload_check(whole(json(schema), {})) is None


def tree(dice: random.Random, depth: int = 0) -> dict[str, Any]:
    def some() -> int:
        return dice.randrange(3) if depth < 4 else 0

    named: dict[str, Any] = {f"k{number}": dice.choice([None, tree(dice, depth + 1), 5]) for number in range(some())}
    return {
        "text": "x" * dice.randrange(100),
        "below": [tree(dice, depth + 1) for _ in range(some())],
        "named": named,
        "kind": dice.choice("AB"),
        "size": b"abc",
        "ratio": 1.5,
        "flag": True,
        "day": 7,
    }


def test_payloads_of_fastavro_pass_and_truncated_ones_do_not() -> None:
    dice = random.Random(7)
    for _ in range(30):
        payload = encode(TREE, tree(dice))
        checked(TREE, payload)
        with pytest.raises(BadRecord, match="malformed"):
            checked(TREE, payload[: dice.randrange(len(payload))])


def test_spark_refuses_items_without_bytes_of_a_writer() -> None:
    decode = Avro(json({"type": "array", "items": "long"}), {}).decoder(json(NULLS), {})
    with pytest.raises(BadRecord, match="array items"):
        decode(bytes.fromhex("80b4891300"), 0)
