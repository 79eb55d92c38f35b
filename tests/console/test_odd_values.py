"""Odd values in every place where the console shows values: none costs the page, or another message."""

import json
import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any, Final

import pytest

from ottla import Admin, NewTopic, Producer
from ottla.console.indented_json import indent_json
from ottla.console.record_view import show
from ottla.schemas.registry import SchemaRegistry
from ottla.schemas.registry_values import RegistryValues
from tests.console import Broker
from tests.console.browser import Browse

for library in ("fastavro", "google.protobuf"):
    pytest.importorskip(library, reason="the extra schema")

AVRO: Final = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
        {"name": "ratio", "type": "double"},
    ],
}
PROTO: Final = """
syntax = "proto3";
import "google/protobuf/any.proto";
import "google/protobuf/timestamp.proto";
message M {
  string name = 1;
  google.protobuf.Any extra = 2;
  google.protobuf.Timestamp at = 3;
  repeated M inner = 4;
  bytes raw = 5;
}
"""


def avro(name: str, day: int, at: int, raw: bytes, ratio: float) -> bytes:
    """Written by hand: fastavro refuses what it cannot read."""
    parts = [varint(len(name.encode())), name.encode(), varint(day), varint(at), varint(len(raw)), raw]
    return b"\0" + struct.pack(">I", 1) + b"".join(parts) + struct.pack("<d", ratio)


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = b""
    while True:
        byte, number = number & 127, number >> 7
        if not number:
            return out + bytes([byte])
        out += bytes([byte | 128])


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def proto(*fields: bytes) -> bytes:
    return b"\0" + struct.pack(">I", 2) + b"\0" + b"".join(fields)


NAME: Final = field(1, "Zoë".encode())
UNKNOWN_ANY: Final = field(2, field(1, b"type.googleapis.com/x.Y") + field(2, b"\x01\x02"))
FAR: Final = field(3, b"\x08" + b"\xff" * 8 + b"\x7f")
VALUES: Final[dict[str, bytes | None]] = {
    "null": None,
    "empty": b"",
    "lone surrogate": rb'{"a": "\ud800"}',
    "lone surrogate as a name": rb'{"\udfff": 1}',
    "duplicate names": b'{"a": 1, "a": 2}',
    "long digits": b'{"a": 12345678901234567890.12345678901234567890, "b": 1E400, "c": 1.0, "d": -0}',
    "five thousand digits": b'{"a": ' + b"9" * 5000 + b"}",
    "not a number": b'{"a": NaN, "b": -Infinity}',
    "deep": b"[" * 100_000,
    "deep and closed": b"[" * 900 + b"]" * 900,
    "cut": b'{"a": "',
    "not UTF-8": b'{"a": "\xff"}',
    "surrogate in UTF-8": b'"\xed\xa0\x80"',
    "NUL": b'{"a": "\0"}',
    "controls": bytes(range(32)),
    "long line": b"x" * 100_000,
    "markup": b"<script>alert(1)</script>",
    "French": "10\u00a0\u20ac \u00e0 Saint\u2011\u00c9tienne".encode(),
    "Japanese": "\u6771\u4eac\u3000\u5927\u962a".encode(),
    "Persian": "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645".encode(),
    "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001fae9".encode(),
    "soft hyphen": "Donau\u00addampf".encode(),
    "byte order mark": "\ufeffid,name".encode(),
    "direction": "\u202eabc\u2066".encode(),
    "Avro": avro("Zo\u00eb", 20_000, 1_700_000_000_000, b"\xff\0", 0.5),
    "Avro: day of the year 10000 and later": avro("far", 2**31 - 1, 2**62, b"", 1e308),
    "Avro: times before the year 1": avro("far", -(2**31), -(2**62), b"", float("-inf")),
    "Avro: not a number": avro("odd", 0, 0, b"", float("nan")),
    "Avro: cut": avro("cut", 0, 0, b"", 0)[:-3],
    "Avro: no UTF-8": avro("cut", 0, 0, b"", 0).replace(b"cut", b"\xff\xfe\xfd"),
    "Protobuf": proto(NAME),
    "Protobuf: Any of an unknown message": proto(NAME, UNKNOWN_ANY),
    "Protobuf: far time": proto(NAME, FAR),
    "Protobuf: odd messages within others": proto(NAME, field(4, NAME + UNKNOWN_ANY), field(5, b"\xff")),
    "Protobuf: cut": proto(NAME)[:-2],
    "Protobuf: no UTF-8": proto(field(1, b"\xff")),
    "Avro: an array of twenty million nulls": b"\0" + struct.pack(">I", 3) + varint(20_000_000) + b"\0",
    "schema that is not known": b"\0" + struct.pack(">I", 77) + b"x",
}
TIMES: Final = (0, 1, 253_402_300_800_000, 2**53, 2**62, 2**63 - 1)
"""The third is the first of the year 10000."""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("schemas")
    (directory / "1.avsc").write_text(json.dumps(AVRO))
    (directory / "2.proto").write_text(PROTO)
    (directory / "3.avsc").write_text('{"type": "array", "items": "null"}')
    (directory / "subjects.json").write_text(json.dumps({"subjects": {"odd-value": [1, 2], "nulls": [3]}}))
    return directory


