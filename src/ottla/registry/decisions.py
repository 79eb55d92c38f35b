"""Operations of a registry: (state, request) -> records to write, and the result. No clock, no I/O; the state only changes when
the records are replayed.

Parsing and comparing schemas takes time and is done before, by `checks.py`: a `Candidate` has been parsed, and `earlier` says
which versions it has to be compared with.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from ottla.registry import contracts, records, subjects
from ottla.registry.records import Json, Record, SchemaValue
from ottla.registry.refusals import (
    INVALID_LEVEL,
    INVALID_SCHEMA,
    NOT_PERMITTED,
    Refusal,
    invalid_mode,
    no_config,
    no_mode,
    reference_error,
    schema_not_found,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    version_not_found,
    version_not_soft_deleted,
    version_soft_deleted,
)
from ottla.registry.state import State, Version, digest_of
from ottla.schemas.registry import Schema

READWRITE: Final = "READWRITE"
READONLY: Final = "READONLY"
READONLY_OVERRIDE: Final = "READONLY_OVERRIDE"
IMPORT: Final = "IMPORT"
FORWARD: Final = "FORWARD"
_MODES: Final = frozenset({READWRITE, READONLY, READONLY_OVERRIDE, IMPORT, FORWARD})
LATEST: Final = -1
LOGICAL: Final = "LOGICAL"
"""Policy that adds rules of Flink and Iceberg in Confluent's registry. It is stored here, and compared as STRICT."""


class Candidate(NamedTuple):
    """A schema of a request, parsed and in the form that is stored.

    id, version  of a schema that is imported; version may also be checked
    """

    subject: str
    schema: Schema
    metadata: Json | None = None
    rule_set: Json | None = None
    id: int | None = None
    version: int | None = None

    def value(self, number: int, version: int) -> SchemaValue:
        """Return the value of the record of this schema as a version."""
        return SchemaValue(self.subject, version, number, self.schema, metadata=self.metadata, rule_set=self.rule_set)


class Registration(NamedTuple):
    """Outcome of a registration: its version, and what has to be written before it is one."""

    value: SchemaValue
    records: tuple[Record, ...] = ()


# Looking up.


def find_version(state: State, subject: str, number: int, *, deleted: bool = False) -> Version:
    """Return a version of a subject, LATEST is the newest one that is not hidden. Raises Refusal 40401, 40402.

    deleted  whether hidden ones are found too
    """
    version = state.latest(subject) if number == LATEST else state.version(subject, number)
    if version is not None and (deleted or not version.deleted):
        return version
    if not state.versions(subject, deleted=deleted):
        raise subject_not_found(subject)
    raise version_not_found(number)


def same_version(state: State, candidate: Candidate, *, deleted: bool = False) -> Version | None:
    """Return the newest version of the subject that has the id of this schema."""
    context = state.context(subjects.context_of(candidate.subject))
    number = context.by_digest.get(digest_of(candidate.value(0, 0)))
    versions = reversed(state.versions(candidate.subject, deleted=deleted))
    return None if number is None else next((version for version in versions if version.id == number), None)


def earlier(state: State, candidate: Candidate) -> list[Version]:
    """Return the versions that a schema has to be compatible with, newest first: all for a transitive level."""
    config = state.config(candidate.subject)
    versions = list(reversed(state.versions(candidate.subject)))
    group = config.get("compatibilityGroup")
    if group:
        versions = [
            version
            for version in versions
            if _property(version.value.metadata, group) == _property(candidate.metadata, group)
        ]
    level = str(config["compatibilityLevel"])
    return [] if level == "NONE" else versions if level.endswith("_TRANSITIVE") else versions[:1]


def _property(metadata: Json | None, name: str) -> object:
    return ((metadata or {}).get("properties") or {}).get(name)


def not_found(state: State, subject: str, *, deleted: bool) -> Refusal:
    """Return the error of a look-up that finds no version of a subject with the schema: 40401 or 40403."""
    return schema_not_found() if state.versions(subject, deleted=deleted) else subject_not_found(subject)


# Registering.


def may_register(state: State, candidate: Candidate) -> None:
    """Check the mode. Raises Refusal 42205."""
    mode = state.mode(candidate.subject)
    if mode in (READONLY, READONLY_OVERRIDE):
        raise _refusal(candidate.subject, "is in read-only mode")
    if candidate.id is None and mode in (IMPORT, FORWARD):
        raise _refusal(candidate.subject, "is not in read-write mode")
    if candidate.id is not None and mode not in (IMPORT, FORWARD):
        raise _refusal(candidate.subject, "is not in import mode")


