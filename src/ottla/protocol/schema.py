"""Declarations of Kafka messages: one typed class for all versions of a message.

A declaration is an ordinary class whose attributes describe the wire format, field by field:

    @message(api=12, versions="0-4", flexible="4+")
    class HeartbeatRequest(Request["HeartbeatResponse"]):
        group_id: str = field(String)
        group_instance_id: str | None = field(String, versions="3+", nullable="3+", default=None)

The metaclass replaces the `field(...)` values by slots and `FIELDS`: mypy knows the constructor, and objects have no
dictionary. `codec.py` compiles (class, version) to functions on first use; this file does not handle bytes.

Limits. An element of an array costs a broker more to decode than a client to send, and one thread serves all: the arrays
and tagged sections of a request may have 100,000 elements together (50 ms). Arrays of which real clients send very many are
declared with `many=True`, and have Kafka's own limit only. A response may have 1,000,000 in all, that of Metadata 2,000,000.

Version ranges are written as in Kafka's schemas: "3", "0-4", "3+"; an open end means "up to the newest".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar, dataclass_transform

from ottla.protocol.context import NO_CONTEXT, RequestContext

NEWEST: Final = 32767
MOST_ELEMENTS: Final = 100_000
"""Elements that the arrays of a request, without those of many, and its tagged sections may have together."""
MOST_OF_ADMINISTRATION: Final = 20_000
"""Elements of a request of an administrator that has one row for each change, of which Apache Kafka makes 10,000 at once, or of
one that is served in one piece."""
MOST_OF_CHANGES: Final = 50_000
"""Elements of such a request whose changes have several elements each, such as the replicas of partitions."""
MOST_OF_MANY: Final = 1_000_000
"""Elements of one array, as in Apache Kafka."""
LEAST_OF_MANY: Final = 16
"""Bytes that the structs of an array of many take on average, above the first MOST_ELEMENTS: those of real clients have names
and numbers. An empty one of 3 bytes would take 140 bytes of memory.
"""
MOST_TAGS: Final = 10_000
"""Fields of one tagged section, as in Apache Kafka."""
UNLIMITED: Final = 1 << 62
ZERO_UUID: Final = bytes(16)


class VersionRange(NamedTuple):
    """Versions `first` to `last`, both inclusive; empty when first > last."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        if self.first > self.last:
            return "none"
        return f"{self.first}-{self.last}" if self.first != self.last else str(self.first)


NO_VERSIONS: Final = VersionRange(1, 0)
ALL_VERSIONS: Final = VersionRange(0, NEWEST)


def version_range(text: str) -> VersionRange:
    """Parse "3", "0-4", "3+" or "none" to a range."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), NEWEST)
    first, _, last = text.partition("-")
    return VersionRange(int(first), int(last or first))


class Primitive(NamedTuple):
    """Primitive type of the protocol. `format` is its struct letter if it has a fixed size, else empty."""

    name: str
    format: str
    size: int
    default: Any


Bool: Final = Primitive("bool", "?", 1, False)
Int8: Final = Primitive("int8", "b", 1, 0)
Int16: Final = Primitive("int16", "h", 2, 0)
Uint16: Final = Primitive("uint16", "H", 2, 0)
Int32: Final = Primitive("int32", "i", 4, 0)
Uint32: Final = Primitive("uint32", "I", 4, 0)
Int64: Final = Primitive("int64", "q", 8, 0)
Float64: Final = Primitive("float64", "d", 8, 0.0)
Uuid: Final = Primitive("uuid", "16s", 16, ZERO_UUID)
String: Final = Primitive("string", "", 0, "")
Bytes: Final = Primitive("bytes", "", 0, b"")
Records: Final = Primitive("records", "", 0, b"")


class Piece(Protocol):
    """Content of a records field: bytes or a region of a file; `len` is its length in bytes."""

    def __len__(self) -> int: ...


class Array(NamedTuple):
    """List type; `element` is a primitive or a Struct class."""

    element: Any


class Field(NamedTuple):
    """Declared field; `name` is set by the class that contains it."""

    name: str
    type: Any
    versions: VersionRange
    nullable: VersionRange
    tag: int
    tagged: VersionRange
    default: Any
    ignorable: bool
    never_flexible: bool
    many: bool

    def default_value(self) -> Any:
        """Return the default: a new list; for a struct one shared object, which is replaced and never modified."""
        if self.default is not _NO_DEFAULT:
            return self.default
        if isinstance(self.type, Array):
            return []
        if isinstance(self.type, Primitive):
            return self.type.default
        shared = _DEFAULT_STRUCTS.get(self.type)
        if shared is None:
            shared = _DEFAULT_STRUCTS[self.type] = self.type()
        return shared


_DEFAULT_STRUCTS: dict[type, Any] = {}


class _NoDefault:
    def __repr__(self) -> str:
        return "no default"


_NO_DEFAULT: Final = _NoDefault()


def field(
    kind: Any,
    *,
    versions: str = "0+",
    nullable: str = "none",
    tag: int = -1,
    tagged: str = "",
    default: Any = _NO_DEFAULT,
    ignorable: bool = False,
    never_flexible: bool = False,
    many: bool = False,
) -> Any:
    """Declare a field.

    versions        versions that have the field
    nullable        versions in which null is allowed
    tag, tagged     tag number, and versions in which the field is in the tagged section (default: all of `versions`)
    default         Kafka's default, if it is not the zero value of the type
    ignorable       whether a value may be dropped in versions without the field
    never_flexible  whether flexible versions use the old length encoding as well (client id of the request header)
    many            whether real clients send so many elements that they do not count as elements of a request
    """
    present = version_range(versions)
    tagged_in = NO_VERSIONS if tag < 0 else version_range(tagged) if tagged else present
    return Field("", kind, present, version_range(nullable), tag, tagged_in, default, ignorable, never_flexible, many)


class _StructMeta(type):
    """Moves the declared fields of a class into FIELDS and gives the class slots for them."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _StructMeta:
        fields = tuple(value._replace(name=key) for key, value in namespace.items() if isinstance(value, Field))
        for declared in fields:
            del namespace[declared.name]
        namespace["FIELDS"] = fields
        namespace.setdefault("__slots__", tuple(declared.name for declared in fields))
        return super().__new__(mcs, name, bases, namespace)


