"""Tags inside schemas: the attribute `confluent:tags` of records and fields, which a path names as in Confluent's registry.

    Avro   shop.Order                        a record; without its namespace too
           shop.Order.id                     a field of it
    JSON   object                            the schema itself, an object
           object.id                         a property
           object.address.object.street      a property of a property
           object.lines.array.object.price   a property of the items of one
           object.definitions.Line.object    a schema of `definitions`, or of `$defs`

Protobuf has tags as options, and oneOf, anyOf and allOf of JSON have branches without a name: these are not known here. Nor
are paths of more than 1,000 characters: a small text could have many of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.schemas import json_text
from ottla.schemas.registry import AVRO, JSON, Schema, UnsupportedSchema

RECORD: Final = "sr_record"
FIELD: Final = "sr_field"
ENTITY_TYPES: Final = (RECORD, FIELD)
_TAGS: Final = "confluent:tags"
_LONGEST: Final = 1000
_NAMED_SCHEMAS: Final = ("definitions", "$defs")
Node = dict[str, Any]


class Entity(NamedTuple):
    """A record or a field of a schema.

    type  RECORD or FIELD
    """

    path: str
    type: str


Tags = Mapping[Entity, Sequence[str]]


def tags_of(schema: Schema) -> dict[Entity, list[str]]:
    """Return the tags of all records and fields that have any; none for Protobuf. Raises UnsupportedSchema."""
    if schema.kind not in (AVRO, JSON):
        return {}
    entities = _entities(schema.kind, _parse(schema))
    return {entity: _tags_of(node) for entity, node in entities if _tags_of(node)}


def entities_of(schema: Schema) -> set[Entity]:
    """Return the records and fields of a schema; none of Protobuf. Raises UnsupportedSchema."""
    return set(dict(_entities(schema.kind, _parse(schema)))) if schema.kind in (AVRO, JSON) else set()


def with_tags(schema: Schema, added: Tags, removed: Tags) -> Schema:
    """Return a schema with further tags, and without others. Raises UnsupportedSchema for a path that leads nowhere."""
    if not added and not removed:
        return schema
    if schema.kind not in (AVRO, JSON):
        raise UnsupportedSchema(f"tags cannot be added to or removed from a schema of type {schema.kind}")
    tree = _parse(schema)
    entities = dict(_entities(schema.kind, tree))
    for entity in dict.fromkeys([*added, *removed]):
        node = _find(schema.kind, entities, entity)
        tags = dict.fromkeys([*_tags_of(node), *added.get(entity, ())])
        left = [tag for tag in tags if tag not in removed.get(entity, ())]
        if left:
            node[_TAGS] = left
        else:
            node.pop(_TAGS, None)
    return schema._replace(text=json_text.compact(tree))


def _parse(schema: Schema) -> Any:
    return json_text.parse(schema.text, "Avro schema" if schema.kind == AVRO else "JSON Schema", exact=True)


def _tags_of(node: Node) -> list[str]:
    tags = node.get(_TAGS)
    return [str(tag) for tag in tags] if isinstance(tags, list) else []


def _entities(kind: str, tree: Any) -> Iterator[tuple[Entity, Node]]:
    return _avro_entities(tree) if kind == AVRO else _json_entities(tree)


def _find(kind: str, entities: Mapping[Entity, Node], entity: Entity) -> Node:
    node = entities.get(entity)
    if node is None and kind == AVRO:
        # A path without a namespace fits a record of any.
        ending = f".{entity.path}"
        node = next((node for known, node in entities.items() if _fits(known, entity, ending)), None)
    elif node is None and entity.type == RECORD and entity.path.endswith(".object"):
        node = entities.get(Entity(entity.path.removesuffix(".object"), FIELD))  # a property that is an object
    if node is None:
        raise UnsupportedSchema(f"No matching path '{entity.path}' found in the schema")
    return node


def _fits(known: Entity, entity: Entity, ending: str) -> bool:
    has_namespace = entity.path.count(".") > (entity.type == FIELD)
    return known.type == entity.type and not has_namespace and known.path.endswith(ending)


def _avro_entities(tree: Any) -> Iterator[tuple[Entity, Node]]:
    """Yield the records and fields of an Avro schema, by their full names, where they are defined."""
    waiting: list[tuple[Any, str]] = [(tree, "")]
    while waiting:
        node, space = waiting.pop()
        if isinstance(node, list):
            waiting += [(branch, space) for branch in reversed(node)]
        if not isinstance(node, dict):
            continue
        kind = node.get("type")
        if kind != "record":
            waiting += [(node.get(part), space) for part in ("items", "values")]
            waiting.append((None if isinstance(kind, str) else kind, space))
            continue
        name = str(node.get("name"))
        space = name.rpartition(".")[0] or str(node.get("namespace", space) or "")
        fields = [field for field in node.get("fields") or () if isinstance(field, dict)]
        if len(space) + len(name) < _LONGEST:
            full = name if "." in name or not space else f"{space}.{name}"
            yield Entity(full, RECORD), node
            for field in fields:
                yield Entity(f"{full}.{field.get('name')}", FIELD), field
        waiting += [(field.get("type"), space) for field in reversed(fields)]


def _json_entities(tree: Any) -> Iterator[tuple[Entity, Node]]:
    """Yield the schema itself, named schemas and items as records, and properties as fields."""
    waiting: list[tuple[Any, str, bool]] = [(tree, "", False)]
    while waiting:
        node, path, is_property = waiting.pop()
        if not isinstance(node, dict) or len(path) > _LONGEST:
            continue
        here = f"{path}object"
        if not is_property:
            yield Entity(here, RECORD), node
        properties = node.get("properties")
        for name, schema in properties.items() if isinstance(properties, dict) else ():
            if isinstance(schema, dict):
                yield Entity(f"{here}.{name}", FIELD), schema
                waiting.append((schema, f"{here}.{name}.", True))
        for part in _NAMED_SCHEMAS:
            named = node.get(part)
            for name, schema in named.items() if isinstance(named, dict) else ():
                waiting.append((schema, f"{here}.{part}.{name}.", False))
        waiting.append((node.get("items"), f"{path}array.", False))
