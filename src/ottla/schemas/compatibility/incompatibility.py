"""An incompatibility: kind, place and message, in the form of Confluent's registry."""

from typing import Final, NamedTuple


class Incompatibility(NamedTuple):
    """Reason why a reader's schema cannot read what was written with a writer's.

    kind    name of the rule, as in Confluent's registry: READER_FIELD_MISSING_DEFAULT_VALUE
    path    place in the schema: /fields/0/type for Avro, #/properties/id for JSON Schema, #/Order/1 for Protobuf
    detail  of Avro only: types, names or sizes, in the words of Java's Avro
    """

    kind: str
    path: str
    detail: str = ""

    def description(self, reader: str, writer: str) -> str:
        """Return a sentence about it, with names for the two schemas, "new" and "old"."""
        return _DESCRIPTIONS[self.kind].format(path=self.path, detail=self.detail, reader=reader, writer=writer)

    def message(self, reader: str, writer: str) -> str:
        """Return the message of a registry, see `description`."""
        more = f", additionalInfo:'{self.detail}'" if self.detail else ""
        return f"{{errorType:'{self.kind}', description:'{self.description(reader, writer)}'{more}}}"


_LIMITED: Final = "The {reader} schema limits '{path}', which the {writer} schema does not"
_STRICTER: Final = "The limit '{path}' of the {reader} schema is stricter than that of the {writer} schema"
_CONTENT: Final = "'{path}' of the {writer} schema does not fit what the {reader} schema allows in its place"
_UPPER: Final = ("MAX_LENGTH", "MAXIMUM", "EXCLUSIVE_MAXIMUM", "MAX_PROPERTIES", "MAX_ITEMS", "MAX_CONTAINS")
_LOWER: Final = ("MIN_LENGTH", "MINIMUM", "EXCLUSIVE_MINIMUM", "MIN_PROPERTIES", "MIN_ITEMS", "MIN_CONTAINS")
_RESTS: Final = ("ADDITIONAL_PROPERTIES", "UNEVALUATED_PROPERTIES", "ADDITIONAL_ITEMS", "UNEVALUATED_ITEMS")
_DESCRIPTIONS: Final = {
    "SCHEMA_TYPE_CHANGED": "The type of the schema has changed: {detail}",
    "RESERVED_FIELD_REMOVED": "The field '{path}', which the {writer} schema reserves, is not reserved by the {reader} schema",
    "FIELD_CONFLICTS_WITH_RESERVED_FIELD": "The {reader} schema has the field '{path}', which it reserves",
    # Avro
    "AMBIGUOUS_FIELD": "The check failed: {detail}",
    "NAME_MISMATCH": "The name of the schema has changed (path '{path}')",
    "FIXED_SIZE_MISMATCH": "The {reader} schema has another size than the {writer} schema for the fixed type at '{path}'",
    "MISSING_ENUM_SYMBOLS": "The {reader} schema lacks the symbols {detail} of the {writer} schema at '{path}'",
    "READER_FIELD_MISSING_DEFAULT_VALUE": "The field '{detail}' at '{path}' of the {reader} schema has no default, and"
    " the {writer} schema lacks it",
    "TYPE_MISMATCH": "The type at '{path}' of the {reader} schema cannot read that of the {writer} schema",
    "MISSING_UNION_BRANCH": "The union at '{path}' of the {reader} schema lacks a type of the {writer} schema",
    # JSON Schema
    **{f"{name}_ADDED": _LIMITED for name in (*_UPPER, *_LOWER, "PATTERN", "MULTIPLE_OF", "UNIQUE_ITEMS")},
    **{f"{name}_DECREASED": _STRICTER for name in _UPPER},
    **{f"{name}_INCREASED": _STRICTER for name in _LOWER},
    "SCHEMA_ADDED": _LIMITED,
    "TYPE_CHANGED": "'{path}' has another type in the {reader} schema than in the {writer} schema",
    "TYPE_NARROWED": "'{path}' must be an integer for the {reader} schema, but not for the {writer} schema",
    "PATTERN_CHANGED": "The pattern '{path}' of the {reader} schema is not that of the {writer} schema",
    "MULTIPLE_OF_EXPANDED": _STRICTER,
    "MULTIPLE_OF_CHANGED": "'{path}' of the {writer} schema is no multiple of that of the {reader} schema",
    "ENUM_ARRAY_NARROWED": "The values '{path}' of the {reader} schema lack some of the {writer} schema",
    "ENUM_ARRAY_CHANGED": "The values '{path}' of the {reader} schema are not those of the {writer} schema",
    "COMBINED_TYPE_CHANGED": "The combination '{path}' of the {reader} schema is another one than in the {writer} schema",
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": "The parts of '{path}' in the {reader} schema do not cover those of the {writer}"
    " schema",
    "PRODUCT_TYPE_EXTENDED": "'{path}' has further conditions in the {reader} schema that the {writer} schema lacks",
    "SUM_TYPE_NARROWED": "'{path}' of the {reader} schema has fewer choices than that of the {writer} schema",
    "NOT_TYPE_EXTENDED": "'{path}' excludes more in the {reader} schema than in the {writer} schema",
    "REQUIRED_ATTRIBUTE_ADDED": "'{path}' is required by the {reader} schema, without a default, but not by the {writer}"
    " schema",
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": "'{path}' is required by the {reader} schema, without a default,"
    " and the {writer} schema lacks it",
    "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": "'{path}' of the {reader} schema may have any value by the {writer} schema,"
    " which allows additional properties",
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": "'{path}' of the {writer} schema is not allowed by the {reader} schema",
    "ITEM_ADDED_TO_OPEN_CONTENT_MODEL": "'{path}' of the {reader} schema may have any value by the {writer} schema, which"
    " allows additional items",
    "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL": "'{path}' of the {writer} schema is not allowed by the {reader} schema",
    **{
        f"{name}_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _CONTENT for name in ("PROPERTY_REMOVED", "ITEM_REMOVED")
    },
    **{
        f"{name}_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "'{path}' of the {reader} schema does not take all that the"
        " {writer} schema allows in its place"
        for name in ("PROPERTY_ADDED", "ITEM_ADDED")
    },
    **{f"{name}_REMOVED": "The {reader} schema has '{path}': false, the {writer} schema has not" for name in _RESTS},
    **{f"{name}_NARROWED": _LIMITED for name in _RESTS},
    **{
        f"DEPENDENCY_ARRAY_{end}": "'{path}' of the {reader} schema demands more than that of the {writer} schema"
        for end in ("ADDED", "EXTENDED", "CHANGED")
    },
    "DEPENDENCY_SCHEMA_ADDED": _LIMITED,
    # Protobuf
    "PACKAGE_CHANGED": "The package of the {reader} schema is not that of the {writer} schema",
    "MESSAGE_REMOVED": "The {reader} schema lacks the message '{path}' of the {writer} schema",
    "FIELD_KIND_CHANGED": "The field '{path}' is a scalar, a message or a map in the {reader} schema, and another of these in"
    " the {writer} schema",
    "FIELD_SCALAR_KIND_CHANGED": "The type of the field '{path}' in the {reader} schema cannot read that of the {writer}"
    " schema",
    "FIELD_NAMED_TYPE_CHANGED": "The message of the field '{path}' in the {reader} schema cannot read that of the {writer}"
    " schema",
    "FIELD_NUMERIC_LABEL_CHANGED": "The label of the field '{path}' in the {reader} schema is not that of the {writer} schema",
    "REQUIRED_FIELD_ADDED": "The required field '{path}' of the {reader} schema is missing in the {writer} schema",
    "REQUIRED_FIELD_REMOVED": "The required field '{path}' of the {writer} schema is missing in the {reader} schema",
    "ONEOF_FIELD_REMOVED": "The field '{path}' of the {writer} schema is missing in the oneof of the {reader} schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": "The oneof '{path}' of the {reader} schema has several fields that could be set together"
    " in the {writer} schema",
    "FIELD_MOVED_TO_EXISTING_ONEOF": "The oneof '{path}' of the {reader} schema has a field that was outside of it in the"
    " {writer} schema",
}
"""Sentences by kind."""
