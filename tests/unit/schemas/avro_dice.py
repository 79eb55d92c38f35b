"""Random Avro schemas, and mutations of them whose incompatibilities are known because of how they were made.

Plain dice define each type once and mutate a schema once: the mutation knows kind and place. Others refer to types, recursively
too, mutate several times, and write all that a canonical text has: they are for a comparison with Java's Avro.
"""

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NUMBERS: Final = ("int", "long", "float", "double")
NAMED: Final = ("record", "enum", "fixed")
Expected = list[tuple[str, str]]


def promotes(writer: str, reader: str) -> bool:
    """Return whether a value of one primitive is read as the other: a number as a wider one, text as bytes and back."""
    if writer in NUMBERS and reader in NUMBERS:
        return NUMBERS.index(writer) <= NUMBERS.index(reader)
    return writer == reader or {writer, reader} == {"bytes", "string"}


class Spot(NamedTuple):
    """A type in a schema.

    holder, key  where it hangs
    place        steps that lead to it
    branch       place of the outermost union branch around it: what is wrong below is reported there; None outside of unions
    in_union     it is a branch itself
    """

    holder: Any
    key: Any
    place: str
    branch: str | None
    in_union: bool

    @property
    def node(self) -> Any:
        return self.holder[self.key]

    @property
    def kind(self) -> str:
        node = self.node
        return "union" if isinstance(node, list) else node["type"] if isinstance(node, dict) else str(node)


def spots(holder: Any, key: Any, place: str = "", branch: str | None = None, in_union: bool = False) -> Iterator[Spot]:
    spot = Spot(holder, key, place, branch, in_union)
    yield spot
    node = spot.node
    if isinstance(node, list):
        for index in range(len(node)):
            inner = f"{place}/{index}"
            yield from spots(node, index, inner, branch or inner, True)
    elif isinstance(node, dict):
        for part in ("items", "values"):
            if part in node:
                yield from spots(node, part, f"{place}/{part}", branch)
        for index, field in enumerate(node.get("fields", ())):
            yield from spots(field, "type", f"{place}/fields/{index}/type", branch)