@pytest.fixture(scope="module")
def odd_topic(broker: Broker) -> str:
    """A topic with every value as key, value and header, and every time."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("odd", 1, 1, config=LATER)]).check()
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for name, value in VALUES.items():
            producer.produce("odd", value, name, timestamp=1_700_000_000_000, headers=[(name, value), ("\u202e", b"x")])
            producer.produce("odd", name, value, timestamp=1_700_000_000_000)
        for timestamp in TIMES:
            producer.produce("odd", f"time {timestamp}", timestamp=timestamp)
    return "odd"


LATER: Final = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"}
COUNT: Final = 2 * len(VALUES) + len(TIMES)


@pytest.mark.parametrize("form", ["auto", "json", "text", "hex"])
def test_a_page_has_every_message(browse: Browse, odd_topic: str, registry: Path, form: str) -> None:
    browser = browse(registry=SchemaRegistry(location=str(registry)))
    text = browser.get(f"/topics/{odd_topic}/messages", start="oldest", limit=200, format=form)
    for offset in range(COUNT):
        assert f"/topics/{odd_topic}/messages/0/{offset}" in text
    for offset in range(COUNT):
        browser.get(f"/topics/{odd_topic}/messages/0/{offset}", format=form)
    assert "<script>alert" not in browser.client.get(f"/c/test/topics/{odd_topic}/messages?start=oldest&limit=200").text


def test_a_page_with_an_array_of_twenty_million_nulls_costs_little(
    browse: Browse, odd_topic: str, registry: Path
) -> None:
    """Ten bytes that are two gigabytes of objects, and half a minute, when they are read."""
    browser = browse(registry=SchemaRegistry(location=str(registry)))
    offset = 2 * list(VALUES).index("Avro: an array of twenty million nulls")
    browser.get(f"/topics/{odd_topic}/messages/0/0")  # what is imported at first use is not what is measured
    began = time.process_time()
    tracemalloc.start()
    text = browser.get(f"/topics/{odd_topic}/messages/0/{offset}")
    highest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "00 00 00 00 03 80 b4 89 13" in text  # shown as bytes
    assert time.process_time() - began < 5
    assert highest < 64 << 20


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_a_download_has_every_message(browse: Browse, odd_topic: str, kind: str) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    browser = browse()
    response = browser.client.get(f"/c/test/topics/{odd_topic}/messages?download={kind}&start=oldest&limit=1000")
    assert response.status_code == 200
    if kind == "json":
        assert sorted(row["offset"] for row in response.json()) == list(range(COUNT))


class Clock:
    def now_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Avro", ["2024-10-04", "Zo\u00eb", "2023-11-14", "\u00ff\0", 0.5]),
        ("Avro: day of the year 10000 and later", [2**31 - 1, "far", 2**62, "", 1e308]),
        ("Avro: times before the year 1", [-(2**31), "far", -(2**62), "", float("-inf")]),
    ],
)
def test_avro_values_that_python_lacks_are_shown_as_numbers(registry: Path, name: str, expected: list[Any]) -> None:
    text = RegistryValues(SchemaRegistry(location=str(registry)), Clock().now_ms)("odd", VALUES[name] or b"")
    document = json.loads(text or "")
    document["at"] = document["at"][:10] if isinstance(document["at"], str) else document["at"]
    assert [document[field_name] for field_name in ("day", "name", "at", "raw", "ratio")] == expected


def test_protobuf_values_without_a_json_form_are_shown_by_their_fields(registry: Path) -> None:
    values = RegistryValues(SchemaRegistry(location=str(registry)), Clock().now_ms)

    def document(name: str) -> Any:
        return json.loads(values("odd", VALUES[name] or b"") or "")

    unknown = {"type_url": "type.googleapis.com/x.Y", "value": "AQI="}
    assert document("Protobuf: Any of an unknown message") == {"name": "Zo\u00eb", "extra": unknown}
    assert document("Protobuf: far time") == {"name": "Zo\u00eb", "at": {"seconds": 2**63 - 1}}
    assert document("Protobuf: odd messages within others") == {
        "name": "Zo\u00eb",
        "inner": [{"name": "Zo\u00eb", "extra": unknown}],
        "raw": "/w==",
    }
    assert document("Protobuf")["name"] == "Zo\u00eb"


@pytest.mark.parametrize(
    "name", ["French", "Japanese", "Persian", "emoji", "soft hyphen", "byte order mark", "direction"]
)
def test_text_in_all_scripts_is_text(name: str) -> None:
    value = VALUES[name] or b""
    assert (show(value, "auto").kind, show(value, "auto").text) == ("text", value.decode())


@pytest.mark.parametrize("name", ["controls", "not UTF-8", "surrogate in UTF-8"])
def test_values_that_are_not_text_are_shown_in_hex(name: str) -> None:
    assert show(VALUES[name], "auto").kind == "hex"


@pytest.mark.parametrize(
    ("text", "indented"),
    [
        ('{"a":1,"a":2.50}', '{\n  "a": 1,\n  "a": 2.50\n}'),
        ("[]", "[]"),
        ("{ }", "{}"),
        ('[1E400,{"b":[]},"\\u00e9, {[\\"]"]', '[\n  1E400,\n  {\n    "b": []\n  },\n  "\\u00e9, {[\\"]"\n]'),
        ("[" + "9" * 5000 + "]", "[\n  " + "9" * 5000 + "\n]"),
        ("{", None),
        ("", None),
        ("[" * 100_000, None),
    ],
)
def test_json_is_only_indented(text: str, indented: str | None) -> None:
    assert indent_json(text) == indented


def test_indentation_takes_linear_time() -> None:
    assert indent_json('"' + "\\\\" * 500_000 + '"') is not None
    assert indent_json('"' + "\\\\" * 500_000) is None
