"""Compiler of message declarations to decoders and encoders: the only code that converts messages to bytes and back.

Strategy. For each (class, version) the source of a straight-line Python function is generated, with nested structs inlined,
and compiled on first use; adjacent fixed-size fields become one precompiled struct call. There are three kinds of functions:

    decoder(cls, version)     (data: bytes, position) -> (object, position after it)
    positions(cls, version)   (data: bytes, position) -> (tuple, position after it): decodes without objects; a struct is a
                              tuple of all its declared fields in order, records are a (start, end) pair into `data`
    encoder(cls, version)     (object, write): calls write(bytes) piece by piece; a records field is passed unchanged, so
                              that a region of a file can be sent to the socket without being read
    (encode and decode below apply them to whole messages)

Invalid input. Decoders rely on Python's slice and struct errors for truncation, check for negative lengths, and check at the
end that the position is not past the data; all of these raise PeerError. No list is allocated ahead of its elements, so a
wrong count has no cost. Encoders reject a value in a version that lacks its field unless the field is ignorable, as in Kafka.

Decoding and encoding are in one file because they mirror each other: every rule of the format (lengths, nulls, tagged fields)
is implemented in both, and each is reviewed against the other.
"""

import struct
from collections import namedtuple
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar

from ottla.protocol.schema import Array, Bool, Field, Message, Primitive, Records, String, Struct
from ottla.protocol.wire import UVARINT_BYTES, PeerError, read_uvarint, write_uvarint

S = TypeVar("S", bound=Struct)
Decoder = Callable[[bytes, int], tuple[Any, int]]
Encoder = Callable[[Any, Callable[[Any], None]], None]


class UnsupportedField(ValueError):
    """A message has a value for a field that its version lacks."""


_MALFORMED: Final = (struct.error, IndexError, OverflowError, MemoryError)
_NEGATIVE: Final = "a length or count is negative where null is not allowed"


def decode(cls: type[S], version: int, data: bytes, position: int = 0) -> tuple[S, int]:
    """Decode the message of `cls` at `position`; return it and the position after it. Raises PeerError."""
    try:
        try:
            value, end = (_DECODERS.get((cls, version)) or decoder(cls, version))(data, position)
        except UnicodeDecodeError:
            value, end = _lenient(cls, version, objects=True)(data, position)
    except _MALFORMED as cause:
        raise PeerError(f"malformed {cls.__name__} version {version}: {cause}") from None
    if end > len(data):
        raise PeerError(f"{cls.__name__} version {version} is cut off")
    return value, end


def reader(cls: type[S], version: int) -> Callable[[bytes, int], S]:
    """Return a function that decodes many messages of one kind: (data, position) -> message; it raises PeerError. Each call
    creates a new function, to be kept by the caller.

    For messages of strings and one final number (the key of a committed offset), strings are cached by their bytes, as most
    occur repeatedly.
    """
    made: Callable[[bytes, int], S] = _DecoderSource(_checked(cls, version), version, objects=True).whole(cls)
    return made


def decode_positions(cls: type[Struct], version: int, data: bytes, position: int = 0) -> tuple[tuple[Any, ...], int]:
    """Decode to named tuples (`positions_class`) in place of objects, with (start, end) for records. Raises PeerError."""
    try:
        try:
            value, end = (_POSITIONS.get((cls, version)) or positions(cls, version))(data, position)
        except UnicodeDecodeError:
            value, end = _lenient(cls, version, objects=False)(data, position)
    except _MALFORMED as cause:
        raise PeerError(f"malformed {cls.__name__} version {version}: {cause}") from None
    if end > len(data):
        raise PeerError(f"{cls.__name__} version {version} is cut off")
    return value, end


def encode(message: Struct, version: int, head: bytes = b"") -> bytes:
    """Encode a message, with the header `head` before it. Raises UnsupportedField for a value that the version lacks."""
    cls = type(message)
    pieces = [head]
    (_ENCODERS.get((cls, version)) or encoder(cls, version))(message, pieces.append)
    return b"".join(pieces)


