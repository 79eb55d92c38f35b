"""Tags inside schemas, as requests and responses have them; see `schemas/tags.py` for what a path is.

{"schemaEntity": {"entityPath": "shop.Order.id", "entityType": "sr_field"}, "tags": ["PII"]}
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ottla.registry import contracts
from ottla.registry.calls import field_of
from ottla.registry.operations import Posted
from ottla.registry.records import Json
from ottla.registry.refusals import Refusal
from ottla.registry.state import Version
from ottla.schemas.tags import ENTITY_TYPES, Entity, Tags

ALL: Final = "*"
_MALFORMED: Final = "needs schemaEntity with entityPath and entityType (sr_record, sr_field), and a list of tags"


def tags_in(fields: Json, name: str) -> Tags:
    """Return the tags of a list in a body, empty without one. Raises Refusal 400."""
    tags: dict[Entity, list[str]] = {}
    for row in field_of(fields, name, list) or ():
        match row:
            case {"schemaEntity": {"entityPath": str(path), "entityType": str(kind)}, "tags": list(names)} if (
                path and kind in ENTITY_TYPES and all(isinstance(tag, str) for tag in names)
            ):
                tags.setdefault(Entity(path, kind), []).extend(names)
            case _:
                raise Refusal(400, f"A row of {name} {_MALFORMED}")
    return tags


def rows_of(tags: Mapping[Entity, Sequence[str]], asked: Collection[str]) -> list[Json]:
    """Return the entities that have one of the tags which are asked for, * is any."""
    return [
        {"schemaEntity": {"entityPath": entity.path, "entityType": entity.type}, "tags": list(names)}
        for entity, names in tags.items()
        if ALL in asked or not set(asked).isdisjoint(names)
    ]


def next_version(fields: Json, version: Version, before: Version | None) -> Posted:
    """Return the registration of a version with another data contract. Raises Refusal 400.

    version  whose schema and metadata it takes over
    before   the version before the new one, whose rules it takes over where the request changes some
    """
    number = field_of(fields, "newVersion", int)
    metadata: Json = field_of(fields, "metadata", dict) or version.value.metadata or {}
    contracts.check_metadata(metadata)
    properties = {**(metadata.get("properties") or {}), contracts.VERSION_PROPERTY: str(number or 0)}
    rules: Any = field_of(fields, "ruleSet", dict)
    merged, removed = field_of(fields, "rulesToMerge", dict), field_of(fields, "rulesToRemove", list)
    if merged is not None or removed is not None:
        contracts.check_rules(merged)
        old = None if before is None else before.value.rule_set
        rules = contracts.without_rules(contracts.merge_rules(old, merged), removed or ())
    return Posted(version.subject, version.schema, {**metadata, "properties": properties}, rules, version=number)
