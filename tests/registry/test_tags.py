"""Tags inside schemas: found, added and removed by the path of a record or field, as in Confluent's registry."""

import json
import tracemalloc
from typing import Any

import pytest

from ottla.schemas.registry import Schema
from ottla.schemas.tags import entities_of
from tests.registry.client import Answer, Registry
from tests.registry.schemas import ONE, PROTO_ONE, TWO

NESTED = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long", "confluent:tags": ["KEY"]},
            {
                "name": "lines",
                "type": {"type": "array", "items": ["null", {"type": "record", "name": "Line", "fields": []}]},
            },
            {"name": "by", "type": {"type": "map", "values": {"type": "record", "name": "other.Who", "fields": []}}},
        ],
        "confluent:tags": ["SHOP"],
    },
    separators=(",", ":"),
)
JSON_SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "address": {"type": "object", "properties": {"street": {"type": "string"}}},
            "lines": {"type": "array", "items": {"type": "object", "properties": {"price": {"type": "number"}}}},
        },
        "definitions": {"Line": {"type": "object", "properties": {"note": {"type": "string"}}}},
    },
    separators=(",", ":"),
)


def tagged(path: str, *tags: str, kind: str = "sr_field") -> dict[str, Any]:
    return {"schemaEntity": {"entityPath": path, "entityType": kind}, "tags": list(tags)}


def change(registry: Registry, subject: str, version: str = "latest", **body: object) -> Answer:
    return registry.post(f"/subjects/{subject}/versions/{version}/tags", body)


def paths(registry: Registry, path: str) -> list[tuple[str, str, list[str]]]:
    """Return path, type and tags of the entities in a response."""
    rows = registry.get(path).value.get("schemaTags", [])
    return [(row["schemaEntity"]["entityPath"], row["schemaEntity"]["entityType"], row["tags"]) for row in rows]


def test_tags_are_listed_on_request(registry: Registry, subject: str) -> None:
    number = registry.register(subject, NESTED)
    both = [("shop.Order", "sr_record", ["SHOP"]), ("shop.Order.id", "sr_field", ["KEY"])]
    for path in (f"/schemas/ids/{number}", f"/subjects/{subject}/versions/1"):
        assert "schemaTags" not in registry.get(path).value
        assert paths(registry, f"{path}?findTags=*") == both
        assert paths(registry, f"{path}?findTags=KEY") == both[1:]
        assert paths(registry, f"{path}?findTags=SHOP&findTags=KEY") == both
        assert paths(registry, f"{path}?findTags=OTHER") == []


def test_change_of_tags_is_a_new_version(registry: Registry, subject: str) -> None:
    first = registry.register(subject, ONE, metadata={"properties": {"owner": "ada"}})
    answer = change(registry, subject, newVersion=2, tagsToAdd=[tagged("Order", "A", "B", kind="sr_record")])
    assert answer.status == 200
    entity = registry.get(f"/subjects/{subject}/versions/latest").value
    assert (entity["id"], entity["version"]) == (answer.value["id"], 2)
    assert entity["schema"] == ONE[:-1] + ',"confluent:tags":["A","B"]}'
    assert entity["metadata"]["properties"] == {"owner": "ada", "confluent:version": "2"}
    rows: dict[str, Any] = {
        "tagsToAdd": [tagged("Order.id", "C")],
        "tagsToRemove": [tagged("Order", "A", "B", kind="sr_record")],
    }
    assert change(registry, subject, **rows).status == 200
    latest = f"/subjects/{subject}/versions/latest"
    assert paths(registry, f"{latest}?findTags=*") == [("Order.id", "sr_field", ["C"])]
    assert registry.get(latest).value["metadata"]["properties"]["confluent:version"] == "3"
    removed: dict[str, Any] = {"tagsToRemove": [tagged("Order.id", "C")]}
    # Without a number: the version that has the text already.
    assert change(registry, subject, **removed).value["id"] == first
    assert change(registry, subject, newVersion=4, **removed).status == 200
    assert registry.get(latest).value["schema"] == ONE


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("shop.Order.lines", "sr_field"),
        ("shop.Line", "sr_record"),
        ("Line", "sr_record"),
        ("other.Who", "sr_record"),
        ("Order.by", "sr_field"),
    ],
)
def test_path_in_avro(registry: Registry, subject: str, path: str, kind: str) -> None:
    registry.register(subject, NESTED)
    assert change(registry, subject, tagsToAdd=[tagged(path, "X", kind=kind)]).status == 200
    ((shown, of_kind, _),) = paths(registry, f"/subjects/{subject}/versions/latest?findTags=X")
    assert (shown.endswith(path), of_kind) == (True, kind)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("object", "sr_record"),
        ("object.id", "sr_field"),
        ("object.address.object.street", "sr_field"),
        ("object.lines.array.object.price", "sr_field"),
        ("object.definitions.Line.object", "sr_record"),
        ("object.definitions.Line.object.note", "sr_field"),
    ],
)
def test_path_in_json(registry: Registry, subject: str, path: str, kind: str) -> None:
    registry.register(subject, JSON_SCHEMA, "JSON")
    assert change(registry, subject, tagsToAdd=[tagged(path, "X", kind=kind)]).status == 200
    latest = f"/subjects/{subject}/versions/latest"
    assert paths(registry, f"{latest}?findTags=X") == [(path, kind, ["X"])]
    assert change(registry, subject, newVersion=3, tagsToRemove=[tagged(path, "X", kind=kind)]).status == 200
    assert registry.get(latest).value["schema"] == JSON_SCHEMA