def encode_pieces(message: Struct, version: int, head: bytes = b"") -> list[Any]:
    """Encode a message, with the header `head` before it, as buffers for a socket: bytes are joined, file regions kept."""
    cls = type(message)
    pieces: list[Any] = [head]
    (_ENCODERS.get((cls, version)) or encoder(cls, version))(message, pieces.append)
    if not carries_records(cls):
        return [b"".join(pieces)]
    joined: list[Any] = []
    run: list[bytes] = []
    for piece in pieces:
        if type(piece) is bytes:
            run.append(piece)
            continue
        if run:
            joined.append(b"".join(run))
            run = []
        joined.append(piece)
    if run:
        joined.append(b"".join(run))
    return joined


_CARRIERS: dict[type[Struct], bool] = {}


def carries_records(cls: type[Struct]) -> bool:
    """Return True if `cls` has a records field at any depth: only then can its encoding contain file regions."""
    known = _CARRIERS.get(cls)
    if known is None:
        kinds = [field.type.element if isinstance(field.type, Array) else field.type for field in cls.FIELDS]
        known = any(kind is Records or (not isinstance(kind, Primitive) and carries_records(kind)) for kind in kinds)
        _CARRIERS[cls] = known
    return known


_DECODERS: dict[tuple[type[Struct], int], Decoder] = {}
_POSITIONS: dict[tuple[type[Struct], int], Decoder] = {}
_ENCODERS: dict[tuple[type[Struct], int], Encoder] = {}
_LENIENT: dict[tuple[type[Struct], int, bool], Decoder] = {}


def decoder(cls: type[Struct], version: int) -> Decoder:
    """Return the decoder of `cls` in `version`, created on first use."""
    made = _DECODERS.get((cls, version))
    if made is None:
        made = _DECODERS[cls, version] = _DecoderSource(_checked(cls, version), version, objects=True).function(cls)
    return made


def positions(cls: type[Struct], version: int) -> Decoder:
    """Return the decoder of `cls` in `version` to tuples and positions, created on first use."""
    made = _POSITIONS.get((cls, version))
    if made is None:
        made = _POSITIONS[cls, version] = _DecoderSource(_checked(cls, version), version, objects=False).function(cls)
    return made


@cache
def positions_class(cls: type[Struct]) -> type[tuple[Any, ...]]:
    """Return the named tuple type to which `positions` decodes a struct, with its fields in the order of declaration."""
    return namedtuple(f"{cls.__name__}Positions", [field.name for field in cls.FIELDS])


def _lenient(cls: type[Struct], version: int, *, objects: bool) -> Decoder:
    """Return the decoder for messages with invalid UTF-8, which becomes U+FFFD as in Java. Created on first use."""
    made = _LENIENT.get((cls, version, objects))
    if made is None:
        reading = _DecoderSource(_checked(cls, version), version, objects=objects, lenient=True)
        made = _LENIENT[cls, version, objects] = reading.function(cls)
    return made


def encoder(cls: type[Struct], version: int) -> Encoder:
    """Return the encoder of `cls` in `version`, created on first use."""
    made = _ENCODERS.get((cls, version))
    if made is None:
        made = _ENCODERS[cls, version] = _EncoderSource(_checked(cls, version), version).function(cls)
    return made


def _checked(cls: type[Struct], version: int) -> bool:
    """Return True if `version` of `cls` is flexible. Raises UnsupportedField for an undeclared version."""
    if not issubclass(cls, Message):
        return False
    if version not in cls.VERSIONS:
        raise UnsupportedField(f"{cls.__name__} has no version {version}, only {cls.VERSIONS}")
    return version in cls.FLEXIBLE


