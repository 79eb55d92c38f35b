"""Compatibility of JSON Schemas, rule by rule: the change, what is incompatible in it, and in its reverse."""

import json
import time
from typing import Any

import pytest

from ottla.schemas import json_types
from ottla.schemas.budget import Budget
from ottla.schemas.compatibility.json_schema import incompatibilities
from ottla.schemas.registry import UnsupportedSchema

Row = tuple[Any, Any, list[tuple[str, str]], list[tuple[str, str]]]
OPEN: dict[str, Any] = {"type": "object"}
CLOSED = {**OPEN, "additionalProperties": False}
STRING = {"type": "string"}
NUMBER = {"type": "number"}
INTEGER = {"type": "integer"}
TYPE_CHANGED = [("TYPE_CHANGED", "#/")]
NEW_DRAFT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def compare(old: Any, new: Any, *, is_lenient: bool = False) -> list[tuple[str, str]]:
    """Return the values of the old schema that the new one cannot read, as (kind, path)."""
    before, after = (json_types.parse(json.dumps(schema), {}) for schema in (old, new))
    differences = incompatibilities(after, before, Budget(), is_lenient=is_lenient)
    for difference in differences:
        assert difference.message("new", "old").startswith(f"{{errorType:'{difference.kind}', description:'"), (
            "no sentence for it"
        )
    return [(kind, path) for kind, path, _ in differences]


def props(base: dict[str, Any], **properties: Any) -> dict[str, Any]:
    return {**base, "properties": properties}


