"""Requests of every API with something in every field, and the error codes in what answers them."""

from collections.abc import Iterator
from typing import Any, Final

from ottla.protocol.api import APIS
from ottla.protocol.schema import Array, Bool, Bytes, Field, Float64, Primitive, Records, Request, String, Struct, Uuid
from ottla.records.batch import build
from ottla.records.record import Record

_BATCH: Final = build([Record(0, 1, b"k", b"v")])


class _Sample:
    """A request with a value in every field, two rows in every list, and no value twice."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._number = 0

    def of(self, kind: type[Any]) -> Any:
        made = kind()
        for declared in kind.FIELDS:
            if self._version in declared.versions:
                setattr(made, declared.name, self._value(declared, declared.type))
        return made

    def _value(self, declared: Field, kind: Any) -> Any:
        if isinstance(kind, Array):
            return [self._value(declared, kind.element) for _ in range(2)]
        if not isinstance(kind, Primitive):
            return self.of(kind)
        self._number += 1
        number = self._number
        fixed = {Records: _BATCH, Bool: True, Bytes: b"%d" % number, Float64: float(number)}
        if kind in fixed:
            return fixed[kind]
        if kind is Uuid:
            return bytes([number]) * 16
        return f"{declared.name}-{number}" if kind is String else number


def sample(key: int, version: int) -> Request:
    """A request of an API that can travel in `version`."""
    made: Request = _Sample(version).of(APIS[key].request_class())
    return made


def codes_in(message: Any) -> Iterator[tuple[str, int]]:
    """The names of the lists that an error code lies in, and the code."""
    for declared in message.FIELDS:
        value = getattr(message, declared.name)
        if declared.name in ("error_code", "partition_error_code"):
            yield "", value
        elif isinstance(value, list):
            for row in value:
                if isinstance(row, Struct):
                    yield from ((f"{declared.name}.{where}".rstrip("."), code) for where, code in codes_in(row))
