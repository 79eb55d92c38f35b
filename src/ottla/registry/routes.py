"""The endpoints of a registry: a table of methods and paths, and what each one answers.

An endpoint is a function (operations, call) -> JSON value; what takes several steps is a coroutine function. None is an answer
without a body.
"""

import uuid
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from ottla.registry import checks, contracts, decisions, records, subjects, tagging
from ottla.registry.calls import Call, field_of
from ottla.registry.operations import Operations, Posted
from ottla.registry.records import Json, Record, SchemaValue
from ottla.registry.refusals import Refusal, invalid_level, invalid_policy, schema_not_found, subject_not_found
from ottla.registry.state import State, Version, digest_of
from ottla.schemas.compatibility.levels import POLICIES
from ottla.schemas.registry import AVRO
from ottla.version import VERSION

_MOST_SCHEMAS: Final = 1000
Answer = Any
Endpoint = Callable[[Operations, Call], Answer | Awaitable[Answer]]


# Parts of answers.


def _schema_fields(value: SchemaValue, text: str, *, is_expanded: bool) -> Json:
    """Return what an answer says of a schema; older clients know no type AVRO and no GUID."""
    fields: Json = {}
    if is_expanded:
        fields["guid"] = str(uuid.UUID(bytes=digest_of(value)))
    if is_expanded or value.schema.kind != AVRO:
        fields["schemaType"] = value.schema.kind
    if value.schema.references:
        fields["references"] = [reference._asdict() for reference in value.schema.references]
    if value.metadata:
        fields["metadata"] = value.metadata
    if value.rule_set:
        fields["ruleSet"] = value.rule_set
    return {**fields, "schema": text}


def _entity(version: Version, call: Call, text: str | None = None) -> Json:
    head: Json = {"subject": version.subject, "version": version.number, "id": version.id}
    shown = version.schema.text if text is None else text
    fields = {**head, **_schema_fields(version.value, shown, is_expanded=call.is_expanded)}
    if call.is_expanded:
        fields |= {"ts": version.timestamp, **({"deleted": True} if version.deleted else {})}
    return fields


async def _format(operations: Operations, call: Call, value: SchemaValue) -> str:
    form = call.text("format")
    return await operations.text(value.subject, value.schema, form) if form else value.schema.text


async def _schema_tags(operations: Operations, call: Call, value: SchemaValue) -> Json:
    """Return the field with the tags inside a schema that `findTags` asks for, if there are any."""
    asked = call.query.get("findTags")
    rows = tagging.rows_of(await operations.tags(value.schema), asked) if asked else []
    return {"schemaTags": rows} if rows else {}


def _alias_of(state: State, subject: str) -> str:
    """Return the alias of a subject, or the subject if it has none."""
    name = subjects.normal(subject)
    alias = (state.setting(records.CONFIG, name) or {}).get("alias") if name else None
    return subjects.qualified(subjects.context_of(name), str(alias)) if alias else name


def _read_as(state: State, subject: str) -> str:
    """Return the subject whose versions are read under a name, see `_alias_of` and `_anywhere`."""
    return _anywhere(state, _alias_of(state, subject))


def _anywhere(state: State, subject: str) -> str:
    """Return a subject of another context for one that the default context lacks, if there is any."""
    if subject in state.subjects or subjects.context_of(subject) != subjects.DEFAULT:
        return subject
    others = (subjects.qualified(context, subject) for context in sorted(state.contexts))
    return next((other for other in others if other in state.subjects), subject)


# Schemas by id.


def _find_by_id(state: State, call: Call) -> tuple[str, int, SchemaValue, list[Version]]:
    """Return context, id, schema and versions of an id in a path. Raises Refusal 404, 40403."""
    text = call.parts[0]
    if not text.isdecimal() or not text.isascii():
        raise Refusal(404, "HTTP 404 Not Found")
    number = int(text[:20])
    named = _alias_of(state, call.text("subject"))
    context, name = subjects.split(named)
    contexts = [context] if context != subjects.DEFAULT or not name else [context, *sorted(state.contexts)]
    for candidate in contexts:
        identified = state.find_by_id(candidate, number)
        if identified is None:
            continue
        versions = [state.subjects[subject][version] for subject, version in sorted(identified.versions)]
        if candidate == context or any(subjects.split(version.subject)[1] == name for version in versions):
            return candidate, number, identified.value, versions
    raise schema_not_found(number)


