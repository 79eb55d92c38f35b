"""JSON Schema: a payload is JSON text.

Spark types: an object with properties is a struct; one with `additionalProperties` only is a map; integer is bigint; number,
boolean, string and array keep their type. `oneOf` or `anyOf` with null, and ["null", T], are T. Anything else (other
alternatives, untyped objects and arrays) is a string with its JSON text. Properties missing in the schema are dropped.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
from referencing.exceptions import Unresolvable

from ottla.schemas.framing import BadRecord
from ottla.schemas.json_schema import JsonDocument, json_payload
from ottla.schemas.registry import UnsupportedSchema
from ottla.spark.wire.shape import Shape, array, mapping, plain, record

_SCALARS: Final = {
    "string": plain(pa.string()),
    "integer": plain(pa.int64()),
    "number": plain(pa.float64()),
    "boolean": plain(pa.bool_()),
}


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_ANYTHING: Final = Shape(pa.string(), pa.string(), _text, json.loads)


class JsonSchema:
    """JSON Schema of a reader or writer; `validate` checks each value against all of it. Raises UnsupportedSchema."""

    def __init__(self, text: str, referred: Mapping[str, str], *, validate: bool = False) -> None:
        self._document = JsonDocument(text, referred)
        self.shape = _Shapes(self._document.registry.resolver()).of(self._document.schema, ())
        self._check = self._document.checker() if validate else None

    def decoder(self) -> Callable[[bytes, int], Any]:
        """Return a function that decodes the payload at an index of a frame; it raises BadRecord."""

        def decode(frame: bytes, at: int) -> Any:
            try:
                value = json.loads(frame[at:].decode(), parse_constant=_refuse_constant)
            except (ValueError, RecursionError) as wrong:
                raise BadRecord(f"not JSON: {wrong}") from None
            if self._check is not None:
                self._check(value)
            return value

        return decode

    def encode(self, value: Any) -> bytes:
        """Return the payload of a value. Raises BadRecord if it does not fit the schema."""
        if self._check is not None:
            self._check(value)
        return json_payload(value)


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


class _Shapes:
    """Shapes of a schema and the schemas it references."""

    def __init__(self, resolver: Any) -> None:
        self._resolver = resolver

    def of(self, schema: Any, around: tuple[str, ...]) -> Shape:
        if not isinstance(schema, dict):
            return _ANYTHING
        if "$ref" in schema:
            return self._shape_of_reference(schema["$ref"], around)
        for word in ("oneOf", "anyOf"):
            if word in schema:
                choices = [choice for choice in schema[word] if not _is_null(choice)]
                return self.of(choices[0], around) if len(choices) == 1 else _ANYTHING
        schema = self._merge_parts(schema)
        kind = _kind(schema)
        if kind == "object":
            return self._object(schema, around)
        if kind == "array":
            items = schema.get("items")
            return array(self.of(items, around)) if isinstance(items, dict) else _ANYTHING
        return _SCALARS.get(kind or "", _ANYTHING)

    def _object(self, schema: Mapping[str, Any], around: tuple[str, ...]) -> Shape:
        properties = schema.get("properties")
        if properties:
            shape = record((name, self.of(property_schema, around)) for name, property_schema in properties.items())
            return shape._replace(down=_without_absent(shape.down, frozenset(schema.get("required", ()))))
        more = schema.get("additionalProperties")
        return mapping(self.of(more, around)) if isinstance(more, dict) and more else _ANYTHING

    def _shape_of_reference(self, reference: str, around: tuple[str, ...]) -> Shape:
        try:
            resolved = self._resolver.lookup(reference)
        except Unresolvable as wrong:
            raise UnsupportedSchema(f"the JSON Schema refers to {wrong.ref}, which does not exist") from None
        name = f"{resolved.resolver._base_uri}{reference}"
        if name in around:
            raise UnsupportedSchema(f"{reference} is recursive, which Spark types do not support")
        return _Shapes(resolved.resolver).of(resolved.contents, (*around, name))

    def _merge_parts(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Merge the properties of all schemas of `allOf`."""
        for part in schema.get("allOf", ()):
            if isinstance(part, dict) and "$ref" in part:
                part = self._resolver.lookup(part["$ref"]).contents
            if isinstance(part, dict):
                part = self._merge_parts(part)
                schema = {
                    **part,
                    **schema,
                    "properties": {**part.get("properties", {}), **schema.get("properties", {})},
                    "required": [*part.get("required", ()), *schema.get("required", ())],
                }
        return schema


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and (schema.get("type") == "null" or schema.get("const", ...) is None)


def _kind(schema: Mapping[str, Any]) -> str | None:
    kind = schema.get("type")
    if isinstance(kind, list):
        others = [value for value in kind if value != "null"]
        kind = others[0] if len(others) == 1 else "number" if set(others) == {"integer", "number"} else None
    if kind is None and "properties" in schema:
        return "object"
    if kind is None and "enum" in schema and all(isinstance(value, str) for value in schema["enum"]):
        return "string"
    return kind if isinstance(kind, str) else None


def _without_absent(down: Any, required: frozenset[str]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Drop null properties unless they are required."""

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        if down is not None:
            value = down(value)
        return {name: item for name, item in value.items() if item is not None or name in required}

    return convert
