"""Avro schemas as Java's Avro sees them: types with full names, and references resolved, also those to later definitions.

One object stands for a named type, however often it is referred to, and one for each place of an unnamed type. A new schema is
checked strictly (names, defaults of fields, symbols), one that was registered long ago is not.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.schemas import json_text
from ottla.schemas.budget import Budget
from ottla.schemas.registry import UnsupportedSchema

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_RESERVED: Final = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"}
)
_RESERVED_OF_ENUM: Final = _RESERVED | {"default"}
_RESERVED_OF_FIELD: Final = frozenset({"default", "doc", "name", "order", "type", "aliases"})
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ORDERS: Final = frozenset({"ascending", "descending", "ignore"})
_JSON_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(("string", "bytes", "enum", "fixed"), str),
    **dict.fromkeys(("float", "double"), (int, float)),
    "boolean": bool,
    "null": type(None),
}
"""Python's types of the defaults, by kind."""
_INTEGERS: Final = {"int": 1 << 31, "long": 1 << 63}
_LARGEST_FIXED: Final = (1 << 31) - 9
NO_DEFAULT: Final = object()
"""Default of a field that has none: null is one."""


@dataclass(slots=True, eq=False)
class AvroField:
    """Field of a record. Names and aliases are unqualified; order is ascending, descending or ignore."""

    name: str
    type: "AvroType"
    doc: str | None
    default: Any
    order: str
    aliases: tuple[str, ...]
    properties: dict[str, Any]


@dataclass(slots=True, eq=False)
class AvroType:
    """Type of any kind; what a kind lacks is empty.

    kind         a primitive, array, map, union, record, error, enum or fixed; "" until a reference is resolved
    name         full name of a named type
    aliases      full names of the aliases; ".X" without a namespace where the type has one, which Java finds equal to no name
    properties   attributes that Avro gives no meaning, in their order
    parts        type of the items or values, or branches of a union
    """

    kind: str
    name: str = ""
    doc: str | None = None
    aliases: tuple[str, ...] = ()
    properties: dict[str, Any] = field(default_factory=dict)
    parts: list["AvroType"] = field(default_factory=list)
    fields: list[AvroField] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    symbol_default: str | None = None
    size: int = 0


def space_of(name: str) -> str:
    """Return the namespace of a full name, "" without."""
    return name.rpartition(".")[0]


def parse(text: str, referred: Mapping[str, str], *, strict: bool = True) -> AvroType:
    """Return the type that a schema declares. Raises UnsupportedSchema.

    referred  texts of the referenced schemas, each after its own references
    strict    whether names and defaults are checked
    """
    return with_known(text, referred, strict=strict)[0]


def with_known(text: str, referred: Mapping[str, str], *, strict: bool = True) -> tuple[AvroType, set[str]]:
    """Return the type of a schema, and the full names that the referenced schemas define. Raises UnsupportedSchema."""
    parser = _Parser()
    try:
        for other in referred.values():
            parser.schema(other)
        known = set(parser.defined)
        schema = parser.schema(text)
        if strict:
            parser.check()
    except RecursionError:
        raise UnsupportedSchema("not an Avro schema: nested too deeply") from None
    return schema, known


def _error(why: str, node: Any = None) -> UnsupportedSchema:
    shown = "" if node is None else f": {json_text.compact(node)[:100]}"
    return UnsupportedSchema(f"not an Avro schema: {why}{shown}")


