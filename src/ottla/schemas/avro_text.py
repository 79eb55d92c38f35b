"""Texts of Avro schemas: canonical, as Java's Avro prints them, and normal, which is the same for schemas that mean the same.

Canonical: no whitespace; a fixed order of attributes, then those without a meaning for Avro in their own order; the namespace
only where it differs from the one around; a definition at its first use, its name afterwards. Java's clients post this text and
compare it byte for byte with what a registry returns.
"""

from typing import Any, Final

from ottla.schemas.avro_types import NO_DEFAULT, AvroField, AvroType, space_of
from ottla.schemas.json_text import compact

_KINDS: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
    | {"record", "enum", "array", "map", "union", "fixed"}
)


def canonical(schema: AvroType, known: set[str] | None = None) -> str:
    """Return the text that Java's `Schema.toString` prints.

    known  full names that other schemas define: they are printed as names
    """
    return compact(_canonical(schema, set(known or ()), None))


def _canonical(schema: AvroType, known: set[str], space: str | None) -> Any:
    if schema.name:
        return _definition(schema, known, space)
    if schema.kind == "union":
        return [_canonical(branch, known, space) for branch in schema.parts]
    if schema.parts:
        part = "items" if schema.kind == "array" else "values"
        return {"type": schema.kind, part: _canonical(schema.parts[0], known, space), **schema.properties}
    return {"type": schema.kind, **schema.properties} if schema.properties else schema.kind


def _definition(schema: AvroType, known: set[str], space: str | None) -> Any:
    if schema.name in known:
        return _shorten(schema.name, space)
    known.add(schema.name)
    inner = space_of(schema.name)
    node: dict[str, Any] = {"type": schema.kind, "name": schema.name.rpartition(".")[2]}
    if inner != (space or ""):
        node["namespace"] = inner
    if schema.doc is not None:
        node["doc"] = schema.doc
    if schema.kind == "enum":
        node["symbols"] = schema.symbols
        if schema.symbol_default is not None:
            node["default"] = schema.symbol_default
    elif schema.kind == "fixed":
        node["size"] = schema.size
    else:
        node["fields"] = [_canonical_field(member, known, inner) for member in schema.fields]
    node |= schema.properties
    if schema.aliases:
        node["aliases"] = [_shorten(alias.removeprefix("."), inner) for alias in schema.aliases]
    return node


def _shorten(name: str, space: str | None) -> str:
    """Return a name without its namespace where that is the one around, unless it would read as a kind of type."""
    own, _, simple = name.rpartition(".")
    return simple if own and own == space and simple not in _KINDS else name


def _canonical_field(member: AvroField, known: set[str], space: str) -> dict[str, Any]:
    node: dict[str, Any] = {"name": member.name, "type": _canonical(member.type, known, space)}
    if member.doc is not None:
        node["doc"] = member.doc
    if member.default is not NO_DEFAULT:
        node["default"] = member.default
    if member.order != "ascending":
        node["order"] = member.order
    if member.aliases:
        node["aliases"] = member.aliases
    return node | member.properties


def normal(schema: AvroType, known: set[str] | None = None) -> str:
    """Return a text with full names and sorted attributes, see `canonical`."""
    return compact(_normal(schema, set(known or ()), ""))


def _normal(schema: AvroType, known: set[str], space: str) -> Any:
    if schema.kind == "union":
        return [_normal(branch, known, space) for branch in schema.parts]
    if not schema.name:
        if schema.parts:
            part = "items" if schema.kind == "array" else "values"
            return {"type": schema.kind, part: _normal(schema.parts[0], known, space), **_sort(schema.properties)}
        return {"type": schema.kind, **_sort(schema.properties)} if schema.properties else schema.kind
    if schema.name in known:
        return schema.name
    known.add(schema.name)
    inner = space_of(schema.name)
    node: dict[str, Any] = {"name": schema.name, "type": schema.kind}
    if space and not inner:
        node["namespace"] = ""  # or it would be read as a name of the namespace around it
    if schema.kind == "enum":
        node["symbols"] = schema.symbols
    elif schema.kind == "fixed":
        node["size"] = schema.size
    else:
        node["fields"] = [
            {"name": member.name, "type": _normal(member.type, known, inner)}
            | _attributes(member.aliases, member.default, member.doc, member.properties)
            | ({} if member.order == "ascending" else {"order": member.order})
            for member in schema.fields
        ]
    default = NO_DEFAULT if schema.symbol_default is None else schema.symbol_default
    return node | _attributes(schema.aliases, default, schema.doc, schema.properties)


def _attributes(aliases: tuple[str, ...], default: Any, doc: str | None, properties: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a field or a named type: logicalType, aliases, default, doc, the others by name."""
    others = _sort(properties)
    node = {"logicalType": others.pop("logicalType")} if "logicalType" in others else {}
    if aliases:
        node["aliases"] = sorted(aliases)
    if default is not NO_DEFAULT:
        node["default"] = default
    if doc is not None:
        node["doc"] = doc
    return node | others


def _sort(properties: dict[str, Any]) -> dict[str, Any]:
    """Return properties by name, logicalType first."""
    return {key: properties[key] for key in sorted(properties, key=lambda key: (key != "logicalType", key))}
