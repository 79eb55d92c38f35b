"""Schemas of a registry: subjects, versions and their differences, registration and deletion."""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from difflib import unified_diff
from typing import Any, Final, NamedTuple, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from ottla.console.commands import registry_line
from ottla.console.problem import Problem
from ottla.console.visit import Visit, change, integer, page
from ottla.schemas.compatibility.levels import LEVELS
from ottla.schemas.registry import (
    AVRO,
    JSON,
    PROTOBUF,
    Reference,
    Registered,
    RegistryError,
    RegistryRefusal,
    Schema,
    SchemaNotFound,
    SchemaRegistry,
    UnsupportedSchema,
    request_body,
)

_PAGE: Final = 50
_THREADS: Final = 8
_KINDS: Final = (AVRO, JSON, PROTOBUF)
_CONTEXT_LINES: Final = 5
_MODES: Final = ("READWRITE", "READONLY", "IMPORT")
_SETTINGS: Final = {"config": "compatibility", "mode": "mode"}
T = TypeVar("T")


class SubjectRow(NamedTuple):
    """Subject in the list; the latest version is None if the registry does not return it.

    is_deleted  whether it is hidden, with ids that are still readable
    """

    subject: str
    versions: int
    latest: Registered | None
    is_deleted: bool = False


class Contract(NamedTuple):
    """Data contract of a version.

    properties  names and values; those of sensitive ones are hidden
    tags        paths of fields, and their tags
    rules       kind of the rule set, and the fields of a rule
    """

    properties: list[tuple[str, str]]
    tags: list[tuple[str, str]]
    rules: list[tuple[str, dict[str, Any]]]


class DiffLine(NamedTuple):
    """Line of a difference; `kind` is "added", "removed", "place" or "same"."""

    kind: str
    text: str


def _registry(visit: Visit) -> SchemaRegistry:
    """Return the registry of the cluster. Raises Problem."""
    registry = visit.cluster.access.registry
    if registry is None:
        raise Problem(
            f"The console has no schema registry for {visit.cluster.name}: set schema.registry.url in its profile, "
            "or start the console with --schema-registry.",
            404,
        )
    return registry


async def _answer(call: Callable[[], T]) -> T:
    """Ask the registry in a thread. Raises Problem."""
    try:
        return await run_in_threadpool(call)
    except SchemaNotFound as error:
        raise Problem(f"The registry has no such schema: {_reason(error)}.", 404) from None
    except RegistryRefusal as error:
        raise Problem(f"The registry refused the request: {_reason(error)}.", 422) from None
    except RegistryError as error:
        raise Problem(f"The registry does not answer: {_reason(error)}.", 502) from None
    except UnsupportedSchema as error:
        raise Problem(f"{_reason(error)}.") from None
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise Problem(
            f"The registry's answer is malformed, or its directory cannot be read: {_reason(error)}.", 502
        ) from None


def _reason(error: Exception) -> str:
    """Return the text of an error without the period that some registries end it with."""
    return str(error).rstrip(".")


def _changeable(visit: Visit) -> SchemaRegistry:
    """Return the registry of the cluster if its schemas can be changed here. Raises Problem."""
    registry = _registry(visit)
    if registry.is_directory:
        raise Problem(f"The schemas of {registry.address} are a directory: change its files.", 409)
    return registry