def test_property_that_is_an_object_is_a_record_too(registry: Registry, subject: str) -> None:
    registry.register(subject, JSON_SCHEMA, "JSON")
    row = tagged("object.address.object", "X", kind="sr_record")
    assert change(registry, subject, tagsToAdd=[row]).status == 200
    latest = f"/subjects/{subject}/versions/latest"
    assert paths(registry, f"{latest}?findTags=X") == [("object.address", "sr_field", ["X"])]


def test_rules_are_merged_and_removed_with_tags(registry: Registry, subject: str) -> None:
    def rule(name: str, expression: str = "true") -> dict[str, str]:
        return {"name": name, "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": expression}

    registry.register(subject, ONE, ruleSet={"domainRules": [rule("a"), rule("b")]})
    merged = {"domainRules": [rule("b", "false"), rule("c")]}
    assert change(registry, subject, newVersion=2, rulesToMerge=merged, rulesToRemove=["a"]).status == 200
    latest = f"/subjects/{subject}/versions/latest"
    assert registry.get(latest).value["ruleSet"]["domainRules"] == [rule("b", "false"), rule("c")]
    assert change(registry, subject, ruleSet={"domainRules": [rule("d")]}).status == 200
    assert registry.get(latest).value["ruleSet"]["domainRules"] == [rule("d")]


def test_errors_of_changes_of_tags(registry: Registry, subject: str) -> None:
    assert change(registry, subject).error == (404, 40401)
    registry.register(subject, ONE)
    assert change(registry, subject, "7").error == (404, 40402)
    assert change(registry, subject, "x").error == (422, 42202)
    missing = change(registry, subject, tagsToAdd=[tagged("Order.no", "X")])
    assert missing.error == (422, 42201)
    assert "No matching path 'Order.no' found in the schema" in missing.message
    assert change(registry, subject, newVersion=5, tagsToAdd=[tagged("Order.id", "X")]).error == (422, 42201)
    for row in ({}, 7, tagged("Order.id", "X", kind="topic"), {**tagged("Order"), "tags": [1]}):
        assert change(registry, subject, tagsToAdd=[row]).error == (400, 400)
    registry.register(f"{subject}-2", PROTO_ONE, "PROTOBUF")
    refused = change(registry, f"{subject}-2", tagsToAdd=[tagged("Order.id", "X")])
    assert refused.error == (422, 42201)
    assert "tags cannot be added to or removed from a schema of type PROTOBUF" in refused.message