async def _schema_by_id(operations: Operations, call: Call) -> Answer:
    state = operations.state
    context, _, value, versions = _find_by_id(state, call)
    text = await _format(operations, call, value)
    fields = _schema_fields(value, text, is_expanded=call.is_expanded)
    subject = subjects.qualified(context, _alias_of(state, call.text("subject")))
    of_subject = [version for version in versions if version.subject == subject]
    if of_subject:
        fields = {"subject": subject, "version": of_subject[-1].number, **fields}
    if call.flag("fetchMaxId"):
        fields["maxId"] = state.context(context).highest_id
    return {**fields, **await _schema_tags(operations, call, value)}


async def _text_by_id(operations: Operations, call: Call) -> Answer:
    return await _format(operations, call, _find_by_id(operations.state, call)[2])


def _versions_by_id(operations: Operations, call: Call) -> list[Version]:
    versions = _find_by_id(operations.state, call)[3]
    name = subjects.split(call.text("subject"))[1]
    return [
        version
        for version in versions
        if (call.flag("deleted") or not version.deleted) and (not name or subjects.split(version.subject)[1] == name)
    ]


def _subjects_by_id(operations: Operations, call: Call) -> Answer:
    return call.page(sorted({version.subject for version in _versions_by_id(operations, call)}))


def _subject_versions_by_id(operations: Operations, call: Call) -> Answer:
    versions = _versions_by_id(operations, call)
    return call.page([{"subject": version.subject, "version": version.number} for version in versions])


def _by_guid(state: State, call: Call) -> list[tuple[str, int]]:
    try:
        digest = uuid.UUID(call.parts[0]).bytes
    except ValueError:
        raise schema_not_found() from None
    known = [
        (name, context.by_digest[digest]) for name, context in state.contexts.items() if digest in context.by_digest
    ]
    if not known:
        raise Refusal(40403, f"Schema {call.parts[0]} not listed")
    return sorted(known)


async def _schema_by_guid(operations: Operations, call: Call) -> Answer:
    context, number = _by_guid(operations.state, call)[0]
    identified = operations.state.find_by_id(context, number)
    assert identified is not None
    text = await _format(operations, call, identified.value)
    return _schema_fields(identified.value, text, is_expanded=call.is_expanded)


def _ids_by_guid(operations: Operations, call: Call) -> Answer:
    return [{"context": context, "id": number} for context, number in _by_guid(operations.state, call)]


def _schemas(operations: Operations, call: Call) -> Answer:
    state = operations.state
    listed: list[Version] = []
    names, aliases = _names(call.text("subjectPrefix"), list(state.subjects)), _aliases(state, call)
    for subject in sorted({*names, *(name for name in aliases if name in state.subjects)}):
        versions = state.versions(subject, deleted=call.flag("deleted"))
        listed += versions[-1:] if call.flag("latestOnly") else versions
    rule_type = call.text("ruleType")
    if rule_type:
        listed = [version for version in listed if contracts.has_rule_of(version.value.rule_set, rule_type)]
    return [
        {**_entity(version, call), **({"aliases": aliases[version.subject]} if version.subject in aliases else {})}
        for version in call.page(listed, most=_MOST_SCHEMAS)
    ]


def _aliases(state: State, call: Call) -> dict[str, list[str]]:
    """Return the names, by subject, under which subjects are read as well and that begin with the prefix; if asked for."""
    aliases: dict[str, list[str]] = {}
    if call.flag("aliases"):
        names = [name for kind, name in state.settings if kind == records.CONFIG and name]
        for name in _names(call.text("subjectPrefix"), names):
            subject = _alias_of(state, name)
            if subject != name:
                aliases.setdefault(subject, []).append(name)
    return aliases


# Subjects and versions.


def _names(prefix: str, names: Sequence[str]) -> list[str]:
    """Return the names, sorted, that begin with a prefix; `:*:` begins those of all contexts."""
    if prefix.startswith(subjects.ALL_CONTEXTS):
        rest = prefix.removeprefix(subjects.ALL_CONTEXTS)
        return sorted(name for name in names if subjects.split(name)[1].startswith(rest))
    context, rest = subjects.split(prefix)
    return sorted(
        name for name in names if subjects.context_of(name) == context and subjects.split(name)[1].startswith(rest)
    )


