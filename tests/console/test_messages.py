"""Messages: search, filters, formats, download, live tail, producing."""

import csv
import html
import io
import json
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.console import message_search
from ottla.console.download import file_of
from ottla.console.json_path import InvalidCondition, JsonCondition
from ottla.console.problem import Problem
from ottla.console.record_filter import FilterTexts, RecordFilter
from ottla.console.record_view import show
from ottla.extras import install_command
from ottla.records.record import Record
from ottla.schemas.context import VALUE, SerializationContext
from ottla.schemas.registry import Reference, Schema, SchemaRegistry
from ottla.schemas.serializers import AvroSerializer
from tests.console import Broker
from tests.console.browser import Browse, Browser

pytestmark = pytest.mark.usefixtures("flights")


def rows(text: str) -> list[tuple[int, int]]:
    """Partition and offset of each message of a page."""
    return [(int(part), int(offset)) for part, offset in re.findall(r"/messages/(\d+)/(\d+)\"", text)]


def carriers(text: str) -> list[int]:
    return [int(delay) for delay in re.findall(r'"delay": (\d+)', text)]


def test_the_newest_messages_come_first(browser: Browser) -> None:
    assert carriers(browser.get("/topics/flights/messages", limit=4)) == [29, 28, 27, 26]


def test_older_pages_have_every_message_once(browser: Browser) -> None:
    seen, url = [], "/topics/flights/messages?limit=7"
    while url:
        text = browser.get(url)
        seen += rows(text)
        following = re.search(r'href="/c/test([^"]*)" rel="next"', text)
        url = following[1] if following else ""
    assert len(seen) == len(set(seen)) == 30


def test_oldest_first_continues_to_the_end(browser: Browser) -> None:
    seen, url = [], "/topics/flights/messages?start=oldest&limit=7"
    while url:
        text = browser.get(url)
        seen += rows(text)
        following = re.search(r'href="/c/test([^"]*)" rel="next"', text)
        url = following[1] if following else ""
    assert len(seen) == len(set(seen)) == 30


def test_search_starts_at_an_offset_or_a_time(browser: Browser) -> None:
    assert rows(browser.get("/topics/flights/messages", start="offset", at="8", partition="1")) == [(1, 8), (1, 9)]
    text = browser.get("/topics/flights/messages", start="time", at="2023-11-14T22:40:20")
    assert carriers(text) == list(range(27, 30))
    assert "A time is like" in browser.get("/topics/flights/messages", 400, start="time", at="noon")
    assert "no partition 7" in browser.get("/topics/flights/messages", 404, partition="7")


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({"key": "AA"}, 10),
        ({"value": '"delay": 7'}, 1),
        ({"header": "number=12"}, 1),
        ({"json": "$.delay >= 25"}, 5),
        ({"json": '$.carrier == "UA"'}, 10),
        ({"json": "$.route.to[*] =~ ^SF", "key": "DL"}, 10),
        ({"json": "$.nothing"}, 0),
        ({"key": "^(AA|UA)$", "regex": "1"}, 20),
        ({"header": "^number=2\\d$", "regex": "1"}, 10),
    ],
)
@pytest.mark.parametrize("start", ["newest", "oldest"])
def test_filters(browser: Browser, filters: dict[str, Any], count: int, start: str) -> None:
    text = browser.get("/topics/flights/messages", start=start, limit=50, **filters)
    assert len(rows(text)) == count
    assert "30 read of 30" in text


def test_an_invalid_filter_is_one_line(browser: Browser) -> None:
    assert "not valid (RE2)" in browser.get("/topics/flights/messages", 400, key="(", regex="1")
    assert "JSON condition" in browser.get("/topics/flights/messages", 400, json="__import__('os')")


def test_a_regular_expression_takes_linear_time() -> None:
    matches = RecordFilter(FilterTexts(value="(a+)+$", is_regex=True))  # exponential in a backtracking engine
    assert not matches(Record(0, 0, None, b"a" * 50_000 + b"!"))


