"""Shared base of the serializers of a schema registry: their configs, and Ottla's serializers over a registry client.

Ottla's serializers ask a `ClientSchemas`, which asks the client of the application: it may be a subclass, or one of its own.
"""

import io
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from ottla.compat.confluent_kafka.schema_registry.builders import build_serde as build_serde
from ottla.compat.confluent_kafka.schema_registry.documents import RuleSet, Schema, SchemaReference, _Text
from ottla.compat.confluent_kafka.schema_registry.schema_ids import (
    SchemaId,
    SubjectStrategy,
    dual_schema_id_deserializer,
    pairs,
    prefix_schema_id_serializer,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from ottla.compat.confluent_kafka.serialization import (
    Deserializer,
    SerializationContext,
    SerializationError,
    Serializer,
)
from ottla.compat.missing import stand_ins
from ottla.schemas.context import VALUE
from ottla.schemas.context import SerializationContext as Context
from ottla.schemas.framing import HEAD, BadRecord, header_name, message_indexes, schema_id
from ottla.schemas.registry import PROTOBUF, Reference, Registered, SchemaRegistry
from ottla.schemas.registry import Schema as ClientSchema


class SubjectNameStrategyType(_Text):
    """Name of a function from contexts to subjects."""

    def __repr__(self) -> str:
        return f"SubjectNameStrategyType.{self.name}"

    NONE = "NONE"
    TOPIC = "TOPIC"
    RECORD = "RECORD"
    TOPIC_RECORD = "TOPIC_RECORD"
    ASSOCIATED = "ASSOCIATED"


STRATEGY_TYPE_MAP: Final[dict[SubjectNameStrategyType, SubjectStrategy]] = {
    SubjectNameStrategyType.TOPIC: topic_subject_name_strategy,
    SubjectNameStrategyType.RECORD: record_subject_name_strategy,
    SubjectNameStrategyType.TOPIC_RECORD: topic_record_subject_name_strategy,
}


class _UnfitValue(SerializationError, ValueError):
    """A value does not fit its schema: confluent-kafka raises the one or the other."""


class _Config(NamedTuple):
    """Type and default of a config; `kind` is its name in errors."""

    accepts: tuple[type, ...]
    default: Any
    kind: str


def switch(default: bool) -> _Config:
    """Declare a config that is true or false."""
    return _Config((bool,), default, "a boolean value")


_NONE: Final = type(None)
_SHARED: Final = {
    "use.latest.version": switch(False),
    "use.latest.with.metadata": _Config((dict, _NONE), None, "a dict value"),
    "subject.name.strategy.type": _Config((object,), None, ""),
    "subject.name.strategy.conf": _Config((object,), None, ""),
}
_OF_SERIALIZERS: Final = {
    **_SHARED,
    "auto.register.schemas": switch(True),
    "normalize.schemas": switch(False),
    "use.schema.id": _Config((int, _NONE), None, "an int value"),
}
_FUNCTIONS: Final = {
    "subject.name.strategy": None,
    "schema.id.serializer": prefix_schema_id_serializer,
    "schema.id.deserializer": dual_schema_id_deserializer,
}


def _settings(
    table: Mapping[str, _Config], functions: Mapping[str, Any], conf: dict[str, Any] | None
) -> dict[str, Any]:
    """Return all configs with their values. Raises ValueError with the texts of confluent-kafka."""
    values = {**{name: row.default for name, row in table.items()}, **functions, **(conf or {})}
    for name, row in table.items():
        if not isinstance(values[name], row.accepts):
            raise ValueError(f"{name} must be {row.kind}")
    for name in functions:
        if not callable(values[name]) and not (name == "subject.name.strategy" and values[name] is None):
            raise ValueError(f"{name} must be callable")
    if values["use.latest.version"] and "auto.register.schemas" in table and values["auto.register.schemas"]:
        raise ValueError("cannot enable both use.latest.version and auto.register.schemas")
    return values


def _check_names(values: Mapping[str, Any], *tables: Mapping[str, Any]) -> None:
    """Raise ValueError for configs that are in no table."""
    unknown = [name for name in values if not any(name in table for table in tables)]
    if unknown:
        raise ValueError(f"Unrecognized properties: {', '.join(unknown)}")


def _strategy(values: Mapping[str, Any]) -> SubjectStrategy:
    """Return the function from contexts to subjects. Raises ValueError."""
    if values["subject.name.strategy"] is not None:
        chosen: SubjectStrategy = values["subject.name.strategy"]
        return chosen
    name = values["subject.name.strategy.type"]
    if name is None:
        return topic_subject_name_strategy
    if not isinstance(name, str):
        raise ValueError(f"Unknown subject.name.strategy.type: {name}")
    known = [str(kind) for kind in SubjectNameStrategyType]
    if name.upper() not in known:
        raise ValueError(f"Invalid subject.name.strategy.type: {name}. Valid values are: {known}")
    kind = SubjectNameStrategyType(name.upper())
    if kind is SubjectNameStrategyType.NONE:
        raise ValueError(
            f"Invalid subject.name.strategy.type: {kind!r}. NONE cannot be used as a subject name strategy."
        )
    if kind not in STRATEGY_TYPE_MAP:
        raise ValueError(f"subject.name.strategy.type {kind} cannot be honoured: ottla.compat has no associations")
    return STRATEGY_TYPE_MAP[kind]


class ClientSchemas(SchemaRegistry):
    """Schemas of a client of the application, for Ottla's serializers.

    client     client of a registry
    normalize  whether schemas are normalized before they are compared
    metadata   properties of the latest version to use
    """

    def __init__(self, client: Any, *, normalize: bool = False, metadata: dict[str, str] | None = None) -> None:
        super().__init__(location="")
        vars(self).update(client=client, normalize=normalize, metadata=metadata, known={}, guids={})

    client: Any
    normalize: bool
    metadata: dict[str, str] | None
    known: dict[ClientSchema, Schema]
    guids: dict[int, str | None]

    def of(self, schema: Schema, kind: str) -> ClientSchema:
        """Convert a schema of the application, whose data contract is kept for its registration."""
        rows = schema.references or ()
        references = tuple(Reference(str(row.name), str(row.subject), int(row.version or 0)) for row in rows)
        converted = ClientSchema(kind, str(schema.schema_str), references)
        self.known[converted] = schema
        return converted

    def _theirs(self, schema: ClientSchema) -> Schema:
        references = [SchemaReference(*reference) for reference in schema.references]
        return self.known.get(schema) or Schema(schema.text, schema.kind, references)

    def _ours(self, schema: Schema) -> ClientSchema:
        """Convert a schema of the registry. Raises SerializationError for rules, which would have to be executed."""
        if schema.rule_set is not None and _names_of_rules(schema.rule_set):
            names = ", ".join(_names_of_rules(schema.rule_set))
            raise SerializationError(f"the schema has rules, which ottla.compat does not execute: {names}")
        return self.of(schema, schema.schema_type or "AVRO")

    def _to_registered(self, row: Any) -> Registered:
        self.guids[row.schema_id] = row.guid
        return Registered(row.schema_id, self._ours(row.schema))

    def by_id(self, number: int) -> ClientSchema:
        """Return the schema of an id."""
        return self._ours(self.client.get_schema(number))

    def by_guid(self, guid: str) -> ClientSchema:
        """Return the schema of a GUID."""
        return self._ours(self.client.get_schema_by_guid(guid))

    def guid_of(self, number: int) -> str:
        """Return the GUID of an id that was registered or looked up. Raises SerializationError without one."""
        guid = self.guids.get(number) or getattr(self.client, "_by_id", lambda _: SchemaId(""))(number).guid
        if guid is None:
            raise SerializationError("Schema GUID is not set")
        return str(guid)

    def latest(self, subject: str) -> Registered:
        """Return the latest version of a subject, with the properties that are configured."""
        if self.metadata is None:
            return self._to_registered(self.client.get_latest_version(subject))
        return self._to_registered(self.client.get_latest_with_metadata(subject, self.metadata))

    def version(self, subject: str, number: int) -> Registered:
        """Return a version of a subject, a deleted one, too."""
        return self._to_registered(self.client.get_version(subject, number, True))

    def register(self, subject: str, schema: ClientSchema) -> int:
        """Register a schema; return its id."""
        row = self.client.register_schema_full_response(subject, self._theirs(schema), normalize_schemas=self.normalize)
        self.guids[row.schema_id] = row.guid
        return int(row.schema_id)

    def look_up(self, subject: str, schema: ClientSchema) -> int:
        """Return the id of a schema in a subject."""
        return int(self._look_up(subject, schema).schema_id)

    def version_of(self, subject: str, schema: ClientSchema) -> int:
        """Return the version of a schema in a subject."""
        return int(self._look_up(subject, schema).version)

    def _look_up(self, subject: str, schema: ClientSchema) -> Any:
        row = self.client.lookup_schema(subject, self._theirs(schema), normalize_schemas=self.normalize)
        self.guids[row.schema_id] = row.guid
        return row


def _names_of_rules(rules: RuleSet) -> list[str]:
    every = [*(rules.migration_rules or ()), *(rules.domain_rules or ()), *(rules.encoding_rules or ())]
    return [str(rule.name) for rule in every if not rule.disabled]


def _check_rules(rule_registry: Any) -> None:
    if rule_registry is not None:
        raise ValueError("rule_registry cannot be honoured: ottla.compat does not execute rules")


class BaseSerializer(Serializer):
    """Serializer over one of Ottla's.

    kind     type of its schemas
    configs  configs that others do not have
    """

    kind: ClassVar[str]
    configs: ClassVar[dict[str, _Config]] = {}
    functions: ClassVar[dict[str, Any]] = {}

    def __init__(self, client: Any, schema: Any, to_dict: Any, conf: dict[str, Any] | None, rule_registry: Any) -> None:
        _check_rules(rule_registry)
        if to_dict is not None and not callable(to_dict):
            raise ValueError("to_dict must be callable with the signature to_dict(object, SerializationContext)->dict")
        functions = {name: _FUNCTIONS[name] for name in ("subject.name.strategy", "schema.id.serializer")}
        values = _settings({**_OF_SERIALIZERS, **self.configs}, {**functions, **self.functions}, conf)
        _check_names(values, _OF_SERIALIZERS, self.configs, functions, self.functions)
        metadata = values["use.latest.with.metadata"]
        self._strategy = _strategy(values)
        self._to_dict = to_dict
        self._place: Callable[[bytes, Any, SchemaId], bytes] = values["schema.id.serializer"]
        self._schemas = ClientSchemas(client, normalize=values["normalize.schemas"], metadata=metadata)
        self._name: str | None = None
        self._inner = self._make(
            self._schemas.of(schema, self.kind) if isinstance(schema, Schema) else schema,
            values,
            auto_register_schemas=values["auto.register.schemas"],
            use_latest_version=values["use.latest.version"] or metadata is not None,
            use_schema_id=values["use.schema.id"],
            subject_name_strategy=self._subject,
        )
        self._name = self._record_name()

    def _make(self, schema: Any, values: dict[str, Any], **options: Any) -> Any:
        """Return Ottla's serializer."""
        raise NotImplementedError

    def _record_name(self) -> str | None:
        """Return the name of the record, for strategies."""
        name: str | None = self._inner._name()
        return name

    def _subject(self, ctx: Any, name: str | None) -> str:
        subject = self._strategy(ctx, name if self._name is None else self._name)
        if subject is None:
            raise SerializationError("the schema has no name, which this subject name strategy needs")
        return subject

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """Return the bytes of an object with its schema, None for None. Raises SerializationError, SchemaRegistryError."""
        if obj is None:
            return None
        if self._to_dict is not None:
            if ctx is None:
                raise TypeError("SerializationContext cannot be None")
            obj = self._to_dict(obj, ctx)
        try:
            frame: bytes = self._inner(obj, ctx)
        except BadRecord as error:
            raise _UnfitValue(str(error)) from error
        if self._place is prefix_schema_id_serializer:
            return frame
        number, start, indexes = schema_id(frame), HEAD, None
        if self.kind == PROTOBUF:
            path, start = message_indexes(frame)
            indexes = list(path)
        identity = SchemaId(self.kind, number, self._schemas.guid_of(number), indexes)
        return self._place(frame[start:], ctx, identity)

    def close(self) -> None:
        """Do nothing."""


class BaseDeserializer(Deserializer):
    """Deserializer over Ottla's, one for each schema to read with."""

    kind: ClassVar[str]
    configs: ClassVar[dict[str, _Config]] = {}
    checks_names: ClassVar[bool] = True

    def __init__(self, client: Any, from_dict: Any, conf: dict[str, Any] | None, rule_registry: Any) -> None:
        _check_rules(rule_registry)
        if from_dict is not None and not callable(from_dict):
            reason = "from_dict must be callable with the signature from_dict(SerializationContext, dict) -> object"
            raise ValueError(reason)
        functions = {name: _FUNCTIONS[name] for name in ("subject.name.strategy", "schema.id.deserializer")}
        self._values = _settings({**_SHARED, **self.configs}, functions, conf)
        if self.checks_names:
            _check_names(self._values, _SHARED, self.configs, functions)
        metadata = self._values["use.latest.with.metadata"]
        self._reads_latest = self._values["use.latest.version"] or metadata is not None
        self._strategy = _strategy(self._values)
        self._from_dict = from_dict
        self._place: Callable[[bytes, Any, SchemaId], Any] = self._values["schema.id.deserializer"]
        self._schemas = None if client is None else ClientSchemas(client, metadata=metadata)
        self._readers: dict[ClientSchema, Any] = {}

    def _make(self, schema: Any) -> Any:
        """Return Ottla's deserializer with the schema of the reader."""
        raise NotImplementedError

    def _convert_schema(self, schema: Any) -> Any:
        """Return a schema of the application for Ottla's deserializer: a text, a schema, or None. Raises TypeError."""
        if not isinstance(schema, str | Schema | None):
            raise TypeError("You must pass either schema string or schema object")
        if not isinstance(schema, Schema):
            return schema
        return (self._schemas or ClientSchemas(None)).of(schema, self.kind)

    def _reader(self, ctx: SerializationContext | None) -> Any:
        """Return the deserializer for a value: with the latest version of its subject if that is configured."""
        if not self._reads_latest or self._schemas is None or ctx is None:
            return self._own
        schema = self._schemas.latest(str(self._strategy(ctx, None))).schema
        if schema not in self._readers:
            self._readers[schema] = self._make(schema)
        return self._readers[schema]

    _own: Any

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """Return the object in bytes, None for None. Raises SerializationError, SchemaRegistryError."""
        if value is None:
            return None
        data, headers = self._frame(value, ctx)
        topic, field = ("", VALUE) if ctx is None else (ctx.topic, ctx.field)
        try:
            decoded = self._reader(ctx)(data, Context(topic, field, headers))
        except BadRecord as error:
            raise _UnfitValue(str(error)) from error
        if self._from_dict is None:
            return decoded
        if ctx is None:
            raise TypeError("SerializationContext cannot be None")
        return self._from_dict(decoded, ctx)

    def _frame(self, value: bytes, ctx: SerializationContext | None) -> tuple[bytes, Any]:
        """Return bytes and headers in which Ottla's deserializer finds the schema."""
        if self._place is dual_schema_id_deserializer:
            return value, None if ctx is None else pairs(ctx.headers)
        identity = SchemaId(self.kind)
        payload = self._place(value, ctx, identity)
        data = payload.read() if isinstance(payload, io.BytesIO) else bytes(payload)
        if identity.guid is None:
            return identity.id_to_bytes() + data, None
        return data, [(header_name(VALUE if ctx is None else ctx.field), identity.guid_to_bytes())]

    def close(self) -> None:
        """Do nothing."""


globals().update(stand_ins(__name__))
