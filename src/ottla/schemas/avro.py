"""Inlining of references in Avro schemas, so that fastavro can parse them."""

import json
from collections.abc import Mapping
from typing import Any, Final

from ottla.schemas.registry import UnsupportedSchema

_PRIMITIVES: Final = frozenset({"boolean", "int", "long", "float", "double", "string", "bytes"})


def whole(text: str, referred: Mapping[str, str]) -> Any:
    """Return a schema with referenced definitions inlined at their first use. Raises UnsupportedSchema."""
    try:
        named: dict[str, Any] = {}
        for other in referred.values():
            _define(json.loads(other), "", named)
        return _inline(json.loads(text), "", named, set())
    except ValueError as wrong:
        raise UnsupportedSchema(f"not an Avro schema: {wrong}") from None


def _full(name: str, space: str) -> str:
    return name if "." in name or not space or name in _PRIMITIVES or name == "null" else f"{space}.{name}"


def _full_name(schema: Mapping[str, Any], space: str) -> tuple[str, str]:
    """Return the full name of a definition, and the namespace within it."""
    name: str = schema["name"]
    full = name if "." in name else _full(name, schema.get("namespace", space) or "")
    return full, full.rpartition(".")[0]


def _define(schema: Any, space: str, named: dict[str, Any]) -> None:
    if isinstance(schema, list):
        for branch in schema:
            _define(branch, space, named)
    elif isinstance(schema, dict):
        if schema["type"] in ("record", "enum", "fixed", "error"):
            full, space = _full_name(schema, space)
            named.setdefault(full, {**schema, "name": full})
        for inner in [field["type"] for field in schema.get("fields", ())] + [
            schema[part] for part in ("items", "values") if part in schema
        ]:
            _define(inner, space, named)


def _inline(schema: Any, space: str, named: Mapping[str, Any], seen: set[str]) -> Any:
    """Return a schema with full names, and references replaced by definitions at their first use."""
    if isinstance(schema, list):
        return [_inline(branch, space, named, seen) for branch in schema]
    if isinstance(schema, str):
        full = _full(schema, space)
        full = full if full in seen or full in named or full in _PRIMITIVES else schema
        if full in named and full not in seen:
            return _inline(named[full], "", named, seen)
        return full
    if not isinstance(schema, dict) or "type" not in schema:
        raise UnsupportedSchema(f"not an Avro schema: {json.dumps(schema)[:100]}")
    kind = schema["type"]
    if kind in ("record", "error", "enum", "fixed"):
        full, space = _full_name(schema, space)
        seen.add(full)
        schema = {key: value for key, value in schema.items() if key != "namespace"} | {"name": full}
        if "fields" in schema:
            fields = [
                {**declared, "type": _inline(declared["type"], space, named, seen)} for declared in schema["fields"]
            ]
            schema["fields"] = fields
        return schema
    changed = {part: _inline(schema[part], space, named, seen) for part in ("items", "values") if part in schema}
    if kind not in ("array", "map"):
        changed["type"] = _inline(kind, space, named, seen)
    return {**schema, **changed}