@dataclass_transform(kw_only_default=True, eq_default=True)
class Struct(metaclass=_StructMeta):
    """Group of fields: a whole message, or an element of one of its lists.

    `unknown_tags` keeps tagged fields that are not declared, so that they survive a round trip.
    """

    __slots__ = ("unknown_tags",)
    unknown_tags: dict[int, bytes] | None
    FIELDS: ClassVar[tuple[Field, ...]] = ()

    def __init__(self, **values: Any) -> None:
        _make_init(type(self))(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.FIELDS) and (
            (self.unknown_tags or None) == (other.unknown_tags or None)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in self.FIELDS)
        return f"{type(self).__name__}({shown})"


def _make_init(cls: type[Struct]) -> Callable[..., None]:
    """Generate and compile the constructor of `cls`, when its first object is created (most classes are never used)."""
    scope: dict[str, Any] = {"_UNSET": _NO_DEFAULT, "_CONTEXT": NO_CONTEXT}
    parameters, body = ["self", "*"] if cls.FIELDS else ["self"], ["  self.unknown_tags = None"]
    for number, declared in enumerate(cls.FIELDS):
        default = declared.default_value()
        scope[f"d{number}"] = default
        if isinstance(default, list):
            parameters.append(f"{declared.name}=_UNSET")
            body.append(f"  self.{declared.name} = [] if {declared.name} is _UNSET else {declared.name}")
        else:
            parameters.append(f"{declared.name}=d{number}")
            body.append(f"  self.{declared.name} = {declared.name}")
    if issubclass(cls, Request):
        body.append("  self.context = _CONTEXT")
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(body), scope)
    init: Callable[..., None] = scope["__init__"]
    cls.__init__ = init  # type: ignore[method-assign]
    return init


class Message(Struct):
    """Whole message: a struct that is encoded by itself."""

    __slots__ = ()
    API: ClassVar[int] = -1
    VERSIONS: ClassVar[VersionRange] = ALL_VERSIONS
    FLEXIBLE: ClassVar[VersionRange] = NO_VERSIONS
    ELEMENTS: ClassVar[int] = UNLIMITED
    """Elements that its arrays and tagged sections may have together."""


class _Received:
    """Declares `context` separately from the fields, so that it is not a parameter of a request's constructor."""

    __slots__ = ()
    context: RequestContext


class Response(Message):
    """Response to a request. It has a limit as well: a hostile broker must not fill the memory of a client."""

    __slots__ = ()
    ELEMENTS: ClassVar[int] = MOST_OF_MANY


# Covariant: code that accepts any request is typed Request[Response]. `Request` alone is Request[Any].
if TYPE_CHECKING:
    from typing_extensions import TypeVar as _TypeVarWithDefault

    ResponseT = _TypeVarWithDefault("ResponseT", bound=Response, covariant=True, default=Any)
else:
    ResponseT = TypeVar("ResponseT", covariant=True)


class Request(Message, _Received, Generic[ResponseT]):
    """Request, generic in the class of its response; `context` is set by the broker that receives it."""

    __slots__ = ("context",)
    ELEMENTS: ClassVar[int] = MOST_ELEMENTS


M = TypeVar("M", bound=type[Message])


def message(*, api: int = -1, versions: str, flexible: str = "none") -> Callable[[M], M]:
    """Declare a message: a class decorator.

    api       API key of a request and its response; record type of a coordinator's key and value
    versions  all released versions
    flexible  versions with compact lengths and tagged fields (KIP-482)
    """

    def declare(cls: M) -> M:
        cls.API = api
        cls.VERSIONS = version_range(versions)
        cls.FLEXIBLE = version_range(flexible)
        return cls

    return declare
