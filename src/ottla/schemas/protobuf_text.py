"""Texts of Protobuf schemas, printed from the descriptors of protoc: canonical and normal.

A text has no comments, and one form for what can be written in several ways: names of types are as short as they can be where
they stand, map entries are maps. Messages, enums, extensions and services follow one another, each in their order, so that the
indexes of messages in records stay. The normal text has full names of types, and imports, options and fields in order.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2, message_factory, text_encoding, text_format
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

_TYPES: Final = {number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()}
_LABELS: Final = {number: name.removeprefix("LABEL_").lower() for name, number in FieldDescriptorProto.Label.items()}
_MESSAGE: Final = FieldDescriptorProto.TYPE_MESSAGE
_GROUP: Final = FieldDescriptorProto.TYPE_GROUP
_LAST_NUMBER: Final = (1 << 29) - 1
_LAST_SET_NUMBER: Final = (1 << 31) - 2
_LAST_ENUM: Final = (1 << 31) - 1
_VISIBILITIES: Final = {1: "local ", 2: "export "}


def file_text(file: Any, *, normal: bool = False) -> str:
    """Return the text of a file.

    file    descriptor in a pool with all that it imports, see `protobuf.file_of`
    normal  whether to print the normal text
    """
    return "\n".join([*_Printer(file, normal=normal).lines(), ""])


class _Printer:
    """Prints one file."""

    def __init__(self, file: Any, *, normal: bool) -> None:
        self._file: Any = FileDescriptorProto()
        file.CopyToProto(self._file)
        self._pool = file.pool
        self._normal = normal
        self._types = _type_names(file)
        self._proto3 = self._file.syntax == "proto3"
        self._editions = self._file.syntax == "editions"

    def lines(self) -> Iterator[str]:
        """Yield the lines of the text."""
        file = self._file
        if self._editions:
            yield f'edition = "{descriptor_pb2.Edition.Name(file.edition).removeprefix("EDITION_")}";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        kinds = {**dict.fromkeys(file.public_dependency, "public "), **dict.fromkeys(file.weak_dependency, "weak ")}
        imports = [f"import {kinds.get(index, '')}{_quote(name)};" for index, name in enumerate(file.dependency)]
        imports += [f"import option {_quote(name)};" for name in getattr(file, "option_dependency", ())]
        yield from sorted(imports) if self._normal else imports
        yield from self._options(file.options)
        yield from self._messages(file, file.message_type, file.package)
        for enum in file.enum_type:
            yield from self._enum(enum)
        yield from self._extensions(file.extension, file.message_type, file.package)
        for service in file.service:
            yield from self._service(service)

    def _messages(self, declared: Any, messages: Iterable[Any], scope: str) -> Iterator[str]:
        """Yield the messages of a file or message, but entries of maps and groups, which fields declare.

        Groups of extensions stand where their messages do.
        """
        fields = {field.type_name for field in getattr(declared, "field", ()) if field.type == _GROUP}
        extensions = {field.type_name: field for field in declared.extension if field.type == _GROUP}
        for message in messages:
            name = _inner(scope, message.name)
            if name in extensions:
                yield from self._extension(extensions[name], messages, scope)
            elif not message.options.map_entry and name not in fields:
                yield from self._message(message, scope)

    def _message(self, message: Any, around: str) -> Iterator[str]:
        visibility = _VISIBILITIES.get(getattr(message, "visibility", 0), "")
        yield f"{visibility}message {message.name} {{"
        yield from _indent(self._body(message, _inner(around, message.name)[1:]))
        yield "}"

    def _body(self, message: Any, scope: str) -> Iterator[str]:
        yield from self._options(message.options)
        yield from self._fields(message, scope)
        for reserved in message.reserved_range:
            yield f"reserved {_range(reserved.start, reserved.end - 1, _LAST_NUMBER)};"
        yield from self._reserved_names(message.reserved_name)
        for extension in message.extension_range:
            last = _LAST_SET_NUMBER if message.options.message_set_wire_format else _LAST_NUMBER
            written = _range(extension.start, extension.end - 1, last)
            yield f"extensions {written}{self._in_brackets(self._settings(extension.options))};"
        yield from self._messages(message, message.nested_type, scope)
        for enum in message.enum_type:
            yield from self._enum(enum)
        yield from self._extensions(message.extension, message.nested_type, scope)

    def _fields(self, message: Any, scope: str) -> Iterator[str]:
        fields = sorted(message.field, key=lambda field: field.number) if self._normal else message.field
        printed_oneofs: set[int] = set()
        for field in fields:
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield from self._field(field, message.nested_type, scope)
            elif field.oneof_index not in printed_oneofs:
                printed_oneofs.add(field.oneof_index)
                oneof = message.oneof_decl[field.oneof_index]
                yield f"oneof {oneof.name} {{"
                yield from _indent(self._options(oneof.options))
                for member in fields:
                    if member.HasField("oneof_index") and member.oneof_index == field.oneof_index:
                        yield from _indent(self._field(member, message.nested_type, scope, is_member=True))
                yield "}"

    def _field(self, field: Any, nested: Iterable[Any], scope: str, *, is_member: bool = False) -> Iterator[str]:
        entry = next((message for message in nested if _inner(scope, message.name) == field.type_name), None)
        settings = self._in_brackets([*_own_settings(field), *self._settings(field.options)])
        if entry is not None and entry.options.map_entry and field.type == _MESSAGE:
            key, value = (self._type(part, scope) for part in entry.field)
            yield f"map<{key}, {value}> {field.name} = {field.number}{settings};"
            return
        label = "" if is_member or not self._writes_label(field) else f"{_LABELS[field.label]} "
        if field.type == _GROUP and entry is not None:
            yield f"{label}group {entry.name} = {field.number}{settings} {{"
            yield from _indent(self._body(entry, _inner(scope, entry.name)[1:]))
            yield "}"
            return
        yield f"{label}{self._type(field, scope)} {field.name} = {field.number}{settings};"

    def _writes_label(self, field: Any) -> bool:
        if field.label == FieldDescriptorProto.LABEL_OPTIONAL:
            return bool(field.proto3_optional) or not (self._proto3 or self._editions)
        return True

    def _type(self, field: Any, scope: str) -> str:
        return self._reference(field.type_name, scope) if field.type_name else _TYPES[field.type]

    def _reference(self, name: str, scope: str) -> str:
        """Return a name of a type that leads to it from a scope: the shortest one, or the full name."""
        parts = name[1:].split(".")
        for count in () if self._normal else range(1, len(parts) + 1):
            short = ".".join(parts[-count:])
            if self._resolve(short, scope) == name[1:]:
                return short
        return name

    def _resolve(self, name: str, scope: str) -> str | None:
        """Return the full name that protoc reads: its first part is looked up from the innermost scope outwards."""
        first = name.partition(".")[0]
        while True:
            prefix = f"{scope}." if scope else ""
            if f"{prefix}{first}" in self._types:
                return f"{prefix}{name}"
            if not scope:
                return None
            scope = scope.rpartition(".")[0]

    def _enum(self, enum: Any) -> Iterator[str]:
        yield f"{_VISIBILITIES.get(getattr(enum, 'visibility', 0), '')}enum {enum.name} {{"
        yield from _indent(self._options(enum.options))
        for value in enum.value:
            yield f"  {value.name} = {value.number}{self._in_brackets(self._settings(value.options))};"
        for reserved in enum.reserved_range:
            yield f"  reserved {_range(reserved.start, reserved.end, _LAST_ENUM)};"
        yield from _indent(self._reserved_names(enum.reserved_name))
        yield "}"

    def _reserved_names(self, names: Iterable[str]) -> Iterator[str]:
        for name in names:
            yield f"reserved {name if self._editions else _quote(name)};"

    def _extensions(self, fields: Iterable[Any], nested: Iterable[Any], scope: str) -> Iterator[str]:
        names = {_inner(scope, message.name) for message in nested}
        for field in fields:
            if field.type != _GROUP or field.type_name not in names:
                yield from self._extension(field, nested, scope)

    def _extension(self, field: Any, nested: Iterable[Any], scope: str) -> Iterator[str]:
        yield f"extend {self._reference(field.extendee, scope)} {{"
        yield from _indent(self._field(field, nested, scope))
        yield "}"

    def _service(self, service: Any) -> Iterator[str]:
        yield f"service {service.name} {{"
        yield from _indent(self._options(service.options))
        scope = _inner(self._file.package, service.name)[1:]
        for method in service.method:
            request, response = (self._reference(name, scope) for name in (method.input_type, method.output_type))
            request = f"stream {request}" if method.client_streaming else request
            response = f"stream {response}" if method.server_streaming else response
            options = list(self._options(method.options))
            yield f"  rpc {method.name} ({request}) returns ({response}){' {' if options else ';'}"
            if options:
                yield from _indent(_indent(options))
                yield "  }"
        yield "}"

    def _options(self, options: Any) -> Iterator[str]:
        for setting in self._settings(options):
            yield f"option {setting};"

    def _in_brackets(self, settings: Iterable[str]) -> str:
        written = ", ".join(settings)
        return f" [{written}]" if written else ""

    def _settings(self, options: Any) -> list[str]:
        """Return options as "name = value"; those that the file or its imports declare have their names in parentheses."""
        if not options.ByteSize():
            return []
        try:
            declared = self._pool.FindMessageTypeByName(options.DESCRIPTOR.full_name)
            options = message_factory.GetMessageClass(declared).FromString(options.SerializeToString())
        except KeyError:
            pass  # no file imports descriptor.proto: there are no options but Protobuf's own
        settings = []
        for field, value in options.ListFields():
            name = f"(.{field.full_name})" if field.is_extension else field.name
            repeated = (
                not isinstance(value, str | bytes) and hasattr(value, "__len__") and not hasattr(value, "ListFields")
            )
            settings += [f"{name} = {_value(field, item)}" for item in (value if repeated else [value])]
        return sorted(settings) if self._normal else settings


def _type_names(file: Any) -> set[str]:
    """Return the full names of all types and packages of a file and of what it imports."""
    names: set[str] = set()
    seen: set[str] = set()
    waiting = [file]
    while waiting:
        imported = waiting.pop()
        if imported.name in seen:
            continue
        seen.add(imported.name)
        waiting += imported.dependencies
        described = FileDescriptorProto()
        imported.CopyToProto(described)
        parts = described.package.split(".") if described.package else []
        names.update(".".join(parts[:count]) for count in range(1, len(parts) + 1))
        prefix = f"{described.package}." if described.package else ""
        below = [(f"{prefix}{declared.name}", declared) for declared in described.message_type]
        names.update(f"{prefix}{declared.name}" for declared in (*described.enum_type, *described.service))
        while below:
            name, message = below.pop()
            names.add(name)
            names.update(f"{name}.{enum.name}" for enum in message.enum_type)
            below += [(f"{name}.{inner.name}", inner) for inner in message.nested_type]
    return names


def _inner(scope: str, name: str) -> str:
    """Return the full name of a type, as references to it have it: with a dot in front."""
    return f".{scope}.{name}" if scope else f".{name}"


def _indent(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _range(first: int, last: int, highest: int) -> str:
    return str(first) if first == last else f"{first} to {'max' if last == highest else last}"


def _quote(text: str | bytes) -> str:
    return f'"{text_encoding.CEscape(text, isinstance(text, str))}"'


def _own_settings(field: Any) -> Iterator[str]:
    """Yield settings of a field that are no options: its default and its name in JSON."""
    if field.HasField("default_value"):
        value = field.default_value
        if field.type == FieldDescriptorProto.TYPE_STRING:
            value = _quote(value)
        elif field.type == FieldDescriptorProto.TYPE_BYTES:
            value = f'"{value}"'  # escaped in the descriptor already
        yield f"default = {value}"
    if not field.extendee and field.json_name and field.json_name != _json_name(field.name):
        yield f"json_name = {_quote(field.json_name)}"


def _json_name(name: str) -> str:
    """Return the name in JSON that a field has unless it declares another one."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def _value(field: Any, value: Any) -> str:
    if hasattr(value, "ListFields"):
        return f"{{ {text_format.MessageToString(value, as_one_line=True)} }}"
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quote(value) if isinstance(value, str | bytes) else repr(value)