def test_a_search_ends_after_its_time(browse: Browse) -> None:
    browser = browse(search_ms=0)
    text = browser.get("/topics/flights/messages", start="oldest", json="$.nothing")
    assert "before it was complete" in text
    assert "Continue" in text


@pytest.mark.parametrize("start", ["newest", "oldest"])
def test_pages_within_a_limit_of_bytes_have_every_message_once(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    monkeypatch.setattr(message_search, "MOST_BYTES", 500)
    seen, url, pages = [], f"/topics/flights/messages?start={start}&limit=50", 0
    while url:
        text = browser.get(url)
        assert 0 < len(rows(text)) < 10
        seen += rows(text)
        pages += 1
        following = re.search(r'href="/c/test([^"]*)" rel="next"', text)
        url = following[1] if following else ""
    assert len(seen) == len(set(seen)) == 30
    assert pages > 3
    assert "the most that a page has" in browser.get("/topics/flights/messages", start=start, limit=50)
    refused = browser.client.get(f"/c/test/topics/flights/messages?start={start}&download=csv&limit=1000")
    assert refused.status_code == 413
    assert "choose fewer messages" in refused.text


@pytest.mark.parametrize(
    "text", [" " * 25_000, "$" + " " * 25_000, "$.a" + " " * 25_000 + "x", "$.a ==" + " " * 25_000]
)
def test_blanks_in_a_json_condition_take_linear_time(text: str) -> None:
    began = time.thread_time()
    for condition in (text, text[:1900]):
        try:
            JsonCondition(condition)
        except InvalidCondition:
            continue
    assert time.thread_time() - began < 0.2


def test_json_conditions() -> None:
    document = {"a": {"b": [1, {"c": "x"}]}, "t": True, "n": None, "q w": 5}
    for text, expected in {
        "$": True,
        "$.a.b[0] == 1": True,
        "$.a.b[1].c == x": True,
        '$.a.b[1].c != "x"': False,
        "$.t == true": True,
        "$.t == 1": False,
        "$.n == null": True,
        "$.a.b[*] > 0": True,
        "$.a.b[9]": False,
        "$['q w'] <= 5": True,
        "$.a < 3": False,
    }.items():
        assert JsonCondition(text)(document) is expected, text
    for text in ("a.b", "$..a", "$.a[", "$" + ".a" * 21):
        with pytest.raises(InvalidCondition):
            JsonCondition(text)
    with pytest.raises(Problem):
        RecordFilter(FilterTexts(json="$.a =~ ("))


def test_formats() -> None:
    assert show(None, "auto").kind == "null"
    assert show(b'{"a":1}', "auto").text == '{\n  "a": 1\n}'
    assert show(b'{"a":1}', "text").text == '{"a":1}'
    assert show(b"\xff\x00", "auto").kind == "hex"
    assert show(b"\x00\x01abc", "auto").kind == "hex"
    assert show(b"ab", "hex").text.startswith("000000  61 62")
    assert show(b"x" * 10_000, "auto").is_cut
    assert not show(b"x" * 10_000, "auto", None).is_cut


def test_a_message_has_a_page(browser: Browser) -> None:
    text = browser.get("/topics/flights/messages/1/3")
    assert '"carrier": "UA"' in text
    assert "source" in text
    assert "7b 22 63" in browser.get("/topics/flights/messages/1/3", format="hex")
    assert "no message at offset 99" in browser.get("/topics/flights/messages/1/99", 404)


def test_markup_in_a_message_stays_text(browser: Browser, admin: Admin, broker: Broker) -> None:
    admin.create_topics([NewTopic("hostile", 1, 1)]).check()
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.produce("hostile", "<script>alert(1)</script>", key='"><img src=x>', headers=[("<b>", b"<i>")])
    response = browser.client.get("/c/test/topics/hostile/messages")
    for markup in ("<script>alert", "<img", "<b>", "<i>"):
        assert markup not in response.text


def test_internal_topics_are_decoded(browser: Browser, broker: Broker) -> None:
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="readers") as consumer:
        consumer.assign([TopicPartition("flights", 0)])
        consumer.commit({TopicPartition("flights", 0): 5})
    text = browser.get("/topics/__consumer_offsets/messages", key="readers")
    assert '"group": "readers"' in text
    assert '"offset": 5' in text


