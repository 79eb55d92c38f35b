"""Compatibility of Avro schemas: the rules of Java's SchemaCompatibility (1.12), in its order.

A pair of types is compared once. While it is, it counts as compatible, so that recursive schemas end; afterwards its result is
used again, with the places of the first comparison. Within a union places start again at "/", which shows only where a pair is
used again outside of it.
"""

from typing import Final

from ottla.schemas.avro_types import NO_DEFAULT, AvroField, AvroType, parse
from ottla.schemas.budget import Budget
from ottla.schemas.compatibility.incompatibility import Incompatibility

__all__ = ["field_names", "incompatibilities", "parse"]
_PROMOTED_FROM: Final = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "bytes": {"string"},
    "string": {"bytes"},
}
Found = list[Incompatibility]


class _AmbiguousField(Exception):
    """A field of the reader has several fields of the writer by its name and aliases; Java's Avro raises here, too."""


def incompatibilities(reader: AvroType, writer: AvroType, budget: Budget) -> Found:
    """Return why the reader's schema cannot read what was written with the writer's; empty if it can. Raises TooComplex."""
    try:
        return _Comparison(budget).compare(reader, writer, ())
    except _AmbiguousField as failed:
        return [_at("AMBIGUOUS_FIELD", (), str(failed))]


def field_names(schema: AvroType) -> set[str]:
    """Return the names of the fields of a record, none of other types."""
    return {declared.name for declared in schema.fields}


class _Comparison:
    """One comparison. A place is a tuple of the steps that lead to it."""

    def __init__(self, budget: Budget) -> None:
        self._results: dict[tuple[int, int], Found] = {}
        self._budget = budget

    def compare(self, reader: AvroType, writer: AvroType, place: tuple[str, ...]) -> Found:
        self._budget.spend()
        pair = (id(reader), id(writer))
        result = self._results.get(pair)
        if result is None:
            self._results[pair] = []  # compatible, until the comparison has ended
            result = self._results[pair] = self._compare_kind(reader, writer, place)
        self._budget.spend(len(result))  # a result that is used twice at each of 20 levels is listed a million times
        return result

    def _compare_kind(self, reader: AvroType, writer: AvroType, place: tuple[str, ...]) -> Found:
        kind = _kind(reader)
        if kind != _kind(writer):
            return self._of_other_kind(reader, writer, place)
        if kind in ("array", "map"):
            return self.compare(reader.parts[0], writer.parts[0], (*place, "items" if kind == "array" else "values"))
        if kind == "union":
            return [
                _missing_branch(branch, (*place, str(index)))
                for index, branch in enumerate(writer.parts)
                if self.compare(reader, branch, ())
            ]
        if kind == "fixed":
            return _names(reader, writer, place) + _sizes(reader, writer, place)
        if kind == "enum":
            return _names(reader, writer, place) + _symbols(reader, writer, place)
        if kind == "record":
            return _names(reader, writer, place) + self._fields(reader, writer, place)
        return []

    def _of_other_kind(self, reader: AvroType, writer: AvroType, place: tuple[str, ...]) -> Found:
        if writer.kind == "union":
            return [
                incompatibility
                for index, branch in enumerate(writer.parts)
                for incompatibility in self.compare(reader, branch, (*place, str(index)))
            ]
        if reader.kind == "union":
            readable = any(not self.compare(branch, writer, ()) for branch in reader.parts)
            return [] if readable else [_missing_branch(writer, place)]
        if writer.kind in _PROMOTED_FROM.get(reader.kind, ()):
            return []
        kinds = f"reader type: {_kind(reader).upper()} not compatible with writer type: {_kind(writer).upper()}"
        return [_at("TYPE_MISMATCH", place, kinds)]

    def _fields(self, reader: AvroType, writer: AvroType, place: tuple[str, ...]) -> Found:
        written = {field.name: field for field in writer.fields}
        incompatible: Found = []
        for index, field in enumerate(reader.fields):
            at = (*place, "fields", str(index))
            source = _source(field, written, reader)
            if source is not None:
                incompatible += self.compare(field.type, source.type, (*at, "type"))
            elif field.default is NO_DEFAULT:
                if field.type.kind == "enum" and field.type.symbol_default is not None:
                    # Java compares the enum with the whole record of the writer here, which never fits.
                    incompatible += self.compare(field.type, writer, (*at, "type"))
                else:
                    incompatible.append(_at("READER_FIELD_MISSING_DEFAULT_VALUE", at, field.name))
        return incompatible


def _kind(declared: AvroType) -> str:
    return "record" if declared.kind == "error" else declared.kind


def _at(kind: str, place: tuple[str, ...], detail: str) -> Incompatibility:
    return Incompatibility(kind, "/" + "/".join(place), detail)


def _missing_branch(writer: AvroType, place: tuple[str, ...]) -> Incompatibility:
    return _at("MISSING_UNION_BRANCH", place, f"reader union lacking writer type: {_kind(writer).upper()}")


def _names(reader: AvroType, writer: AvroType, place: tuple[str, ...]) -> Found:
    same = reader.name.rpartition(".")[2] == writer.name.rpartition(".")[2]
    if same or writer.name in reader.aliases:
        return []
    return [_at("NAME_MISMATCH", (*place, "name"), f"expected: {writer.name}")]


def _sizes(reader: AvroType, writer: AvroType, place: tuple[str, ...]) -> Found:
    if reader.size == writer.size:
        return []
    return [_at("FIXED_SIZE_MISMATCH", (*place, "size"), f"expected: {writer.size}, found: {reader.size}")]


def _symbols(reader: AvroType, writer: AvroType, place: tuple[str, ...]) -> Found:
    missing = set(writer.symbols) - set(reader.symbols)
    if not missing or reader.symbol_default is not None:
        return []
    return [_at("MISSING_ENUM_SYMBOLS", (*place, "symbols"), f"[{', '.join(sorted(missing))}]")]


def _source(field: AvroField, written: dict[str, AvroField], reader: AvroType) -> AvroField | None:
    """Return the writer's field for one of the reader's, by its name or an alias. Raises _AmbiguousField."""
    sources = [written[name] for name in (field.name, *field.aliases) if name in written]
    if len(sources) > 1:
        names = ", ".join(source.name for source in sources)
        raise _AmbiguousField(f"field {field.name} of {reader.name} matches several fields of the writer: {names}")
    return sources[0] if sources else None