class _Parser:
    """Types of one schema and those it refers to."""

    def __init__(self) -> None:
        self.defined: dict[str, AvroType] = {}
        self._texts: dict[str, tuple[str, Any]] = {}
        self._fields: list[tuple[str, AvroField]] = []
        self._names: list[str] = []

    def schema(self, text: str) -> AvroType:
        """Parse a text, which may refer to what earlier ones define."""
        placed = AvroType("union", parts=[self._type(json_text.parse(text, "Avro schema", comments=True), "")])
        self._resolve(placed, set())
        return placed.parts[0]

    def _resolve(self, around: AvroType, seen: set[int]) -> None:
        """Replace references to types that were defined after them."""
        below = [around]
        while below:
            holder = below.pop()
            if id(holder) in seen:
                continue
            seen.add(id(holder))
            holder.parts = [self._definition(part) for part in holder.parts]
            for member in holder.fields:
                member.type = self._definition(member.type)
            below += [*holder.parts, *(member.type for member in holder.fields)]

    def _definition(self, reference: AvroType) -> AvroType:
        if reference.kind:
            return reference
        if reference.name not in self.defined:
            raise _error(f"undefined name {reference.name}")
        return self.defined[reference.name]

    def _type(self, node: Any, space: str) -> AvroType:
        if isinstance(node, str):
            return self._reference(node, space)
        if isinstance(node, list):
            return self._union([self._type(branch, space) for branch in node])
        if not isinstance(node, dict):
            raise _error("a type is a name, an object or a list", node)
        kind = node.get("type")
        if not isinstance(kind, str):
            raise _error("no type", node)
        if kind in PRIMITIVES:
            return AvroType(kind, properties=_properties(node, _RESERVED))
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            if part not in node:
                raise _error(f"{kind} without {part}", node)
            return AvroType(kind, parts=[self._type(node[part], space)], properties=_properties(node, _RESERVED))
        return self._parse_named(kind, node, space) if kind in NAMED else self._reference(kind, space)

    def _reference(self, name: str, space: str) -> AvroType:
        """Return a type by its name: in the namespace around it, else in none, else one that is defined later."""
        if name in PRIMITIVES:
            return AvroType(name)
        full = f"{space}.{name}" if space and "." not in name else name
        return self.defined.get(full) or self.defined.get(name) or AvroType("", full)

    def _union(self, branches: list[AvroType]) -> AvroType:
        names = [branch.name or branch.kind for branch in branches]
        if "union" in names:
            raise _error("a union directly within a union")
        if len(set(names)) < len(names):
            raise _error(f"duplicate in union: {next(name for name in names if names.count(name) > 1)}")
        return AvroType("union", parts=branches)

    def _parse_named(self, kind: str, node: dict[str, Any], space: str) -> AvroType:
        name = _text(node, "name")
        if not name:
            raise _error("no name", node)
        own_space = _text(node, "namespace")
        full = _qualify(name, space if own_space is None else own_space)
        if full in PRIMITIVES:
            raise _error(f"a type cannot be called {full}")
        made = AvroType(kind, full, _text(node, "doc"))
        inner = space_of(full)
        if kind == "enum":
            self._enum(made, node)
        elif kind == "fixed":
            size = node.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _LARGEST_FIXED:
                raise _error("invalid or no size", node)
            made.size = size
        else:
            fields = node.get("fields")
            if not isinstance(fields, list):
                raise _error("record without fields", node)
            made.fields = [self._field(member, inner, full) for member in fields]
            names = [member.name for member in made.fields]
            if len(set(names)) < len(names):
                raise _error(f"duplicate field {next(field for field in names if names.count(field) > 1)} of {full}")
        made.properties = _properties(node, _RESERVED_OF_ENUM if kind == "enum" else _RESERVED)
        aliases = [_qualify(alias, inner) for alias in _aliases(node)]
        made.aliases = tuple(dict.fromkeys(f".{alias}" if inner and "." not in alias else alias for alias in aliases))
        return self._define(made, node, inner)

    def _define(self, made: AvroType, node: dict[str, Any], inner: str) -> AvroType:
        text = (
            inner,
            {key: value for key, value in node.items() if key not in ("doc", "namespace", "aliases", "name")},
        )
        if made.name in self.defined:
            if text != self._texts[made.name]:
                raise _error(f"a second definition of {made.name}")
            return self.defined[made.name]
        self._texts[made.name] = text
        self.defined[made.name] = made
        self._names += made.name.split(".")
        return made

    def _enum(self, made: AvroType, node: dict[str, Any]) -> None:
        symbols = node.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise _error("enum without symbols", node)
        if len(set(symbols)) < len(symbols):
            raise _error(f"duplicate symbol of {made.name}")
        made.symbols = tuple(symbols)
        made.symbol_default = _text(node, "default")
        if made.symbol_default is not None and made.symbol_default not in made.symbols:
            raise _error(f"default {made.symbol_default} is no symbol of {made.name}")
        self._names += symbols

    def _field(self, node: Any, space: str, record: str) -> AvroField:
        name = _text(node, "name") if isinstance(node, dict) else None
        if name is None or "type" not in node:
            raise _error("field without name or type", node)
        order = node.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            raise _error(f"order of field {name}", order)
        of_field = self._type(node["type"], space)
        default = node.get("default", NO_DEFAULT)
        if of_field.kind in ("float", "double") and isinstance(default, str):
            try:
                default = float(default)
            except ValueError:
                raise _error(f"default of field {name}", default) from None
        properties = _properties(node, _RESERVED_OF_FIELD)
        made = AvroField(name, of_field, _text(node, "doc"), default, order.lower(), tuple(_aliases(node)), properties)
        self._fields.append((record, made))
        self._names.append(name)
        return made

    def check(self) -> None:
        """Check names, and the defaults of fields, for which all types must be known. Raises UnsupportedSchema."""
        budget = Budget()
        for name in self._names:
            if not _NAME.fullmatch(name):
                raise _error(f"invalid name {name!r}")
        for record, member in self._fields:
            if member.default is not NO_DEFAULT and not fits(member.default, member.type, budget):
                shown = json_text.compact(member.default)[:100]
                raise _error(f"default {shown} of field {member.name} of {record} is no {member.type.kind}")


def fits(value: Any, declared: AvroType, budget: Budget) -> bool:
    """Return whether a JSON value is a default of a type: of any branch, for a union, as in Avro 1.12. Raises TooComplex."""
    budget.spend()
    kind = declared.kind
    if kind in _JSON_TYPES:
        return isinstance(value, _JSON_TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
    if kind in _INTEGERS:
        limit = _INTEGERS[kind]
        return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
    if kind == "array":
        return isinstance(value, list) and all(fits(item, declared.parts[0], budget) for item in value)
    if kind == "map":
        return isinstance(value, dict) and all(fits(item, declared.parts[0], budget) for item in value.values())
    if kind == "union":
        return any(fits(value, branch, budget) for branch in declared.parts)
    return isinstance(value, dict) and all(
        (inner := value.get(member.name, member.default)) is not NO_DEFAULT and fits(inner, member.type, budget)
        for member in declared.fields
    )


def _properties(node: dict[str, Any], reserved: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in node.items() if key not in reserved}


def _text(node: dict[str, Any], key: str) -> str | None:
    value = node.get(key)
    return value if isinstance(value, str) else None


def _aliases(node: dict[str, Any]) -> list[str]:
    aliases = node.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise _error("aliases are a list of names", aliases)
    return list(dict.fromkeys(aliases))


def _qualify(name: str, space: str) -> str:
    if "." in name:
        return name.removeprefix(".") if name.rfind(".") == 0 else name
    return f"{space}.{name}" if space else name
