"""Serializers and deserializers of the Confluent wire format, for single values: magic byte, schema id, payload.

The registry is queried once per subject (serializers) or schema id (deserializers), not per value. Output is identical to that
of confluent-kafka's serializers. The libraries of a format (extra `schema`) are imported when its first serializer is created.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from io import BytesIO
from typing import Any, Final

from ottla.schemas.context import SerializationContext
from ottla.schemas.framing import (
    HEAD,
    BadRecord,
    guid_head,
    head,
    header_name,
    header_of,
    indexes_written,
    message_indexes,
    schema_id,
    split_header,
)
from ottla.schemas.registry import AVRO, JSON, PROTOBUF, Reference, Schema, SchemaRegistry, UnsupportedSchema

PREFIX: Final = "prefix"
HEADER: Final = "header"
"""Places of the schema: before the payload, or in a header of the record."""
Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]
SubjectStrategy = Callable[[SerializationContext, str | None], str]
_BAD_BYTES: Final = (ArithmeticError, EOFError, LookupError, TypeError, ValueError, AttributeError, MemoryError)


def topic_subject(context: SerializationContext, name: str | None) -> str:
    """Return a subject such as "orders-value" (default strategy)."""
    del name
    return f"{context.topic}-{context.field}"


def record_subject(context: SerializationContext, name: str | None) -> str:
    """Return the name of the schema, such as "shop.Order". Raises UnsupportedSchema for a schema without a name."""
    del context
    return _require_name(name)


def topic_record_subject(context: SerializationContext, name: str | None) -> str:
    """Return a subject such as "orders-shop.Order". Raises UnsupportedSchema for a schema without a name."""
    return f"{context.topic}-{_require_name(name)}"


def _require_name(name: str | None) -> str:
    if name is None:
        raise UnsupportedSchema("the schema has no name, which this subject name strategy needs")
    return name


def _registry(registry: SchemaRegistry | str) -> SchemaRegistry:
    return SchemaRegistry(location=registry) if isinstance(registry, str) else registry


def _texts(registry: SchemaRegistry | None, schema: Schema) -> dict[str, str]:
    """Return the texts of the referenced schemas, by name."""
    if registry is None or not schema.references:
        return {}
    return {name: other.text for name, other in registry.referred(schema).items()}


class _RegistrySerializer(ABC):
    """Shared base of the serializers: the schema and the id of each subject."""

    kind: str

    def __init__(
        self,
        registry: SchemaRegistry | str,
        schema: Schema | None,
        to_dict: Callable[[Any, SerializationContext], Any] | None = None,
        *,
        auto_register_schemas: bool = True,
        normalize_schemas: bool = False,
        use_latest_version: bool = False,
        use_schema_id: int | None = None,
        subject_name_strategy: SubjectStrategy = topic_subject,
        schema_id_in: str = PREFIX,
    ) -> None:
        if schema_id_in not in (PREFIX, HEADER):
            raise ValueError(f"schema_id_in must be {PREFIX!r} or {HEADER!r}, not {schema_id_in!r}")
        if schema is None and not use_latest_version and use_schema_id is None:
            raise ValueError("no schema: pass one, or use_latest_version=True, or use_schema_id")
        self._registry = _registry(registry)
        if normalize_schemas:
            self._registry = replace(self._registry, normalize=True)
        self._schema = schema
        self._to_dict = to_dict
        self._auto_register = auto_register_schemas
        self._use_latest = use_latest_version
        self._use_id = use_schema_id
        self._strategy = subject_name_strategy
        self._in_header = schema_id_in == HEADER
        self._indexes = b""
        self._by_subject: dict[str, tuple[bytes, Encode]] = {}
        if schema is not None:
            # Raise for an invalid schema here, not at the first record.
            self._encoder(schema)

    def __call__(self, value: Any, context: SerializationContext) -> bytes | None:
        """Encode a value in the wire format, None as None.

        Raises BadRecord for a value that does not fit the schema; RegistryError, SchemaNotFound, UnsupportedSchema.
        """
        if value is None:
            return None
        subject = self._strategy(context, self._name())
        known = self._by_subject.get(subject)
        if known is None:
            known = self._by_subject[subject] = self._look_up(subject)
        start, encode = known
        payload = encode(value if self._to_dict is None else self._to_dict(value, context))
        if not self._in_header:
            return start + payload
        if not isinstance(context.headers, list):
            raise TypeError("schema_id_in='header' needs the headers of the record as a list in the context")
        context.headers.append((header_name(context.field), start + self._indexes))
        return payload[len(self._indexes) :]

    def _look_up(self, subject: str) -> tuple[bytes, Encode]:
        """Return the frame header and the encoder of a subject's values; queries the registry."""
        if self._use_id is not None:
            number, schema = self._use_id, self._registry.by_id(self._use_id)
        elif self._use_latest:
            number, schema = self._registry.latest(subject)
        else:
            assert self._schema is not None
            schema = self._own_schema(self._schema)
            number = (self._registry.register if self._auto_register else self._registry.look_up)(subject, schema)
        if schema.kind != self.kind:
            raise UnsupportedSchema(f"schema id {number} is {schema.kind}, not {self.kind}")
        start = guid_head(self._registry.guid_of(number)) if self._in_header else head(number)
        return start, self._encoder(schema)

    def _own_schema(self, schema: Schema) -> Schema:
        return schema

    @abstractmethod
    def _name(self) -> str | None:
        """Return the full name of the record type, for subject name strategies; None without a name."""

    @abstractmethod
    def _encoder(self, schema: Schema) -> Encode:
        """Return a function that encodes a value and raises BadRecord. Raises UnsupportedSchema."""


