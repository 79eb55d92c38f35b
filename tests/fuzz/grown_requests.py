"""Hostile but valid requests: one array, string or tagged section of a request as large as one likes, all else ordinary.

A request of 10 MB has millions of elements. It is not built from objects: the frame is encoded with an array that says it has
all of them and yields one, whose bytes are then repeated, with other names and numbers in each.
"""

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ottla.protocol import codec
from ottla.protocol.api import APIS, Api
from ottla.protocol.messages.header import RequestHeader
from ottla.protocol.schema import Array, Field, Message, Primitive, Request, Struct
from ottla.protocol.wire import write_uvarint
from ottla.records.batch import build
from ottla.records.record import Record

HEADER: Final = ("header",)
TAGS: Final = ("tags",)
"""Places that are no fields: tagged sections of the header and of the request."""
EXISTING: Final = 1_000
"""Number of topics t0000000, ... that exist where the names are those of topics that exist."""
BARE, DISTINCT, KNOWN = "empty", "unknown", "existing"
"""Names in the elements of an array: none, and elements without elements of their own; another one in each; of topics."""
_DIGITS: Final = b"~~~~~~~"
_NUMBER: Final = 0x7E7E7E7E
_BATCH: Final = build([Record(0, 1_700_000_000_000, b"k", b"v")])
_MOST_OBJECTS: Final = 200_000
_LONGEST_TEXT: Final = 32_767
_VALUES: Final[dict[str, Any]] = {
    "acks": 1,
    "timeout_ms": 1_000,
    "group_id": "g",
    "transactional_id": "x",
    "group_type": "consumer",
    "protocol_type": "consumer",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "replica_id": -1,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "resource_type": 2,
    "num_partitions": 1,
    "replication_factor": 1,
    "records": _BATCH,
    "operation": 3,
    "permission_type": 3,
    "pattern_type": 3,
    "resource_pattern_type": 3,
    "resource_type_filter": 2,
    "pattern_type_filter": 3,
    "client_software_name": "a",
    "client_software_version": "1",
    "count": 2,
    "match_type": 0,
    "validate_only": False,
}


class Place(NamedTuple):
    """A field of the request that is enlarged: its path and its type."""

    path: tuple[str, ...]
    kind: Any

    @property
    def is_array(self) -> bool:
        """Return whether it has elements, and not bytes."""
        return isinstance(self.kind, Array) or self.kind is None

    def __str__(self) -> str:
        if self.kind is not None:
            return ".".join(self.path)
        return "tags of the header" if self.path == HEADER else "tags"


def places(cls: type[Message], version: int) -> Iterator[Place]:
    """Iterate over everything in a request that has a size."""
    yield from _places(cls, version, ())
    if version in cls.FLEXIBLE:
        yield Place(HEADER, None)
        yield Place(TAGS, None)


def _places(cls: type[Struct], version: int, path: tuple[str, ...]) -> Iterator[Place]:
    for declared in cls.FIELDS:
        if version not in declared.versions:
            continue
        here = (*path, declared.name)
        element = declared.type.element if isinstance(declared.type, Array) else declared.type
        if isinstance(declared.type, Array) or (isinstance(element, Primitive) and not element.format):
            yield Place(here, declared.type)
        if not isinstance(element, Primitive):
            yield from _places(element, version, here)


class _Repeated(list[Any]):
    """A list that says it has `count` elements and yields others."""

    def __init__(self, count: int, elements: list[Any]) -> None:
        super().__init__(elements)
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return (self[at] for at in range(list.__len__(self)))