class _FunctionSource:
    """Source of a generated function, and the global objects that it uses."""

    def __init__(self, flexible: bool, version: int) -> None:
        self.flexible = flexible
        self.version = version
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {
            "PeerError": PeerError,
            "UnsupportedField": UnsupportedField,
            "uvarint_at": read_uvarint,
            "uvarint": write_uvarint,
            "UV": UVARINT_BYTES,
        }
        self._names = 0

    def line(self, depth: int, text: str) -> None:
        self.lines.append("  " * depth + text)

    def name(self, prefix: str = "v") -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def bind(self, value: Any, prefix: str = "k") -> str:
        """Return a global name for `value`."""
        name = self.name(prefix)
        self.scope[name] = value
        return name

    def structure(self, formats: str) -> struct.Struct:
        return struct.Struct(">" + formats)

    def compiled(self, name: str, signature: str) -> Any:
        text = f"def {name}({signature}):\n" + "\n".join(self.lines) + "\n"
        exec(compile(text, f"<{name} version {self.version}>", "exec"), self.scope)
        return self.scope[name]

    def present(self, declared: Field) -> bool:
        return self.version in declared.versions and self.version not in declared.tagged

    def tagged(self, fields: tuple[Field, ...]) -> list[Field]:
        if not self.flexible:
            return []
        return sorted(
            (f for f in fields if self.version in f.tagged and self.version in f.versions), key=lambda f: f.tag
        )

    def compact(self, declared: Field) -> bool:
        return self.flexible and not declared.never_flexible


def _fixed_format(declared: Field) -> str:
    return declared.type.format if isinstance(declared.type, Primitive) else ""


_REMEMBERED: Final = 10_000
_FEW: Final = 8


@cache
def _few(letter: str) -> tuple[Callable[..., tuple[Any, ...]], ...]:
    """Return functions that unpack 0, 1, 2... numbers: most arrays are short, and a table is faster than a struct format."""
    return tuple(struct.Struct(f">{count}{letter}").unpack_from for count in range(_FEW))


def _has_length(declared: Field) -> bool:
    """Return True if the field begins with a length or count."""
    return isinstance(declared.type, Array) or (isinstance(declared.type, Primitive) and not declared.type.format)


def _length_format(kind: Any) -> str:
    return "h" if kind is String else "i"


