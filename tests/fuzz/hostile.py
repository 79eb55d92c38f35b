"""Hostile but valid requests: every array, string and number of a request in turn, grown to a size.

Bytes are built from the declarations: one element is encoded, and its bytes are repeated with the right count, as a request of
10 MB would otherwise take a million objects. Repeated names and indexes differ where they are unknown or denied.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from ottla.broker.requests.handlers import SERVED
from ottla.protocol import codec
from ottla.protocol.api import APIS
from ottla.protocol.messages.header import RequestHeader
from ottla.protocol.schema import Array, Bool, Bytes, Field, Primitive, Records, String, Struct, Uuid
from ottla.protocol.wire import write_uvarint
from ottla.records.batch import build
from ottla.records.record import Record

UNKNOWN: Final = "unknown"
DENIED: Final = "denied"
EXISTING: Final = "existing"
EMPTY: Final = "empty"
NAMES: Final = (UNKNOWN, DENIED, EXISTING, EMPTY)
"""Kinds of names: `empty` makes every element as small as it can be, so that most of them fit into a size."""

HEADER_TAGS: Final = "(header tags)"
BODY_TAGS: Final = "(tags)"
CLIENT_ID: Final = "(client id)"
PIPELINED: Final = "(pipelined)"
LARGEST: Final = -1
"""A size: the largest number that a field can hold."""
MOST: Final = -2
"""A size: as many elements as all arrays of a request may have together: 100,000, or fewer of an administrator."""
MOST_ELEMENTS: Final = 100_000
MEGABYTE: Final = 1 << 20
SHORT_STRING: Final = 32_767
"""Bytes of a string: of any that a version with 16-bit lengths can hold, and of any that Kafka reads."""

_NUMBER: Final = b"\xa7NUM"
_TEXT: Final = b"@@TXT@"
_TEXT_MARK: Final = _TEXT.decode()
_ORDINARY: Final[dict[str, Any]] = {
    "acks": 1,
    "election_type": 0,
    "endpoint_type": 1,
    "error_code": 0,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "iterations": 4096,
    "match_type": 0,
    "max_bytes": MEGABYTE,
    "mechanism": 1,
    "num_partitions": 1,
    "operation": 3,
    "partition_max_bytes": MEGABYTE,
    "pattern_type_filter": 3,
    "permission_type": 3,
    "producer_id": -1,
    "producer_epoch": -1,
    "rebalance_timeout_ms": 1000,
    "replica_id": -1,
    "replication_factor": 1,
    "resource_pattern_type": 3,
    "resource_type": 2,
    "resource_type_filter": 2,
    "response_partition_limit": 2000,
    "session_epoch": -1,
    "session_timeout_ms": 1000,
    "timeout_ms": 1000,
    "transaction_timeout_ms": 1000,
}
"""Numbers that a client sends; otherwise 0."""
_TEXTS: Final[dict[str, str]] = {
    "client_software_name": "ottla",
    "client_software_version": "1",
    "entity_type": "user",
    "host": "*",
    "principal": "User:somebody",
    "protocol_type": "consumer",
    "principal_type": "User",
    "owner_principal_type": "User",
}
_CONFIG: Final = {"name": "retention.ms", "value": "1000"}
"""The config of a request in which something else is grown: an unknown one would be refused first."""
_ABSENT: Final = frozenset(
    {
        "assignments",
        "cluster_id",
        "committed_metadata",
        "cursor",
        "group_instance_id",
        "instance_id",
        "transactional_id",
    }
)
"""Fields that keep others from being read, or that a client seldom sets: only there when they are grown or not nullable."""
_DISTINCT: Final = frozenset({"index", "partition", "partition_index", "partition_indexes", "partitions"})
_NO_LARGEST: Final = ("_ms", "min_bytes", "acks")
"""Numbers that say how long to wait, or that nothing is to be answered."""


@dataclass(frozen=True)
class Case:
    """A request.

    field  path of the field that is grown: "topics.partitions"
    size   elements or bytes of it, or with `fits` bytes of the whole request
    names  one of NAMES
    """

    key: int
    version: int
    field: str
    size: int
    names: str
    fits: bool = False

    @property
    def api(self) -> str:
        return APIS[self.key].name

    @property
    def size_text(self) -> str:
        if self.size == LARGEST:
            return "max"
        if self.size == MOST:
            return "most"
        return f"{self.size // MEGABYTE}MB" if self.fits else str(self.size)


def versions_of(key: int, *, every: bool = False) -> list[int]:
    """The newest and the oldest version that are served, or every one, the newest first."""
    first, last = SERVED[key].versions
    return list(range(last, first - 1, -1)) if every else sorted({first, last}, reverse=True)


def is_flexible(key: int, version: int) -> bool:
    return version >= APIS[key].flexible


def growing(key: int, version: int) -> Iterator[tuple[str, Any]]:
    """The path and the type of each array, string and number of a request."""
    yield CLIENT_ID, String
    if is_flexible(key, version):
        yield HEADER_TAGS, Array(Bytes)
        yield BODY_TAGS, Array(Bytes)
    yield from _growing(APIS[key].request_class(), version, "")


def _growing(kind: type[Struct], version: int, before: str) -> Iterator[tuple[str, Any]]:
    for declared in kind.FIELDS:
        if version not in declared.versions:
            continue
        path, inner = before + declared.name, declared.type
        if isinstance(inner, Array) or (isinstance(inner, Primitive) and inner not in (Bool, Uuid)):
            yield path, inner
        if isinstance(inner, Array):
            inner = inner.element
        if not isinstance(inner, Primitive):
            yield from _growing(inner, version, path + ".")


def is_array(kind: Any) -> bool:
    return isinstance(kind, Array)


def is_number(kind: Any) -> bool:
    return isinstance(kind, Primitive) and bool(kind.format)


def may_be_largest(path: str) -> bool:
    return not path.endswith(_NO_LARGEST)


@cache
def _batch(size: int) -> bytes:
    return build([Record(0, 1, b"k", b"v" * size)])


def _repeated(element: bytes, count: int) -> bytes:
    """`count` copies of an element; what is marked in it differs from one to the next."""
    if element == _NUMBER:
        return struct.pack(f">{count}i", *range(count))
    texts, numbers = element.count(_TEXT), element.count(_NUMBER)
    if not texts and not numbers:
        return element * count
    form = element.replace(b"%", b"%%").replace(_TEXT, b"%b").replace(_NUMBER, b"%b")
    # Which mark comes where.
    order = sorted(
        [(at, 0) for at in _places(element, _TEXT)] + [(at, 1) for at in _places(element, _NUMBER)],
    )
    kinds = [mark for _, mark in order]
    copies = []
    for number in range(count):
        marks = (b"%06x" % number, number.to_bytes(4, "big"))
        copies.append(form % tuple(marks[mark] for mark in kinds))
    return b"".join(copies)


def _places(data: bytes, mark: bytes) -> Iterator[int]:
    at = data.find(mark)
    while at >= 0:
        yield at
        at = data.find(mark, at + len(mark))


class _Builder:
    """Bytes of one request, whose field `grown` has `count` elements or bytes.

    topic_id  id of the topic `existing`
    """

    def __init__(self, case: Case, count: int, topic_id: bytes) -> None:
        self._version = case.version
        self._flexible = is_flexible(case.key, case.version)
        self._grown = case.field
        self._count = count
        self._names = case.names
        self._topic_id = topic_id
        self._key = case.key

    def frame(self, correlation_id: int = 1) -> bytes:
        key, version = self._key, self._version
        header = struct.pack(">hhi", key, version, correlation_id)
        client = b"c" * min(self._count, SHORT_STRING) if self._grown == CLIENT_ID else b"costs"
        header_version = APIS[key].request_header_version(version)
        if header_version >= 1:
            header += struct.pack(">h", len(client)) + client
        if header_version >= 2:
            header += self._tags(self._count) if self._grown == HEADER_TAGS else b"\0"
        body = header + _settled(self._struct(APIS[key].request_class(), ""))
        return len(body).to_bytes(4, "big") + body

    def _tags(self, count: int) -> bytes:
        return write_uvarint(count) + b"".join([write_uvarint(1000 + number) + b"\0" for number in range(count)])

    def _leads(self, path: str) -> bool:
        return self._grown == path or self._grown.startswith(path + ".")

    def _struct(self, kind: type[Struct], before: str) -> bytes:
        made, tagged = [], {}
        for declared in kind.FIELDS:
            path = before + declared.name
            if self._version in declared.tagged and self._flexible:
                if self._leads(path):
                    tagged[declared.tag] = _settled(self._field(declared, path, is_tagged=True))
            elif self._version in declared.versions:
                made.append(self._field(declared, path))
        if self._flexible:
            if not before and self._grown == BODY_TAGS:
                made.append(self._tags(self._count))
            else:
                made.append(write_uvarint(len(tagged)))
                made += [write_uvarint(tag) + write_uvarint(len(data)) + data for tag, data in sorted(tagged.items())]
        return b"".join(made)

    def _field(self, declared: Field, path: str, *, is_tagged: bool = False) -> bytes:
        kind = declared.type
        nullable = self._version in declared.nullable
        absent = declared.name in _ABSENT or self._names == EMPTY
        missing = nullable and absent and not self._leads(path)
        compact = self._flexible and not declared.never_flexible
        if isinstance(kind, Array):
            if missing:
                return self._length(-1, compact=compact, wide=True)
            return self._array(declared, path, compact=compact)
        if isinstance(kind, Primitive):
            if kind.format:
                return self._number(declared, path)
            if missing:
                return self._length(-1, compact=compact, wide=kind is not String)
            return self._blob(declared.name, kind, path, compact=compact)
        if missing:
            return b"\0" if is_tagged else b"\xff"
        return (b"\1" if nullable else b"") + self._struct(kind, path + ".")

    def _array(self, declared: Field, path: str, *, compact: bool) -> bytes:
        leaf = declared.type.element
        if self._grown == path:
            count = self._count
        elif self._leads(path):
            count = 1
        else:
            count = 0 if self._names == EMPTY or declared.name in _ABSENT else 1
        element = b""
        if count:
            if not isinstance(leaf, Primitive):
                element = self._struct(leaf, path + ".")
            elif leaf.format:
                distinct = declared.name in _DISTINCT and leaf.format == "i"
                element = _NUMBER if distinct else struct.pack(f">{leaf.format}", leaf.default)
            else:
                element = self._blob(declared.name, leaf, path + ".", compact=compact)
        if self._grown != path:
            return self._length(count, compact=compact, wide=True) + element * count
        return self._length(count, compact=compact, wide=True) + _repeated(element, count)

    def _number(self, declared: Field, path: str) -> bytes:
        kind = declared.type
        if self._grown == path and self._count == LARGEST:
            if kind.format == "d":
                return struct.pack(">d", 1e308)
            bits = 8 * kind.size - (not kind.format.isupper())
            return struct.pack(f">{kind.format}", (1 << bits) - 1)
        if kind is Uuid:
            return self._topic_id if self._names in (EXISTING, EMPTY) else b"\0\0\0\0otla\0\0" + _TEXT
        if declared.name in _DISTINCT and kind.format == "i" and self._names != EXISTING:
            return _NUMBER
        return struct.pack(f">{kind.format}", _ORDINARY.get(declared.name, kind.default))

    def _blob(self, name: str, kind: Primitive, path: str, *, compact: bool) -> bytes:
        grown = self._grown == path
        if kind is Records:
            data = _batch(self._count if grown else 1)
        elif kind is Bytes:
            data = b"b" * (self._count if grown else 0 if self._names == EMPTY else 8)
        elif grown:
            data = b"s" * min(self._count, SHORT_STRING)
        else:
            data = self._text(name, path).encode()
        return self._length(len(data), compact=compact, wide=kind is not String) + data

    def _text(self, name: str, path: str) -> str:
        if self._names == EMPTY:
            return ""
        if ".configs." in path and "configs" not in self._grown:
            return _CONFIG.get(name, "")
        if name in _TEXTS:
            return _TEXTS[name]
        return EXISTING if self._names == EXISTING else f"{self._names}-{_TEXT_MARK}"

    def _length(self, length: int, *, compact: bool, wide: bool) -> bytes:
        if compact:
            return write_uvarint(length + 1)
        return struct.pack(">i" if wide else ">h", length)


def _settled(data: bytes) -> bytes:
    """Number what is marked outside of the grown field 0."""
    return data.replace(_TEXT, b"000000").replace(_NUMBER, bytes(4))


def elements(case: Case, frame: bytes) -> int:
    """Elements of all arrays of a request."""
    _, body = codec.decode(RequestHeader, APIS[case.key].request_header_version(case.version), frame, 4)
    return _elements_in(codec.decode(APIS[case.key].request_class(), case.version, frame, body)[0])


def _elements_in(value: Any) -> int:
    if isinstance(value, list):
        return len(value) + sum(map(_elements_in, value))
    if isinstance(value, Struct):
        return sum(_elements_in(getattr(value, declared.name)) for declared in value.FIELDS)
    return 0


def request(case: Case, topic_id: bytes = bytes(16)) -> tuple[bytes, int]:
    """The frames of a case, and how many they are: several for PIPELINED, which fill its size."""
    if case.field == PIPELINED:
        frame = _Builder(case, 0, topic_id).frame()
        count = max(1, case.size // len(frame))
        return frame * count, count
    if case.size == MOST:
        one, two = (elements(case, _Builder(case, count, topic_id).frame()) for count in (1, 2))
        most = min(MOST_ELEMENTS, APIS[case.key].request_class().ELEMENTS)
        return _Builder(case, 1 + (most - one) // (two - one), topic_id).frame(), 1
    if not case.fits:
        return _Builder(case, case.size, topic_id).frame(), 1
    one, two = (len(_Builder(case, count, topic_id).frame()) for count in (1, 2))
    count = max(1, (case.size - one) // max(1, two - one))
    return _Builder(case, count, topic_id).frame(), 1