class AvroSerializer(_RegistrySerializer):
    """Serializer to Avro, of dicts and other values of fastavro (datetime, Decimal, UUID for logical types).

    registry    address of a Schema Registry, a directory, or a SchemaRegistry
    schema_str  the schema as JSON text, or a Schema with references; None with use_latest_version or use_schema_id
    to_dict     (object, context) -> value to encode

    Options, by the names of Confluent's configs: auto_register_schemas (True), normalize_schemas, use_latest_version,
    use_schema_id, subject_name_strategy (`topic_subject`). schema_id_in="header" writes the schema's GUID into a header of the
    record, and the payload without a prefix. strict=True rejects values with other fields than the schema's,
    strict_allow_default=True those that lack a field without a default, too. Raises UnsupportedSchema.
    """

    kind = AVRO

    def __init__(
        self,
        registry: SchemaRegistry | str,
        schema_str: str | Schema | None = None,
        to_dict: Callable[[Any, SerializationContext], Any] | None = None,
        *,
        strict: bool = False,
        strict_allow_default: bool = False,
        **options: Any,
    ) -> None:
        self._strict = {"strict": strict, "strict_allow_default": strict_allow_default}
        super().__init__(registry, _schema_of(schema_str, AVRO), to_dict, **options)

    def _name(self) -> str | None:
        if self._schema is None:
            return None
        schema = json.loads(self._schema.text)
        if not isinstance(schema, dict) or "name" not in schema:
            return None
        space = schema.get("namespace")
        return f"{space}.{schema['name']}" if space and "." not in schema["name"] else str(schema["name"])

    def _encoder(self, schema: Schema) -> Encode:
        import fastavro

        parsed = _parse_avro(schema, self._registry)
        if _is_plain_bytes(parsed):
            return _bytes_of
        strict = self._strict

        def encode(value: Any) -> bytes:
            payload = BytesIO()
            try:
                fastavro.schemaless_writer(payload, parsed, value, **strict)
            except _BAD_BYTES as wrong:
                raise BadRecord(f"does not fit its Avro schema: {wrong or type(wrong).__name__}") from None
            return payload.getvalue()

        return encode


