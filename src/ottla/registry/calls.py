"""A request to a registry: the parts of its path, its query and its body, as an endpoint reads them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from ottla.registry import subjects
from ottla.registry.decisions import LATEST
from ottla.registry.operations import Posted
from ottla.registry.records import Json
from ottla.registry.refusals import Refusal, invalid_version
from ottla.schemas.registry import AVRO, Reference, Schema

_MOST_VERSION: Final = (1 << 31) - 1
_QUALIFIED_PATHS: Final = frozenset({"subjects", "config", "mode"})


@dataclass(slots=True)
class Call:
    """A request.

    parts        variable parts of the path, decoded
    query        values by name
    body         of the request
    is_expanded  whether responses have all fields that newer clients know
    """

    parts: tuple[str, ...]
    query: Mapping[str, list[str]]
    body: bytes = b""
    is_expanded: bool = False
    _posted: Json | None = field(default=None)

    # The path.

    def subject(self, *, is_setting: bool = False) -> str:
        """Return the subject of the path. Raises Refusal 42208."""
        return subjects.check(self.parts[0], is_setting=is_setting)

    def version(self) -> int:
        """Return the version of the path, LATEST for "latest" and -1. Raises Refusal 42202."""
        return version_of(self.parts[1])

    # The query.

    def flag(self, name: str) -> bool:
        """Return whether a parameter is true."""
        return self.text(name).lower() == "true"

    def text(self, name: str) -> str:
        """Return a parameter, "" without."""
        values = self.query.get(name)
        return values[-1] if values else ""

    def page(self, items: list[Any], *, most: int | None = None) -> list[Any]:
        """Return the part of a list that `offset` and `limit` name; most is the default of the limit, and its maximum."""
        offset = max(self._number("offset", 0), 0)
        limit = self._number("limit", -1)
        if limit <= 0 or (most is not None and limit > most):
            return items[offset:] if most is None else items[offset : offset + most]
        return items[offset : offset + limit]

    def _number(self, name: str, default: int) -> int:
        text = self.text(name)
        if not text:
            return default
        try:
            return int(text)
        except ValueError:
            raise Refusal(404, "HTTP 404 Not Found") from None  # what Confluent's framework answers

    # The body.

    def fields(self) -> Json:
        """Return the JSON object of the body. Raises Refusal 400, 422."""
        if self._posted is None:
            try:
                posted = json.loads(self.body or b"null")
            except (ValueError, RecursionError) as wrong:
                raise Refusal(400, f"The body of the request is not JSON: {wrong}") from None
            if posted is None:
                raise Refusal(422, "The request needs a body")
            if not isinstance(posted, dict):
                raise Refusal(400, "The body of the request must be a JSON object")
            self._posted = posted
        return self._posted

    def parse_posted(self, subject: str) -> Posted:
        """Return the schema of the body. Raises Refusal 400, 42201."""
        fields = self.fields()
        kind = field_of(fields, "schemaType", str)
        references = field_of(fields, "references", list) or ()
        schema = Schema(
            AVRO if kind is None else kind, field_of(fields, "schema", str) or "", tuple(map(_reference, references))
        )
        metadata, rule_set = field_of(fields, "metadata", dict), field_of(fields, "ruleSet", dict)
        number, version = field_of(fields, "id", int), field_of(fields, "version", int)
        return Posted(subject, schema, metadata, rule_set, number if number and number > 0 else None, version)


def _reference(row: object) -> Reference:
    fields = row if isinstance(row, dict) else {}
    name, subject, version = (
        field_of(fields, key, kind) for key, kind in (("name", str), ("subject", str), ("version", int))
    )
    if not name or not subject or version is None:
        raise Refusal(400, "A reference needs name, subject and version")
    return Reference(name, subject, version)


def field_of(fields: Json, name: str, kind: type) -> Any:
    """Return a field of a body, None without. Raises Refusal 400 for a value of another type."""
    value = fields.get(name)
    if value is None or (isinstance(value, kind) and not (kind is int and isinstance(value, bool))):
        return value
    shown = {str: "a string", int: "an integer", list: "a list", dict: "an object", bool: "true or false"}[kind]
    raise Refusal(400, f"The field {name} must be {shown}")


def version_of(text: str) -> int:
    """Return a version, LATEST for "latest" and -1. Raises Refusal 42202."""
    if text.lower() == "latest":
        return LATEST
    try:
        number = int(text) if text.isascii() else 0
    except ValueError:
        number = 0
    if number != LATEST and not 0 < number <= _MOST_VERSION:
        raise invalid_version(text)
    return number


def segments_of(target: str) -> tuple[list[str], dict[str, list[str]]]:
    """Return the decoded segments of a path, and the query. `/contexts/CTX/...` is the same as qualifying names."""
    path, _, text = target.partition("?")
    query = parse_qs(text, keep_blank_values=True) if text else {}
    segments = [unquote(segment) for segment in path.strip("/").split("/")]
    if segments[0] != "contexts" or len(segments) < 3:
        return segments, query
    context = f":.{segments[1].strip(':').removeprefix('.')}:"
    segments = segments[2:]
    at = 2 if segments[0] == "compatibility" else 1
    name = segments[at - 1] if len(segments) >= at else ""
    if name in _QUALIFIED_PATHS and len(segments) > at:
        segments[at] = _within(context, segments[at])
    elif segments[0] in ("config", "mode"):
        segments.append(context)
    elif segments[0] == "schemas" and len(segments) > 1:
        query["subject"] = [_within(context, (query.get("subject") or [""])[-1])]
    else:
        query["subjectPrefix"] = [_within(context, (query.get("subjectPrefix") or [""])[-1])]
    return segments, query


def _within(context: str, subject: str) -> str:
    return subject if subject.startswith(":.") else f"{context}{subject}"
