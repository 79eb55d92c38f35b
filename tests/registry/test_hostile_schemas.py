"""Schemas that were made to take long, or to read what is not theirs: they get an answer soon, and others are served."""

import json
import socket
import statistics
import threading
import time
from collections.abc import Callable

import pytest

from ottla.testing import Kafka
from tests.registry.client import Registry
from tests.registry.schemas import ONE


def nested(around: str, depth: int, inner: str) -> str:
    before, after = around.split("@")
    return before * depth + inner + after * depth


def one_of(depth: int, width: int, kind: str) -> str:
    """Combinations in combinations: comparing two of them naively takes exponential time."""
    if depth == 0:
        return json.dumps({"type": kind})
    return json.dumps({"oneOf": [json.loads(one_of(depth - 1, width, kind)) for _ in range(width)]})


def union(count: int, name: str) -> str:
    return json.dumps([{"type": "fixed", "name": f"{name}{number}", "size": 1} for number in range(count)])


def enum_of(count: int, extra: str = "") -> str:
    symbols = [f"S{number}" for number in range(count)] + ([extra] if extra else [])
    return json.dumps({"type": "enum", "name": "E", "symbols": symbols})


def pattern_bomb(number: int) -> str:
    properties = {"a" * 30 + str(index): {"type": "string"} for index in range(100 + number)}
    return json.dumps({"patternProperties": {"^(a+)+$": {"type": "string"}}, "properties": properties})


def protobuf_messages(count: int) -> str:
    return 'syntax = "proto3";' + "".join(f"message M{number} {{ int32 a = 1; }}" for number in range(count))


HOSTILE: dict[str, tuple[str, Callable[[int], str]]] = {
    "deep arrays of Avro": ("AVRO", lambda n: nested('{"type":"array","items":@}', 1000, '"int"') + " " * n),
    "very deep arrays of Avro": ("AVRO", lambda n: nested('{"type":"array","items":@}', 25_000, '"int"') + " " * n),
    "deep JSON": ("JSON", lambda n: nested('{"not":@}', 1000, "{}") + " " * n),
    "very deep JSON": ("JSON", lambda n: nested('{"not":@}', 50_000, "{}") + " " * n),
    "deep messages": ("PROTOBUF", lambda n: 'syntax = "proto3";' + nested("message A{@}", 1000, "") + " " * n),
    "deep options": (
        "PROTOBUF",
        lambda n: 'syntax = "proto3"; option (x) = ' + nested("{a:@}", 5000, "1") + ";" + " " * n,
    ),
    "oneOf in oneOf": ("JSON", lambda n: one_of(5, 5, ["string", "integer", "number"][n])),
    "large unions": ("AVRO", lambda n: union(9000, "ABC"[n])),
    "large enums": ("AVRO", lambda n: enum_of(60_000, f"T{n}")),
    "1 MiB of an Avro default": (
        "AVRO",
        lambda n: json.dumps(
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": "a", "type": "string", "default": "x" * 900_000 + str(n)}],
            }
        ),
    ),
    "patterns that backtrack": ("JSON", pattern_bomb),
    "many messages": ("PROTOBUF", lambda n: protobuf_messages(8000 + n)),
    "many properties": (
        "JSON",
        lambda n: json.dumps({"properties": {f"p{number}": {"type": "string"} for number in range(20_000 + n)}}),
    ),
    "a reference to itself": ("JSON", lambda n: json.dumps({"$ref": "#", "title": str(n)})),
    "references in a circle": (
        "JSON",
        lambda n: json.dumps(
            {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a", "title": str(n)}
        ),
    ),
    "a number of many digits": ("JSON", lambda n: '{"maximum":' + "9" * 100_000 + str(n) + "}"),
    "a huge exponent": ("JSON", lambda n: '{"multipleOf":1e' + "9" * 9 + str(n) + "}"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_schema_ends_soon_and_blocks_no_other_request(registry: Registry, subject: str, name: str) -> None:
    kind, text = HOSTILE[name]
    other = registry.register(f"{subject}-other", ONE)
    ended = threading.Event()
    waits: list[float] = []

    def ask() -> None:
        """Look another schema up, as clients do, in the meantime; each answer is computed."""
        while not ended.is_set():
            begin = time.monotonic()
            answer = registry.get(f"/schemas/ids/{other}?fetchMaxId=true&x={len(waits)}")
            waits.append(time.monotonic() - begin)
            assert answer.status == 200
            time.sleep(0.005)

    client = threading.Thread(target=ask)
    client.start()
    try:
        for number in range(3):
            begin = time.process_time()  # the registry is in this process
            answer = registry.post(f"/subjects/{subject}/versions", {"schema": text(number), "schemaType": kind})
            assert answer.status in (200, 400, 409, 413, 422), answer
            assert time.process_time() - begin < 5, (number, answer.status)
    finally:
        ended.set()
        client.join()
    assert statistics.median(waits) < 0.1
    assert max(waits) < 1  # on a machine with other work; alone it is a tenth of that


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_nothing_is_fetched(registry: Registry, subject: str, kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.3)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/money"
        texts = {
            "AVRO": json.dumps({"type": "array", "items": address}),
            "JSON": json.dumps({"$schema": address, "$id": address, "properties": {"a": {"$ref": f"{address}.json"}}}),
            "PROTOBUF": f'syntax = "proto3"; import "{address}.proto"; message A {{}}',
        }
        for path in (f"/subjects/{subject}/versions", f"/compatibility/subjects/{subject}/versions/latest"):
            assert registry.post(path, {"schema": texts[kind], "schemaType": kind}).status == 422
        with pytest.raises(TimeoutError):
            server.accept()


def test_references_that_double_are_resolved_once(registry: Registry, subject: str) -> None:
    """Each schema refers to the one before it twice: 2^30 paths."""
    registry.register(f"{subject}-0", '{"type":"record","name":"R0","fields":[]}')
    for number in range(1, 31):
        references = [
            {"name": f"R{number - 1}", "subject": f"{subject}-{number - 1}", "version": 1},
            {"name": f"Other{number - 1}", "subject": f"{subject}-{number - 1}", "version": 1},
        ]
        text = json.dumps({"type": "record", "name": f"R{number}", "fields": [{"name": "a", "type": f"R{number - 1}"}]})
        begin = time.process_time()
        answer = registry.post(f"/subjects/{subject}-{number}/versions", {"schema": text, "references": references})
        assert time.process_time() - begin < 1
        assert answer.status in (200, 422), answer


def test_many_hostile_registrations_at_once(kafka: Kafka) -> None:
    """Checks have four threads: a fifth waits, and the registry answers."""
    registry = Registry(kafka.schema_registry_url)
    registry.register("a", one_of(5, 5, "string"), "JSON")
    answers: list[int] = []

    def post(number: int) -> None:
        text = one_of(5, 5, ["integer", "number", "boolean", "object"][number % 4])
        answers.append(registry.post("/subjects/a/versions", {"schema": text, "schemaType": "JSON"}).status)

    clients = [threading.Thread(target=post, args=(number,)) for number in range(8)]
    for client in clients:
        client.start()
    assert registry.get("/subjects").value == ["a"]
    assert len(answers) < len(clients)  # before all checks have ended
    for client in clients:
        client.join()
    assert len(answers) == 8
    assert set(answers) <= {409, 422}