async def schemas(visit: Visit) -> Response:
    """List subjects: one page of those whose names contain the search text."""
    registry, query, with_deleted = _registry(visit), visit.text("q"), bool(visit.text("deleted"))
    visible = await _answer(registry.subjects)
    every = await _answer(lambda: registry.subjects(deleted=True)) if with_deleted else visible
    matching = [name for name in every if query.lower() in name.lower()]
    last = max(1, -(-len(matching) // _PAGE))
    number = min(visit.integer("page", 1, 1), last)
    shown = matching[(number - 1) * _PAGE : number * _PAGE]
    return visit.render(
        "schemas.html",
        title="Schemas",
        registry=registry,
        rows=await run_in_threadpool(_rows, registry, shown, set(visible)),
        with_deleted=with_deleted,
        count=len(matching),
        page=number,
        last=last,
        query=query,
    )


def _rows(registry: SchemaRegistry, subjects: list[str], visible: set[str]) -> list[SubjectRow]:
    """Return the rows of subjects; several requests at a time, as each takes a round trip."""

    def row(subject: str) -> SubjectRow:
        if subject not in visible:
            return SubjectRow(subject, 0, None, is_deleted=True)
        try:
            return SubjectRow(subject, len(registry.versions(subject)), registry.latest(subject))
        except (SchemaNotFound, RegistryError, ValueError, KeyError):
            return SubjectRow(subject, 0, None)

    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(row, subjects))


async def schema(visit: Visit) -> Response:
    """Show one version of a subject: its text, id, references and compatibility."""
    registry, subject = _registry(visit), visit.text("subject")
    versions = await _answer(lambda: registry.versions(subject))
    version = visit.integer("version", versions[-1], 1)
    shown = await _answer(lambda: registry.version(subject, version))
    earlier = [number for number in versions if number < version]
    return visit.render(
        "schema.html",
        title=subject,
        registry=registry,
        subject=subject,
        versions=list(reversed(versions)),
        shown_version=version,
        earlier=earlier[-1] if earlier else None,
        shown=shown,
        text=pretty(shown.schema),
        compatibility=await _answer(lambda: registry.compatibility(subject)),
        mode=await _answer(lambda: registry.mode(subject)),
        referrers=await _answer(lambda: registry.referrers(subject, version)),
        contract=_contract(await _answer(lambda: registry.entity(subject, version))),
    )


def _contract(entity: Mapping[str, Any]) -> Contract:
    """Return the data contract of a version; what another registry writes in another form is left out."""
    metadata, rule_set = _object(entity.get("metadata")), _object(entity.get("ruleSet"))
    secret = set(_texts(metadata.get("sensitive")))
    return Contract(
        [
            (str(name), "hidden" if name in secret else str(value))
            for name, value in sorted(_object(metadata.get("properties")).items())
        ],
        [(str(path), ", ".join(_texts(names))) for path, names in sorted(_object(metadata.get("tags")).items())],
        [
            (kind, {**rule, "tags": _texts(rule.get("tags"))})
            for kind in ("domain", "migration", "encoding")
            for rule in map(_object, _list(rule_set.get(f"{kind}Rules")))
        ],
    )


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(values: object) -> list[str]:
    return [str(value) for value in _list(values)]


async def diff(visit: Visit) -> Response:
    """Show the difference of two versions of a subject."""
    registry, subject = _registry(visit), visit.text("subject")
    versions = await _answer(lambda: registry.versions(subject))
    new = visit.integer("new", versions[-1], 1)
    old = visit.integer("old", max((number for number in versions if number < new), default=new), 1)
    older = await _answer(lambda: registry.version(subject, old))
    newer = await _answer(lambda: registry.version(subject, new))
    return visit.render(
        "schema_diff.html",
        title=f"{subject}: {old} and {new}",
        subject=subject,
        versions=versions,
        old=old,
        new=new,
        lines=diff_lines(pretty(older.schema), pretty(newer.schema)),
    )


def pretty(schema: Schema) -> str:
    """Return the text of a schema, indented if it is JSON."""
    if schema.kind == PROTOBUF:
        return schema.text
    try:
        return json.dumps(json.loads(schema.text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return schema.text


def diff_lines(old: str, new: str) -> list[DiffLine]:
    """Return the differences of two texts with some lines around each; empty for equal texts."""
    kinds = {"+": "added", "-": "removed", "@": "place"}
    lines = list(unified_diff(old.splitlines(), new.splitlines(), n=_CONTEXT_LINES, lineterm=""))
    return [DiffLine(kinds.get(line[:1], "same"), line) for line in lines[2:]]  # the first two name the files


async def show_register(visit: Visit) -> Response:
    """Show the form of a new schema, filled in with the latest version of a subject."""
    registry, subject = _changeable(visit), visit.text("subject")
    latest = Schema(AVRO, "")
    if subject:
        latest = (await _answer(lambda: registry.latest(subject))).schema
    return visit.render(
        "schema_register.html",
        title=f"Register a version of {subject}" if subject else "Register a schema",
        subject=subject,
        kinds=_KINDS,
        kind=latest.kind,
        text=pretty(latest),
        references="\n".join(f"{name}={other}:{version}" for name, other, version in latest.references),
    )


async def ask_register(visit: Visit) -> Response:
    """Ask whether to register the schema of the form, with what the registry says to its compatibility."""
    registry = _changeable(visit)
    subject, new = await _form_schema(visit)
    level = await _answer(lambda: registry.compatibility(subject))
    # Some registries say of NONE, too, what is incompatible, and accept it.
    reasons = [] if level == "NONE" else await _answer(lambda: registry.incompatibilities(subject, new))
    verdict = (
        f"By its compatibility {level} the registry will refuse it:"
        if reasons
        else f"It is compatible by {level or 'the level of the registry'}."
    )
    form = await visit.form()
    return visit.confirm(
        f"Register a schema for {subject}?",
        text=f"The schema becomes the latest version of {subject}; producers and consumers may begin to use it. {verdict}",
        action=visit.link("/schemas/register"),
        button="Register",
        command=registry_line(registry, "POST", ("subjects", subject, "versions"), request_body(new)),
        cancel=visit.link("/schemas"),
        fields={name: form.get(name, "") for name in ("subject", "kind", "text", "references")},
        titles=("Incompatible",),
        rows=[(reason,) for reason in reasons],
    )


async def register(visit: Visit) -> Response:
    """Register a schema."""
    registry = _changeable(visit)
    subject, new = await _form_schema(visit)
    visit.change = f"register a schema of subject {subject}"
    number = await _answer(lambda: registry.register(subject, new))
    return visit.redirect_with_notice(visit.link("/schema", subject=subject), f"The schema has the id {number}.")


async def _form_schema(visit: Visit) -> tuple[str, Schema]:
    """Return the subject and schema of the form. Raises Problem."""
    subject, kind = await visit.field("subject"), await visit.field("kind")
    text = (await visit.field("text")).replace("\r\n", "\n")
    if not subject or not text:
        raise Problem("A schema needs a subject and a text.")
    if kind not in _KINDS:
        raise Problem(f"The type of a schema is one of {', '.join(_KINDS)}.")
    if kind != PROTOBUF:
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Problem(f"The schema is not JSON: {error}.") from None
    references = []
    for line in filter(None, map(str.strip, (await visit.field("references")).splitlines())):
        name, _, where = line.partition("=")
        other, _, version = where.rpartition(":")
        if not name or not other:
            raise Problem(f"References are lines of NAME=SUBJECT:VERSION, not {line[:60]!r}.")
        references.append(Reference(name, other, integer(version, "The version of a reference", 1, 1)))
    return subject, Schema(kind, text, tuple(references))


async def show_delete(visit: Visit) -> Response:
    """Ask whether to delete a version of a subject, or all, or permanently what is deleted already."""
    registry, subject = _changeable(visit), visit.text("subject")
    if visit.text("permanent"):
        return visit.confirm(
            f"Delete {subject} permanently?",
            text=f"The ids of {subject} become unreadable, and with them the records that were written with these schemas.",
            action=visit.link("/schemas/delete"),
            button="Delete permanently",
            command=registry_line(registry, "DELETE", ("subjects", subject), query="?permanent=true"),
            cancel=visit.link("/schemas", deleted=1),
            fields={"subject": subject, "version": "", "permanent": "1"},
        )
    versions = await _answer(lambda: registry.versions(subject))
    version = visit.integer("version", 0, 0)
    if version and version not in versions:
        raise Problem(f"{subject} has no version {version}.", 404)
    target = f"version {version} of {subject}" if version else f"{subject} with its versions {_list_text(versions)}"
    path = ("subjects", subject, *(("versions", str(version)) if version else ()))
    return visit.confirm(
        f"Delete {f'version {version} of ' if version else ''}{subject}?",
        text=f"The registry deletes {target}. Consumers can still read schemas by their ids; a permanent deletion is "
        "possible afterwards, in the list of subjects with deleted ones.",
        action=visit.link("/schemas/delete"),
        button="Delete",
        command=registry_line(registry, "DELETE", path),
        cancel=visit.link("/schema", subject=subject),
        fields={"subject": subject, "version": str(version or "")},
    )


def _list_text(versions: list[int]) -> str:
    return ", ".join(map(str, versions))


async def delete(visit: Visit) -> Response:
    """Delete a version of a subject, or all."""
    registry, subject = _changeable(visit), await visit.field("subject")
    version = integer(await visit.field("version"), "version", 0, 0)
    permanent = bool((await visit.form()).get("permanent"))
    how = " permanently" if permanent else ""
    visit.change = f"delete {f'version {version} of ' if version else ''}subject {subject}{how}"
    await _answer(lambda: registry.delete(subject, version or None, permanent=permanent))
    target = f"{f'Version {version} of ' if version else ''}{subject}"
    return visit.redirect_with_notice(visit.link("/schemas"), f"{target} was deleted{how}.")


async def show_settings(visit: Visit) -> Response:
    """Show the form of compatibility and mode: of a subject, or the default ones."""
    registry, subject = _changeable(visit), visit.text("subject")
    return visit.render(
        "schema_settings.html",
        title=f"Compatibility and mode of {subject}" if subject else "Default compatibility and mode",
        subject=subject,
        level=await _answer(lambda: registry.compatibility(subject or None)),
        mode=await _answer(lambda: registry.mode(subject or None)),
        levels=LEVELS,
        modes=_MODES,
    )


async def ask_settings(visit: Visit) -> Response:
    """Ask whether to change the compatibility or the mode."""
    registry = _changeable(visit)
    subject, kind, value = await _form_setting(visit)
    path = (kind, subject) if subject else (kind,)
    field = "compatibility" if kind == "config" else "mode"
    command = registry_line(registry, "PUT", path, {field: value}) if value else registry_line(registry, "DELETE", path)
    target = subject or "all subjects without a setting of their own"
    return visit.confirm(
        f"Change the {_SETTINGS[kind]} of {target}?",
        text=f"The {_SETTINGS[kind]} becomes {value or 'the default one'}: it counts for the next schema that is registered.",
        action=visit.link("/schema/settings"),
        button="Change",
        command=command,
        cancel=visit.link("/schema", subject=subject) if subject else visit.link("/schemas"),
        fields={"subject": subject, "kind": kind, "value": value},
    )


async def settings(visit: Visit) -> Response:
    """Change the compatibility or the mode."""
    registry = _changeable(visit)
    subject, kind, value = await _form_setting(visit)
    visit.change = f"set the {_SETTINGS[kind]} of subject {subject or '(default)'} to {value or 'the default'}"
    set_value = registry.set_compatibility if kind == "config" else registry.set_mode
    await _answer(lambda: set_value(subject or None, value or None))
    url = visit.link("/schema", subject=subject) if subject else visit.link("/schemas")
    return visit.redirect_with_notice(url, f"The {_SETTINGS[kind]} was changed.")


async def _form_setting(visit: Visit) -> tuple[str, str, str]:
    """Return subject, kind (config or mode) and value of the form; "" removes the setting. Raises Problem."""
    subject, kind, value = await visit.field("subject"), await visit.field("kind"), await visit.field("value")
    allowed = {"config": LEVELS, "mode": _MODES}.get(kind)
    if allowed is None or (value and value not in allowed):
        raise Problem("A setting is a compatibility or a mode, with one of the values of the form.")
    return subject, kind, value


ROUTES = [
    page("/schemas", schemas),
    page("/schema", schema),
    page("/schema/diff", diff),
    page("/schema/settings", show_settings),
    change("/schema/settings/question", ask_settings),
    change("/schema/settings", settings),
    page("/schema/delete", show_delete),
    change("/schemas/delete", delete),
    page("/schemas/register", show_register),
    change("/schemas/register/question", ask_register),
    change("/schemas/register", register),
]
