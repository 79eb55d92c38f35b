"""Schema pages, against a registry in the process of the test and a directory."""

import json
import re
import shlex
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.console.pages.schemas import _contract, diff_lines
from ottla.schemas.registry import Schema, SchemaRegistry
from ottla.testing import Kafka
from tests.console.browser import Browse, Browser
from tests.spark.schema_registry import Registry, serving

FIRST = '{"type": "record", "name": "Flight", "fields": [{"name": "carrier", "type": "string"}]}'
SECOND = FIRST.replace("}]}", '}, {"name": "delay", "type": "int", "default": 0}]}')


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving() as running:
        running.add("flights-value", FIRST)
        running.add("flights-value", SECOND)
        running.add("money", 'syntax = "proto3"; message Money { int64 units = 1; }', "PROTOBUF")
        yield running


@pytest.fixture
def browser(browse: Browse, registry: Registry) -> Browser:
    return browse(registry=SchemaRegistry(location=registry.address, retries=0))


def test_subjects_are_listed_and_found(browser: Browser, registry: Registry) -> None:
    text = browser.get("/schemas")
    assert '>flights-value</a></td><td>AVRO</td><td class="n">2</td><td class="n">2</td>' in text
    assert "2 subjects at " + registry.address in text
    text = browser.get("/schemas", q="MON")
    assert "PROTOBUF" in text
    assert "flights-value" not in text


def test_a_version_has_its_text_id_and_compatibility(browser: Browser) -> None:
    text = browser.get("/schema", subject="flights-value")
    assert '"name": "delay"' in text
    assert "BACKWARD" in text
    assert "from 1 to 2" in text
    assert '"delay"' not in browser.get("/schema", subject="flights-value", version=1)
    assert "no such schema" in browser.get("/schema", 404, subject="nowhere")


def test_the_difference_of_two_versions(browser: Browser) -> None:
    text = browser.get("/schema/diff", subject="flights-value")
    assert re.search(r'<span class="added">\+\s+"name": "delay"', text)
    assert "The texts are the same" in browser.get("/schema/diff", subject="flights-value", old=2, new=2)
    assert [line.text for line in diff_lines("a\nb", "a\nc")][1:] == [" a", "-b", "+c"]


def test_a_schema_is_registered_after_a_question(browser: Browser, registry: Registry) -> None:
    third = SECOND.replace('"delay"', '"wait"')
    assert '"name": "delay"' in browser.get("/schemas/register", subject="flights-value")
    fields = {"subject": "flights-value", "kind": "AVRO", "text": third, "references": "m=money:1"}
    text = browser.post("/schemas/register/question", **fields)
    assert "compatible by BACKWARD" in text
    assert len(registry.subjects["flights-value"]) == 2
    (line,) = re.findall(r"<code>(curl .*?)</code>", text, re.DOTALL)
    words = shlex.split(line)
    assert words[-1] == f"{registry.address}/subjects/flights-value/versions"
    body = json.loads(words[words.index("--data") + 1])
    assert body["schema"] == third
    assert body["references"] == [{"name": "m", "subject": "money", "version": 1}]
    assert "has the id 4" in browser.post("/schemas/register", **fields)
    assert json.loads(registry.schemas[3]["schema"]) == json.loads(third)


def test_an_incompatible_or_malformed_schema(browser: Browser) -> None:
    browser.get("/schemas/register")
    fields = {"subject": "flights-value", "kind": "JSON", "text": "{}"}
    assert "the latest version is AVRO" in browser.post("/schemas/register/question", **fields)
    assert "not JSON" in browser.post("/schemas/register/question", 400, **{**fields, "text": "{"})
    assert "SUBJECT:VERSION" in browser.post("/schemas/register", 400, **{**fields, "references": "x"})
    assert "one of AVRO" in browser.post("/schemas/register", 400, **{**fields, "kind": "XML"})