def register(state: State, candidate: Candidate, next_id: int) -> Registration:
    """Make a schema, which is no version yet, the newest one. Raises Refusal 42201, 42205.

    next_id  of a schema that has no id in its context
    """
    may_register(state, candidate)
    versions = state.versions(candidate.subject, deleted=True)
    newest = versions[-1].number if versions else 0
    version = candidate.version if candidate.version not in (None, 0, LATEST) else newest + 1
    assert version is not None
    if candidate.id is None and version != newest + 1:
        raise Refusal(INVALID_SCHEMA, f"Version is not one more than previous version {newest}")
    if candidate.id is None:
        metadata = contracts.with_version(candidate.metadata, version, is_asked=candidate.version == LATEST)
        candidate = candidate._replace(metadata=metadata)
    number = _id_of(state, candidate, next_id)
    value = candidate.value(number, version)
    context = subjects.context_of(candidate.subject)
    new_context = context != subjects.DEFAULT and not state.context(context).ids
    return Registration(
        value,
        (
            *([records.context_record(context)] if new_context else ()),
            records.schema_record(value),
            *_tombstones_of_replaced(state, versions, value),
        ),
    )


def _id_of(state: State, candidate: Candidate, next_id: int) -> int:
    name = subjects.context_of(candidate.subject)
    context = state.context(name)
    digest = digest_of(candidate.value(0, 0))
    if candidate.id is None:
        return context.by_digest.get(digest, next_id)
    identified = context.ids.get(candidate.id)
    if identified is not None and identified.digest != digest:
        raise Refusal(NOT_PERMITTED, f"Overwrite new schema with id {candidate.id} in context {name} is not permitted.")
    return candidate.id


def _tombstones_of_replaced(state: State, versions: Iterable[Version], value: SchemaValue) -> list[Record]:
    """Return tombstones of hidden versions of the same schema, which the new one replaces."""
    return [
        records.schema_tombstone(version.subject, version.number)
        for version in versions
        if version.deleted
        and version.id == value.id
        and version.number != value.version
        and not list(state.referrers(version.subject, version.number, deleted=True))
    ]


def restoration(state: State) -> tuple[list[Record], None]:
    """Return what makes the last record of each version that of the state."""
    versions = [state.subjects[subject][number] for subject, number in sorted(state.overwritten)]
    return [records.schema_record(replace(version.value, deleted=version.deleted)) for version in versions], None


# Deleting.


def delete_subject(state: State, subject: str, *, permanent: bool) -> tuple[list[Record], list[int]]:
    """Delete all versions of a subject; return their numbers too. Raises Refusal 40401, 40404, 40405, 42205, 42206."""
    live, everything = state.versions(subject), state.versions(subject, deleted=True)
    if not everything:
        raise subject_not_found(subject)
    _may_change(state, subject)
    if permanent and live:
        raise subject_not_soft_deleted(subject)
    if not permanent and not live:
        raise subject_soft_deleted(subject)
    versions = everything if permanent else live
    for version in versions:
        referrers = state.referrers(subject, version.number, deleted=permanent)
        if any(other.subject != subject for other in referrers):
            raise reference_error(subject, version.number)
    numbers = [version.number for version in versions]
    if not permanent:
        return [records.subject_deletion(subject, numbers[-1])], numbers
    tombstones = [records.schema_tombstone(subject, number) for number in numbers]
    return [*tombstones, *_settings_of(state, subject)], numbers


def delete_version(state: State, subject: str, number: int, *, permanent: bool) -> tuple[list[Record], int]:
    """Delete a version of a subject. Raises Refusal 40401, 40402, 40406, 40407, 42205, 42206."""
    version = find_version(state, subject, number, deleted=True)
    _may_change(state, subject)
    if permanent and not version.deleted:
        raise version_not_soft_deleted(subject, version.number)
    if not permanent and version.deleted:
        raise version_soft_deleted(subject, version.number)
    if any(state.referrers(subject, version.number, deleted=permanent)):
        raise reference_error(subject, version.number)
    if not permanent:
        hidden = replace(version.value, deleted=True)
        return [records.schema_record(hidden)], version.number
    is_last = len(state.versions(subject, deleted=True)) == 1
    settings = _settings_of(state, subject) if is_last else []
    return [records.schema_tombstone(subject, version.number), *settings], version.number


def _settings_of(state: State, subject: str) -> list[Record]:
    kinds = (records.CONFIG, records.MODE)
    return [records.setting_record(kind, subject, None) for kind in kinds if state.setting(kind, subject) is not None]


# Configs and modes.