class _DecoderSource(_FunctionSource):
    """Generates decoders. The generated code keeps its position in `data` in the local `p`."""

    def __init__(self, flexible: bool, version: int, *, objects: bool, lenient: bool = False) -> None:
        super().__init__(flexible, version)
        self.objects = objects
        self.decoding = "decode('utf-8', 'replace')" if lenient else "decode()"

    def function(self, cls: type[Struct]) -> Decoder:
        result = self.struct(1, cls)
        self.line(1, f"return {result}, p")
        made: Decoder = self.compiled(f"read_{cls.__name__}", "data, p")
        return made

    def whole(self, cls: type[Struct]) -> Any:
        """Generate the decoder of a whole message, with the checks of `decode`."""
        self.scope |= {"MALFORMED": _MALFORMED, "decode": decode}
        message, version = self.bind(cls), self.version
        names = [field.name for field in cls.FIELDS]
        last = cls.FIELDS[-1].type
        remembers = not self.flexible and isinstance(last, Primitive) and bool(last.format) and len(names) > 1
        remembers = remembers and all(field.type is String and self.present(field) for field in cls.FIELDS[:-1])
        if remembers:
            self.scope["memory"] = {}
            self.line(1, f"head = data[p:-{last.size}]")
            self.line(1, "texts = memory.get(head)")
            self.line(1, "if texts is not None:")
            made = self.name("o")
            self.line(2, f"{made} = {self.bind(cls.__new__)}({message})")
            self.line(2, f"{', '.join(f'{made}.{name}' for name in names[:-1])}, = texts")
            unpack = self.bind(self.structure(last.format).unpack_from, "u")
            self.line(2, f"{made}.{names[-1]}, = {unpack}(data, p + len(head))")
            self.line(2, f"{made}.unknown_tags = None")
            self.line(2, f"return {made}")
        self.line(1, "begin = p")
        self.line(1, "try:")
        result = self.struct(2, cls)
        self.line(1, "except UnicodeDecodeError:")
        self.line(2, f"return decode({message}, {version}, data, begin)[0]")
        self.line(1, "except MALFORMED as cause:")
        self.line(2, f"raise PeerError(f'malformed {cls.__name__} version {version}: {{cause}}') from None")
        self.line(1, f"if p > len(data): raise PeerError('{cls.__name__} version {version} is cut off')")
        if remembers:
            self.line(1, "if p == len(data):")
            self.line(2, f"if len(memory) >= {_REMEMBERED}: memory.clear()")
            self.line(2, f"memory[head] = {', '.join(f'{result}.{name}' for name in names[:-1])},")
        self.line(1, f"return {result}")
        return self.compiled(f"read_whole_{cls.__name__}", "data, p")

    def struct(self, depth: int, cls: type[Struct]) -> str:
        """Generate code that decodes a struct; return the expression of its value."""
        if self.objects:
            made = self.name("o")
            self.line(depth, f"{made} = {self.bind(cls.__new__)}({self.bind(cls)})")
            target: Callable[[Field], str] = lambda f: f"{made}.{f.name}"  # noqa: E731
        else:
            names = {f.name: self.name() for f in cls.FIELDS}
            target = lambda f: names[f.name]  # noqa: E731
        present = [f for f in cls.FIELDS if self.present(f)]
        index = 0
        while index < len(present):
            run = [present[index]]
            while (
                _fixed_format(run[-1]) and index + len(run) < len(present) and _fixed_format(present[index + len(run)])
            ):
                run.append(present[index + len(run)])
            index += len(run)
            if not _fixed_format(run[0]):
                self.value(depth, run[0], target(run[0]))
                continue
            targets, formats = [target(f) for f in run], "".join(_fixed_format(f) for f in run)
            if index == len(present) or not _has_length(present[index]):
                self.fixed(depth, targets, formats)
                continue
            # The length of the next field is unpacked by the same struct call.
            following = present[index]
            index += 1
            n = self.name("n")
            compact = self.compact(following)
            self.fixed(depth, [*targets, n], formats + ("B" if compact else _length_format(following.type)))
            if compact:
                self.long_length(depth, n)
            self.value(depth, following, target(following), n)
        tagged = self.tagged(cls.FIELDS)
        for declared in cls.FIELDS:
            if declared not in present:
                self.default(depth, declared, target(declared))
        if self.flexible:
            elsewhere = {f.tag for f in cls.FIELDS if f.tag >= 0} - {f.tag for f in tagged}
            self.tags(depth, tagged, sorted(elsewhere), target, made if self.objects else "")
        elif self.objects:
            self.line(depth, f"{made}.unknown_tags = None")
        if self.objects:
            return made
        listed = "".join(f"{target(f)}, " for f in cls.FIELDS)
        return f"{self.bind(tuple.__new__)}({self.bind(positions_class(cls))}, ({listed}))"

    def default(self, depth: int, declared: Field, target: str) -> None:
        value = declared.default_value()
        if isinstance(value, list):
            self.line(depth, f"{target} = []")
        elif isinstance(value, Struct):
            self.line(depth, f"{target} = {self.bind(value) if self.objects else None}")
        else:
            self.line(depth, f"{target} = {self.bind(value)}")

    def fixed(self, depth: int, targets: list[str], formats: str) -> None:
        layout = self.structure(formats)
        unpack = self.bind(layout.unpack_from, "u")
        self.line(depth, f"{', '.join(targets)}, = {unpack}(data, p); p += {layout.size}")

    def length(self, depth: int, compact: bool, kind: Any) -> str:
        """Generate code that decodes a length or count into a new local; -1 is null."""
        n = self.name("n")
        if compact:
            self.line(depth, f"{n} = data[p]; p += 1")
            self.long_length(depth, n)
        else:
            self.fixed(depth, [n], _length_format(kind))
        return n

    def long_length(self, depth: int, n: str) -> None:
        """Generate code that completes a compact length whose first byte is decoded."""
        self.line(depth, f"if {n} > 127: {n}, p = uvarint_at(data, p - 1)")
        self.line(depth, f"{n} -= 1")

    def value(self, depth: int, declared: Field, target: str, n: str = "", *, tagged: bool = False) -> None:
        """Generate code that decodes one field of variable size, or a single one of fixed size, into `target`. `n` is the local
        with its length, if that is decoded already.

        A nullable struct begins with a byte, -1 for null; as a tagged field with a varint, 0 for null, as Kafka writes it.
        """
        nullable = self.version in declared.nullable
        compact = self.compact(declared)
        kind = declared.type
        if isinstance(kind, Array):
            self.array(depth, kind.element, target, nullable, compact, n)
        elif isinstance(kind, Primitive) and kind.format:
            self.fixed(depth, [target], kind.format)
        elif isinstance(kind, Primitive):
            self.blob(depth, kind, target, nullable, compact, n)
        elif nullable:
            if tagged:
                n = self.name("n")
                self.line(depth, f"{n}, p = uvarint_at(data, p)")
                self.line(depth, f"if {n} == 0:")
            else:
                self.line(depth, "p += 1")
                self.line(depth, "if data[p - 1] > 127:")
            self.line(depth + 1, f"{target} = None")
            self.line(depth, "else:")
            self.line(depth + 1, f"{target} = {self.struct(depth + 1, kind)}")
        else:
            self.line(depth, f"{target} = {self.struct(depth, kind)}")

    def blob(self, depth: int, kind: Primitive, target: str, nullable: bool, compact: bool, n: str = "") -> None:
        n = n or self.length(depth, compact, kind)
        self.line(depth, f"if {n} < 0:")
        if nullable:
            self.line(depth + 1, f"{target} = None")
        else:
            self.line(depth + 1, f"raise PeerError({_NEGATIVE!r})")
        self.line(depth, "else:")
        if kind is String:
            self.line(depth + 1, f"{target} = data[p:p + {n}].{self.decoding}")
        elif kind is Records and not self.objects:
            self.line(depth + 1, f"{target} = (p, p + {n})")
        else:
            self.line(depth + 1, f"{target} = data[p:p + {n}]")
        self.line(depth + 1, f"p += {n}")

    def array(self, depth: int, element: Any, target: str, nullable: bool, compact: bool, n: str = "") -> None:
        n = n or self.length(depth, compact, Array)
        self.line(depth, f"if {n} < 0:")
        if nullable:
            self.line(depth + 1, f"{target} = None")
        else:
            self.line(depth + 1, f"raise PeerError({_NEGATIVE!r})")
        self.line(depth, "else:")
        inner = depth + 1
        if isinstance(element, Primitive) and element.format and element is not Bool:
            self.line(
                inner, f"if p + {n} * {element.size} > len(data): raise PeerError('an array runs past the frame')"
            )
            unpack = self.bind(struct.unpack_from)
            letter = element.format
            if element.size == 16:
                self.line(inner, f"{target} = [data[q:q + 16] for q in range(p, p + {n} * 16, 16)]")
            else:
                few = self.bind(_few(letter))
                self.line(inner, f"if {n} < {_FEW}: {target} = list({few}[{n}](data, p))")
                self.line(inner, f"else: {target} = list({unpack}('>%d{letter}' % {n}, data, p))")
            self.line(inner, f"p += {n} * {element.size}")
            return
        items, add = self.name("l"), self.name("a")
        self.line(inner, f"{items} = []")
        self.line(inner, f"{add} = {items}.append")
        self.line(inner, f"for _ in range({n}):")
        if isinstance(element, Primitive):
            one = self.name()
            if element.format:
                self.fixed(inner + 1, [one], element.format)
            else:
                self.blob(inner + 1, element, one, False, compact)
            self.line(inner + 1, f"{add}({one})")
        else:
            self.line(inner + 1, f"{add}({self.struct(inner + 1, element)})")
        self.line(inner + 1, "if p > len(data): raise PeerError('an array runs past the frame')")
        self.line(inner, f"{target} = {items}")

    def tags(
        self, depth: int, tagged: list[Field], elsewhere: list[int], target: Callable[[Field], str], made: str
    ) -> None:
        """Generate code that decodes the tagged section: known tags into their fields, unknown ones are kept (KIP-482).

        Tags that exist only in other versions, `elsewhere`, are rejected, as in Kafka.
        """
        if made:
            self.line(depth, f"{made}.unknown_tags = None")
        n = self.name("n")
        only = tagged[0] if len(tagged) == 1 and _fixed_format(tagged[0]) else None
        if only is not None:  # in nearly all messages it is the only tag
            head = b"\x01" + write_uvarint(only.tag) + write_uvarint(only.type.size)
            self.line(depth, f"if data[p:p + {len(head)}] == {head!r}:")
            self.line(depth + 1, f"p += {len(head)}")
            self.fixed(depth + 1, [target(only)], only.type.format)
            self.line(depth, "else:")
            depth += 1
        self.line(depth, f"{n} = data[p]; p += 1")
        self.line(depth, f"if {n}:")
        inner = depth + 1
        self.line(inner, f"if {n} > 127: {n}, p = uvarint_at(data, p - 1)")
        tag, size, end, last = self.name("t"), self.name("s"), self.name("e"), self.name("z")
        self.line(inner, f"{last} = -1")
        self.line(inner, f"for _ in range({n}):")
        self.line(inner + 1, f"{tag}, p = uvarint_at(data, p)")
        self.line(inner + 1, f"{size}, p = uvarint_at(data, p)")
        self.line(inner + 1, f"{end} = p + {size}")
        self.line(
            inner + 1,
            f"if {tag} <= {last} or {end} > len(data): raise PeerError('a tagged section is out of order or cut off')",
        )
        self.line(inner + 1, f"{last} = {tag}")
        word = "if"
        for declared in tagged:
            self.line(inner + 1, f"{word} {tag} == {declared.tag}:")
            self.value(inner + 2, declared, target(declared), tagged=True)
            self.line(inner + 2, f"if p != {end}: raise PeerError('a tagged field is not as long as it says')")
            word = "elif"
        if elsewhere:
            self.line(inner + 1, f"{word} {tag} in {tuple(elsewhere)}:")
            self.line(inner + 2, f"raise PeerError(f'tag {{{tag}}} is not valid in version {self.version}')")
            word = "elif"
        if made:
            keep = [
                f"if {made}.unknown_tags is None: {made}.unknown_tags = {{}}",
                f"{made}.unknown_tags[{tag}] = data[p:{end}]",
            ]
        else:
            keep = ["pass"]
        if word == "elif":
            self.line(inner + 1, "else:")
            for text in keep:
                self.line(inner + 2, text)
        else:
            for text in keep:
                self.line(inner + 1, text)
        self.line(inner + 1, f"p = {end}")