def test_versions_and_subjects_are_deleted_after_a_question(browser: Browser, registry: Registry) -> None:
    text = browser.get("/schema/delete", subject="flights-value", version=1)
    assert f"curl --request DELETE {registry.address}/subjects/flights-value/versions/1" in text
    assert "was deleted" in browser.post("/schemas/delete", subject="flights-value", version="1")
    assert registry.subjects["flights-value"] == [0, 2]
    assert f"DELETE {registry.address}/subjects/money<" in browser.get("/schema/delete", subject="money")
    browser.post("/schemas/delete", subject="money", version="")
    assert "money" not in registry.subjects
    assert "no such schema" in browser.post("/schemas/delete", 404, subject="money", version="")


def test_a_registry_that_does_not_answer_is_one_line(browse: Browse) -> None:
    text = browse(registry=SchemaRegistry(location="http://127.0.0.1:1", retries=0)).get("/schemas", 502)
    assert "does not answer" in text
    assert "Traceback" not in text


def test_credentials_are_sent_and_not_shown(browse: Browse, registry: Registry) -> None:
    registry.user_info = "ada:secret-word"
    location = registry.address.replace("://", "://ada:secret-word@")
    browser = browse(registry=SchemaRegistry(location=location, retries=0))
    text = browser.get("/schema/delete", subject="money")
    assert "--user ada http" in text
    for path in ("/schemas", "/schema/delete?subject=money", "/schema?subject=money"):
        assert "secret-word" not in browser.get(path)


def test_a_directory_is_shown_but_not_changed(browse: Browse, tmp_path: Path) -> None:
    registry = SchemaRegistry(location=str(tmp_path))
    registry.register("flights-value", Schema("AVRO", FIRST))
    browser = browse(registry=registry)
    assert "flights-value" in browser.get("/schemas")
    text = browser.get("/schema", subject="flights-value")
    assert "carrier" in text
    assert "Delete" not in text
    assert "change its files" in browser.get("/schemas/register", 409)


def test_without_a_registry_there_are_no_schemas(browse: Browse) -> None:
    browser = browse()
    assert "/schemas" not in browser.get("")
    assert "schema.registry.url" in browser.get("/schemas", 404)


def test_a_read_only_console_changes_no_schema(browse: Browse, registry: Registry) -> None:
    browser = browse(registry=SchemaRegistry(location=registry.address, retries=0), read_only=True)
    for path in ("/schemas", "/schema?subject=money"):
        assert not re.search(r'(href|action)="[^"]*(register|delete)', browser.get(path))
    assert "read-only" in browser.post("/schemas/delete", 403, subject="money")
    assert "money" in registry.subjects


def test_data_contract_of_a_version_is_shown(browse: Browse) -> None:
    rule = {"name": "check", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "message.id > 0 && true"}
    contract = {
        "metadata": {
            "properties": {"owner": "<ada>", "token": "s3cret"},
            "tags": {"Flight.id": ["PII", "KEY"]},
            "sensitive": ["token"],
        },
        "ruleSet": {"domainRules": [{**rule, "tags": ["PII"], "onFailure": "DLQ", "disabled": True}]},
    }
    with Kafka() as kafka:
        registry = SchemaRegistry(location=kafka.schema_registry_url, retries=0)
        body = json.dumps({"schema": FIRST, **contract}).encode()
        request = urllib.request.Request(
            f"{registry.address}/subjects/flights/versions", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            assert response.status == 200
        registry.register("plain", Schema("AVRO", SECOND))
        browser = browse(registry=registry)
        text = browser.get("/schema", subject="flights")
        for shown in (
            "owner",
            "<ada>",
            "Tags of Flight.id",
            "PII, KEY",
            "check",
            "CEL",
            "message.id > 0 && true",
            "DLQ",
        ):
            assert f">{shown}</td>" in text or f">{shown} <span" in text, shown
        assert "disabled</span>" in text
        assert "s3cret" not in text
        text = browser.get("/schema", subject="plain")
        assert "<h2>Metadata" not in text
        assert "<h2>Rules" not in text


@pytest.mark.parametrize(
    "odd", [None, 5, [], {}, {"properties": 1, "tags": [2], "sensitive": "x", "domainRules": {"a": 1}}]
)
def test_odd_contracts_of_other_registries_are_left_out(odd: object) -> None:
    shown = _contract({"metadata": odd, "ruleSet": odd})
    assert (shown.properties, shown.tags, shown.rules) == ([], [], [])
