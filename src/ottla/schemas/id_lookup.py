"""Look-up of an id or a GUID in a schema registry: the subjects that have it, and the names of its records."""

import json
import uuid
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ottla.extras import install_command
from ottla.schemas.framing import indexes_written
from ottla.schemas.registry import AVRO, JSON, PROTOBUF, UnsupportedSchema

_ANY: Final = (b"",)
_FIRST_MESSAGE: Final = (0,)
_DEFAULT_CONTEXT: Final = "."


class FoundSchema(NamedTuple):
    """A schema of a registry.

    subjects  those of the default context that have it as a version, also as one that is hidden
    names     full names of its records, each with encodings of its message indexes, (b"",) for other kinds than Protobuf
    """

    subjects: frozenset[str]
    names: tuple[tuple[str, tuple[bytes, ...]], ...]


def find_schema(get: Callable[[str], Any], schema: int | bytes, *, with_names: bool) -> FoundSchema:
    """Ask a registry for a schema.

    get         returns the response to a GET request for a path
    schema      id, or GUID
    with_names  whether the names of its records are needed: this reads its text

    Raises SchemaNotFound, RegistryError, UnsupportedSchema, and what `get` raises.
    """
    numbers = [schema] if isinstance(schema, int) else _ids_of(get, schema)
    subjects: set[str] = set()
    for number in numbers:
        subjects.update(str(row["subject"]) for row in get(f"/schemas/ids/{number}/versions?deleted=true"))
    return FoundSchema(frozenset(subjects), _names(get, numbers[0]) if with_names and numbers else ())


def _ids_of(get: Callable[[str], Any], guid: bytes) -> list[int]:
    rows = get(f"/schemas/guids/{uuid.UUID(bytes=guid)}/ids")
    return [int(row["id"]) for row in rows if row.get("context", _DEFAULT_CONTEXT) == _DEFAULT_CONTEXT]


def _names(get: Callable[[str], Any], number: int) -> tuple[tuple[str, tuple[bytes, ...]], ...]:
    answer = get(f"/schemas/ids/{number}?format=serialized")
    kind, text = answer.get("schemaType") or AVRO, str(answer["schema"])
    if kind == PROTOBUF:
        return _messages(text)
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        raise UnsupportedSchema("its text cannot be read") from None
    name = _title(parsed) if kind == JSON else _full_name(parsed)
    return () if name is None else ((name, _ANY),)


def _title(schema: object) -> str | None:
    """Return what names a JSON schema."""
    title = schema.get("title") if isinstance(schema, dict) else None
    return title if isinstance(title, str) and title else None


def _full_name(schema: object) -> str | None:
    """Return the full name of an Avro type, or its kind: what Confluent's serializers name a subject by."""
    if isinstance(schema, str):
        return schema
    if not isinstance(schema, dict):
        return None
    name, kind = schema.get("name"), schema.get("type")
    if not isinstance(name, str):
        return kind if isinstance(kind, str) else None
    namespace = schema.get("namespace")
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _messages(text: str) -> tuple[tuple[str, tuple[bytes, ...]], ...]:
    try:
        from ottla.schemas.protobuf import names_in  # late: other kinds need no protobuf
    except ImportError:
        raise UnsupportedSchema(f"names of Protobuf messages need {install_command('schema')}") from None
    return tuple((name, _encode_path(path)) for path, name in names_in(text).items())


def _encode_path(path: tuple[int, ...]) -> tuple[bytes, ...]:
    """Return the encodings of message indexes: those of the first message have a short one."""
    return (b"\0", b"\x02\0") if path == _FIRST_MESSAGE else (indexes_written(path),)
