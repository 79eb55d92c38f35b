"""Values of a schema registry's API: schemas, versions, configs and data contracts, from and to its JSON.

A field is written by its name in camelCase unless its declaration has another one; None is left out.
"""

import dataclasses
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from types import NoneType
from typing import Any, Self, get_args, get_origin, get_type_hints


class _Text(str, Enum):  # noqa: UP042  (as in confluent-kafka)
    """Enumeration of texts."""

    def __str__(self) -> str:
        return str(self.value)


class RuleKind(_Text):
    """Kind of a rule."""

    CONDITION = "CONDITION"
    TRANSFORM = "TRANSFORM"


class RuleMode(_Text):
    """Direction in which a rule applies."""

    UPGRADE = "UPGRADE"
    DOWNGRADE = "DOWNGRADE"
    UPDOWN = "UPDOWN"
    READ = "READ"
    WRITE = "WRITE"
    WRITEREAD = "WRITEREAD"


class ConfigCompatibilityLevel(_Text):
    """Compatibility level of a subject."""

    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"
    NONE = "NONE"


@cache
def _kinds(document: type[Any]) -> dict[str, tuple[Any, bool]]:
    """Return the class of each field's value, None for plain JSON, and whether it is in a list."""
    kinds = {}
    for name, hint in get_type_hints(document).items():
        inner = next(kind for kind in (*get_args(hint), hint) if kind is not NoneType)
        item = get_args(inner)[0] if get_origin(inner) is list else inner
        is_ours = isinstance(item, type) and issubclass(item, _Document | _Map | Enum)
        kinds[name] = item if is_ours else None, get_origin(inner) is list and is_ours
    return kinds


def _json_name(declared: "dataclasses.Field[Any]") -> str:
    first, *others = declared.name.split("_")
    return declared.metadata.get("name") or first + "".join(word.capitalize() for word in others)


def _to_json(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return value.to_dict() if isinstance(value, _Document | _Map) else value


def _from_json(value: Any, kind: Any) -> Any:
    if value is None or kind is None:
        return value
    if issubclass(kind, Enum):
        return kind(value)
    if not isinstance(value, dict):
        raise TypeError(f"a {kind.__name__} is an object, not {type(value).__name__}")
    return kind.from_dict(value)


class _Document:
    """Base of values with fields."""

    def to_dict(self) -> dict[str, Any]:
        """Return the value as JSON, without fields that are None."""
        rows = ((_json_name(declared), getattr(self, declared.name)) for declared in dataclasses.fields(self))  # type: ignore[arg-type]  # each is a dataclass
        return {name: _to_json(value) for name, value in rows if value is not None}

    @classmethod
    def from_dict(cls, src_dict: dict[str, Any]) -> Self:
        """Return the value of JSON. Raises TypeError, ValueError."""
        values: dict[str, Any] = {}
        for declared in dataclasses.fields(cls):  # type: ignore[arg-type]  # each is a dataclass
            value, (kind, is_list) = src_dict.get(_json_name(declared)), _kinds(cls)[declared.name]  # type: ignore[arg-type]  # a class can be hashed
            if is_list or declared.metadata.get("is_list"):
                values[declared.name] = [_from_json(item, kind) for item in value or ()]
            elif value is not None or declared.default is dataclasses.MISSING:
                values[declared.name] = _from_json(value, kind)
        return cls(**values)


class _Map:
    """Base of values with one dictionary."""

    def to_dict(self) -> dict[str, Any]:
        """Return a copy of the dictionary."""
        return dict(next(iter(vars(self).values())))

    @classmethod
    def from_dict(cls, src_dict: dict[str, Any]) -> Self:
        """Return the value of a dictionary."""
        return cls(dict(src_dict))  # type: ignore[call-arg]  # each is a dataclass of one field

    def __hash__(self) -> int:
        return hash(frozenset((name, str(value)) for name, value in self.to_dict().items()))


@dataclass
class RuleParams(_Map):
    """Parameters of a rule."""

    params: dict[str, str] = field(default_factory=dict)
    __hash__ = _Map.__hash__


@dataclass
class MetadataTags(_Map):
    """Tags of fields, by path."""

    tags: dict[str, list[str]] = field(default_factory=dict)
    __hash__ = _Map.__hash__


@dataclass
class MetadataProperties(_Map):
    """Properties of a schema."""

    properties: dict[str, str] = field(default_factory=dict)
    __hash__ = _Map.__hash__


@dataclass(frozen=True)
class Rule(_Document):
    """Rule of a data contract."""

    name: str | None
    doc: str | None
    kind: RuleKind | None
    mode: RuleMode | None
    type: str | None
    tags: list[str] | None = field(hash=False)
    params: RuleParams | None
    expr: str | None
    on_success: str | None
    on_failure: str | None
    disabled: bool | None


@dataclass(unsafe_hash=True)
class RuleSet(_Document):
    """Rules of a data contract."""

    migration_rules: list[Rule] | None = field(hash=False)
    domain_rules: list[Rule] | None = field(hash=False)
    encoding_rules: list[Rule] | None = field(default=None, hash=False)
    enable_at: str | None = None


@dataclass(frozen=True)
class Metadata(_Document):
    """Metadata of a data contract."""

    tags: MetadataTags | None
    properties: MetadataProperties | None
    sensitive: list[str] | None = field(hash=False, metadata={"is_list": True})


@dataclass(frozen=True)
class SchemaVersion(_Document):
    """Version of a subject."""

    subject: str | None
    version: int | None


@dataclass(frozen=True)
class SchemaReference(_Document):
    """Reference of a schema to another one."""

    name: str | None
    subject: str | None
    version: int | None


@dataclass
class ServerConfig(_Document):
    """Config of a subject, or of all."""

    compatibility: ConfigCompatibilityLevel | None = None
    compatibility_level: ConfigCompatibilityLevel | None = None
    compatibility_group: str | None = None
    default_metadata: Metadata | None = None
    override_metadata: Metadata | None = None
    default_rule_set: RuleSet | None = None
    override_rule_set: RuleSet | None = None


@dataclass(frozen=True)
class Schema(_Document):
    """Schema with what it refers to, and its data contract."""

    schema_str: str | None = field(metadata={"name": "schema"})
    schema_type: str | None = "AVRO"
    references: list[SchemaReference] | None = field(default_factory=list, hash=False)
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None


@dataclass(frozen=True)
class RegisteredSchema(_Document):
    """Schema with its id, and the version that it is."""

    subject: str | None
    version: int | None
    schema_id: int | None = field(metadata={"name": "id"})
    guid: str | None
    schema: Schema

    def to_dict(self) -> dict[str, Any]:
        """Return the value as JSON: the fields of the schema are those of the value."""
        row = super().to_dict()
        return {**row.pop("schema"), **row}

    @classmethod
    def from_dict(cls, src_dict: dict[str, Any]) -> Self:
        """Return the value of JSON. Raises TypeError, ValueError."""
        row = src_dict
        return cls(row.get("subject"), row.get("version"), row.get("id"), row.get("guid"), Schema.from_dict(row))