class JSONSerializer(_RegistrySerializer):
    """Serializer to JSON text, validated against its JSON Schema unless validate=False.

    Arguments are those of AvroSerializer; `to_dict` returns a value for `json.dumps`, or for the function `encode`, which
    returns the text. Raises UnsupportedSchema.
    """

    kind = JSON

    def __init__(
        self,
        registry: SchemaRegistry | str,
        schema_str: str | Schema | None = None,
        to_dict: Callable[[Any, SerializationContext], Any] | None = None,
        *,
        validate: bool = True,
        encode: Callable[[Any], str | bytes] | None = None,
        **options: Any,
    ) -> None:
        self._validate = validate
        self._encode = encode
        super().__init__(registry, _schema_of(schema_str, JSON), to_dict, **options)

    def _name(self) -> str | None:
        title = None if self._schema is None else json.loads(self._schema.text).get("title")
        return None if title is None else str(title)

    def _encoder(self, schema: Schema) -> Encode:
        from ottla.schemas.json_schema import JsonDocument, json_payload

        document = JsonDocument(schema.text, _texts(self._registry, schema))
        check, to_text = document.checker() if self._validate else None, self._encode or json_payload

        def encode(value: Any) -> bytes:
            if check is not None:
                check(value)
            text = to_text(value)
            return text.encode() if isinstance(text, str) else text

        return encode


class ProtobufSerializer(_RegistrySerializer):
    """Serializer of messages of a generated Protobuf class.

    message_type  the class
    registry      address of a Schema Registry, a directory, or a SchemaRegistry

    Options are those of AvroSerializer. The schema is the file of the message, registered together with its imports (each under
    its own name, or what `reference_subject` returns for its file), without files of the Protobuf library.
    """

    kind = PROTOBUF

    def __init__(
        self,
        message_type: type[Any],
        registry: SchemaRegistry | str,
        *,
        reference_subject: Callable[[Any], str] = lambda file: str(file.name),
        **options: Any,
    ) -> None:
        from ottla.schemas.protobuf import in_base64_of

        self._class = message_type
        self._reference_subject = reference_subject
        self._descriptor: Any = message_type.DESCRIPTOR
        super().__init__(registry, Schema(PROTOBUF, in_base64_of(self._descriptor.file)), **options)
        self._indexes = indexes_written(_indexes(self._descriptor))

    def _name(self) -> str | None:
        return str(self._descriptor.full_name)

    def _own_schema(self, schema: Schema) -> Schema:
        return schema._replace(references=self._references(self._descriptor.file))

    def _references(self, file: Any) -> tuple[Reference, ...]:
        """Return references to the imports of a .proto file, each registered first, or looked up."""
        from ottla.schemas.protobuf import OWN_FILES, in_base64_of

        references = []
        for other in file.dependencies:
            if other.name.startswith(OWN_FILES):
                continue
            schema, subject = (
                Schema(PROTOBUF, in_base64_of(other), self._references(other)),
                self._reference_subject(other),
            )
            if self._auto_register:
                self._registry.register(subject, schema)
            references.append(Reference(other.name, subject, self._registry.version_of(subject, schema)))
        return tuple(references)

    def _encoder(self, schema: Schema) -> Encode:
        from google.protobuf.message import EncodeError

        del schema
        kind, indexes, name = self._class, indexes_written(_indexes(self._descriptor)), self._descriptor.full_name

        def encode(value: Any) -> bytes:
            if not isinstance(value, kind):
                raise BadRecord(f"a {type(value).__name__} is not a message {name}")
            try:
                return indexes + bytes(value.SerializeToString())
            except EncodeError as wrong:
                raise BadRecord(f"does not fit message {name}: {wrong}") from None

        return encode