def set_config(state: State, subject: str, changes: Json) -> tuple[list[Record], Json]:
    """Change fields of a config, "" is the global one; None removes a field. Return the config.

    Raises Refusal 42203, 42205.
    """
    _may_change(state, subject)
    ruling = [changes.get(name, "") for name in ("compatibilityLevel", "compatibilityPolicy")]
    if any(ruling) and None not in ruling:
        level, policy = (
            changes.get(name, state.config(subject).get(name)) for name in ("compatibilityLevel", "compatibilityPolicy")
        )
        if policy == LOGICAL and str(level).startswith("FORWARD"):
            raise Refusal(
                INVALID_LEVEL, f"compatibilityPolicy=LOGICAL cannot be combined with compatibilityLevel={level}"
            )
    fields = {**(state.setting(records.CONFIG, subject) or {}), **changes}
    fields = {name: value for name, value in fields.items() if value is not None}
    return [records.setting_record(records.CONFIG, subject, fields)], fields


def delete_config(state: State, subject: str) -> tuple[list[Record], Json]:
    """Remove a config; return what it was. Raises Refusal 40401, 42205."""
    _may_change(state, subject)
    old = state.setting(records.CONFIG, subject)
    if old is None and subject:
        raise subject_not_found(subject)
    result = old if subject and old is not None else state.config(subject)
    return [] if old is None else [records.setting_record(records.CONFIG, subject, None)], result


def config_of(state: State, subject: str, *, in_scope: bool) -> Json:
    """Return a config, "" is the global one. Raises Refusal 40408 for a subject that has none.

    in_scope  whether fields that it lacks come from around it
    """
    own = state.setting(records.CONFIG, subject)
    if in_scope or not subject:
        return state.config(subject)
    if own is None:
        raise no_config(subject)
    return own


def set_mode(state: State, subject: str, mode: str, *, force: bool) -> list[Record]:
    """Set a mode, "" is the global one. Raises Refusal 42204, 42205, 42206."""
    mode = mode.upper()
    if mode not in _MODES or (mode == FORWARD and subject not in ("", subjects.GLOBAL)):
        raise invalid_mode()
    tombstones: list[Record] = []
    if mode == IMPORT and state.mode(subject) != IMPORT and not force:
        names = _subjects_under(state, subject)
        if any(state.versions(name) for name in names):
            raise Refusal(NOT_PERMITTED, "Cannot import since found existing subjects")
        for name in names:
            for version in state.versions(name, deleted=True):
                referrers = state.referrers(name, version.number, deleted=True)
                if any(other.subject not in names for other in referrers):
                    raise reference_error(name, version.number)
                tombstones.append(records.schema_tombstone(name, version.number))
    cleared = [records.clearing(subject)] if tombstones else []
    return [*tombstones, *cleared, records.setting_record(records.MODE, subject, {"mode": mode})]


def _subjects_under(state: State, subject: str) -> list[str]:
    """Return the subjects whose mode a setting decides: one, those of a context, or those of the default context."""
    context, name = subjects.split(subject)
    if name:
        return [subject] if subject in state.subjects else []
    if subject == subjects.GLOBAL:
        return list(state.subjects)
    return [other for other in state.subjects if subjects.context_of(other) == context]


def delete_mode(state: State, subject: str, *, recursive: bool) -> tuple[list[Record], str]:
    """Remove a mode; return what it was. Raises Refusal 40401.

    recursive  whether the modes of all subjects that it covers are removed as well
    """
    old = state.setting(records.MODE, subject)
    if old is None and subject and not recursive:
        raise subject_not_found(subject)
    names = [subject] + ([name for name in _subjects_under(state, subject) if name != subject] if recursive else [])
    removed = [name for name in names if state.setting(records.MODE, name) is not None]
    mode = str((old or {}).get("mode") or state.mode(subject))
    return [records.setting_record(records.MODE, name, None) for name in removed], mode


def mode_of(state: State, subject: str, *, in_scope: bool) -> str:
    """Return a mode, "" is the global one. Raises Refusal 40409 for a subject that has none."""
    own = state.setting(records.MODE, subject)
    if own is None and subject and not in_scope:
        raise no_mode(subject)
    return state.mode(subject)


def _may_change(state: State, subject: str) -> None:
    """Raise Refusal 42205 in a mode that allows reading only."""
    if state.mode(subject) in (READONLY, READONLY_OVERRIDE):
        raise _refusal(subject, "is in read-only mode")


def _refusal(subject: str, why: str) -> Refusal:
    context = subjects.context_of(subject)
    return Refusal(NOT_PERMITTED, f"Subject {subject} in context {context} {why}")