def _subjects(operations: Operations, call: Call) -> Answer:
    state = operations.state
    deleted_only, deleted = call.flag("deletedOnly"), call.flag("deleted")
    names = []
    for subject, versions in state.subjects.items():
        is_deleted = all(version.deleted for version in versions.values())
        if is_deleted if deleted_only else (deleted or not is_deleted):
            names.append(subject)
    prefix = call.query["subjectPrefix"][-1] if "subjectPrefix" in call.query else subjects.ALL_CONTEXTS
    return call.page(_names(prefix, names))


def _versions(operations: Operations, call: Call) -> Answer:
    subject = _alias_of(operations.state, call.subject())
    as_negative, deleted_only = call.flag("deletedAsNegative"), call.flag("deletedOnly")
    versions = operations.state.versions(subject, deleted=call.flag("deleted") or as_negative or deleted_only)
    if deleted_only:
        versions = [version for version in versions if version.deleted]
    if not versions:
        raise subject_not_found(subject)
    return call.page([-version.number if as_negative and version.deleted else version.number for version in versions])


def _version_of(operations: Operations, call: Call) -> Version:
    number = call.version()
    subject = _read_as(operations.state, call.subject())
    return decisions.find_version(operations.state, subject, number, deleted=call.flag("deleted"))


async def _version(operations: Operations, call: Call) -> Answer:
    version = _version_of(operations, call)
    entity = _entity(version, call, await _format(operations, call, version.value))
    return {**entity, **await _schema_tags(operations, call, version.value)}


async def _version_text(operations: Operations, call: Call) -> Answer:
    return await _format(operations, call, _version_of(operations, call).value)


def _referrers(operations: Operations, call: Call) -> Answer:
    version = _version_of(operations, call)
    referrers = operations.state.referrers(version.subject, version.number, deleted=call.flag("deleted"))
    return call.page(sorted({other.id for other in referrers}))


def _by_metadata(operations: Operations, call: Call) -> Answer:
    subject = _alias_of(operations.state, call.subject())
    pairs = list(zip(call.query.get("key", []), call.query.get("value", []), strict=False))
    versions = operations.state.versions(subject, deleted=call.flag("deleted"))
    if not versions:
        raise subject_not_found(subject)
    for version in reversed(versions):
        properties = (version.value.metadata or {}).get("properties") or {}
        if all(properties.get(key) == value for key, value in pairs):
            return _entity(version, call)
    raise schema_not_found()


async def _register(operations: Operations, call: Call) -> Answer:
    posted, fields = call.parse_posted(call.subject()), call.fields()
    added, removed = (tagging.tags_in(fields, name) for name in ("schemaTagsToAdd", "schemaTagsToRemove"))
    propagates = field_of(fields, "propagateSchemaTags", bool) is True
    if added or removed or propagates:
        posted = await operations.change_tags(posted, added, removed, propagates=propagates)
    return await _register_posted(operations, call, posted)


async def _change_tags(operations: Operations, call: Call) -> Answer:
    state, fields = operations.state, call.fields()
    version = decisions.find_version(state, _anywhere(state, call.subject()), call.version())
    number = field_of(fields, "newVersion", int)
    before = state.version(version.subject, number - 1) if number else state.latest(version.subject)
    added, removed = tagging.tags_in(fields, "tagsToAdd"), tagging.tags_in(fields, "tagsToRemove")
    posted = await operations.change_tags(tagging.next_version(fields, version, before), added, removed)
    return await _register_posted(operations, call, posted)


async def _register_posted(operations: Operations, call: Call, posted: Posted) -> Answer:
    value = await operations.register(posted, normalize=call.flag("normalize"), force=call.flag("force"))
    if not call.is_expanded:
        return {"id": value.id}
    text = await _format(operations, call, value)
    fields = _schema_fields(value, text, is_expanded=True)
    if posted.schema.text:
        # confluent-kafka keeps a text that it gets here, and its Protobuf deserializer takes it for a descriptor.
        del fields["schema"]
    return {"id": value.id, "version": value.version, **fields}


async def _look_up(operations: Operations, call: Call) -> Answer:
    posted = call.parse_posted(_anywhere(operations.state, call.subject()))
    normalize, deleted = call.flag("normalize"), call.flag("deleted")
    version = await operations.look_up(posted, normalize=normalize, deleted=deleted)
    return _entity(version, call, await _format(operations, call, version.value))


async def _delete_subject(operations: Operations, call: Call) -> Answer:
    subject = call.subject()
    return await operations.change(
        lambda state: decisions.delete_subject(state, subject, permanent=call.flag("permanent"))
    )


