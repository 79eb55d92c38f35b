"""Levels of compatibility: which of two schemas reads what was written with the other, and which versions are compared.

level                   reads                    compared with
NONE                    nothing                  nothing
BACKWARD                new reads old            the newest version
FORWARD                 old reads new            the newest version
FULL                    both                     the newest version
..._TRANSITIVE          the same                 all versions, newest first, until one fails
"""

from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple

from ottla.extras import install_command
from ottla.schemas.budget import Budget, TooComplex
from ottla.schemas.compatibility.incompatibility import Incompatibility
from ottla.schemas.registry import AVRO, JSON, PROTOBUF, Schema, UnsupportedSchema

_DIRECTIONS: Final = ("BACKWARD", "FORWARD", "FULL")
LEVELS: Final = ("NONE", *(f"{level}{end}" for level in _DIRECTIONS for end in ("", "_TRANSITIVE")))
LENIENT: Final = "LENIENT"
POLICIES: Final = ("STRICT", LENIENT)
"""Policies by which JSON Schemas are compared."""
OLD: Final = "old"
NEW: Final = "new"
_RULES: Final = {
    AVRO: "ottla.schemas.compatibility.avro",
    JSON: "ottla.schemas.compatibility.json_schema",
    PROTOBUF: "ottla.schemas.compatibility.protobuf",
}


class ParsedSchema(NamedTuple):
    """A schema with its references. `tree` is what the rules of its kind compare."""

    kind: str
    tree: Any


class Finding(NamedTuple):
    """An incompatibility, and which of the two schemas is the reader."""

    incompatibility: Incompatibility
    reader: str
    writer: str

    @property
    def description(self) -> str:
        """Sentence about the incompatibility."""
        return self.incompatibility.description(self.reader, self.writer)

    @property
    def message(self) -> str:
        """Message in the form of Confluent's registry."""
        return self.incompatibility.message(self.reader, self.writer)


def parse(schema: Schema, referred: Mapping[str, str], *, strict: bool) -> ParsedSchema:
    """Parse a schema. Raises UnsupportedSchema.

    referred  texts of referenced schemas by name, each after its own references
    strict    whether to check also what does not matter for a comparison, as for a new schema
    """
    return ParsedSchema(schema.kind, _rule(schema.kind, "parse")(schema.text, referred, strict=strict))


def field_names(schema: ParsedSchema) -> set[str]:
    """Return the names of the fields at the top of a schema."""
    names: set[str] = _rule(schema.kind, "field_names")(schema.tree)
    return names


def reserved_findings(new: ParsedSchema, reserved: Set[str], reserved_before: Set[str]) -> list[Finding]:
    """Return which reserved names a schema uses, or gives back.

    reserved         names that no field at the top of the schema may have
    reserved_before  those of the version before
    """
    removed = [Incompatibility("RESERVED_FIELD_REMOVED", name) for name in sorted(reserved_before - reserved)]
    used = sorted(reserved & field_names(new)) if reserved else []
    conflicts = [Incompatibility("FIELD_CONFLICTS_WITH_RESERVED_FIELD", name) for name in used]
    return [Finding(reason, NEW, OLD) for reason in (*removed, *conflicts)]


def findings(new: ParsedSchema, old: ParsedSchema, level: str, *, is_lenient: bool = False) -> list[Finding]:
    """Return why two schemas are not compatible at a level; with FULL, first what the old one cannot read.

    is_lenient  for JSON Schema, see its rules

    Raises TooComplex.
    """
    if level == "NONE":
        return []
    if new.kind != old.kind:
        return [Finding(Incompatibility("SCHEMA_TYPE_CHANGED", "/", f"{old.kind} to {new.kind}"), NEW, OLD)]
    compare = _rule(new.kind, "incompatibilities")
    if is_lenient and new.kind == JSON:
        compare = partial(compare, is_lenient=True)
    budget = Budget()
    result: list[Finding] = []
    try:
        if level.startswith(("FORWARD", "FULL")):
            result += [Finding(reason, OLD, NEW) for reason in compare(old.tree, new.tree, budget)]
        if level.startswith(("BACKWARD", "FULL")):
            result += [Finding(reason, NEW, OLD) for reason in compare(new.tree, old.tree, budget)]
    except RecursionError:
        raise TooComplex("the schemas are nested too deeply to compare them") from None
    return result


def first_failure(
    new: ParsedSchema, earlier: Iterable[ParsedSchema], level: str, *, is_lenient: bool = False
) -> tuple[int, list[Finding]] | None:
    """Return the first of the earlier versions that fails, by its index, and why; None if all are compatible.

    earlier  versions, newest first; without _TRANSITIVE only the first is compared

    Raises TooComplex.
    """
    for index, old in enumerate(earlier):
        reasons = findings(new, old, level, is_lenient=is_lenient)
        if reasons:
            return index, reasons
        if not level.endswith("_TRANSITIVE"):
            break
    return None


def _rule(kind: str, name: str) -> Callable[..., Any]:
    if kind not in _RULES:
        raise UnsupportedSchema(f"schemas of type {kind} cannot be compared")
    try:
        rule: Callable[..., Any] = getattr(import_module(_RULES[kind]), name)
    except ImportError as missing:
        raise UnsupportedSchema(f"schemas of type {kind} need {missing.name}: {install_command('schema')}") from None
    return rule
