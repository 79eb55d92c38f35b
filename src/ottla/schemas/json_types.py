"""JSON Schemas as trees of types, of all drafts from 4 on: which values each keyword is about, with references resolved.

A schema object may say several things: its `type`, an `enum`, an `anyOf`. Each becomes a type of one kind, and several are the
parts of an `allOf`; a list of types is an `anyOf`. Without `type`, keywords imply what they are about: minLength a string.

References lead to the schema itself and to those that it was registered with; nothing is fetched.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from ottla.schemas import json_text
from ottla.schemas.json_references import References
from ottla.schemas.registry import UnsupportedSchema

ANY: Final = "any"
NEVER: Final = "never"
COMBINED: Final = "combined"
CRITERIA: Final = ("allOf", "anyOf", "oneOf")
_STRING: Final = ("minLength", "maxLength", "pattern", "format")
_NUMBER: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_OBJECT: Final = (
    *("properties", "required", "minProperties", "maxProperties", "dependencies", "dependentRequired", "propertyNames"),
    *("dependentSchemas", "patternProperties", "additionalProperties", "unevaluatedProperties"),
)
_ARRAY: Final = (
    *("items", "prefixItems", "additionalItems", "unevaluatedItems", "minItems", "maxItems", "uniqueItems", "contains"),
    *("minContains", "maxContains"),
)
_KEYWORDS_OF_KINDS: Final = {"string": _STRING, "number": _NUMBER, "object": _OBJECT, "array": _ARRAY}
_KINDS: Final = {"integer": "number", **{kind: kind for kind in (*_KEYWORDS_OF_KINDS, "boolean", "null")}}
"""Kind of a type by its name in `type`."""
_SCHEMA_KEYWORDS: Final = (
    *("additionalProperties", "unevaluatedProperties", "additionalItems", "unevaluatedItems", "not", "if", "then"),
    *("else", "contains", "propertyNames"),
)
_MAP_KEYWORDS: Final = ("properties", "patternProperties", "dependentSchemas", "definitions", "$defs")
_LIST_KEYWORDS: Final = (*CRITERIA, "prefixItems")
_ASSERTIONS: Final = frozenset((*_STRING, *_NUMBER, *_OBJECT, *_ARRAY, *CRITERIA, "type", "enum", "const", "not", "if"))
"""Keywords that say something of a value."""
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_NO_SIBLINGS: Final = ("draft-04", "draft-06", "draft-07")
"""Drafts in which a reference replaces all keywords beside it."""


@dataclass(slots=True, eq=False)
class JsonType:
    """Values of one kind, or a combination of types.

    kind       ANY, NEVER, COMBINED, string, number, boolean, null, object, array, enum, const, not or if
    keywords   well-formed keywords of the schema object
    criterion  of a combination: allOf, anyOf or oneOf
    parts      types of a combination
    schemas    types by the keyword that has one: additionalProperties, items
    named      types by keyword and name: properties
    items      types by position in an array
    """

    kind: str
    keywords: Mapping[str, Any] = field(default_factory=dict)
    criterion: str = ""
    parts: list["JsonType"] = field(default_factory=list)
    schemas: dict[str, "JsonType"] = field(default_factory=dict)
    named: dict[str, dict[str, "JsonType"]] = field(default_factory=dict)
    items: list["JsonType"] = field(default_factory=list)


TRUE: Final = JsonType(ANY)
FALSE: Final = JsonType(NEVER)
"""Types of the schemas true and false; {} allows everything, too, but is not the same to the rules."""


def parse(text: str, referred: Mapping[str, str], *, strict: bool = True) -> JsonType:
    """Return the type that a schema declares. Raises UnsupportedSchema.

    referred  texts of the schemas that it refers to, by the URI that it uses
    strict    whether malformed keywords are errors; else they are ignored
    """
    try:
        return _Parser(text, referred, strict=strict).root
    except RecursionError:
        raise UnsupportedSchema("not a JSON Schema: nested too deeply") from None


class _Parser:
    """Types of one schema and of those it refers to."""

    def __init__(self, text: str, referred: Mapping[str, str], *, strict: bool) -> None:
        self._strict = strict
        self._types: dict[int, JsonType] = {}
        self._unfilled: list[tuple[JsonType, Any, dict[str, Any], list[str], str]] = []
        schema = json_text.parse(text, "JSON Schema", exact=True)
        if not isinstance(schema, dict | bool):
            raise UnsupportedSchema("not a JSON Schema: must be an object, true or false")
        others = {name: json_text.parse(other, "JSON Schema", exact=True) for name, other in referred.items()}
        dialect = schema.get("$schema") if isinstance(schema, dict) else None
        self._legacy = not isinstance(dialect, str) or any(draft in dialect for draft in _NO_SIBLINGS)
        try:
            self._references = References(schema, others, legacy=self._legacy)
        except ValueError as wrong:
            raise UnsupportedSchema(f"not a JSON Schema: invalid id: {wrong}") from None
        self.root = self._type(schema, "#")
        while self._unfilled:
            made, schema, keywords, references, place = self._unfilled.pop()
            targets = [self._type(*self._resolve(reference, schema, place)) for reference in references]
            self._fill(made, keywords, place, targets)

    def _type(self, schema: Any, place: str) -> JsonType:
        """Return the type of a schema, which is filled later: references lead through more schemas than calls can be nested."""
        passed: dict[int, Any] = {}
        while True:
            made = (TRUE if schema else FALSE) if isinstance(schema, bool) else self._types.get(id(schema))
            if made is not None:
                break
            if id(schema) in passed:
                raise UnsupportedSchema(f"not a JSON Schema: {place} refers to itself")
            passed[id(schema)] = schema
            keywords = self._check_keywords(schema, place)
            references = [keywords.pop(name) for name in _REFERENCES if name in keywords]
            if not references or not (self._legacy or not any(name in _ASSERTIONS for name in keywords)):
                made = JsonType(ANY)
                self._unfilled.append((made, schema, keywords, references, place))
                break
            schema, place = self._resolve(references[0], schema, place)
        self._types.update(dict.fromkeys(passed, made))
        return made

    def _resolve(self, reference: str, schema: Any, place: str) -> tuple[Any, str]:
        """Return a schema by its reference, and its place. Raises UnsupportedSchema."""
        try:
            target = self._references.look_up(reference, schema)
        except (LookupError, ValueError, TypeError):
            raise UnsupportedSchema(
                f"not a JSON Schema: {place} refers to {reference[:200]}, which is neither in it nor among its references"
            ) from None
        if not isinstance(target, dict | bool):
            raise UnsupportedSchema(f"not a JSON Schema: {place} refers to {reference[:200]}, which is no schema")
        return target, reference

    def _fill(self, made: JsonType, keywords: dict[str, Any], place: str, parts: list[JsonType]) -> None:
        """Add the parts that keywords declare, and make the type one of them, or all of them."""

        def inner(schema: Any, *steps: object) -> JsonType:
            return self._type(schema, "/".join([place, *map(str, steps)]))

        whole = JsonType(ANY, keywords)
        for name in (*_SCHEMA_KEYWORDS, "items"):
            if isinstance(keywords.get(name), dict | bool):
                whole.schemas[name] = inner(keywords[name], name)
        for name in (*_MAP_KEYWORDS, "dependencies"):
            members = {key: value for key, value in keywords.get(name, {}).items() if isinstance(value, dict | bool)}
            whole.named[name] = {key: inner(value, name, key) for key, value in members.items()}
        positions = keywords.get("prefixItems", keywords.get("items"))
        if isinstance(positions, list):
            whole.items = [inner(value, "items", index) for index, value in enumerate(positions)]
            if "prefixItems" in keywords and "items" in whole.schemas:
                whole.schemas["additionalItems"] = whole.schemas.pop("items")
        for criterion in CRITERIA:
            if criterion in keywords:
                branches = [inner(value, criterion, index) for index, value in enumerate(keywords[criterion])]
                parts.append(JsonType(COMBINED, keywords, criterion, branches))
        parts += [_as_kind(whole, name) for name in ("enum", "const", "not", "if") if name in keywords]
        parts += _by_type(whole)
        if len(parts) == 1:
            part = parts[0]
            made.kind, made.criterion, made.parts = part.kind, part.criterion, part.parts
            made.schemas, made.named, made.items = part.schemas, part.named, part.items
        elif parts:
            made.kind, made.criterion, made.parts = COMBINED, "allOf", parts
        made.keywords = keywords if len(parts) != 1 else {**keywords, **parts[0].keywords}

    def _check_keywords(self, schema: dict[str, Any], place: str) -> dict[str, Any]:
        """Return the well-formed keywords. Raises UnsupportedSchema, if strict, for another one."""
        keywords = {}
        for name, value in schema.items():
            demand = _DEMANDS.get(name)
            if demand is None or demand(value):
                keywords[name] = value
            elif self._strict:
                shown = json_text.compact(value)[:100]
                raise UnsupportedSchema(f"not a JSON Schema: {place} has an invalid {name}: {shown}")
        return keywords


def _as_kind(whole: JsonType, kind: str, **keywords: Any) -> JsonType:
    known = {**whole.keywords, **keywords} if keywords else whole.keywords
    return JsonType(kind, known, schemas=whole.schemas, named=whole.named, items=whole.items)


def _by_type(whole: JsonType) -> Iterable[JsonType]:
    """Return the types that `type` names, or that other keywords imply."""
    declared = whole.keywords.get("type")
    if isinstance(declared, list):
        types = [_as_kind(whole, _KINDS[name], type=name) for name in declared]
        return [JsonType(COMBINED, whole.keywords, "anyOf", types)]
    if declared is not None:
        return [_as_kind(whole, _KINDS[declared])]
    return [
        _as_kind(whole, kind)
        for kind, names in _KEYWORDS_OF_KINDS.items()
        if any(name in whole.keywords for name in names)
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value) if _is_small(value) else False


def _is_small(value: Any) -> bool:
    """Return whether a number can be compared without being written out: not 1e999999999."""
    return _is_number(value) and -(10**18) < value < 10**18


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_type(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and _are_texts(value) and all(name in _KINDS for name in value)
    return isinstance(value, str) and value in _KINDS


def _map_of(*demands: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(any(fits(item) for fits in demands) for item in value.values())


def _are_schemas(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_schema, value))


_DEMANDS: Final[dict[str, Callable[[Any], bool]]] = {
    "type": _is_type,
    "enum": lambda value: isinstance(value, list),
    "required": _are_texts,
    "uniqueItems": lambda value: isinstance(value, bool),
    "items": lambda value: _is_schema(value) or _are_schemas(value),
    "dependencies": _map_of(_is_schema, _are_texts),
    "dependentRequired": _map_of(_are_texts),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    **dict.fromkeys(("minimum", "maximum"), _is_number),
    **dict.fromkeys(
        ("exclusiveMinimum", "exclusiveMaximum"), lambda value: _is_number(value) or isinstance(value, bool)
    ),
    **dict.fromkeys(
        (name for names in (_STRING[:2], _OBJECT, _ARRAY) for name in names if name[:3] in ("min", "max")), _is_count
    ),
    **dict.fromkeys(("pattern", "format", "title", "description", "$id", "$anchor", *_REFERENCES), _is_text),
    **dict.fromkeys(_SCHEMA_KEYWORDS, _is_schema),
    **dict.fromkeys(_MAP_KEYWORDS, _map_of(_is_schema)),
    **dict.fromkeys(_LIST_KEYWORDS, lambda value: _are_schemas(value) and bool(value)),
}
"""Checks of the values of keywords."""
