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


_DESCRIPTIONS: Final = {
    "SCHEMA_TYPE_CHANGED": "The type of the schema has changed: {detail}",
    # Avro
    "AMBIGUOUS_FIELD": "The check failed: {detail}",
    "NAME_MISMATCH": "The name of the schema has changed (path '{path}')",
    "FIXED_SIZE_MISMATCH": "The {reader} schema has another size than the {writer} schema for the fixed type at '{path}'",
    "MISSING_ENUM_SYMBOLS": "The {reader} schema lacks the symbols {detail} of the {writer} schema at '{path}'",
    "READER_FIELD_MISSING_DEFAULT_VALUE": "The field '{detail}' at '{path}' of the {reader} schema has no default, and"
    " the {writer} schema lacks it",
    "TYPE_MISMATCH": "The type at '{path}' of the {reader} schema cannot read that of the {writer} schema",
    "MISSING_UNION_BRANCH": "The union at '{path}' of the {reader} schema lacks a type of the {writer} schema",
}