def tuples(*items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": list(items), **more}


def at(path: str, *kinds: str) -> list[tuple[str, str]]:
    return [(kind, f"#/{path}") for kind in kinds]


LIMITS: list[tuple[str, str, str, bool]] = [
    ("string", "maxLength", "MAX_LENGTH", True),
    ("string", "minLength", "MIN_LENGTH", False),
    ("number", "maximum", "MAXIMUM", True),
    ("number", "minimum", "MINIMUM", False),
    ("number", "exclusiveMaximum", "EXCLUSIVE_MAXIMUM", True),
    ("number", "exclusiveMinimum", "EXCLUSIVE_MINIMUM", False),
    ("object", "maxProperties", "MAX_PROPERTIES", True),
    ("object", "minProperties", "MIN_PROPERTIES", False),
    ("array", "maxItems", "MAX_ITEMS", True),
    ("array", "minItems", "MIN_ITEMS", False),
    ("array", "maxContains", "MAX_CONTAINS", True),
    ("array", "minContains", "MIN_CONTAINS", False),
]


@pytest.mark.parametrize(("kind", "keyword", "name", "is_upper"), LIMITS)
def test_limit(kind: str, keyword: str, name: str, is_upper: bool) -> None:
    without, low, high = {"type": kind}, {"type": kind, keyword: 3}, {"type": kind, keyword: 5}
    assert compare(low, without) == []
    assert compare(without, low) == at(keyword, f"{name}_ADDED")
    wider, narrower = (low, high) if is_upper else (high, low)
    assert compare(wider, narrower) == []
    stricter = f"{name}_{'DECREASED' if is_upper else 'INCREASED'}"
    assert compare(narrower, wider) == at(keyword, stricter)
    assert compare({keyword: 3}, low) == []  # the keyword implies the type


ROWS: dict[str, Row] = {
    # name: old, new, incompatible, incompatible the other way round
    "annotations": (
        {**STRING, "title": "a", "$id": "http://x/a", "default": "x"},
        {**STRING, "description": "b", "$comment": "c", "examples": [1]},
        [],
        [],
    ),
    "anything": (STRING, {}, [], TYPE_CHANGED),
    "true": (STRING, True, [], TYPE_CHANGED),
    "false": (False, STRING, [], TYPE_CHANGED),
    "type": (STRING, INTEGER, TYPE_CHANGED, TYPE_CHANGED),
    "null and boolean": ({"type": "null"}, {"type": "boolean"}, TYPE_CHANGED, TYPE_CHANGED),
    "integer to number": (INTEGER, NUMBER, [], at("", "TYPE_NARROWED")),
    "integer without type": ({"minimum": 1}, {**INTEGER, "minimum": 1}, at("", "TYPE_NARROWED"), []),
    "more types": (STRING, {"type": ["string", "null"]}, [], TYPE_CHANGED),
    "more types in a list": (
        {"type": ["string", "null"]},
        {"type": ["string", "null", "integer"]},
        [],
        at("", "SUM_TYPE_NARROWED"),
    ),
    "one type in a list": (STRING, {"type": ["string"]}, [], []),
    "pattern": ({**STRING, "pattern": "a"}, STRING, [], at("pattern", "PATTERN_ADDED")),
    "other pattern": (
        {**STRING, "pattern": "a"},
        {**STRING, "pattern": "(?=b)"},
        at("pattern", "PATTERN_CHANGED"),
        at("pattern", "PATTERN_CHANGED"),
    ),
    "pattern that RE2 cannot read": ({**STRING, "pattern": "(?=b)"}, {**STRING, "pattern": "(?=b)"}, [], []),
    "multipleOf": ({**NUMBER, "multipleOf": 2}, NUMBER, [], at("multipleOf", "MULTIPLE_OF_ADDED")),
    "multiple of multipleOf": (
        {**NUMBER, "multipleOf": 6},
        {**NUMBER, "multipleOf": 3},
        [],
        at("multipleOf", "MULTIPLE_OF_EXPANDED"),
    ),
    "no multiple of multipleOf": (
        {**NUMBER, "multipleOf": 6},
        {**NUMBER, "multipleOf": 4},
        at("multipleOf", "MULTIPLE_OF_CHANGED"),
        at("multipleOf", "MULTIPLE_OF_CHANGED"),
    ),
    "decimal multipleOf": (
        {**NUMBER, "multipleOf": 0.3},
        {**NUMBER, "multipleOf": 0.1},
        [],
        at("multipleOf", "MULTIPLE_OF_EXPANDED"),
    ),
    "exclusive limits of draft 4": (
        {**NUMBER, "maximum": 3, "exclusiveMaximum": True},
        {**NUMBER, "maximum": 4, "exclusiveMaximum": True},
        [],
        at("exclusiveMaximum", "EXCLUSIVE_MAXIMUM_DECREASED"),
    ),
    "enum": ({"enum": ["a"]}, {"enum": ["b", "a"]}, [], at("enum", "ENUM_ARRAY_NARROWED")),
    "other enum": ({"enum": ["a", 1]}, {"enum": ["a", True]}, *(at("enum", "ENUM_ARRAY_CHANGED"),) * 2),
    "enum in another form": ({"enum": [{"a": 1, "b": 2}, 1]}, {"enum": [1.0, {"b": 2, "a": 1}]}, [], []),
    "enum with a type": (
        {**STRING, "enum": ["a"]},
        {**STRING, "enum": ["a", "b"]},
        [],
        at("", "COMBINED_TYPE_SUBSCHEMAS_CHANGED"),
    ),
    "enum removed": ({**STRING, "enum": ["a"]}, STRING, [], TYPE_CHANGED),
    "const": ({"const": 1}, {"const": 2}, *(at("const", "ENUM_ARRAY_CHANGED"),) * 2),
    "same const": ({"const": [1]}, {"const": [1.0]}, [], []),
    "uniqueItems": (
        {"type": "array", "uniqueItems": True},
        {"type": "array"},
        [],
        at("uniqueItems", "UNIQUE_ITEMS_ADDED"),
    ),
    "not": ({"not": NUMBER}, {"not": INTEGER}, [], at("not", "NOT_TYPE_EXTENDED")),
    "required": (
        {**props(OPEN, a=STRING), "required": ["a"]},
        props(OPEN, a=STRING),
        [],
        at("required/a", "REQUIRED_ATTRIBUTE_ADDED"),
    ),
    "required with a default": (
        props(OPEN, a={**STRING, "default": ""}),
        {**props(OPEN, a={**STRING, "default": ""}), "required": ["a"]},
        [],
        [],
    ),
    "required, but no property": (OPEN, {**OPEN, "required": ["a"]}, [], []),
    "property of a property": (
        props(OPEN, a=props(OPEN, b=INTEGER)),
        props(OPEN, a=props(OPEN, b=NUMBER)),
        [],
        at("properties/a/properties/b", "TYPE_NARROWED"),
    ),
    "property in an open model": (
        OPEN,
        props(OPEN, a=STRING),
        at("properties/a", "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
        [],
    ),
    "property with {} in an open model": (OPEN, props(OPEN, a={}, b=True), [], []),
    "property in a closed model": (
        CLOSED,
        props(CLOSED, a=STRING),
        [],
        at("properties/a", "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
    ),
    "false property in a closed model": (CLOSED, props(CLOSED, a=False), [], []),
    "required property in a closed model": (
        CLOSED,
        {**props(CLOSED, a=STRING), "required": ["a"]},
        at("properties/a", "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"),
        at("properties/a", "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
    ),
    "required property with a default in a closed model": (
        CLOSED,
        {**props(CLOSED, a={**STRING, "default": ""}), "required": ["a"]},
        [],
        at("properties/a", "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
    ),
    "property in a partially open model": (
        {**OPEN, "additionalProperties": INTEGER},
        props({**OPEN, "additionalProperties": INTEGER}, a=NUMBER),
        [],
        at("properties/a", "TYPE_NARROWED", "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
    ),
    "property that a partially open model does not cover": (
        {**OPEN, "additionalProperties": STRING},
        props({**OPEN, "additionalProperties": STRING}, a=NUMBER),
        at("properties/a", "TYPE_CHANGED", "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
        at("properties/a", "TYPE_CHANGED", "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
    ),
    "property that a pattern covers": (
        {**CLOSED, "patternProperties": {"^a": STRING, ".": INTEGER}},
        props({**CLOSED, "patternProperties": {"^a": STRING, ".": INTEGER}}, ab=STRING, b=NUMBER),
        [],
        at("properties/b", "TYPE_NARROWED", "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
    ),
    "pattern that RE2 cannot read covers no property": (
        {**CLOSED, "patternProperties": {"(?=a)": STRING}},
        props({**CLOSED, "patternProperties": {"(?=a)": STRING}}, a=STRING),
        [],
        at("properties/a", "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
    ),
    "property in a model that unevaluatedProperties closes": (
        {**OPEN, "unevaluatedProperties": False},
        props({**OPEN, "unevaluatedProperties": False}, a=STRING),
        [],
        at("properties/a", "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
    ),
    "additionalProperties: false": (
        CLOSED,
        OPEN,
        [],
        at("additionalProperties", "ADDITIONAL_PROPERTIES_REMOVED"),
    ),
    "additionalProperties: schema": (
        {**OPEN, "additionalProperties": STRING},
        OPEN,
        [],
        at("additionalProperties", "ADDITIONAL_PROPERTIES_NARROWED"),
    ),
    "additionalProperties: true": (OPEN, {**OPEN, "additionalProperties": True}, [], []),
    "additionalProperties of another type": (
        {**OPEN, "additionalProperties": INTEGER},
        {**OPEN, "additionalProperties": NUMBER},
        [],
        at("additionalProperties", "TYPE_NARROWED"),
    ),
    "unevaluatedProperties": (
        {**OPEN, "unevaluatedProperties": False},
        {**OPEN, "unevaluatedProperties": STRING},
        [],
        at("unevaluatedProperties", "UNEVALUATED_PROPERTIES_REMOVED"),
    ),
    "unevaluatedItems": (
        {"type": "array", "unevaluatedItems": STRING},
        {"type": "array"},
        [],
        at("unevaluatedItems", "UNEVALUATED_ITEMS_NARROWED"),
    ),
    "dependencies": (
        {**OPEN, "dependencies": {"a": ["b", "c"]}},
        {**OPEN, "dependencies": {"a": ["b"]}},
        [],
        at("dependencies/a", "DEPENDENCY_ARRAY_EXTENDED"),
    ),
    "other dependencies": (
        {**OPEN, "dependentRequired": {"a": ["b"]}},
        {**OPEN, "dependentRequired": {"a": ["c"]}},
        *(at("dependencies/a", "DEPENDENCY_ARRAY_CHANGED"),) * 2,
    ),
    "dependencies removed": (
        {**OPEN, "dependencies": {"a": ["b"], "b": OPEN}},
        OPEN,
        [],
        [("DEPENDENCY_ARRAY_ADDED", "#/dependencies/a"), ("DEPENDENCY_SCHEMA_ADDED", "#/dependencies/b")],
    ),
    "dependent schemas": (
        {**OPEN, "dependencies": {"a": {**OPEN, "maxProperties": 2}}},
        {**OPEN, "dependentSchemas": {"a": {**OPEN, "maxProperties": 3}}},
        [],
        at("dependencies/a/maxProperties", "MAX_PROPERTIES_DECREASED"),
    ),
    "items": (
        {"type": "array", "items": INTEGER},
        {"type": "array", "items": NUMBER},
        [],
        at("items", "TYPE_NARROWED"),
    ),
    "items removed": ({"type": "array", "items": STRING}, {"type": "array"}, [], at("items", "SCHEMA_ADDED")),
    "items by position": (tuples(INTEGER), tuples(NUMBER), [], at("items/0", "TYPE_NARROWED")),
    "item in an open model": (tuples(), tuples(STRING), at("items/0", "ITEM_ADDED_TO_OPEN_CONTENT_MODEL"), []),
    "item with {} in an open model": (tuples(), tuples({}), [], []),
    "item in a closed model": (
        tuples(additionalItems=False),
        tuples(STRING, additionalItems=False),
        [],
        at("items/0", "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
    ),
    "item in a partially open model": (
        tuples(additionalItems=INTEGER),
        tuples(STRING, additionalItems=INTEGER),
        at("items/0", "TYPE_CHANGED", "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
        at("items/0", "TYPE_CHANGED", "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
    ),
    "additionalItems: false": (
        tuples(additionalItems=False),
        tuples(),
        [],
        at("additionalItems", "ADDITIONAL_ITEMS_REMOVED"),
    ),
    "prefixItems": (
        {**NEW_DRAFT, "type": "array", "prefixItems": [STRING], "items": False},
        {**NEW_DRAFT, "type": "array", "prefixItems": [STRING, STRING], "items": False},
        [],
        at("items/1", "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
    ),
    "prefixItems with items: true": (
        {**NEW_DRAFT, "type": "array", "prefixItems": [STRING], "items": True},
        {**NEW_DRAFT, "type": "array", "prefixItems": [STRING]},
        [],
        [],
    ),
    "anyOf for one": (STRING, {"anyOf": [NUMBER, STRING]}, [], TYPE_CHANGED),
    "oneOf for one": (STRING, {"oneOf": [NUMBER, STRING]}, [], TYPE_CHANGED),
    "allOf for one": (STRING, {"allOf": [STRING, {"maxLength": 2}]}, TYPE_CHANGED, []),
    "combination of one": ({"allOf": [INTEGER]}, {"oneOf": [NUMBER]}, [], at("", "COMBINED_TYPE_SUBSCHEMAS_CHANGED")),
    "combination of one, and none": ({"oneOf": [INTEGER]}, NUMBER, [], TYPE_CHANGED),
    "allOf to anyOf": (
        {"allOf": [INTEGER, STRING]},
        {"anyOf": [STRING, INTEGER]},
        [],
        at("", "COMBINED_TYPE_CHANGED"),
    ),
    "anyOf to oneOf": (
        {"anyOf": [INTEGER, STRING]},
        {"oneOf": [STRING, INTEGER]},
        at("", "COMBINED_TYPE_CHANGED"),
        [],
    ),
    "more choices": (
        {"oneOf": [INTEGER, STRING]},
        {"oneOf": [STRING, {"type": "null"}, INTEGER]},
        [],
        at("", "SUM_TYPE_NARROWED"),
    ),
    "fewer conditions": (
        {"allOf": [STRING, {"maxLength": 2}, {"pattern": "a"}]},
        {"allOf": [STRING, {"maxLength": 2}]},
        [],
        at("", "PRODUCT_TYPE_EXTENDED"),
    ),
    "other choices": (
        {"oneOf": [INTEGER, STRING]},
        {"oneOf": [{"type": "null"}, INTEGER]},
        *(at("", "COMBINED_TYPE_SUBSCHEMAS_CHANGED"),) * 2,
    ),
    "choices that need a matching": (
        {"oneOf": [INTEGER, {"type": "number", "maximum": 5}]},
        {"oneOf": [{"type": "number", "maximum": 7}, NUMBER]},
        [],
        at("", "COMBINED_TYPE_SUBSCHEMAS_CHANGED"),
    ),
    "one choice twice": ({"oneOf": [STRING, INTEGER]}, {"oneOf": [STRING, STRING, INTEGER]}, [], []),
    "combination beside keywords": (
        {**props(OPEN, a=STRING), "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {**props(OPEN, a=STRING), "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        [],
        [],
    ),
    "if": ({"if": STRING, "then": {"maxLength": 3}}, {"if": STRING}, [], []),
}


@pytest.mark.parametrize("name", ROWS)
def test_rule(name: str) -> None:
    old, new, incompatible, reverse = ROWS[name]
    assert compare(old, new) == incompatible
    assert compare(new, old) == reverse
    assert compare(old, old) == compare(new, new) == []


def referring(definition: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"$ref": "#/definitions/a", "definitions": {"a": definition}, **more}


def test_recursive_schemas_are_compared() -> None:
    def tree(value: Any) -> dict[str, Any]:
        return referring(props(CLOSED, value=value, below={"type": "array", "items": {"$ref": "#/definitions/a"}}))

    assert compare(tree(INTEGER), tree(NUMBER)) == []
    assert compare(tree(NUMBER), tree(INTEGER)) == at("properties/value", "TYPE_NARROWED")
    assert (
        compare(tree(INTEGER)["definitions"]["a"] | {"definitions": tree(INTEGER)["definitions"]}, tree(NUMBER)) == []
    )


def test_pair_that_fails_later_does_not_count_as_compatible_within_itself() -> None:
    """The choice is compared while the whole is assumed to be compatible, and again once it is known not to be."""

    def schema(value: Any) -> dict[str, Any]:
        return props(CLOSED, next={"oneOf": [{"type": "null"}, {"$ref": "#"}]}, value=value)

    assert compare(schema(STRING), schema(INTEGER)) == [
        ("COMBINED_TYPE_SUBSCHEMAS_CHANGED", "#/properties/next"),
        ("TYPE_CHANGED", "#/properties/value"),
    ]


def test_references_lead_to_definitions_anchors_ids_and_other_schemas() -> None:
    targets = [
        {"$ref": "#/definitions/n"},
        {"$ref": "#/definitions/a%20b~1c"},
        {"$ref": "#anchor"},
        {"$ref": "http://x/other"},
        {"$ref": "number.json"},
        {"$ref": "pair.json#/definitions/n"},
        {"$ref": "#/properties/0"},
    ]
    schema = {
        "$id": "http://x/root",
        "definitions": {
            "n": NUMBER,
            "a b/c": NUMBER,
            "c": {"$id": "#anchor", **NUMBER},
            "o": {"$id": "other", **NUMBER},
        },
        **props(OPEN, **{str(index): target for index, target in enumerate(targets)}),
    }
    referred = {
        "http://x/number.json": json.dumps(NUMBER),
        "http://x/pair.json": json.dumps({"definitions": {"n": {"$ref": "number.json"}}}),
    }
    parsed = json_types.parse(json.dumps(schema), referred)
    assert [parsed.named["properties"][str(index)].kind for index in range(len(targets))] == ["number"] * len(targets)


def test_identifiers_within_values_are_ignored() -> None:
    schema = {
        "properties": {"a": {"$ref": "#x"}},
        "default": {"$id": "#x"},
        "definitions": {"id": {"id": "y", "$anchor": "x"}},
    }
    parsed = json_types.parse(json.dumps({**schema, **NEW_DRAFT}), {})
    assert parsed.named["properties"]["a"].kind == "any"
    with pytest.raises(UnsupportedSchema, match="refers to #x"):
        json_types.parse(json.dumps({**schema, **NEW_DRAFT, "definitions": {}}), {})


def test_identifiers_without_hierarchy_have_fragments() -> None:
    schema = {"$id": "urn:a:b", "definitions": {"n": NUMBER}, "properties": {"a": {"$ref": "#/definitions/n"}}}
    assert json_types.parse(json.dumps(schema), {}).named["properties"]["a"].kind == "number"


def many_references(target: str, **more: Any) -> str:
    return json.dumps({"properties": {f"p{number}": {"$ref": target} for number in range(20_000)}, **more})


def chain(levels: int) -> dict[str, Any]:
    return {str(level): {"$ref": f"#/definitions/{level + 1}"} for level in range(levels)} | {str(levels): NUMBER}


@pytest.mark.parametrize(
    "text",
    [
        many_references("#x", definitions={"a": {"$id": "#x", **NUMBER}}),
        many_references("other", **{"$id": "http://x/a", "definitions": {"a": {"$id": "other", **NUMBER}}}),
        many_references("#/definitions/0", definitions=chain(5_000)),
        json.dumps(
            props({"definitions": chain(5_000)}, **{f"p{n}": {"$ref": f"#/definitions/{n}"} for n in range(5_000)})
        ),
    ],
    ids=["anchor", "id", "one chain", "chains"],
)
def test_references_are_looked_up_soon(text: str) -> None:
    begun = time.process_time()
    parsed = json_types.parse(text, {})
    assert {member.kind for member in parsed.named["properties"].values()} == {"number"}
    assert time.process_time() - begun < 5


def test_keywords_beside_a_reference_count_from_2019_on() -> None:
    old = referring(STRING, maxLength=3)
    assert compare(old, referring(STRING)) == []
    assert compare(referring(STRING), old) == []
    assert compare({**NEW_DRAFT, **referring(STRING)}, {**NEW_DRAFT, **old}) == TYPE_CHANGED
    assert compare({**NEW_DRAFT, **referring(STRING)}, {**NEW_DRAFT, **referring(STRING, title="a")}) == []


@pytest.mark.parametrize(
    "schema",
    [
        *("", "1", "[]", '"a"', "null", '{"type":"strin"}', '{"type":[]}', '{"type":["string",1]}', '{"type":NaN}'),
        *('{"properties":[]}', '{"properties":{"a":1}}', '{"required":"a"}', '{"minLength":-1}', '{"minLength":1.5}'),
        *('{"items":1}', '{"allOf":[]}', '{"anyOf":{}}', '{"enum":1}', '{"multipleOf":0}', '{"maximum":"1"}'),
        *('{"dependencies":{"a":1}}', '{"$ref":1}', '{"$ref":"#/definitions/gone"}', '{"$ref":"http://127.0.0.1:1/a"}'),
        *('{"$ref":"#"}', '{"$ref":"#/a","a":{"$ref":"#/b"},"b":{"$ref":"#/a"}}', '{"$ref":"#/a","a":[]}', '{"$id":1}'),
        *('{"$ref":"http://[::"}', '{"definitions":{"a":{"not":2}}}', '{"uniqueItems":"true"}', '{"pattern":1}'),
        '{"not":' * 100_000 + "{}" + "}" * 100_000,
        '{"maxLength":1e999999999}',
    ],
    ids=lambda schema: schema[:40],
)
def test_malformed_schema_is_refused(schema: str) -> None:
    with pytest.raises(UnsupportedSchema, match=r"^not a JSON Schema: [^\n]+$"):
        json_types.parse(schema, {})


def test_registered_schema_with_malformed_keywords_is_read() -> None:
    parsed = json_types.parse('{"type":"object","properties":5,"required":"a","maxProperties":"x"}', {}, strict=False)
    assert parsed.kind == "object"


def nested(levels: int, criterion: str, branches: int) -> Any:
    """Combinations within each other, each branch of its own: as long as its text."""
    made: Any = STRING
    for level in range(levels):
        made = {criterion: [{"title": f"{level}{branch}", "allOf": [made]} for branch in range(branches)]}
    return made


def chained(levels: int) -> Any:
    """Choices within each other by references: a short text with 2 ** levels ways through it."""
    definitions: dict[str, Any] = {"0": STRING}
    for level in range(1, levels):
        below = {"$ref": f"#/definitions/{level - 1}"}
        definitions[str(level)] = {
            "oneOf": [{**OPEN, "properties": {"a": below}}, {**CLOSED, "properties": {"b": below}}]
        }
    return {"definitions": definitions, "$ref": f"#/definitions/{levels - 1}"}


def many_properties() -> Any:
    return props(OPEN, **{f"property-{number}": {"type": "string", "maxLength": number} for number in range(20_000)})


def mutual(definitions: int) -> Any:
    """Each definition is a choice of all."""
    names = [f"d{number}" for number in range(definitions)]
    choice = {"oneOf": [{"$ref": f"#/definitions/{name}"} for name in names]}
    return {
        "definitions": {name: {**props(CLOSED, a=choice), "title": name} for name in names},
        **choice,
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (nested(11, "oneOf", 2), nested(11, "anyOf", 2)),
        (chained(60), chained(60)),
        (nested(5, "anyOf", 6), nested(5, "oneOf", 6)),
        (mutual(40), mutual(40)),
        ({"enum": list(range(100_000))}, {"enum": list(range(100_000))}),
        ({"oneOf": [{"const": number} for number in range(10_000)]},) * 2,
        (many_properties(), many_properties()),
        (
            {**OPEN, "patternProperties": {f"(a|b){{1,900}}{number}$": STRING for number in range(1_000)}},
            props({**OPEN, "patternProperties": {}}, **{"a" * 10_000: STRING}),
        ),
        ({**NUMBER, "multipleOf": 3, "maximum": 5}, {**NUMBER, "multipleOf": 10**4000, "maximum": 10**4000}),
    ],
    ids=[
        "nested oneOf",
        "chained oneOf",
        "wide combinations",
        "mutual recursion",
        "enum",
        "oneOf",
        "properties",
        "patterns",
        "digits",
    ],
)
def test_comparison_ends_soon(old: Any, new: Any) -> None:
    begun = time.process_time()
    try:
        compare(old, new)
    except UnsupportedSchema as refused:
        assert "\n" not in str(refused)  # noqa: PT017
    assert time.process_time() - begun < 5


REQUIRED = {"required": ["a"]}
PARTIAL = {**OPEN, "additionalProperties": INTEGER}
LENIENT: list[tuple[str, Any, Any, bool]] = [
    ("an optional property is added to an open object", OPEN, props(OPEN, a=STRING), True),
    ("a required one is", OPEN, {**props(OPEN, a=STRING), **REQUIRED}, False),
    ("a required one with a default is", OPEN, {**props(OPEN, a={**STRING, "default": ""}), **REQUIRED}, True),
    ("a property is removed from a closed object", props(CLOSED, a=STRING), CLOSED, True),
    ("one is removed that the rest does not cover", props(PARTIAL, a=STRING), PARTIAL, True),
    ("an object is closed", props(OPEN, a=STRING), props(CLOSED, a=STRING), True),
    ("other properties are narrowed", OPEN, PARTIAL, True),
    ("other properties are changed", PARTIAL, {**OPEN, "additionalProperties": STRING}, False),
    (
        "unevaluated ones are forbidden",
        {**NEW_DRAFT, **OPEN},
        {**NEW_DRAFT, **OPEN, "unevaluatedProperties": False},
        True,
    ),
    ("a property changes its type", props(OPEN, a=STRING), props(OPEN, a=NUMBER), False),
    ("a property becomes required", props(OPEN, a=STRING), {**props(OPEN, a=STRING), **REQUIRED}, False),
    ("a nested object is closed", props(OPEN, a=OPEN), props(OPEN, a=CLOSED), True),
    ("an array is closed", {"type": "array"}, {"type": "array", "items": [], "additionalItems": False}, False),
    ("a branch is closed", {"oneOf": [OPEN, STRING]}, {"oneOf": [CLOSED, STRING]}, True),
]


@pytest.mark.parametrize(("old", "new", "is_allowed"), [row[1:] for row in LENIENT], ids=[row[0] for row in LENIENT])
def test_lenient_comparison_ignores_content_models_of_objects(old: Any, new: Any, is_allowed: bool) -> None:
    assert (compare(old, new, is_lenient=True) == []) is is_allowed
    assert compare(old, new)
