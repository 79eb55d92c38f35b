"""Canonical and normal form of a schema of any language.

Canonical is what a registry stores and returns: without whitespace and comments, in one notation. Normal is the same for
schemas that differ in the order of what has no order, for registries that are asked to normalize.

            canonical                                       normal
Avro        as Java's Avro prints it, see avro_text.py      full names, attributes in order
JSON        compact, keys in their order                    compact, keys sorted
Protobuf    printed from descriptors, protobuf_text.py      full names, imports, options and fields in order
"""

from collections.abc import Mapping
from typing import Any

from ottla.schemas import json_text
from ottla.schemas.registry import AVRO, JSON, Schema, UnsupportedSchema


def canonical(schema: Schema, referred: Mapping[str, str]) -> Schema:
    """Return the canonical form of a schema. Raises UnsupportedSchema.

    referred  texts of referenced schemas by name, each after its own references
    """
    return schema._replace(text=_text(schema, referred, normal=False))


def normalize(schema: Schema, referred: Mapping[str, str]) -> Schema:
    """Return the normal form of a schema, with its references sorted and each once. Raises UnsupportedSchema."""
    references = tuple(sorted(set(schema.references)))
    return schema._replace(text=_text(schema, referred, normal=True), references=references)


def _text(schema: Schema, referred: Mapping[str, str], *, normal: bool) -> str:
    if schema.kind == AVRO:
        from ottla.schemas import avro_text, avro_types

        tree, known = avro_types.with_known(schema.text, referred, strict=False)
        return (avro_text.normal if normal else avro_text.canonical)(tree, known)
    if schema.kind != JSON:
        from ottla.schemas.protobuf import file_of
        from ottla.schemas.protobuf_text import file_text

        return file_text(file_of(schema.text, referred), normal=normal)
    value = json_text.parse(schema.text, "JSON Schema", exact=True)
    try:
        return json_text.compact(_sort_keys(value) if normal else value)
    except RecursionError:
        raise UnsupportedSchema("not a JSON Schema: nested too deeply") from None


def _sort_keys(value: Any) -> Any:
    """Return a JSON value with the keys of all objects sorted."""
    if isinstance(value, dict):
        return {key: _sort_keys(value[key]) for key in sorted(value)}
    return [_sort_keys(item) for item in value] if isinstance(value, list) else value
