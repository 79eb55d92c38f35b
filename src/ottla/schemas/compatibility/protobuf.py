"""Compatibility of Protobuf schemas by the rules of Confluent's registry.

Messages are compared by name, their fields by number. A type of another file is compared where a field uses it, unless it is
the same in both schemas. Types are grouped by what they look like in a record: a varint of one type is read as another one.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from ottla.schemas.budget import Budget
from ottla.schemas.compatibility.incompatibility import Incompatibility
from ottla.schemas.protobuf import file_of

__all__ = ["field_names", "incompatibilities", "parse"]
_GROUPS: Final = {
    **dict.fromkeys(("INT32", "INT64", "UINT32", "UINT64", "BOOL", "ENUM"), "number"),
    **dict.fromkeys(("SINT32", "SINT64"), "signed number"),
    **dict.fromkeys(("STRING", "BYTES"), "text"),
    **dict.fromkeys(("FIXED32", "SFIXED32"), "fixed32"),
    **dict.fromkeys(("FIXED64", "SFIXED64"), "fixed64"),
    "FLOAT": "float",
    "DOUBLE": "double",
}
_SCALARS: Final = {FieldDescriptorProto.Type.Value(f"TYPE_{name}"): group for name, group in _GROUPS.items()}
"""Group by type; types of a group read each other. Those without a group are messages."""
_OPTIONAL: Final = FieldDescriptorProto.LABEL_OPTIONAL
_REQUIRED: Final = FieldDescriptorProto.LABEL_REQUIRED
Found = list[Incompatibility]


class NamedMessage(NamedTuple):
    """A message with the file that declares it; `local` is its name without the package."""

    local: str
    file: Any
    declared: Any


class ProtoFile(NamedTuple):
    """A .proto file and the messages of it and of what it imports, by full name."""

    file: Any
    messages: dict[str, NamedMessage]


def parse(text: str, referred: Mapping[str, str], *, strict: bool = True) -> ProtoFile:
    """Return what protoc makes of a .proto file or a descriptor in base64. Raises UnsupportedSchema.

    referred  texts of imported files by name
    strict    without effect: protoc checks all
    """
    del strict
    messages: dict[str, NamedMessage] = {}
    main = file_of(text, referred)
    seen: dict[str, Any] = {}
    waiting = [main]
    while waiting:
        file = waiting.pop()
        if file.name not in seen:
            seen[file.name] = described = FileDescriptorProto()
            file.CopyToProto(described)
            messages.update(_messages(described))
            waiting += file.dependencies
    return ProtoFile(seen[main.name], messages)


def _messages(file: Any) -> Iterator[tuple[str, NamedMessage]]:
    waiting = [(message.name, message) for message in file.message_type]
    while waiting:
        local, message = waiting.pop()
        yield f"{file.package}.{local}" if file.package else local, NamedMessage(local, file, message)
        waiting += [(f"{local}.{inner.name}", inner) for inner in message.nested_type]


def field_names(schema: ProtoFile) -> set[str]:
    """Return the names of the fields of all messages of a file that are not nested in another one."""
    return {declared.name for message in schema.file.message_type for declared in message.field}


def incompatibilities(reader: ProtoFile, writer: ProtoFile, budget: Budget) -> Found:
    """Return why the reader's schema cannot read what was written with the writer's; empty if it can. Raises TooComplex."""
    comparison = _Comparison(writer, reader, budget)
    changed = writer.file.package != reader.file.package
    reasons = [Incompatibility("PACKAGE_CHANGED", "#/")] if changed else []
    return reasons + comparison.types(writer.file.message_type, reader.file.message_type, ())


class _Field(NamedTuple):
    """A field with the name of its oneof, "" outside of one."""

    oneof: str
    declared: Any


class _Comparison:
    """One comparison of two files."""

    def __init__(self, old: ProtoFile, new: ProtoFile, budget: Budget) -> None:
        self._old = old
        self._new = new
        self._budget = budget
        self._imported: dict[tuple[str, str], Found] = {}

    def types(self, old: Iterable[Any], new: Iterable[Any], path: tuple[str, ...]) -> Found:
        """Compare messages that are declared side by side."""
        after = {message.name: message for message in new if not message.options.map_entry}
        reasons: Found = []
        for message in old:
            self._budget.spend()
            at = (*path, message.name)
            if message.options.map_entry:
                continue
            if message.name in after:
                reasons += self._message(message, after[message.name], at)
            else:
                reasons.append(_at("MESSAGE_REMOVED", at))
        return reasons

    def _message(self, old: Any, new: Any, path: tuple[str, ...]) -> Found:
        before, after = _fields(old), _fields(new)
        reasons = [*_find_merged_oneofs(before, after, path), *_find_removed_from_oneofs(before, after, new, path)]
        for number in sorted({**before, **after}):
            self._budget.spend()
            at = (*path, str(number))
            if number not in after:
                if before[number].declared.label == _REQUIRED:
                    reasons.append(_at("REQUIRED_FIELD_REMOVED", at))
            elif number not in before:
                if after[number].declared.label == _REQUIRED:
                    reasons.append(_at("REQUIRED_FIELD_ADDED", at))
            else:
                oneof = before[number].oneof
                place = (*path, oneof, str(number)) if oneof and oneof == after[number].oneof else at
                reasons += self._field(before[number], after[number], place)
        return reasons + self.types(old.nested_type, new.nested_type, path)

    def _field(self, old: _Field, new: _Field, path: tuple[str, ...]) -> Found:
        reasons = self._type(old.declared, new.declared, path)
        labels = _label(old, self._old), _label(new, self._new)
        group = _SCALARS.get(old.declared.type)
        if not reasons and group not in (None, "text") and None not in labels and labels[0] != labels[1]:
            return [_at("FIELD_NUMERIC_LABEL_CHANGED", path)]
        return reasons

    def _type(self, old: Any, new: Any, path: tuple[str, ...]) -> Found:
        before, after = self._old.messages.get(old.type_name[1:]), self._new.messages.get(new.type_name[1:])
        if _kind(before) != _kind(after):
            return [_at("FIELD_KIND_CHANGED", path)]
        if before is None or after is None:
            return [] if _SCALARS[old.type] == _SCALARS[new.type] else [_at("FIELD_SCALAR_KIND_CHANGED", path)]
        if before.declared.options.map_entry:
            pairs = zip(before.declared.field, after.declared.field, strict=True)
            return [reason for key, value in pairs for reason in self._type(key, value, path)]
        if before.local != after.local:
            return [_at("FIELD_NAMED_TYPE_CHANGED", path)]
        reasons = self._imports(before, after, (old.type_name, new.type_name))
        self._budget.spend(len(reasons))
        return [*reasons, _at("FIELD_NAMED_TYPE_CHANGED", path)] if reasons else []

    def _imports(self, old: NamedMessage, new: NamedMessage, names: tuple[str, str]) -> Found:
        """Compare messages of imported files; those of the files themselves are compared by name."""
        if names not in self._imported:
            self._imported[names] = []  # compatible, while it is compared within itself
            own = old.file.name == self._old.file.name and new.file.name == self._new.file.name
            if not own and old.file != new.file:
                self._imported[names] = self._message(old.declared, new.declared, tuple(old.local.split(".")))
        return self._imported[names]


def _at(kind: str, path: tuple[str, ...]) -> Incompatibility:
    return Incompatibility(kind, f"#/{'/'.join(path)}")


def _kind(message: NamedMessage | None) -> str:
    if message is None:
        return "scalar"
    return "map" if message.declared.options.map_entry else "message"


def _fields(message: DescriptorProto) -> dict[int, _Field]:
    """Return the fields of a message by number. What `optional` makes of a field in proto3 is no oneof."""
    return {
        field.number: _Field(
            message.oneof_decl[field.oneof_index].name
            if field.HasField("oneof_index") and not field.proto3_optional
            else "",
            field,
        )
        for field in message.field
    }


def _label(field: _Field, schema: ProtoFile) -> int | None:
    """Return the label that the text has; None without one, which in proto3 is the usual case."""
    declared = field.declared
    if declared.label != _OPTIONAL or declared.proto3_optional:
        return int(declared.label)
    return _OPTIONAL if schema.file.syntax in ("", "proto2") and not field.oneof else None


def _find_merged_oneofs(
    before: dict[int, _Field], after: dict[int, _Field], path: tuple[str, ...]
) -> Iterator[Incompatibility]:
    """Yield oneofs of fields that could be set together before."""
    for oneof in dict.fromkeys(field.oneof for field in after.values() if field.oneof):
        origins = [before[number].oneof for number, field in after.items() if field.oneof == oneof and number in before]
        alone, oneofs = origins.count(""), len(set(origins) - {""})
        if alone > 1 or (alone == 0 and oneofs > 1):
            yield _at("MULTIPLE_FIELDS_MOVED_TO_ONEOF", (*path, oneof))
        elif alone == 1 and oneofs:
            yield _at("FIELD_MOVED_TO_EXISTING_ONEOF", (*path, oneof))


def _find_removed_from_oneofs(
    before: dict[int, _Field], after: dict[int, _Field], new: DescriptorProto, path: tuple[str, ...]
) -> Iterator[Incompatibility]:
    """Yield fields that are gone from oneofs of which something is left; a oneof may go as a whole."""
    names = {oneof.name for oneof in new.oneof_decl}
    left = {field.oneof for number, field in before.items() if field.oneof and number in after}
    for number, field in sorted(before.items()):
        if field.oneof and number not in after and (field.oneof in names or field.oneof in left):
            yield _at("ONEOF_FIELD_REMOVED", (*path, field.oneof, str(number)))