async def _delete_version(operations: Operations, call: Call) -> Answer:
    subject, number = call.subject(), call.version()
    return await operations.change(
        lambda state: decisions.delete_version(state, subject, number, permanent=call.flag("permanent"))
    )


# Compatibility.


async def _check(operations: Operations, call: Call, number: int | None) -> Answer:
    posted = call.parse_posted(call.subject())
    messages = await operations.compatibility(posted, number, normalize=call.flag("normalize"))
    answer: Json = {"is_compatible": not messages}
    if call.flag("verbose") and messages:
        answer["messages"] = messages
    return answer


async def _check_version(operations: Operations, call: Call) -> Answer:
    return await _check(operations, call, call.version())


async def _check_subject(operations: Operations, call: Call) -> Answer:
    return await _check(operations, call, None)


# Configs and modes.

_CONFIG_FIELDS: Final[dict[str, type]] = {
    "compatibilityPolicy": str,
    "normalize": bool,
    "alias": str,
    "compatibilityGroup": str,
    "validateFields": bool,
    "validateNewSchemas": bool,
    "validateRules": bool,
    "defaultMetadata": dict,
    "overrideMetadata": dict,
    "defaultRuleSet": dict,
    "overrideRuleSet": dict,
}
_POLICIES: Final = (*POLICIES, decisions.LOGICAL)


def _setting_subject(call: Call) -> str:
    """Return the subject of a config or mode, "" for the global one."""
    return call.subject(is_setting=True) if call.parts else ""


def _config(operations: Operations, call: Call) -> Answer:
    return decisions.config_of(operations.state, _setting_subject(call), in_scope=call.flag("defaultToGlobal"))


async def _set_config(operations: Operations, call: Call) -> Answer:
    subject, fields = _setting_subject(call), call.fields()
    changes = {name: field_of(fields, name, kind) for name, kind in _CONFIG_FIELDS.items() if name in fields}
    for name in ("compatibility", "compatibilityLevel"):
        if name in fields:
            level = None if fields[name] is None else checks.level_named(fields[name])
            if level is None and fields[name] is not None:
                raise invalid_level()
            changes["compatibilityLevel"] = level
    policy = changes.get("compatibilityPolicy")
    if policy is not None:
        changes["compatibilityPolicy"] = policy.upper()
        if policy.upper() not in _POLICIES:
            raise invalid_policy(_POLICIES)
    for name in ("defaultMetadata", "overrideMetadata"):
        contracts.check_metadata(changes.get(name), name)
    for name in ("defaultRuleSet", "overrideRuleSet"):
        contracts.check_rules(changes.get(name), name)
    config = await operations.change(lambda state: decisions.set_config(state, subject, changes))
    return {"compatibility" if name == "compatibilityLevel" else name: value for name, value in config.items()}


async def _delete_config(operations: Operations, call: Call) -> Answer:
    return await operations.change(partial(decisions.delete_config, subject=_setting_subject(call)))


def _mode(operations: Operations, call: Call) -> Answer:
    subject = _setting_subject(call)
    return {"mode": decisions.mode_of(operations.state, subject, in_scope=call.flag("defaultToGlobal"))}


async def _set_mode(operations: Operations, call: Call) -> Answer:
    subject, mode, force = _setting_subject(call), field_of(call.fields(), "mode", str) or "", call.flag("force")

    def decide(state: State) -> tuple[list[Record], Json]:
        return decisions.set_mode(state, subject, mode, force=force), {"mode": mode.upper()}

    return await operations.change(decide)


async def _delete_mode(operations: Operations, call: Call) -> Answer:
    subject, recursive = _setting_subject(call), call.flag("recursive")
    mode = await operations.change(lambda state: decisions.delete_mode(state, subject, recursive=recursive))
    return {"mode": mode}


# Others.


def _contexts(operations: Operations, call: Call) -> Answer:
    others = sorted(name for name in operations.state.contexts if name != subjects.DEFAULT)
    prefix = call.text("contextPrefix")
    return call.page([name for name in (subjects.DEFAULT, *others) if name.startswith(prefix)])


async def _delete_context(operations: Operations, call: Call) -> Answer:
    context = f".{call.parts[0].strip(':').removeprefix('.')}"

    def decide(state: State) -> tuple[list[Record], None]:
        if any(subjects.context_of(subject) == context for subject in state.subjects):
            raise Refusal(42211, f"The specified context '{context}' is not empty.")
        known = context in state.contexts and context != subjects.DEFAULT
        return [Record(records.Key(records.CONTEXT, context), None)] if known else [], None

    return await operations.change(decide)