def test_values_with_a_schema_are_decoded(browse: Browse, admin: Admin, broker: Broker, tmp_path: Path) -> None:
    pytest.importorskip("fastavro")
    schema = '{"type": "record", "name": "Flight", "fields": [{"name": "carrier", "type": "string"}]}'
    admin.create_topics([NewTopic("typed", 1, 1)]).check()
    serialize = AvroSerializer(str(tmp_path), schema)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.produce("typed", serialize({"carrier": "Pan Am"}, SerializationContext("typed", VALUE)))
        producer.produce("typed", b"\x00\x00\x00\x00\x63no such schema")
    text = browse(registry=SchemaRegistry(location=str(tmp_path))).get("/topics/typed/messages")
    assert '"carrier": "Pan Am"' in text
    assert "000000  00 00 00 00 63" in text
    assert '"carrier"' not in browse().get("/topics/typed/messages")


def test_values_with_a_protobuf_schema_are_decoded(
    browse: Browse, admin: Admin, broker: Broker, tmp_path: Path
) -> None:
    pytest.importorskip("grpc_tools", reason="a .proto file needs protoc of the extra schema")
    registry = SchemaRegistry(location=str(tmp_path))
    money = 'syntax = "proto3"; package shop; message Money { int64 units = 1; string currency = 2; }'
    order = """syntax = "proto3"; package shop; import "money.proto";
        message Order { string order_id = 1; Money price = 2; bool paid = 3; message Line { int32 count = 1; } }"""
    registry.register("money", Schema("PROTOBUF", money))
    number = registry.register("orders-value", Schema("PROTOBUF", order, (Reference("money.proto", "money", 1),)))
    head = b"\0" + number.to_bytes(4, "big")
    admin.create_topics([NewTopic("orders", 1, 1)]).check()
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.produce("orders", head + b"\0" + b"\x0a\x02A1" + b"\x12\x07\x08\x05\x12\x03EUR")
        producer.produce("orders", head + b"\x04\0\0" + b"\x08\x07", "a nested message")  # indexes [0, 0]
        producer.produce("orders", head + b"\0" + b"\x0a\x7f", "malformed")
        producer.produce("orders", head + b"\x02\x0e" + b"\x0a\x02A1", "no such message")
    text = browse(registry=registry).get("/topics/orders/messages", start="oldest")
    for decoded in ('"order_id": "A1"', '"currency": "EUR"', '"paid": false', '"count": 7'):
        assert decoded in text
    assert text.count("000000  00") == 2


def test_download(browser: Browser) -> None:
    response = browser.client.get("/c/test/topics/flights/messages?download=json&limit=1000&key=AA")
    assert len(response.json()) == 10
    assert response.headers["content-disposition"] == 'attachment; filename="flights.json"'
    response = browser.client.get("/c/test/topics/flights/messages?download=csv&limit=1000")
    lines = list(csv.reader(io.StringIO(response.text)))
    assert lines[0][:3] == ["partition", "offset", "timestamp"]
    assert len(lines) == 31
    assert json.loads(lines[1][4])["carrier"]


FORMULAS = [
    "=1+1",
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "=cmd|'/c calc'!A1",
    "\t=1",
    "\r=1",
    "\n=1",
    " =1",
    "\u00a0=1",
    "\ufeff=1",
]
FORMULAS += ["\uff1d1", "\x00=1", "a;=1", 'x",=1', "a\t=1", "a\n=1", "--1", "+cmd", "-a1", "\u200b=1"]
PLAIN = ["1", "-5", "+5.25", "-1.5e10", "text", "", "a=1", "x@y.z", "'quoted'"]


