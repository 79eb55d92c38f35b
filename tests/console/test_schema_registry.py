"""Schema pages against a real registry: that of --schema-registry. CONTRIBUTING.md has the commands that start one."""

import json
import urllib.request
from uuid import uuid4

import pytest

from ottla.schemas.registry import Schema, SchemaRegistry
from tests.console.browser import Browse, Browser
from tests.console.test_schemas import FIRST, SECOND

MONEY = 'syntax = "proto3"; message Money { int64 units = 1; }'
FARE = 'syntax = "proto3"; import "money.proto"; message Fare { Money price = 1; }'
THIRD = SECOND.replace("string", "long")


@pytest.fixture
def registry(request: pytest.FixtureRequest) -> SchemaRegistry:
    url = request.config.getoption("--schema-registry")
    if url is None:
        pytest.skip("--schema-registry names a Schema Registry")
    return SchemaRegistry(location=url, retries=0)


@pytest.fixture
def browser(browse: Browse, registry: SchemaRegistry) -> Browser:
    return browse(registry=registry)


@pytest.fixture
def subject() -> str:
    return f"flights-{uuid4().hex[:8]}"


def register(browser: Browser, subject: str, text: str, kind: str = "AVRO", references: str = "") -> str:
    """Register a schema by the form, and return the page after it."""
    browser.get("/schemas/register")
    return browser.post("/schemas/register", subject=subject, kind=kind, text=text, references=references)


def set_compatibility(registry: SchemaRegistry, subject: str, level: str) -> None:
    request = urllib.request.Request(
        f"{registry.address}/config/{subject}",
        json.dumps({"compatibility": level}).encode(),
        {"Content-Type": "application/vnd.schemaregistry.v1+json"},
        method="PUT",
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        assert response.status == 200


def test_versions_are_registered_shown_compared_and_deleted(
    browser: Browser, registry: SchemaRegistry, subject: str
) -> None:
    assert "has the id" in register(browser, subject, FIRST)
    assert "has the id" in register(browser, subject, SECOND)
    row = f'>{subject}</a></td><td>AVRO</td><td class="n">2</td><td class="n">{registry.latest(subject).id}</td>'
    assert row in browser.get("/schemas", q=subject)
    assert '"delay"' in browser.get("/schema", subject=subject)
    assert '"delay"' not in browser.get("/schema", subject=subject, version=1)
    assert '<span class="added">' in browser.get("/schema/diff", subject=subject)
    browser.get("/schema/delete", subject=subject, version=1)
    browser.post("/schemas/delete", subject=subject, version="1")
    assert registry.versions(subject) == [2]
    browser.post("/schemas/delete", subject=subject, version="")
    assert subject not in registry.subjects()
    assert "no such schema" in browser.get("/schema", 404, subject=subject)


def test_references_of_protobuf_schemas(browser: Browser, registry: SchemaRegistry, subject: str) -> None:
    register(browser, f"{subject}-money", MONEY, "PROTOBUF")
    register(browser, f"{subject}-fare", FARE, "PROTOBUF", f"money.proto={subject}-money:1")
    assert f"{subject}-money, version 1" in browser.get("/schema", subject=f"{subject}-fare")
    (reference,) = registry.latest(f"{subject}-fare").schema.references
    assert (reference.name, reference.subject, reference.version) == ("money.proto", f"{subject}-money", 1)


def test_an_incompatible_schema_is_announced_and_refused(
    browser: Browser, registry: SchemaRegistry, subject: str
) -> None:
    register(browser, subject, FIRST)
    set_compatibility(registry, subject, "BACKWARD")
    fields = {"subject": subject, "kind": "AVRO", "text": SECOND, "references": ""}
    browser.get("/schemas/register")
    assert "It is compatible by BACKWARD" in browser.post("/schemas/register/question", **fields)
    incompatible = {**fields, "text": THIRD}
    assert "By its compatibility BACKWARD the registry will refuse it" in browser.post(
        "/schemas/register/question", **incompatible
    )
    assert "The registry refused the request" in browser.post("/schemas/register", 422, **incompatible)
    set_compatibility(registry, subject, "NONE")
    assert "It is compatible by NONE" in browser.post("/schemas/register/question", **incompatible)
    assert "has the id" in browser.post("/schemas/register", **incompatible)
    assert registry.versions(subject) == [1, 2]


def test_a_malformed_schema_is_refused_in_one_sentence(browser: Browser, subject: str) -> None:
    browser.get("/schemas/register")
    fields = {"subject": subject, "kind": "AVRO", "text": '{"type": "nothing"}', "references": ""}
    text = browser.post("/schemas/register", 422, **fields)
    assert "The registry refused the request" in text
    assert ".." not in text.split("The registry refused", 1)[1].split("</p>")[0]


def test_a_schema_has_the_id_by_which_it_is_read(registry: SchemaRegistry, subject: str) -> None:
    number = registry.register(subject, Schema("AVRO", FIRST))
    assert json.loads(registry.by_id(number).text) == json.loads(FIRST)
    assert registry.register(subject, Schema("AVRO", FIRST)) == number