class Builder:
    """Builds the frames of one API and version."""

    def __init__(self, api: Api, version: int) -> None:
        self.cls: type[Request] = api.request_class()
        self.version = version
        header = RequestHeader(
            request_api_key=api.key, request_api_version=version, correlation_id=7, client_id="hostile"
        )
        self.head = codec.encode(header, api.request_header_version(version))

    def places(self) -> list[Place]:
        """Return everything in the request that has a size."""
        return list(places(self.cls, self.version))

    def ordinary(self) -> bytes:
        """Return a small request."""
        return _framed(self.head + codec.encode(self._message(), self.version))

    def with_elements(self, place: Place, count: int, names: str) -> bytes:
        """Return a request with `count` elements (bytes, of a text) at a place."""
        if place.path == HEADER:
            return _framed(self.head[:-1] + _tags(count) + codec.encode(self._message(), self.version))
        if place.path == TAGS:
            return _framed(self.head + codec.encode(self._message(), self.version)[:-1] + _tags(count))
        if not isinstance(place.kind, Array):
            text: Any = b"a" * count
            message = self._message(place, text.decode() if place.kind.name == "string" else text)
            return _framed(self.head + codec.encode(message, self.version))
        element = self._element(place.kind.element, names)
        if self._is_tagged(place) or (isinstance(place.kind.element, Primitive) and place.kind.element.format):
            fixed = [element] * min(count, _MOST_OBJECTS * (1 if self._is_tagged(place) else 20))
            if isinstance(element, int) and names != BARE:
                fixed = [at % 30_000 if place.kind.element.size < 4 else at for at in range(len(fixed))]
            return _framed(self.head + codec.encode(self._message(place, fixed), self.version))
        with_one = codec.encode(self._message(place, _Repeated(count, [element])), self.version)
        with_none = codec.encode(self._message(place, _Repeated(count, [])), self.version)
        start = _common(with_one, with_none)
        end = start + len(with_one) - len(with_none)
        many = _repeated(with_one[start:end], count, names)
        return _framed(self.head + with_one[:start] + many + with_one[end:])

    def claiming(self, place: Place, count: int) -> bytes:
        """Return a body whose array says that it has `count` elements, and ends there."""
        element = self._element(place.kind.element, BARE)
        if self._is_tagged(place):
            return codec.encode(self._message(place, [element] * count), self.version)
        if isinstance(place.kind.element, Primitive) and place.kind.element.format:
            return codec.encode(self._message(place, [element] * count), self.version)
        return codec.encode(self._message(place, _Repeated(count, [])), self.version)

    def size_of_one(self, place: Place, names: str) -> float:
        """Return the bytes that an element takes."""
        some = 10
        both = [len(self.with_elements(place, count, names)) for count in (some, 2 * some)]
        return max((both[1] - both[0]) / some, 0.25)

    def _is_tagged(self, place: Place) -> bool:
        cls: Any = self.cls
        for name in place.path:
            declared = next(field for field in cls.FIELDS if field.name == name)
            if self.version in declared.tagged:
                return True
            cls = declared.type.element if isinstance(declared.type, Array) else declared.type
        return False

    def _message(self, place: Place | None = None, value: Any = None) -> Request:
        path = () if place is None else place.path
        message: Request = self._struct(self.cls, path, value)
        return message

    def _struct(self, cls: type[Any], path: tuple[str, ...] = (), value: Any = None, names: str | None = None) -> Any:
        """Return a struct: ordinary values, `value` at the end of the path, and in elements names that differ."""
        made = cls()
        for declared in cls.FIELDS:
            if self.version not in declared.versions:
                continue
            if self.version in declared.tagged and not (path and declared.name == path[0]):
                continue  # the default: no tagged section but the one that is enlarged
            if path and declared.name == path[0]:
                setattr(made, declared.name, self._on_path(declared, path[1:], value))
            elif names is not None:
                setattr(made, declared.name, self._repeated_value(declared, names))
            else:
                setattr(made, declared.name, self._ordinary_value(declared))
        return made

    def _on_path(self, declared: Field, rest: tuple[str, ...], value: Any) -> Any:
        if not rest:
            return value
        kind = declared.type
        if isinstance(kind, Array):
            return [self._struct(kind.element, rest, value)]
        return self._struct(kind, rest, value)

    def _ordinary_value(self, declared: Field) -> Any:
        if declared.name in _VALUES:
            return _VALUES[declared.name]
        kind = declared.type
        if isinstance(kind, Array):
            return []
        if not isinstance(kind, Primitive):
            return None if self.version in declared.nullable else self._struct(kind)
        if kind.name == "string" and not declared.default:
            return f"t{0:07d}" if "name" in declared.name or "topic" in declared.name else ""
        default = declared.default_value()
        return kind.default if default is None and self.version not in declared.nullable else default

    def _element(self, kind: Any, names: str) -> Any:
        if isinstance(kind, Primitive):
            return self._primitive(kind, names)
        return self._struct(kind, names=names)

    def _repeated_value(self, declared: Field, names: str) -> Any:
        kind = declared.type
        if isinstance(kind, Array):
            return [] if names == BARE else [self._element(kind.element, names)]
        if not isinstance(kind, Primitive):
            return None if self.version in declared.nullable else self._struct(kind, names=names)
        if declared.name in ("partition_index", "partition", "partition_id", "index") and names == DISTINCT:
            return _NUMBER
        if declared.name in _VALUES and declared.name not in ("group_id", "transactional_id") and names != BARE:
            return _VALUES[declared.name]
        if not kind.format or kind.size == 16:
            return self._primitive(kind, names)
        default = declared.default_value()
        return kind.default if default is None else default

    def _primitive(self, kind: Primitive, names: str) -> Any:
        if kind.name == "string":
            return "" if names == BARE else ("t" if names == KNOWN else "u") + _DIGITS.decode()
        if kind.name == "uuid":
            return bytes(16) if names == BARE else b"u" * 9 + _DIGITS
        if kind.name in ("bytes", "records"):
            return b"" if names == BARE else _DIGITS if kind.name == "bytes" else _BATCH
        return kind.default


def _framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def _tags(count: int) -> bytes:
    return write_uvarint(count) + b"".join(write_uvarint(1_000 + at) + b"\0" for at in range(count))


def _common(first: bytes, second: bytes) -> int:
    """Return the length of the common start."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[:middle] == second[:middle] else (low, middle - 1)
    return low


def _repeated(element: bytes, count: int, names: str) -> bytes:
    number = struct.pack(">i", _NUMBER)
    if _DIGITS not in element and number not in element:
        return element * count
    others = EXISTING if names == KNOWN else max(count, 1)
    different = (
        element.replace(_DIGITS, b"%07d" % at).replace(number, struct.pack(">i", at))
        for at in range(min(count, others))
    )
    once = b"".join(different)
    return (once * (1 + count // others))[: count * len(element)]


def longest_text(place: Place, size: int) -> int:
    """Return the size of a text that has `size` bytes where the protocol allows it: 32,767 for strings."""
    return min(size, _LONGEST_TEXT) if place.kind.name == "string" else size


def served_versions(key: int) -> range:
    """Return the versions of an API that a broker serves."""
    from ottla.broker.requests.handlers import SERVED

    first, last = SERVED[key].versions
    return range(first, last + 1)


def builder(key: int, version: int) -> Builder:
    """Return the builder of an API and version."""
    return Builder(APIS[key], version)