def test_registration_changes_tags(registry: Registry, subject: str) -> None:
    registry.register(subject, ONE, schemaTagsToAdd=[tagged("Order.id", "A")])
    latest = f"/subjects/{subject}/versions/latest"
    assert paths(registry, f"{latest}?findTags=*") == [("Order.id", "sr_field", ["A"])]
    added: dict[str, Any] = {"schemaTagsToAdd": [tagged("Order.note", "B")]}
    registry.register(subject, TWO, propagateSchemaTags=True, **added)
    assert [(path, tags) for path, _, tags in paths(registry, f"{latest}?findTags=*")] == [
        ("Order.id", ["A"]),
        ("Order.note", ["B"]),
    ]
    body = {"schemaTagsToRemove": [tagged("Order.id", "A")]}
    assert registry.post(f"/subjects/{subject}/versions", body).status == 200  # of the latest schema
    assert paths(registry, f"{latest}?findTags=*") == [("Order.note", "sr_field", ["B"])]
    registry.register(subject, ONE, propagateSchemaTags=True)  # the field with a tag is gone
    assert registry.get(latest).value["schema"] == ONE


def test_registration_with_a_number_is_a_new_version_of_a_schema_that_is_one(registry: Registry, subject: str) -> None:
    number = registry.register(subject, ONE)
    assert registry.register(subject, ONE) == number
    assert registry.register(subject, ONE, version=2) == number
    assert registry.get(f"/subjects/{subject}/versions").value == [1, 2]
    again = registry.post(f"/subjects/{subject}/versions", {"schema": ONE, "version": 1})
    assert again.error == (422, 42201)
    assert again.message.startswith("Version is not one more than previous version")


def test_aliases_are_listed_with_the_schemas_on_request(own_registry: Registry) -> None:
    own_registry.register("orders", ONE)
    own_registry.register("other", ONE)
    for name in ("old", "odd"):
        own_registry.put(f"/config/{name}", {"alias": "orders"})

    def listed(query: str) -> list[tuple[str, list[str] | None]]:
        return [(row["subject"], row.get("aliases")) for row in own_registry.get(f"/schemas{query}").value]

    assert listed("") == [("orders", None), ("other", None)]
    assert sorted(listed("?aliases=true")[0][1] or []) == ["odd", "old"]
    assert listed("?aliases=true")[1] == ("other", None)
    assert listed("?aliases=true&subjectPrefix=old") == [("orders", ["old"])]
    assert listed("?subjectPrefix=old") == []
    assert listed("?aliases=true&subjectPrefix=ot") == [("other", None)]


def test_logical_policy_excludes_forward_levels(registry: Registry, subject: str) -> None:
    """As in Confluent's registry, where it stands for tables, which only read older data."""
    path = f"/config/{subject}"
    both = {"compatibility": "FORWARD", "compatibilityPolicy": "logical"}
    assert registry.put(path, both).error == (422, 42203)
    assert registry.put(path, {"compatibilityPolicy": "LOGICAL"}).status == 200
    assert registry.put(path, {"compatibility": "FORWARD_TRANSITIVE"}).error == (422, 42203)
    assert registry.put(path, {"compatibility": "FULL"}).status == 200
    assert registry.put(path, {"compatibility": "FORWARD", "compatibilityPolicy": None}).status == 200
    refused = registry.put(path, {"compatibilityPolicy": "LOGICAL"})
    assert refused.message == "compatibilityPolicy=LOGICAL cannot be combined with compatibilityLevel=FORWARD"


def test_paths_of_a_hostile_schema_take_little_memory() -> None:
    """Long names and deep properties would make paths that are a thousand times the text."""
    fields = [{"name": f"f{number}", "type": "int"} for number in range(10_000)]
    long = {"type": "record", "name": "R" * 100_000, "fields": fields, "confluent:tags": ["X"]}
    deep: dict[str, Any] = {"properties": {f"p{number}": {} for number in range(10_000)}}
    for _ in range(200):
        deep = {"properties": {"a": deep}}
    for kind, schema in (("AVRO", long), ("JSON", deep)):
        tracemalloc.start()
        entities = entities_of(Schema(kind, json.dumps(schema)))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 30 << 20
        assert all(len(entity.path) < 2_000 for entity in entities)