class _RegistryDeserializer(ABC):
    """Shared base of the deserializers: a decoder for each schema id."""

    kind: str

    def __init__(
        self, registry: SchemaRegistry | str | None, from_dict: Callable[[Any, SerializationContext], Any] | None
    ) -> None:
        self._registry = None if registry is None else _registry(registry)
        self._from_dict = from_dict
        self._by_id: dict[int | str, Decode] = {}

    def __call__(self, data: bytes | None, context: SerializationContext) -> Any:
        """Decode bytes in the wire format, None as None.

        Raises BadRecord for other bytes; RegistryError, SchemaNotFound, UnsupportedSchema.
        """
        if data is None:
            return None
        header = header_of(context.headers, context.field) if context.headers else None
        number: int | str
        if header is None:
            number = schema_id(data)
        else:
            number, indexes = split_header(header)
            data = bytes(HEAD) + indexes + data  # the decoders begin after a frame
        decode = self._by_id.get(number)
        if decode is None:
            decode = self._by_id[number] = self._decoder(number)
        value = decode(data)
        return value if self._from_dict is None else self._from_dict(value, context)

    def _writer_schema(self, number: int | str) -> Schema | None:
        """Return the schema of an id or GUID, None without a registry. Raises BadRecord for a schema of another kind."""
        if self._registry is None:
            return None
        schema = self._registry.by_guid(number) if isinstance(number, str) else self._registry.by_id(number)
        if schema.kind != self.kind:
            raise BadRecord(f"schema id {number} is {schema.kind}, not {self.kind}")
        return schema

    @abstractmethod
    def _decoder(self, number: int | str) -> Decode:
        """Return a function that decodes payloads of an id or GUID, after HEAD bytes, and raises BadRecord."""


class AvroDeserializer(_RegistryDeserializer):
    """Deserializer of Avro, resolved from the writer's schema to `schema_str` if that is set.

    registry    as for AvroSerializer
    schema_str  the reader's schema
    from_dict   (value, context) -> object

    logical_types=False returns dates, times and decimals as the numbers and bytes that they are stored as.
    return_record_name=True returns a record of a union as a pair of its name and the record.
    """

    kind = AVRO

    def __init__(
        self,
        registry: SchemaRegistry | str,
        schema_str: str | Schema | None = None,
        from_dict: Callable[[Any, SerializationContext], Any] | None = None,
        *,
        logical_types: bool = True,
        return_record_name: bool = False,
    ) -> None:
        super().__init__(registry, from_dict)
        self._logical_types = logical_types
        self._return_record_name = return_record_name
        reader = _schema_of(schema_str, AVRO)
        self._reader = None if reader is None else _parse_avro(reader, self._registry)

    def _decoder(self, number: int | str) -> Decode:
        import fastavro
        from fastavro.read import SchemaResolutionError

        from ottla.schemas.avro import whole
        from ottla.schemas.avro_payload import payload_check

        schema, reader = self._writer_schema(number), self._reader
        assert schema is not None
        writer = _parse_avro(schema, self._registry, logical_types=self._logical_types)
        if _is_plain_bytes(writer):
            return lambda data: data[HEAD:]
        check, named = payload_check(whole(schema.text, _texts(self._registry, schema))), self._return_record_name

        def decode(data: bytes) -> Any:
            if check is not None:
                check(data, HEAD)
            payload = BytesIO(data)
            payload.seek(HEAD)
            try:
                return fastavro.schemaless_reader(payload, writer, reader, return_record_name=named)
            except (*_BAD_BYTES, SchemaResolutionError) as wrong:
                raise BadRecord(f"malformed Avro payload: {wrong or type(wrong).__name__}") from None

        return decode


class JSONDeserializer(_RegistryDeserializer):
    """Deserializer of JSON text, validated against `schema_str`, or the writer's schema, unless validate=False.

    schema_str  the reader's schema; without it validation needs a registry
    registry    as for AvroSerializer; without it schema ids are ignored
    from_dict   (value, context) -> object
    decode      function that parses the text, `json.loads` by default
    """

    kind = JSON

    def __init__(
        self,
        schema_str: str | Schema | None = None,
        *,
        registry: SchemaRegistry | str | None = None,
        from_dict: Callable[[Any, SerializationContext], Any] | None = None,
        validate: bool = True,
        decode: Callable[[bytes], Any] = json.loads,
    ) -> None:
        super().__init__(registry, from_dict)
        self._reader = _schema_of(schema_str, JSON)
        self._validate = validate
        self._parse = decode
        if validate and self._reader is None and registry is None:
            raise ValueError("no schema: pass one, or a registry, or validate=False")

    def _decoder(self, number: int | str) -> Decode:
        from ottla.schemas.json_schema import JsonDocument

        schema = self._writer_schema(number)
        schema = self._reader or schema
        check, parse = None, self._parse
        if self._validate and schema is not None:
            check = JsonDocument(schema.text, _texts(self._registry, schema)).checker()

        def decode(data: bytes) -> Any:
            try:
                value = parse(data[HEAD:])
            except (ValueError, RecursionError) as wrong:
                raise BadRecord(f"not JSON: {wrong}") from None
            if check is not None:
                check(value)
            return value

        return decode


