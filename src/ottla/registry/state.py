"""State of a registry: what replaying the records of `_schemas` in their order gives. It changes in `apply` only.

A context has ids of its own: a schema of one text (and references, metadata, rules) has one id there, however many subjects
have it as a version. A version that is deleted is hidden, but its id stays readable; a permanent deletion is a tombstone.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ottla.registry import records, subjects
from ottla.registry.records import Json, Record, SchemaValue
from ottla.schemas.registry import Reference, Schema

DEFAULT_LEVEL: Final = "BACKWARD"
DEFAULT_MODE: Final = "READWRITE"
_IMPORTING: Final = frozenset({"IMPORT", "FORWARD"})
"""Modes in which a version may be written again, as another schema."""


class Version(NamedTuple):
    """A version of a subject.

    deleted    whether it is hidden
    timestamp  of its record, in ms since the epoch
    """

    value: SchemaValue
    deleted: bool
    timestamp: int

    @property
    def subject(self) -> str:
        """Full name of the subject."""
        return self.value.subject

    @property
    def number(self) -> int:
        """Number of the version, from 1."""
        return self.value.version

    @property
    def id(self) -> int:
        """Id of the schema in the context of the subject."""
        return self.value.id

    @property
    def schema(self) -> Schema:
        """Text, kind and references."""
        return self.value.schema


@dataclass(slots=True)
class Identified:
    """A schema with an id, and the versions that have it.

    digest  see `digest_of`
    """

    value: SchemaValue
    digest: bytes
    versions: set[tuple[str, int]] = field(default_factory=set)


@dataclass(slots=True)
class Context:
    """Ids of one context. `highest_id` never falls while a registry runs: an id is not used again."""

    ids: dict[int, Identified] = field(default_factory=dict)
    by_digest: dict[bytes, int] = field(default_factory=dict)
    highest_id: int = 0


class State:
    """State of a registry.

    subjects   versions by number, of each subject by its full name
    contexts   ids, by context
    settings   fields of configs and modes by kind (CONFIG, MODE) and subject, "" for the global one
    end        offset after the last record
    led_from   offset of the last NOOP: what the registry that leads now has written when it began
    overwritten  versions whose last record is not theirs: it would be the only one after a compaction
    rejected   number of records that were not applied, and why the last one was not
    """

    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, Version]] = {}
        self.contexts: dict[str, Context] = {}
        self.settings: dict[tuple[str, str], Json] = {}
        self.end = 0
        self.led_from = -1
        self.overwritten: set[tuple[str, int]] = set()
        self.rejected = 0
        self.rejection = ""
        self._referrers: dict[tuple[str, int], set[tuple[str, int]]] = {}

    def apply(self, record: Record | None, offset: int, timestamp: int) -> None:
        """Change the state by a record of the topic; None is one of an unknown kind."""
        self.end = offset + 1
        if record is None:
            return
        key, value = record
        if key.kind == records.SCHEMA:
            if value is None:
                self._remove(key.subject, key.version)
            elif isinstance(value, SchemaValue):
                self._add(value, offset, timestamp)
        elif key.kind in (records.CONFIG, records.MODE):
            if value is None:
                self.settings.pop((key.kind, key.subject), None)
            elif isinstance(value, dict):
                fields = {name: held for name, held in value.items() if name != "subject"}
                self.settings[key.kind, key.subject] = fields
        elif key.kind == records.CONTEXT:
            if value is not None:
                self.contexts.setdefault(key.subject, Context())
            elif not self.context(key.subject).ids:
                self.contexts.pop(key.subject, None)
        elif key.kind == records.NOOP:
            self.led_from = offset
        elif key.kind == records.DELETE_SUBJECT and isinstance(value, dict):
            versions = self.subjects.get(key.subject, {})
            for number in [number for number in versions if number <= value["version"]]:
                versions[number] = versions[number]._replace(deleted=True)
        elif key.kind == records.CLEAR_SUBJECT and value is not None:
            self._clear(key.subject)

    def reject(self, reason: str, offset: int) -> None:
        """Count a record that cannot be applied."""
        self.end = offset + 1
        self.rejected += 1
        self.rejection = f"offset {offset}: {reason}"

    def _add(self, value: SchemaValue, offset: int, timestamp: int) -> None:
        context = self.contexts.setdefault(subjects.context_of(value.subject), Context())
        digest = digest_of(value)
        place = (value.subject, value.version)
        previous = self.subjects.get(value.subject, {}).get(value.version)
        is_other = previous is not None and (previous.id, previous.schema) != (value.id, value.schema)
        if is_other and self.mode(value.subject) not in _IMPORTING:
            # Written late, by a registry that does not lead any more: the one that leads has promised what is there.
            self.overwritten.add(place)
            self.reject(f"version {value.version} of {value.subject} is another schema already", offset)
            return
        identified = context.ids.get(value.id)
        if identified is not None and identified.digest != digest:
            if identified.versions != {place}:
                # As in Confluent's registry: an id means one text for ever, whoever wrote first has it.
                self.reject(f"id {value.id} belongs to another schema than that of {value.subject}", offset)
                return
            self._remove(*place)
            identified = None
        elif previous is not None and previous.id != value.id:
            self._remove(*place)
        self.overwritten.discard(place)
        if identified is None:
            identified = context.ids[value.id] = Identified(value, digest)
            context.by_digest.setdefault(digest, value.id)
            context.highest_id = max(context.highest_id, value.id)
        identified.versions.add(place)
        self.subjects.setdefault(value.subject, {})[value.version] = Version(value, value.deleted, timestamp)
        for target in self._targets(value):
            self._referrers.setdefault(target, set()).add(place)

    def _clear(self, subject: str) -> None:
        """Forget the hidden versions of a subject, or of a context, which are deleted permanently."""
        context, name = subjects.split(subject)
        cleared = [subject] if name else [other for other in self.subjects if subjects.context_of(other) == context]
        for other in cleared:
            hidden = [version.number for version in self.subjects.get(other, {}).values() if version.deleted]
            for number in hidden:
                self._remove(other, number)

    def _remove(self, subject: str, number: int) -> None:
        """Forget a version, and its id if no other version has it."""
        versions = self.subjects.get(subject, {})
        version = versions.pop(number, None)
        self.overwritten.discard((subject, number))
        if version is None:
            return
        if not versions:
            del self.subjects[subject]
        context = self.context(subjects.context_of(subject))
        identified = context.ids[version.id]
        identified.versions.discard((subject, number))
        if not identified.versions:
            del context.ids[version.id]
            if context.by_digest.get(identified.digest) == version.id:
                del context.by_digest[identified.digest]
        for target in self._targets(version.value):
            self._referrers[target].discard((subject, number))
            if not self._referrers[target]:
                del self._referrers[target]

    @staticmethod
    def _targets(value: SchemaValue) -> set[tuple[str, int]]:
        context = subjects.context_of(value.subject)
        return {
            (subjects.qualified(context, reference.subject), reference.version) for reference in value.schema.references
        }

    # Questions.

    def context(self, name: str) -> Context:
        """Return the ids of a context; a new one for a name that is not known, which does not make it known."""
        return self.contexts.get(name) or Context()

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """Return the versions of a subject, oldest first; with `deleted` also those that are hidden."""
        versions = self.subjects.get(subject, {})
        return [versions[number] for number in sorted(versions) if deleted or not versions[number].deleted]

    def latest(self, subject: str) -> Version | None:
        """Return the newest version that is not hidden."""
        return next(iter(reversed(self.versions(subject))), None)

    def version(self, subject: str, number: int) -> Version | None:
        """Return a version, also one that is hidden."""
        return self.subjects.get(subject, {}).get(number)

    def find_by_id(self, context: str, number: int) -> Identified | None:
        """Return the schema with an id."""
        known = self.contexts.get(context)
        return None if known is None else known.ids.get(number)

    def referrers(self, subject: str, number: int, *, deleted: bool) -> Iterator[Version]:
        """Yield the versions that refer to a version; with `deleted` also those that are hidden."""
        for place in sorted(self._referrers.get((subject, number), ())):
            version = self.subjects[place[0]][place[1]]
            if deleted or not version.deleted:
                yield version

    def setting(self, kind: str, subject: str) -> Json | None:
        """Return the config or mode that a subject has itself, "" for the global one."""
        return self.settings.get((kind, subject))

    def config(self, subject: str) -> Json:
        """Return the config in effect for a subject: its own fields, then those around it."""
        merged: Json = {"compatibilityLevel": DEFAULT_LEVEL}
        for scope in reversed(subjects.scopes(subject)):
            merged |= self.settings.get((records.CONFIG, scope), {})
        return merged

    def mode(self, subject: str) -> str:
        """Return the mode in effect for a subject."""
        for scope in subjects.scopes(subject):
            own = self.settings.get((records.MODE, scope))
            if own is not None:
                return str(own.get("mode", DEFAULT_MODE))
        return DEFAULT_MODE

    def follow(self, context: str, reference: Reference) -> Version | None:
        """Return the version that a reference of a schema in a context leads to, also one that is hidden."""
        subject = subjects.qualified(context, reference.subject)
        return self.latest(subject) if reference.version == -1 else self.version(subject, reference.version)


def digest_of(value: SchemaValue) -> bytes:
    """Return the MD5 that identifies a schema in a context: of text, references, metadata and rules, as Confluent's."""
    if value.md5 is not None:
        return value.md5
    digest = hashlib.md5(value.schema.text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    for reference in value.schema.references:
        digest.update(f"{reference.name}{reference.subject}".encode())
        digest.update(reference.version.to_bytes(4, "big", signed=True))
    for part in _contract_parts(value.metadata, value.rule_set):
        digest.update(part)
    return digest.digest()


def _contract_parts(metadata: Json | None, rule_set: Json | None) -> Iterator[bytes]:
    """Yield what is hashed of a data contract."""
    if metadata is not None:
        yield b"\x01"
        for tag, values in sorted((metadata.get("tags") or {}).items()):
            yield str(tag).encode()
            yield from (str(value).encode() for value in sorted(values))
        for name, value in sorted((metadata.get("properties") or {}).items()):
            yield f"{name}{value}".encode()
        yield from (str(name).encode() for name in sorted(metadata.get("sensitive") or ()))
    if rule_set is not None:
        yield b"\x01"
        for rules in ("migrationRules", "domainRules", "encodingRules"):
            for rule in rule_set.get(rules) or ():
                yield from _rule_parts(rule)
        yield str(rule_set.get("enableAt") or "").encode()


def _rule_parts(rule: Json) -> Iterator[bytes]:
    for name in ("name", "doc", "kind", "mode", "type"):
        yield str(rule.get(name) or "").encode()
    yield from (str(tag).encode() for tag in sorted(rule.get("tags") or ()))
    params: dict[str, Any] = rule.get("params") or {}
    yield from (f"{name}{params[name]}".encode() for name in sorted(params))
    for name in ("expr", "onSuccess", "onFailure"):
        yield str(rule.get(name) or "").encode()
    if rule.get("disabled"):
        yield b"\x01"
