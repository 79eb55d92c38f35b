"""Avro schemas from texts and files."""

import json
from pathlib import Path
from typing import Any

from ottla.compat.confluent_kafka.avro.error import ClientError


class AvroSchema:
    """Parsed schema; its text is JSON. Equality and hash are those of the text."""

    def __init__(self, document: Any) -> None:
        self._document = document

    def to_json(self) -> Any:
        """Return the schema as JSON."""
        return self._document

    def _field(self, name: str) -> Any:
        return self._document.get(name) if isinstance(self._document, dict) else None

    @property
    def type(self) -> str:
        """Return the type, such as "record"."""
        if isinstance(self._document, list):
            return "union"
        return str(self._document if isinstance(self._document, str) else self._field("type"))

    @property
    def name(self) -> str | None:
        """Return the name without its namespace; that of the type for a schema without a name."""
        return None if self.fullname is None else self.fullname.rpartition(".")[2]

    @property
    def namespace(self) -> str | None:
        """Return the namespace, None without."""
        return (self.fullname or "").rpartition(".")[0] or None

    @property
    def fullname(self) -> str | None:
        """Return the name with its namespace; None for a union."""
        name, space = self._field("name"), self._field("namespace")
        if name is None:
            return None if self.type == "union" else self.type
        return str(name) if "." in name or not space else f"{space}.{name}"

    def __str__(self) -> str:
        return json.dumps(self._document)

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash(str(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AvroSchema) and str(self) == str(other)


def loads(schema_str: str) -> AvroSchema:
    """Parse a schema. Raises ClientError."""
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    try:
        document = json.loads(schema_str)
        parse_schema(document)
    except (SchemaParseException, UnknownType, ValueError, LookupError, TypeError) as error:
        raise ClientError(f"Schema parse failed: {error}") from None
    return AvroSchema(document)


def load(fp: str) -> AvroSchema:
    """Parse the schema in a file. Raises ClientError, OSError."""
    return loads(Path(fp).read_text("utf-8"))
