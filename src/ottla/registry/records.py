"""Keys and values of the topic `_schemas`, in Confluent's format: JSON in UTF-8.

Compaction compares the bytes of keys, so the fields of a key are written in Confluent's order, without blanks. A global CONFIG
or MODE has no field `subject`; older registries wrote null, which is read as the same key. Fields of values that are not known
here are kept.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ottla.schemas.registry import AVRO, Reference, Schema

SCHEMA: Final = "SCHEMA"
CONFIG: Final = "CONFIG"
MODE: Final = "MODE"
DELETE_SUBJECT: Final = "DELETE_SUBJECT"
CLEAR_SUBJECT: Final = "CLEAR_SUBJECT"
CONTEXT: Final = "CONTEXT"
NOOP: Final = "NOOP"
_WITH_SUBJECT: Final = frozenset({CONFIG, MODE, DELETE_SUBJECT, CLEAR_SUBJECT})
_TENANT: Final = "default"
Json = dict[str, Any]


class WrongRecord(ValueError):
    """A record of the topic that no registry has written."""


class Key(NamedTuple):
    """Key of a record.

    kind     SCHEMA, CONFIG, ...
    subject  "" for a global CONFIG or MODE, and for NOOP; the context for CONTEXT
    version  of SCHEMA only
    """

    kind: str
    subject: str = ""
    version: int = 0

    def encoded(self) -> bytes:
        """Return the bytes of the key."""
        fields: Json = {"keytype": self.kind}
        if self.kind == SCHEMA:
            fields |= {"subject": self.subject, "version": self.version}
        elif self.kind == CONTEXT:
            fields |= {"tenant": _TENANT, "context": self.subject}
        elif self.subject:
            fields["subject"] = self.subject
        return _encode_json({**fields, "magic": 1 if self.kind == SCHEMA else 0})


@dataclass(frozen=True, slots=True)
class SchemaValue:
    """Value of SCHEMA: a version of a subject.

    metadata, rule_set  data contract, as in requests
    md5                 hash of the schema, where another registry has written it
    others              fields that are not known here
    """

    subject: str
    version: int
    id: int
    schema: Schema
    deleted: bool = False
    metadata: Json | None = None
    rule_set: Json | None = None
    md5: bytes | None = None
    others: Mapping[str, Any] = field(default_factory=dict)


class Record(NamedTuple):
    """A record of the topic.

    value  SchemaValue for SCHEMA, fields of the JSON value for other kinds; None deletes
    """

    key: Key
    value: SchemaValue | Json | None

    def encoded(self) -> tuple[bytes, bytes | None]:
        """Return the bytes of key and value."""
        if isinstance(self.value, SchemaValue):
            return self.key.encoded(), _encode_json(_schema_fields(self.value))
        return self.key.encoded(), None if self.value is None else _encode_json(self.value)


def noop() -> Record:
    """Return the record of a registry that begins to lead."""
    return Record(Key(NOOP), None)


def schema_record(value: SchemaValue) -> Record:
    """Return the record of a version."""
    return Record(Key(SCHEMA, value.subject, value.version), value)


def schema_tombstone(subject: str, version: int) -> Record:
    """Return the record that deletes a version permanently."""
    return Record(Key(SCHEMA, subject, version), None)


def subject_deletion(subject: str, last: int) -> Record:
    """Return the record that deletes the versions of a subject up to the last one, not permanently."""
    return Record(Key(DELETE_SUBJECT, subject), {"subject": subject, "version": last})


def clearing(subject: str) -> Record:
    """Return the record after which a subject, or a context, has no hidden versions any more."""
    return Record(Key(CLEAR_SUBJECT, subject), {"subject": subject})


def context_record(context: str) -> Record:
    """Return the record of a context, written with its first schema."""
    return Record(Key(CONTEXT, context), {"tenant": _TENANT, "context": context})


def setting_record(kind: str, subject: str, fields: Json | None) -> Record:
    """Return the record of a config or mode; subject "" is the global one, fields None delete it."""
    if fields is not None and subject:
        fields = {"subject": subject, **fields}
    return Record(Key(kind, subject), fields)


def decode_record(key: bytes | None, value: bytes | None) -> Record | None:
    """Return a record of the topic, None for one of another kind. Raises WrongRecord."""
    fields = _decode_json(key)
    kind = fields.get("keytype")
    if kind == SCHEMA:
        name, version = _of(fields, "subject", str), _of(fields, "version", int)
        record_key = Key(SCHEMA, name, version)
        return Record(record_key, None if value is None else _schema_value(record_key, _decode_json(value)))
    if kind == CONTEXT:
        return Record(Key(CONTEXT, _of(fields, "context", str)), None if value is None else _decode_json(value))
    if kind == NOOP:
        return noop()
    if kind not in _WITH_SUBJECT:
        return None
    subject = fields.get("subject") or ""
    if not isinstance(subject, str):
        raise WrongRecord("its subject is no text")
    if value is None:
        return Record(Key(kind, subject), None)
    content = {name: held for name, held in _decode_json(value).items() if held is not None}
    if kind == DELETE_SUBJECT:
        _of(content, "version", int)
    return Record(Key(kind, subject), content)


def _schema_value(key: Key, fields: Json) -> SchemaValue:
    references = tuple(
        Reference(_of(row, "name", str), _of(row, "subject", str), _of(row, "version", int))
        for row in fields.pop("references", None) or ()
    )
    text, number = _of(fields, "schema", str), _of(fields, "id", int)
    metadata, rule_set = fields.pop("metadata", None), fields.pop("ruleSet", None)
    if not isinstance(metadata, dict | None) or not isinstance(rule_set, dict | None):
        raise WrongRecord("its metadata or ruleSet is no object")
    try:
        md5 = base64.b64decode(fields.pop("md5", None) or "", validate=True)
    except (binascii.Error, TypeError):
        raise WrongRecord("its md5 is not in base64") from None
    schema = Schema(str(fields.pop("schemaType", None) or AVRO), text, references)
    deleted = fields.pop("deleted", False) is True
    for name in ("subject", "version", "id", "schema"):
        fields.pop(name, None)
    return SchemaValue(key.subject, key.version, number, schema, deleted, metadata, rule_set, md5 or None, fields)


def _schema_fields(value: SchemaValue) -> Json:
    fields: Json = {"subject": value.subject, "version": value.version, "id": value.id}
    if value.md5 is not None:
        fields["md5"] = base64.b64encode(value.md5).decode()
    if value.schema.kind != AVRO:
        fields["schemaType"] = value.schema.kind
    if value.schema.references:
        fields["references"] = [reference._asdict() for reference in value.schema.references]
    if value.metadata is not None:
        fields["metadata"] = value.metadata
    if value.rule_set is not None:
        fields["ruleSet"] = value.rule_set
    return {**fields, "schema": value.schema.text, "deleted": value.deleted, **value.others}


def _encode_json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _decode_json(data: bytes | None) -> Json:
    try:
        fields = json.loads(data or b"")
    except (ValueError, RecursionError) as wrong:
        raise WrongRecord(f"it is not JSON: {wrong}") from None
    if not isinstance(fields, dict):
        raise WrongRecord("it is no JSON object")
    return fields


def _of(fields: Any, name: str, kind: type) -> Any:
    value = fields.get(name) if isinstance(fields, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise WrongRecord(f"its {name} is missing or wrong")
    return value
