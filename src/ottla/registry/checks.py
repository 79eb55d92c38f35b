"""Work on schemas that takes time: parsing, the stored form, and compatibility. Runs in a worker, and touches no state.

Every step has a bound: bodies of requests are limited, and comparisons have a budget (`schemas/budget.py`). No reference is
ever fetched.
"""

import json
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Final, NamedTuple, TypeVar

from ottla.registry.refusals import INCOMPATIBLE, INVALID_SCHEMA, Refusal
from ottla.schemas import canonical, tags
from ottla.schemas.compatibility.levels import (
    LEVELS,
    ParsedSchema,
    field_names,
    first_failure,
    parse,
    reserved_findings,
)
from ottla.schemas.registry import AVRO, JSON, PROTOBUF, Schema, UnsupportedSchema

R = TypeVar("R")
KINDS: Final = (JSON, PROTOBUF, AVRO)
_MOST_KEPT: Final = 1000
_LARGEST_KEPT: Final = 20_000
_RESERVED_PREFIX: Final = "$$"
Referred = tuple[tuple[str, str], ...]
"""Names and texts of the schemas that one refers to, each after its own references."""


class Resolved(NamedTuple):
    """A schema with the texts of what it refers to."""

    schema: Schema
    referred: Referred


class Earlier(NamedTuple):
    """A version to compare with."""

    version: int
    resolved: Resolved


class Reserved(NamedTuple):
    """Names of fields that a schema reserves, and those that the version before it does."""

    names: frozenset[str]
    before: frozenset[str]


def stored_form(
    posted: Resolved, subject: str, *, normalize: bool, strict: bool, validates_fields: bool = False
) -> Schema:
    """Return the form of a schema in which it is stored. Raises Refusal 42201.

    strict            whether it is checked as a new schema is: names, defaults
    validates_fields  whether names of fields that begin with $$ are refused; only JSON Schema has such names
    """
    if posted.schema.kind not in KINDS:
        raise Refusal(INVALID_SCHEMA, f"Invalid schema type {posted.schema.kind}")
    try:
        form = _form(posted, normalize)
        tree = _parse(Resolved(form, posted.referred), True) if strict else None
    except (UnsupportedSchema, RecursionError) as wrong:
        raise invalid(posted.schema, subject, str(wrong)) from None
    if tree is not None and validates_fields:
        for name in sorted(field_names(tree)):
            if name.startswith(_RESERVED_PREFIX):
                raise invalid(posted.schema, subject, f"the name {name} of a field begins with {_RESERVED_PREFIX}")
    return form


def invalid(schema: Schema, subject: str, why: str) -> Refusal:
    """Return the error for a schema that cannot be read."""
    shown = f"{{subject={subject},version=0,id=-1,schemaType={schema.kind},references={_references_text(schema)}}}"
    return Refusal(INVALID_SCHEMA, f"Invalid schema {shown}, details: {why}")


def _references_text(schema: Schema) -> str:
    return (
        "["
        + ", ".join(
            f"{{name='{name}', subject='{subject}', version={version}}}" for name, subject, version in schema.references
        )
        + "]"
    )


def _cache_small(function: Callable[[Resolved, bool], R]) -> Callable[[Resolved, bool], R]:
    """Keep results for small schemas: a thousand trees of 1 MiB each would fill the memory."""
    cached = lru_cache(maxsize=_MOST_KEPT)(function)

    @wraps(function)
    def look_up(resolved: Resolved, option: bool) -> R:
        size = len(resolved.schema.text) + sum(len(text) for _, text in resolved.referred)
        return cached(resolved, option) if size <= _LARGEST_KEPT else function(resolved, option)

    return look_up


@_cache_small
def _form(posted: Resolved, normalize: bool) -> Schema:
    made = canonical.normalize if normalize else canonical.canonical
    return made(posted.schema, dict(posted.referred))


@_cache_small
def _parse(resolved: Resolved, strict: bool) -> ParsedSchema:
    return parse(resolved.schema, dict(resolved.referred), strict=strict)


def same_text(new: Schema, old: Resolved) -> bool:
    """Return whether a stored form is that of a version, which another registry may have printed in another way."""
    if new.kind != old.schema.kind:
        return False
    if new.references != old.schema.references:
        return False
    if new.text == old.schema.text:
        return True
    try:
        if new.kind == JSON:
            return bool(json.loads(new.text) == json.loads(old.schema.text))
        return _form(old, False).text == new.text
    except (UnsupportedSchema, ValueError, RecursionError):
        return False


