"""Settings of subjects, deleted ones and references, with Ottla's registry."""

import re
import shlex
from collections.abc import Iterator
from html import unescape

import pytest

from ottla.schemas.registry import Reference, Schema, SchemaNotFound, SchemaRegistry
from ottla.testing import Kafka
from tests.console.browser import Browse, Browser
from tests.registry.schemas import ONE, TWO


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with Kafka() as kafka:
        yield kafka


@pytest.fixture
def registry(kafka: Kafka) -> SchemaRegistry:
    kafka.clear()
    registry = SchemaRegistry(location=kafka.schema_registry_url, retries=0)
    registry.register("orders-value", Schema("AVRO", ONE))
    registry.register("orders-value", Schema("AVRO", TWO))
    return registry


@pytest.fixture
def browser(browse: Browse, registry: SchemaRegistry) -> Browser:
    return browse(registry=registry)


def test_compatibility_and_mode_are_changed_after_a_question(browser: Browser, registry: SchemaRegistry) -> None:
    text = browser.get("/schema", subject="orders-value")
    assert "<dt>Mode</dt><dd>READWRITE</dd>" in text
    assert "<option selected>BACKWARD</option>" in browser.get("/schema/settings", subject="orders-value")
    for kind, value in (("config", "FULL"), ("mode", "READONLY")):
        fields = {"subject": "orders-value", "kind": kind, "value": value}
        (line,) = re.findall(r"<code>(curl .*?)</code>", browser.post("/schema/settings/question", **fields), re.DOTALL)
        assert shlex.split(line)[2] == "PUT"
        assert f"{registry.address}/{kind}/orders-value" in line
        assert value in browser.post("/schema/settings", **fields)
    assert (registry.compatibility("orders-value"), registry.mode("orders-value")) == ("FULL", "READONLY")
    browser.post("/schema/settings", subject="orders-value", kind="mode", value="")
    assert registry.mode("orders-value") == "READWRITE"


def test_default_settings(browser: Browser, registry: SchemaRegistry) -> None:
    assert "Default compatibility and mode" in browser.get("/schema/settings")
    browser.post("/schema/settings", subject="", kind="config", value="NONE")
    assert registry.compatibility(None) == "NONE"


def test_wrong_settings_are_refused(browser: Browser) -> None:
    browser.get("/schema/settings")
    for kind, value in (("config", "SOME"), ("mode", "FULL"), ("x", "FULL")):
        browser.post("/schema/settings", 400, subject="orders-value", kind=kind, value=value)
        browser.post("/schema/settings/question", 400, subject="orders-value", kind=kind, value=value)


def test_deleted_subjects_are_shown_and_deleted_permanently(browser: Browser, registry: SchemaRegistry) -> None:
    browser.get("/schema/delete", subject="orders-value")
    browser.post("/schemas/delete", subject="orders-value", version="")
    assert "0 subjects" in browser.get("/schemas")
    text = browser.get("/schemas", deleted=1)
    assert "delete permanently" in text
    assert registry.by_id(1).text == ONE
    text = browser.get("/schema/delete", subject="orders-value", permanent=1)
    (line,) = re.findall(r"<code>(curl .*?)</code>", text, re.DOTALL)
    assert shlex.split(unescape(line))[-1] == f"{registry.address}/subjects/orders-value?permanent=true"
    assert "was deleted permanently" in browser.post(
        "/schemas/delete", subject="orders-value", version="", permanent="1"
    )
    assert "0 subjects" in browser.get("/schemas", deleted=1)
    with pytest.raises(SchemaNotFound):
        SchemaRegistry(location=f"{registry.address}/", retries=0).by_id(1)


def test_referring_schemas_are_shown(browser: Browser, registry: SchemaRegistry) -> None:
    text = '{"type":"array","items":"Order"}'
    number = registry.register("list-value", Schema("AVRO", text, (Reference("Order", "orders-value", 1),)))
    assert f"refer to this version: id {number}<" in browser.get("/schema", subject="orders-value", version=1)
    assert "refer to this version" not in browser.get("/schema", subject="orders-value", version=2)