class AvroDice:
    """Throws schemas and mutations."""

    def __init__(self, dice: random.Random, *, plain: bool) -> None:
        self._dice = dice
        self._plain = plain
        self._names = 0
        self._defined: list[str] = []

    def pair(self) -> tuple[Any, Any, Expected]:
        """Reader, writer, and what is incompatible, as kinds and places; the latter holds for plain dice only."""
        self._names, self._defined = 0, []
        writer = self._type(0)
        reader = copy.deepcopy(writer)
        expected: Expected = []
        for _ in range(1 if self._plain else self._dice.randint(0, 3)):
            holder = [reader]
            expected = self._mutate(holder)
            reader = holder[0]
        return (reader, writer, expected) if self._plain or self._dice.random() < 0.8 else (writer, reader, expected)

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def _chance(self, part: float) -> bool:
        return self._dice.random() < part

    def _type(self, depth: int, *, in_union: bool = False) -> Any:
        kinds = ["record"] * (6 if depth == 0 else 2) + ["enum", "fixed", "array", "map", "primitive", "primitive"]
        kind = self._dice.choice(
            kinds + ([] if in_union else ["union", "union"]) if depth < 4 else ["primitive", "enum"]
        )
        if kind == "primitive":
            return self._primitive()
        if kind == "union":
            return self._union(depth)
        if kind in ("array", "map"):
            part = {"array": "items", "map": "values"}[kind]
            return {"type": kind, part: self._type(depth + 1), **self._properties()}
        if not self._plain and self._defined and self._chance(0.25):
            return self._dice.choice(self._defined)
        return self._named(kind, depth)

    def _primitive(self) -> Any:
        name = self._dice.choice(PRIMITIVES)
        if self._plain or self._chance(0.8):
            return name
        return {"type": name, **self._properties()}

    def _union(self, depth: int) -> list[Any]:
        branches: dict[str, Any] = {}
        for _ in range(self._dice.randint(1, 4)):
            branch = self._type(depth + 1, in_union=True)
            kind = branch if isinstance(branch, str) else branch.get("name") or branch["type"]
            branches.setdefault(kind.rpartition(".")[2], branch)
        return list(branches.values())

    def _named(self, kind: str, depth: int) -> dict[str, Any]:
        name, space = self._name("T"), self._dice.choice(["", "a", "a.b"])
        made: dict[str, Any] = {"type": kind, "name": name, "namespace": space}
        full = f"{space}.{name}" if space else name
        if not self._plain and self._chance(0.3):
            made |= self._dice.choice([{"doc": 'a "doc"\n\x01é'}, {"aliases": ["Old", "x.Old"]}, {"name": full}])
        if kind == "enum":
            made["symbols"] = [f"S{number}" for number in range(self._dice.randint(1, 5))]
            if self._chance(0.3):
                made["default"] = made["symbols"][0]
        elif kind == "fixed":
            made["size"] = self._dice.randint(1, 16)
        else:
            if not self._plain:
                self._defined.append(full)  # so that fields refer to the record itself
            made["fields"] = [self._field(depth) for _ in range(self._dice.randint(0, 4))]
        if full not in self._defined:
            self._defined.append(full)
        return {**made, **self._properties()}

    def _field(self, depth: int) -> dict[str, Any]:
        made = {"name": self._name("f"), "type": self._type(depth + 1)}
        if self._plain:
            return made
        if self._chance(0.2):
            made["doc"] = "of a field"
        if self._chance(0.2):
            made["order"] = self._dice.choice(["ascending", "descending", "ignore"])
        if self._chance(0.2):
            made["aliases"] = [self._name("g")]
        if made["type"] in NUMBERS and self._chance(0.5):
            numbers: list[Any] = [0, 7, -1] + ([1.5, 1e10, 1e-5, 123456789.0] if made["type"] in NUMBERS[2:] else [])
            made["default"] = self._dice.choice(numbers)
        elif made["type"] == "string" and self._chance(0.5):
            made["default"] = "é\t/"
        return {**made, **self._properties()}

    def _properties(self) -> dict[str, Any]:
        if self._plain or self._chance(0.8):
            return {}
        values = (1, 2.5, "text", None, [1, {"b": 1e-7}], {"z": True, "a": 12345678.9})
        return {self._dice.choice("xyz"): self._dice.choice(values) for _ in range(2)}

    def _mutate(self, holder: list[Any]) -> Expected:
        while True:
            spot = self._dice.choice(list(spots(holder, 0)))
            kind = spot.kind
            changes = self._changes(spot, kind)
            if changes:
                expected = self._dice.choice(changes)(spot)
                if expected and spot.branch is not None:
                    return [("MISSING_UNION_BRANCH", spot.branch)]
                return [(rule, place or "/") for rule, place in expected]

    def _changes(self, spot: Spot, kind: str) -> list[Callable[[Spot], Expected]]:
        if kind == "record":
            changes: list[Callable[[Spot], Expected]] = [self._add_field, self._add_default, self._add_enum_field]
            changes += [self._rename, self._alias, self._move]
            if spot.node["fields"]:
                changes += [self._remove_field, self._rename_field, self._alias_field]
            return changes if self._plain or len(spot.node["fields"]) < 2 else [*changes, self._alias_two]
        if kind == "enum":
            return [self._remove_symbol, self._add_symbol, self._rename, self._alias]
        if kind == "fixed":
            return [self._resize, self._rename, self._alias]
        if kind == "union":
            return [self._drop_branch, self._add_branch] if len(spot.node) > 1 else [self._add_branch]
        if spot.in_union or (kind not in PRIMITIVES and kind not in ("array", "map")):
            return []
        return [self._replace] + ([self._widen] * 2 if kind in PRIMITIVES else [self._wrap])

    def _add_field(self, spot: Spot) -> Expected:
        fields = spot.node["fields"]
        fields.append({"name": self._name("f"), "type": "int"})
        return [("READER_FIELD_MISSING_DEFAULT_VALUE", f"{spot.place}/fields/{len(fields) - 1}")]

    def _add_default(self, spot: Spot) -> Expected:
        spot.node["fields"].append({"name": self._name("f"), "type": ["null", "int"], "default": None})
        return []

    def _add_enum_field(self, spot: Spot) -> Expected:
        fields = spot.node["fields"]
        enum = {"type": "enum", "name": self._name("T"), "symbols": ["A"], "default": "A"}
        fields.append({"name": self._name("f"), "type": enum})
        return [("TYPE_MISMATCH", f"{spot.place}/fields/{len(fields) - 1}/type")]

    def _remove_field(self, spot: Spot) -> Expected:
        del spot.node["fields"][self._dice.randrange(len(spot.node["fields"]))]
        return []

    def _rename_field(self, spot: Spot) -> Expected:
        index = self._dice.randrange(len(spot.node["fields"]))
        field = spot.node["fields"][index]
        field["name"] = self._name("f")
        if "default" in field:
            return []
        if isinstance(field["type"], dict) and field["type"]["type"] == "enum" and "default" in field["type"]:
            return [("TYPE_MISMATCH", f"{spot.place}/fields/{index}/type")]
        return [("READER_FIELD_MISSING_DEFAULT_VALUE", f"{spot.place}/fields/{index}")]

    def _alias_field(self, spot: Spot) -> Expected:
        field = self._dice.choice(spot.node["fields"])
        field["aliases"] = [*field.get("aliases", []), field["name"]]
        field["name"] = self._name("f")
        return []

    def _alias_two(self, spot: Spot) -> Expected:
        """Let a field have two of the writer's, which Java refuses to compare."""
        first, second = spot.node["fields"][:2]
        first["aliases"] = [second["name"]]
        return []

    def _rename(self, spot: Spot) -> Expected:
        node = spot.node
        node["name"] = self._name("T")
        return [("NAME_MISMATCH", f"{spot.place}/name")]

    def _alias(self, spot: Spot) -> Expected:
        """Rename with an alias; one without a namespace is never one of a type with one."""
        node = spot.node
        name, space = node["name"], node.get("namespace", "")
        full = name if "." in name or not space else f"{space}.{name}"
        node["aliases"] = [full if "." in full else f".{full}"]
        node["name"] = self._name("T")
        return []

    def _move(self, spot: Spot) -> Expected:
        """Another namespace: only unqualified names count."""
        spot.node["name"] = spot.node["name"].rpartition(".")[2]
        spot.node["namespace"] = "moved"
        return []

    def _remove_symbol(self, spot: Spot) -> Expected:
        node = spot.node
        gone = node["symbols"].pop()
        if not node["symbols"]:
            node["symbols"].append("Other")
        if node.get("default") == gone:
            del node["default"]
        return [] if "default" in node else [("MISSING_ENUM_SYMBOLS", f"{spot.place}/symbols")]

    def _add_symbol(self, spot: Spot) -> Expected:
        spot.node["symbols"].append(self._name("N"))
        return []

    def _resize(self, spot: Spot) -> Expected:
        spot.node["size"] += self._dice.randint(1, 3)
        return [("FIXED_SIZE_MISMATCH", f"{spot.place}/size")]

    def _drop_branch(self, spot: Spot) -> Expected:
        index = self._dice.randrange(len(spot.node))
        gone = spot.node.pop(index)
        if isinstance(gone, str) and any(isinstance(left, str) and promotes(gone, left) for left in spot.node):
            return []
        return [("MISSING_UNION_BRANCH", f"{spot.place}/{index}")]

    def _add_branch(self, spot: Spot) -> Expected:
        spot.node.insert(0, {"type": "fixed", "name": self._name("T"), "size": 4})
        return []

    def _replace(self, spot: Spot) -> Expected:
        spot.holder[spot.key] = {"type": "fixed", "name": self._name("T"), "size": 4}
        return [("TYPE_MISMATCH", spot.place)]

    def _widen(self, spot: Spot) -> Expected:
        """Another primitive."""
        written, read = spot.kind, self._dice.choice(PRIMITIVES)
        if isinstance(spot.holder, dict):
            spot.holder.pop("default", None)
        spot.holder[spot.key] = read
        return [] if promotes(written, read) else [("TYPE_MISMATCH", spot.place)]

    def _wrap(self, spot: Spot) -> Expected:
        spot.holder[spot.key] = ["null", spot.node]
        return []