def first_same(new: Schema, versions: Sequence[Resolved]) -> int | None:
    """Return the index of the first version whose text is the same, see `same_text`; None without one."""
    return next((index for index, old in enumerate(versions) if same_text(new, old)), None)


def incompatibilities(
    new: Resolved,
    earlier: Sequence[Earlier],
    level: str,
    *,
    reserved: Reserved | None = None,
    is_lenient: bool = False,
) -> list[str]:
    """Return why a schema is not compatible with the first of these versions that fails, in Confluent's form; empty if it is.

    reserved  names of fields that are reserved, whatever the level is; None if fields are not validated

    Raises Refusal 42201 if a comparison would take too long.
    """
    if level == "NONE" and reserved is None:
        return []
    try:
        findings = [] if reserved is None else reserved_findings(_parse(new, False), *reserved)
        compared = [_parse(old.resolved, False) for old in earlier]
        failure = None if level == "NONE" else first_failure(_parse(new, True), compared, level, is_lenient=is_lenient)
    except (UnsupportedSchema, RecursionError) as wrong:
        raise Refusal(INVALID_SCHEMA, f"The schemas cannot be compared: {wrong}") from None
    reasons = [finding.message for finding in findings]
    if failure is not None:
        old = earlier[failure[0]]
        reasons += [finding.message for finding in failure[1]]
        reasons += [f"{{oldSchemaVersion: {old.version}}}", f"{{oldSchema: '{old.resolved.schema.text}'}}"]
    validates = "false" if reserved is None else "true"
    return [*reasons, f"{{validateFields: '{validates}', compatibility: '{level}'}}"] if reasons else []


def tags_of(schema: Schema) -> dict[tags.Entity, list[str]]:
    """Return the tags inside a stored schema; none in one that cannot be read."""
    try:
        return tags.tags_of(schema)
    except UnsupportedSchema:
        return {}


def change_tags(schema: Schema, subject: str, added: tags.Tags, removed: tags.Tags) -> Schema:
    """Return a schema with tags added and removed. Raises Refusal 42201."""
    try:
        return tags.with_tags(schema, added, removed)
    except (UnsupportedSchema, RecursionError) as wrong:
        raise invalid(schema, subject, str(wrong)) from None


def propagate_tags(schema: Schema, subject: str, before: Schema) -> Schema:
    """Return a schema whose records and fields have the tags of those in the version before, too. Raises Refusal 42201."""
    try:
        known = tags.entities_of(schema)
    except UnsupportedSchema as wrong:
        raise invalid(schema, subject, str(wrong)) from None
    old = tags_of(before)
    return change_tags(schema, subject, {entity: names for entity, names in old.items() if entity in known}, {})


def incompatible(subject: str, reasons: Sequence[str]) -> Refusal:
    """Return the error of a registration that is not compatible."""
    details = ", ".join(reasons)
    return Refusal(
        INCOMPATIBLE,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: [{details}]',
    )


def level_named(text: object) -> str | None:
    """Return a level of compatibility by its name in any case, None for another text."""
    level = text.upper() if isinstance(text, str) else ""
    return level if level in LEVELS else None


def in_format(resolved: Resolved, name: str) -> str:
    """Return the text of a schema in a format of requests: `resolved` inlines the references of an Avro schema, `serialized`
    is the descriptor of a Protobuf schema in base64. Other formats are ignored, as in Confluent's registry.
    """
    schema, referred = resolved.schema, dict(resolved.referred)
    try:
        if schema.kind == AVRO and name == "resolved":
            from ottla.schemas import avro_text, avro_types

            return avro_text.canonical(avro_types.parse(schema.text, referred, strict=False))
        if schema.kind == PROTOBUF and name == "serialized":
            from google.protobuf import descriptor_pb2

            from ottla.schemas.protobuf import file_of, in_base64

            file = descriptor_pb2.FileDescriptorProto()
            file_of(schema.text, referred).CopyToProto(file)
            return in_base64(file)
    except UnsupportedSchema as wrong:
        raise Refusal(INVALID_SCHEMA, f"The schema cannot be printed as {name}: {wrong}") from None
    return schema.text
