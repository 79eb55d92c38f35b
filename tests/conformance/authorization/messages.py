"""Requests from plain values, and answers as plain values: for tables of requests over all APIs."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from ottla.protocol import api
from ottla.protocol.schema import Array, Request, Struct

Fields = Mapping[str, Any]


@cache
def api_named(name: str) -> api.Api:
    """Return the row of the API table."""
    return next(row for row in api.APIS.values() if row.name == name)


def request(name: str, fields: Fields) -> Request:
    """Return the request of an API; lists of structs are lists of mappings. Raises TypeError for an unknown field."""
    built = _struct(api_named(name).request_class(), fields)
    assert isinstance(built, Request)
    return built


def _struct(cls: type[Struct], fields: Fields) -> Struct:
    types = {declared.name: declared.type for declared in cls.FIELDS}
    return cls(**{key: _value(types.get(key), value) for key, value in fields.items()})


def _value(kind: Any, value: Any) -> Any:
    if isinstance(kind, Array) and value is not None:
        return [_value(kind.element, item) for item in value]
    if isinstance(kind, type) and issubclass(kind, Struct) and isinstance(value, Mapping):
        return _struct(kind, value)
    return value


def plain(value: Any, version: int) -> Any:
    """Return a message as mappings, lists and values: the fields that its version has."""
    if isinstance(value, Struct):
        return {
            declared.name: plain(getattr(value, declared.name), version)
            for declared in value.FIELDS
            if version in declared.versions
        }
    if isinstance(value, list):
        return [plain(item, version) for item in value]
    return value


def values_at(answer: Any, path: str) -> list[Any]:
    """Return the values at a path such as "topics[].partitions[].error_code"; [] stands for every element of a list."""
    values = [answer]
    for part in path.split("."):
        name = part.removesuffix("[]")
        values = [value[name] for value in values]
        if part.endswith("[]"):
            values = [item for value in values for item in value or ()]
    return values


def error_codes(answer: Any) -> Iterator[int]:
    """Return every error code of a plain answer."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if re.search(r"error_code$", name):
                yield value
            else:
                yield from error_codes(value)
    elif isinstance(answer, list):
        for value in answer:
            yield from error_codes(value)
