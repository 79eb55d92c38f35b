"""Compiler of message declarations to decoders and encoders: the only code that converts messages to bytes and back.

Strategy. For each (class, version) a function is made on first use. There are three kinds:

    decoder(cls, version)     (data: bytes, position) -> (object, position after it)
    positions(cls, version)   the same, but records are a (start, end) pair into `data` in place of a copy
    encoder(cls, version)     (object, write): calls write(bytes) piece by piece; a records field is passed unchanged, so
                              that a region of a file can be sent to the socket without being read
    (encode and decode below apply them to whole messages)

Encoders are generated as the source of a straight-line Python function, with nested structs inlined; adjacent fixed-size
fields become one precompiled struct call. Decoders are plans that a compiled loop runs (`plan.py`), or where nothing is
compiled, generated as well (`decoder_source.py`).

Invalid input. Decoders rely on the errors of Python or librt for truncation, check for negative lengths, and check at the
end that the position is not past the data; all of these raise PeerError. The count of an array is compared with the bytes that
are left before its elements are decoded. Encoders reject a value in a version that lacks its field unless the field is
ignorable, as in Kafka.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, TypeVar

from ottla.protocol import plan
from ottla.protocol.planning import Planner
from ottla.protocol.schema import Array, Field, Message, Primitive, Records, String, Struct
from ottla.protocol.source import FunctionSource, UnsupportedField, fixed_format
from ottla.protocol.wire import PeerError, write_uvarint

S = TypeVar("S", bound=Struct)
Decoder = Callable[[bytes, int], tuple[Any, int]]
Encoder = Callable[[Any, Callable[[Any], None]], None]
HeadEncoder = Callable[[Any, Callable[[Any], None], int], None]


_MALFORMED: Final = (struct.error, IndexError, OverflowError, MemoryError)
_REMEMBERED: Final = 10_000


def decode(cls: type[S], version: int, data: bytes, position: int = 0) -> tuple[S, int]:
    """Decode the message of `cls` at `position`; return it and the position after it. Raises PeerError."""
    try:
        value, end = (_DECODERS.get((cls, version)) or decoder(cls, version))(data, position)
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
    last = cls.FIELDS[-1].type
    remembers = version not in getattr(cls, "FLEXIBLE", ()) and isinstance(last, Primitive) and bool(last.format)
    if remembers and len(cls.FIELDS) > 1 and all(f.type is String and version in f.versions for f in cls.FIELDS[:-1]):
        return _remembering(cls, version, last)
    decoding = decoder(cls, version)

    def read(data: bytes, position: int) -> S:
        try:
            value, end = decoding(data, position)
        except _MALFORMED as cause:
            raise PeerError(f"malformed {cls.__name__} version {version}: {cause}") from None
        if end > len(data):
            raise PeerError(f"{cls.__name__} version {version} is cut off")
        message: S = value
        return message

    return read


def _remembering(cls: type[S], version: int, last: Primitive) -> Callable[[bytes, int], S]:
    """Return a reader that caches the strings of messages by their bytes. It is generated, as it takes a third less time so."""
    names = [field.name for field in cls.FIELDS]
    memory: dict[bytes, list[str]] = {}

    def unknown(data: bytes, position: int, head: bytes) -> S:
        message, end = decode(cls, version, data, position)
        if end == len(data):
            if len(memory) >= _REMEMBERED:
                memory.clear()
            memory[head] = [getattr(message, name) for name in names[:-1]]
        return message

    generating = FunctionSource(False, version)
    generating.scope |= {"memory": memory, "unknown": unknown, "cls": cls, "new": cls.__new__}
    generating.scope["unpack"] = struct.Struct(f">{last.format}").unpack_from
    generating.line(1, f"head = data[p:-{last.size}]")
    generating.line(1, "texts = memory.get(head)")
    generating.line(1, "if texts is None: return unknown(data, p, head)")
    generating.line(1, "o = new(cls)")
    generating.line(1, f"{', '.join(f'o.{name}' for name in names[:-1])}, = texts")
    generating.line(1, f"o.{names[-1]}, = unpack(data, p + len(head))")
    generating.line(1, "o.unknown_tags = None")
    generating.line(1, "return o")
    made: Callable[[bytes, int], S] = generating.compiled(f"read_known_{cls.__name__}", "data, p")
    return made


def decode_positions(cls: type[S], version: int, data: bytes, position: int = 0) -> tuple[S, int]:
    """Decode as `decode` does, with (start, end) for records, which are not copied. Raises PeerError."""
    try:
        value, end = (_POSITIONS.get((cls, version)) or positions(cls, version))(data, position)
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
    return joined(pieces)


def joined(pieces: list[Any]) -> list[Any]:
    """Join runs of bytes among the pieces of a message; file regions are kept."""
    buffers: list[Any] = []
    run: list[bytes] = []
    for piece in pieces:
        if type(piece) is bytes:
            run.append(piece)
            continue
        if run:
            buffers.append(b"".join(run))
            run = []
        buffers.append(piece)
    if run:
        buffers.append(b"".join(run))
    return buffers


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


def decoder(cls: type[Struct], version: int) -> Decoder:
    """Return the decoder of `cls` in `version`, created on first use."""
    made = _DECODERS.get((cls, version))
    if made is None:
        made = _DECODERS[cls, version] = _made(cls, version, positions=False)
    return made


def positions(cls: type[Struct], version: int) -> Decoder:
    """Return the decoder of `cls` in `version` that does not copy records, created on first use."""
    made = _POSITIONS.get((cls, version))
    if made is None:
        made = _POSITIONS[cls, version] = _made(cls, version, positions=True)
    return made


def _made(cls: type[Struct], version: int, *, positions: bool) -> Decoder:
    flexible = _checked(cls, version)
    if plan.COMPILED:
        return Planner(flexible, version, positions=positions).plan(cls).read
    from ottla.protocol.decoder_source import generated

    return generated(cls, flexible, version, positions=positions)


def encoder(cls: type[Struct], version: int) -> Encoder:
    """Return the encoder of `cls` in `version`, created on first use."""
    made = _ENCODERS.get((cls, version))
    if made is None:
        made = _ENCODERS[cls, version] = _EncoderSource(_checked(cls, version), version).function(cls)
    return made


def encoders_around(cls: type[Struct], name: str, version: int, flexible: bool) -> tuple[HeadEncoder, Encoder, Encoder]:
    """Return three encoders of a struct with an array: of what is before its elements, with their count; of a list of
    elements; and of what is after them.
    """
    return (
        _EncoderSource(flexible, version).head(cls, name),
        _EncoderSource(flexible, version).elements(cls, name),
        _EncoderSource(flexible, version).tail(cls, name),
    )


def _checked(cls: type[Struct], version: int) -> bool:
    """Return True if `version` of `cls` is flexible. Raises UnsupportedField for an undeclared version."""
    if not issubclass(cls, Message):
        return False
    if version not in cls.VERSIONS:
        raise UnsupportedField(f"{cls.__name__} has no version {version}, only {cls.VERSIONS}")
    return version in cls.FLEXIBLE


class _EncoderSource(FunctionSource):
    """Generates encoders. The generated code passes bytes to the local `w`."""

    def function(self, cls: type[Struct]) -> Encoder:
        self.struct(1, cls, "o")
        if not self.lines:
            self.line(1, "pass")
        made: Encoder = self.compiled(f"write_{cls.__name__}", "o, w")
        return made

    def head(self, cls: type[Struct], before: str) -> HeadEncoder:
        """Generate the encoder of the fields before the array `before`, and of a count of its elements."""
        fields, array, _ = self.around(cls, before)
        self.fields(1, cls, fields, "o")
        self.length(1, "count", self.compact(array), True, "w")
        made: HeadEncoder = self.compiled(f"write_{cls.__name__}_before_{before}", "o, w, count")
        return made

    def elements(self, cls: type[Struct], name: str) -> Encoder:
        """Generate the encoder of a list of elements of an array."""
        _, array, _ = self.around(cls, name)
        self.elements_of(1, array.type.element, "o", "w")
        made: Encoder = self.compiled(f"write_{name}_of_{cls.__name__}", "o, w")
        return made

    def tail(self, cls: type[Struct], after: str) -> Encoder:
        """Generate the encoder of what follows the array `after`."""
        _, _, fields = self.around(cls, after)
        self.refusals(1, cls, "o")
        self.fields(1, cls, fields, "o")
        self.end(1, cls, "o")
        made: Encoder = self.compiled(f"write_{cls.__name__}_after_{after}", "o, w")
        return made

    def around(self, cls: type[Struct], name: str) -> tuple[list[Field], Field, list[Field]]:
        """Return the fields before a field, the field, and those after it."""
        present = [f for f in cls.FIELDS if self.present(f)]
        at = [f.name for f in present].index(name)
        return present[:at], present[at], present[at + 1 :]

    def struct(self, depth: int, cls: type[Struct], source: str) -> None:
        self.refusals(depth, cls, source)
        self.fields(depth, cls, [f for f in cls.FIELDS if self.present(f)], source)
        self.end(depth, cls, source)

    def refusals(self, depth: int, cls: type[Struct], source: str) -> None:
        """Generate the checks of the fields that the version lacks."""
        tagged = self.tagged(cls.FIELDS)
        for declared in cls.FIELDS:
            if not self.present(declared) and declared not in tagged and not declared.ignorable:
                self.refuse(depth, cls, declared, f"{source}.{declared.name}")

    def fields(self, depth: int, cls: type[Struct], present: list[Field], source: str) -> None:
        index = 0
        while index < len(present):
            run = [present[index]]
            while fixed_format(run[-1]) and index + len(run) < len(present) and fixed_format(present[index + len(run)]):
                run.append(present[index + len(run)])
            if fixed_format(run[0]):
                self.fixed(depth, [f"{source}.{f.name}" for f in run], "".join(fixed_format(f) for f in run))
            else:
                self.value(depth, cls, run[0], f"{source}.{run[0].name}", "w")
            index += len(run)

    def end(self, depth: int, cls: type[Struct], source: str) -> None:
        """Generate the tagged section, or the check that there are no tags."""
        if self.flexible:
            self.tags(depth, cls, self.tagged(cls.FIELDS), source)
        else:
            message = f"unknown tagged fields of {cls.__name__} cannot travel in version {self.version}"
            self.line(depth, f"if {source}.unknown_tags: raise UnsupportedField({message!r})")

    def refuse(self, depth: int, cls: type[Struct], declared: Field, source: str) -> None:
        test = self.differs(declared, source)
        message = f"{cls.__name__}.{declared.name} cannot travel in version {self.version}"
        needed = declared.versions.first if declared.versions.first > self.version else -1
        self.line(depth, f"if {test}: raise UnsupportedField({message!r}, {needed})")

    def differs(self, declared: Field, source: str) -> str:
        """Return an expression that is true if the value of `source` is not the default."""
        default = declared.default_value()
        if isinstance(default, list):
            nullable = declared.nullable.first <= declared.nullable.last
            return f"{source} is None or {source}" if nullable else source
        if default is None:
            return f"{source} is not None"
        name = self.bind(default)
        if isinstance(default, Struct):  # by its fields, as a comparison of structs looks each of them up by name
            tests = [f"({self.differs(inner, f'{source}.{inner.name}')})" for inner in default.FIELDS]
            tests.append(f"{source}.unknown_tags")
            return f"{source} is not {name} and ({source} is None or {' or '.join(tests)})"
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
        self.elements_of(depth, element, source, write)

    def elements_of(self, depth: int, element: Any, source: str, write: str) -> None:
        """Generate code that encodes the elements of an array."""
        compact = self.flexible
        if isinstance(element, Primitive) and element.format:
            pack = self.bind(struct.pack)
            if element.size == 16:
                self.line(depth, f"{write}(b''.join({source}))")
            else:
                self.line(depth, f"if {source}: {write}({pack}('>%d{element.format}' % len({source}), *{source}))")
            return
        one = self.name("i")
        if not isinstance(element, Primitive) and self.is_fixed(element):
            # Rows of numbers, nearly always without tagged fields (the zero byte of "x"): written by one call.
            pack = self.bind(self.structure("".join(fixed_format(f) for f in element.FIELDS) + "x").pack, "p")
            values = ", ".join(f"{one}.{f.name}" for f in element.FIELDS)
            self.line(depth, f"if not any([{one}.unknown_tags for {one} in {source}]):")
            self.line(depth + 1, f"{write}(b''.join([{pack}({values}) for {one} in {source}]))")
            self.line(depth, "else:")
            depth += 1
        self.line(depth, f"for {one} in {source}:")
        if isinstance(element, Primitive):
            self.blob(depth + 1, element, one, compact, write)
        else:
            self.nested(depth + 1, element, one, write)

    def is_fixed(self, cls: type[Struct]) -> bool:
        """Return True if objects of `cls` have values of fixed size only, and perhaps unknown tagged fields."""
        return self.flexible and all(self.present(f) and fixed_format(f) for f in cls.FIELDS) and len(cls.FIELDS) > 0

    def tags(self, depth: int, cls: type[Struct], tagged: list[Field], source: str) -> None:
        """Generate code that encodes the tagged section: known fields that differ from their default, and kept unknown ones."""
        # Fast paths for nearly all messages: no tag is set (a zero byte), or the only tag has a fixed size.
        tests = [self.differs(declared, f"{source}.{declared.name}") for declared in tagged]
        only = tagged[0] if len(tagged) == 1 and fixed_format(tagged[0]) else None
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
    "encoders_around",
    "joined",
    "positions",
    "reader",
]