def _liveness(_: Operations, __: Call) -> Answer:
    return {}


def _types(_: Operations, __: Call) -> Answer:
    return list(checks.KINDS)


def _cluster_id(_: Operations, __: Call) -> Answer:
    clusters = {"kafka-cluster": "", "schema-registry-cluster": "schema-registry"}
    return {"id": "", "scope": {"path": [], "clusters": clusters}}


def _release(_: Operations, __: Call) -> Answer:
    return {"version": f"ottla-{VERSION}", "commitId": ""}


def _deployment(_: Operations, __: Call) -> Answer:
    return {"attributes": []}


class Route(NamedTuple):
    """A row of the table. `path` has {} for a variable part."""

    method: str
    path: str
    endpoint: Endpoint


ROUTES: Final = tuple(
    Route(*row)
    for row in (
        ("GET", "", _liveness),
        ("GET", "schemas", _schemas),
        ("GET", "schemas/types", _types),
        ("GET", "schemas/ids/{}", _schema_by_id),
        ("GET", "schemas/ids/{}/schema", _text_by_id),
        ("GET", "schemas/ids/{}/subjects", _subjects_by_id),
        ("GET", "schemas/ids/{}/versions", _subject_versions_by_id),
        ("GET", "schemas/guids/{}", _schema_by_guid),
        ("GET", "schemas/guids/{}/ids", _ids_by_guid),
        ("GET", "subjects", _subjects),
        ("POST", "subjects/{}", _look_up),
        ("DELETE", "subjects/{}", _delete_subject),
        ("GET", "subjects/{}/metadata", _by_metadata),
        ("GET", "subjects/{}/versions", _versions),
        ("POST", "subjects/{}/versions", _register),
        ("GET", "subjects/{}/versions/{}", _version),
        ("DELETE", "subjects/{}/versions/{}", _delete_version),
        ("POST", "subjects/{}/versions/{}/tags", _change_tags),
        ("GET", "subjects/{}/versions/{}/schema", _version_text),
        ("GET", "subjects/{}/versions/{}/referencedby", _referrers),
        ("GET", "subjects/{}/versions/{}/referencedBy", _referrers),
        ("POST", "compatibility/subjects/{}/versions/{}", _check_version),
        ("POST", "compatibility/subjects/{}/versions", _check_subject),
        ("GET", "config", _config),
        ("PUT", "config", _set_config),
        ("DELETE", "config", _delete_config),
        ("GET", "config/{}", _config),
        ("PUT", "config/{}", _set_config),
        ("DELETE", "config/{}", _delete_config),
        ("GET", "mode", _mode),
        ("PUT", "mode", _set_mode),
        ("DELETE", "mode", _delete_mode),
        ("GET", "mode/{}", _mode),
        ("PUT", "mode/{}", _set_mode),
        ("DELETE", "mode/{}", _delete_mode),
        ("GET", "contexts", _contexts),
        ("DELETE", "contexts/{}", _delete_context),
        ("GET", "v1/metadata/id", _cluster_id),
        ("GET", "v1/metadata/version", _release),
        ("GET", "v1/metadata/deployment", _deployment),
    )
)


class Found(NamedTuple):
    """A route that fits a path, and the variable parts of that.

    route  None if the path is served, but not with this method
    """

    route: Route | None
    parts: tuple[str, ...] = ()


def _index() -> dict[int, list[tuple[tuple[str | None, ...], dict[str, Route]]]]:
    """Return the routes by number of segments: fixed parts, None for variable ones, and routes by method."""
    table: dict[int, dict[tuple[str | None, ...], dict[str, Route]]] = {}
    for route in ROUTES:
        pattern = tuple(None if part == "{}" else part for part in route.path.split("/"))
        table.setdefault(len(pattern), {}).setdefault(pattern, {})[route.method] = route
    return {length: list(patterns.items()) for length, patterns in table.items()}


_INDEX: Final = _index()


def find(method: str, segments: Sequence[str]) -> Found | None:
    """Return the route of a request; None for an unknown path."""
    for pattern, routes in _INDEX.get(len(segments), ()):
        if all(fixed is None or fixed == part for fixed, part in zip(pattern, segments, strict=True)):
            parts = tuple(part for fixed, part in zip(pattern, segments, strict=True) if fixed is None)
            if all(parts):
                return Found(routes.get("GET" if method == "HEAD" else method), parts)
    return None