class ProtobufDeserializer(_RegistryDeserializer):
    """Deserializer of messages of a generated Protobuf class.

    message_type  the class
    registry      as for AvroSerializer; with it values of another message are rejected
    """

    kind = PROTOBUF

    def __init__(self, message_type: type[Any], *, registry: SchemaRegistry | str | None = None) -> None:
        super().__init__(registry, None)
        self._class: Any = message_type

    def _decoder(self, number: int | str) -> Decode:
        from google.protobuf.message import DecodeError

        from ottla.schemas.protobuf import file_of, messages_of

        schema, parse, own = self._writer_schema(number), self._class.FromString, self._class.DESCRIPTOR.full_name
        names: Mapping[tuple[int, ...], str] | None = None
        if schema is not None:
            names = messages_of(file_of(schema.text, _texts(self._registry, schema)))

        def decode(data: bytes) -> Any:
            indexes, at = message_indexes(data)
            if names is not None and names.get(indexes) != own:
                raise BadRecord(f"holds {names.get(indexes) or 'no message'} at indexes {list(indexes)}, not {own}")
            try:
                return parse(data[at:])
            except DecodeError as wrong:
                raise BadRecord(f"malformed Protobuf message {own}: {wrong}") from None

        return decode


def _schema_of(schema: str | Schema | None, kind: str) -> Schema | None:
    """Return a schema of a text; a primitive Avro type may be unquoted, as in Confluent's serializers."""
    if not isinstance(schema, str):
        return schema
    text = schema.strip()
    if kind == AVRO and text[:1] not in ("{", "[", '"'):
        text = json.dumps({"type": text}, separators=(",", ":"))
    return Schema(kind, text)


def _parse_avro(schema: Schema, registry: SchemaRegistry | None, *, logical_types: bool = True) -> Any:
    """Return a schema as parsed by fastavro. Raises UnsupportedSchema."""
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType

    from ottla.schemas.avro import whole

    try:
        document = whole(schema.text, _texts(registry, schema))
        return fastavro.parse_schema(document if logical_types else _without_logical_types(document))
    except (SchemaParseException, UnknownType, LookupError, TypeError) as wrong:
        raise UnsupportedSchema(f"not an Avro schema: {wrong}") from None


def _is_plain_bytes(parsed: Any) -> bool:
    """Return whether a schema is that of bytes alone, which are written as they are, as Confluent's serializers do."""
    return parsed == "bytes" or (isinstance(parsed, dict) and parsed["type"] == "bytes" and "logicalType" not in parsed)


def _bytes_of(value: Any) -> bytes:
    """Return bytes as they are, and a text in UTF-8. Raises BadRecord."""
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes | bytearray | memoryview):
        raise BadRecord(f"does not fit its Avro schema: a {type(value).__name__} is not bytes")
    return bytes(value)


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(branch) for branch in schema]
    if isinstance(schema, dict):
        return {name: _without_logical_types(value) for name, value in schema.items() if name != "logicalType"}
    return schema


def _indexes(descriptor: Any) -> tuple[int, ...]:
    """Return the indexes of a message: its position in each enclosing message, from the file down."""
    around = descriptor.containing_type
    if around is None:
        return (list(descriptor.file.message_types_by_name).index(descriptor.name),)
    return (*_indexes(around), [inner.name for inner in around.nested_types].index(descriptor.name))