class _EncoderSource(_FunctionSource):
    """Generates encoders. The generated code passes bytes to the local `w`."""

    def function(self, cls: type[Struct]) -> Encoder:
        self.struct(1, cls, "o")
        if not self.lines:
            self.line(1, "pass")
        made: Encoder = self.compiled(f"write_{cls.__name__}", "o, w")
        return made

    def struct(self, depth: int, cls: type[Struct], source: str) -> None:
        present = [f for f in cls.FIELDS if self.present(f)]
        tagged = self.tagged(cls.FIELDS)
        for declared in cls.FIELDS:
            if declared not in present and declared not in tagged and not declared.ignorable:
                self.refuse(depth, cls, declared, f"{source}.{declared.name}")
        index = 0
        while index < len(present):
            run = [present[index]]
            while (
                _fixed_format(run[-1]) and index + len(run) < len(present) and _fixed_format(present[index + len(run)])
            ):
                run.append(present[index + len(run)])
            if _fixed_format(run[0]):
                self.fixed(depth, [f"{source}.{f.name}" for f in run], "".join(_fixed_format(f) for f in run))
            else:
                self.value(depth, cls, run[0], f"{source}.{run[0].name}", "w")
            index += len(run)
        if self.flexible:
            self.tags(depth, cls, tagged, source)
        else:
            message = f"unknown tagged fields of {cls.__name__} cannot travel in version {self.version}"
            self.line(depth, f"if {source}.unknown_tags: raise UnsupportedField({message!r})")

    def refuse(self, depth: int, cls: type[Struct], declared: Field, source: str) -> None:
        test = self.differs(declared, source)
        message = f"{cls.__name__}.{declared.name} cannot travel in version {self.version}"
        self.line(depth, f"if {test}: raise UnsupportedField({message!r})")

    def differs(self, declared: Field, source: str) -> str:
        """Return an expression that is true if the value of `source` is not the default."""
        default = declared.default_value()
        if isinstance(default, list):
            nullable = declared.nullable.first <= declared.nullable.last
            return f"{source} is None or {source}" if nullable else source
        name = self.bind(default)
        return f"{source} is not {name} and {source} != {name}"

    def fixed(self, depth: int, sources: list[str], formats: str, write: str = "w") -> None:
        pack = self.bind(self.structure(formats).pack, "p")
        self.line(depth, f"{write}({pack}({', '.join(sources)}))")

    def length(self, depth: int, expression: str, compact: bool, wide: bool, write: str) -> None:
        if compact:
            n = self.name("n")
            self.line(depth, f"{n} = {expression} + 1")
            self.line(depth, f"{write}(UV[{n}] if {n} < 128 else uvarint({n}))")
        else:
            self.fixed(depth, [expression], "i" if wide else "h", write)

    def null(self, depth: int, compact: bool, wide: bool, write: str) -> None:
        missing = b"\x00" if compact else b"\xff\xff\xff\xff" if wide else b"\xff\xff"
        self.line(depth, f"{write}({missing!r})")

    def value(self, depth: int, cls: type[Struct], declared: Field, source: str, write: str) -> None:
        nullable = self.version in declared.nullable
        compact = self.compact(declared)
        tagged = write != "w"
        kind = declared.type
        v = self.name()
        self.line(depth, f"{v} = {source}")
        if isinstance(kind, Primitive) and kind.format:
            self.fixed(depth, [v], kind.format, write)
            return
        self.line(depth, f"if {v} is None:")
        if nullable and isinstance(kind, (Primitive, Array)):
            self.null(depth + 1, compact, kind is not String, write)
        elif nullable:
            self.line(depth + 1, f"{write}({bytes([0x00 if tagged else 0xFF])!r})")
        else:
            message = f"{cls.__name__}.{declared.name} may not be null in version {self.version}"
            self.line(depth + 1, f"raise UnsupportedField({message!r})")
        self.line(depth, "else:")
        if isinstance(kind, Array):
            self.array(depth + 1, kind.element, v, compact, write)
        elif isinstance(kind, Primitive):
            self.blob(depth + 1, kind, v, compact, write)
        else:
            if nullable:
                self.line(depth + 1, f"{write}({bytes([1])!r})")
            self.nested(depth + 1, kind, v, write)

    def nested(self, depth: int, cls: type[Struct], source: str, write: str) -> None:
        """Generate code that encodes a nested struct: inlined, writing to `w`; a tagged one is encoded into a buffer first."""
        if write == "w":
            before = len(self.lines)
            self.struct(depth, cls, source)
            if len(self.lines) == before:
                self.line(depth, "pass")
            return
        inner = _EncoderSource(self.flexible, self.version).function(cls)
        self.line(depth, f"{self.bind(inner)}({source}, {write})")

    def blob(self, depth: int, kind: Primitive, source: str, compact: bool, write: str) -> None:
        if kind is String:
            text = self.name("b")
            self.line(depth, f"{text} = {source}.encode()")
            source = text
        self.length(depth, f"len({source})", compact, kind is not String, write)
        if kind is Records:
            self.line(depth, f"if len({source}): {write}({source})")
        else:
            self.line(depth, f"{write}({source})")

    def array(self, depth: int, element: Any, source: str, compact: bool, write: str) -> None:
        self.length(depth, f"len({source})", compact, True, write)
        if isinstance(element, Primitive) and element.format:
            pack = self.bind(struct.pack)
            if element.size == 16:
                self.line(depth, f"{write}(b''.join({source}))")
            else:
                self.line(depth, f"if {source}: {write}({pack}('>%d{element.format}' % len({source}), *{source}))")
            return
        one = self.name("i")
        self.line(depth, f"for {one} in {source}:")
        if isinstance(element, Primitive):
            self.blob(depth + 1, element, one, compact, write)
        else:
            self.nested(depth + 1, element, one, write)

    def tags(self, depth: int, cls: type[Struct], tagged: list[Field], source: str) -> None:
        """Generate code that encodes the tagged section: known fields that differ from their default, and kept unknown ones."""
        # Fast paths for nearly all messages: no tag is set (a zero byte), or the only tag has a fixed size.
        tests = [self.differs(declared, f"{source}.{declared.name}") for declared in tagged]
        only = tagged[0] if len(tagged) == 1 and _fixed_format(tagged[0]) else None
        word = "if"
        if only is not None:
            kind = only.type
            head = b"\x01" + write_uvarint(only.tag) + write_uvarint(kind.size)
            pack = self.bind(self.structure(kind.format).pack, "p")
            self.line(depth, f"if not {source}.unknown_tags and ({tests[0]}):")
            self.line(depth + 1, f"w({head!r} + {pack}({source}.{only.name}))")
            word = "elif"
        self.line(depth, f"{word} {' or '.join([f'{source}.unknown_tags', *(f'({test})' for test in tests)])}:")
        tags = self.name("t")
        inner = depth + 1
        self.line(inner, f"{tags} = dict({source}.unknown_tags or ())")
        for declared, test in zip(tagged, tests, strict=True):
            parts, write = self.name("x"), self.name("y")
            self.line(inner, f"if {test}:")
            self.line(inner + 1, f"{parts} = []")
            self.line(inner + 1, f"{write} = {parts}.append")
            self.value(inner + 1, cls, declared, f"{source}.{declared.name}", write)
            self.line(inner + 1, f"{tags}[{declared.tag}] = b''.join({parts})")
        self.line(inner, f"{self.bind(_write_tags)}({tags}, w)")
        self.line(depth, "else:")
        self.line(inner, "w(b'\\x00')")


def _write_tags(fields: dict[int, bytes], write: Callable[[bytes], None]) -> None:
    """Write the tagged section: count, then tag, size and data in ascending order of tags."""
    write(write_uvarint(len(fields)))
    for tag in sorted(fields):
        data = fields[tag]
        write(write_uvarint(tag))
        write(write_uvarint(len(data)))
        write(data)


__all__ = [
    "PeerError",
    "UnsupportedField",
    "decode",
    "decode_positions",
    "decoder",
    "encode",
    "encode_pieces",
    "encoder",
    "positions",
    "reader",
]