@pytest.mark.parametrize("text", [*FORMULAS, *PLAIN])
def test_no_cell_of_a_csv_download_is_a_formula(text: str) -> None:
    """Any separator of a spreadsheet is inside quotes, and so separates no cells."""
    record = Record(1, 5, text.encode(), text.encode(), [(text, text.encode())])
    content = file_of("csv", "t", [record]).content.decode()
    ((_, _, _, key, value, headers),) = list(csv.reader(io.StringIO(content, newline="")))[1:]
    assert key == value == (text if text in PLAIN or text[0] in "ax" else f"'{text}")
    assert json.loads(headers) == [[text, text]]
    inside = re.sub(r'"(?:[^"]|"")*"', "Q", content.partition("\n")[2])
    assert re.fullmatch(r"-?[0-9]+,1,5,Q,Q,Q\r\n", inside), inside


def test_a_download_as_parquet_has_the_columns_of_spark(browser: Browser, admin: Admin, broker: Broker) -> None:
    pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    import pyarrow.parquet as pq

    admin.create_topics([NewTopic("raw", 1, 1)]).check()
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.produce("raw", b"\xff\x00", None, timestamp=1_700_000_000_123, headers=[("h", b"\x01"), ("n", None)])
        producer.produce("raw", None, "k", timestamp=1_700_000_000_124)
    response = browser.client.get("/c/test/topics/raw/messages?download=parquet&limit=10")
    assert response.headers["content-disposition"] == 'attachment; filename="raw.parquet"'
    table = pq.read_table(io.BytesIO(response.content))
    assert table.column_names == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ]
    first, second = table.to_pylist()
    assert (first["key"], first["value"], second["key"], second["value"]) == (None, b"\xff\x00", b"k", None)
    assert first["headers"] == [{"key": "h", "value": b"\x01"}, {"key": "n", "value": None}]
    assert first["timestamp"].isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert (second["topic"], second["partition"], second["offset"], second["timestampType"]) == ("raw", 0, 1, 0)
    empty = browser.client.get("/c/test/topics/raw/messages?download=parquet&key=none")
    assert pq.read_table(io.BytesIO(empty.content)).num_rows == 0


def test_without_pyarrow_the_choice_names_the_extra(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "[arrow]" not in browser.get("/topics/flights/messages")
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr("ottla.console.pages.messages.has_parquet", lambda: False)
    remedy = install_command("arrow")
    assert remedy in html.unescape(browser.get("/topics/flights/messages"))
    assert remedy in html.unescape(browser.get("/topics/flights/messages", 501, download="parquet"))
    assert "one of csv, json, parquet" in browser.get("/topics/flights/messages", 400, download="xls")


def test_a_message_is_produced(browser: Browser, admin: Admin) -> None:
    admin.create_topics([NewTopic("written", 2, 1)]).check()
    browser.get("/topics/written/produce")
    text = browser.post(
        "/topics/written/produce", key="k", value='{"a": 1}', partition="1", headers="h=1", encoding="json"
    )
    assert "Produced at offset 0 of partition 1" in text
    assert '"a": 1' in text
    assert "two digits" in browser.post("/topics/written/produce", 400, value="zz", encoding="hex")
    assert "not JSON" in browser.post("/topics/written/produce", 400, value="{", encoding="json")
    text = browser.post("/topics/written/produce", key="k", value_null="1", partition="1", encoding="text")
    assert "as null" in text


def test_the_live_tail_streams_matching_messages(browser: Browser, admin: Admin, broker: Broker) -> None:
    admin.create_topics([NewTopic("live", 1, 1)]).check()
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.produce("live", "before")
        producer.flush()

        def write() -> None:
            for number in range(4):
                producer.produce("live", f"after {number}")
            producer.flush()

        timer = threading.Timer(1.0, write)
        timer.start()
        with browser.client.stream("GET", "/c/test/topics/live/tail?most=2&value=[13]&regex=1") as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            text = "".join(response.iter_text())
        timer.join()
    values = [json.loads(line[6:])["value"]["text"] for line in text.splitlines() if line.startswith('data: {"part')]
    assert values == ["after 1", "after 3"]
