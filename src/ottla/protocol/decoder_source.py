"""Generated decoders: they take the place of the loop of `plan.py` where nothing is compiled.

Two ways to decode remain because each is needed: compiled, the loop is two to three times as fast as these decoders, and
interpreted, these are twice as fast as the loop (bench/codec_speed.py, with PYTHONPATH=src for the second). Tests compare
them over messages of all versions.

For each (class, version) the source of a straight-line Python function is generated, with nested structs inlined; adjacent
fixed-size fields become one precompiled struct call.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from ottla.protocol.schema import (
    LEAST_OF_MANY,
    MOST_ELEMENTS,
    MOST_OF_MANY,
    MOST_TAGS,
    UNLIMITED,
    Array,
    Bool,
    Field,
    Primitive,
    Records,
    String,
    Struct,
)
from ottla.protocol.source import FunctionSource, fixed_format
from ottla.protocol.wire import write_uvarint

Decoder = Callable[[bytes, int], tuple[Any, int]]
_NEGATIVE: Final = "a length or count is negative where null is not allowed"
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


def generated(cls: type[Struct], flexible: bool, version: int, *, positions: bool) -> Decoder:
    """Return the decoder of a struct; with `positions` records are (start, end) in place of bytes."""
    made: list[Decoder] = []

    def lenient(data: bytes, position: int) -> tuple[Any, int]:
        """Decode a message with invalid UTF-8, which becomes U+FFFD as in Java."""
        if not made:
            made.append(DecoderSource(flexible, version, positions=positions, lenient=True).function(cls))
        return made[0](data, position)

    return DecoderSource(flexible, version, positions=positions).function(cls, lenient)


class DecoderSource(FunctionSource):
    """Generates decoders. The generated code keeps its position in `data` in the local `p`, and in `left` the number
    of elements that arrays and tagged sections may still have.
    """

    def __init__(self, flexible: bool, version: int, *, positions: bool, lenient: bool = False) -> None:
        super().__init__(flexible, version)
        self.positions = positions
        self.decoding = "decode('utf-8', 'replace')" if lenient else "decode()"

    def function(self, cls: type[Struct], lenient: Decoder | None = None) -> Decoder:
        """Generate the decoder of `cls`; `lenient` takes its place for messages with invalid UTF-8."""
        self.line(1, f"left = {getattr(cls, 'ELEMENTS', UNLIMITED)}")
        if lenient is None:
            self.line(1, f"return {self.struct(1, cls)}, p")
        else:
            self.line(1, "begin = p")
            self.line(1, "try:")
            self.line(2, f"return {self.struct(2, cls)}, p")
            self.line(1, "except UnicodeDecodeError:")
            self.line(2, f"return {self.bind(lenient)}(data, begin)")
        made: Decoder = self.compiled(f"read_{cls.__name__}", "data, p")
        return made

    def struct(self, depth: int, cls: type[Struct]) -> str:
        """Generate code that decodes a struct; return the expression of its value."""
        made = self.name("o")
        self.line(depth, f"{made} = {self.bind(cls.__new__)}({self.bind(cls)})")
        target: Callable[[Field], str] = lambda f: f"{made}.{f.name}"  # noqa: E731
        present = [f for f in cls.FIELDS if self.present(f)]
        index = 0
        while index < len(present):
            run = [present[index]]
            while fixed_format(run[-1]) and index + len(run) < len(present) and fixed_format(present[index + len(run)]):
                run.append(present[index + len(run)])
            index += len(run)
            if not fixed_format(run[0]):
                self.value(depth, run[0], target(run[0]))
                continue
            targets, formats = [target(f) for f in run], "".join(fixed_format(f) for f in run)
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
                self.line(depth, f"{target(declared)} = {self.default(declared)}")
        if self.flexible:
            elsewhere = {f.tag for f in cls.FIELDS if f.tag >= 0} - {f.tag for f in tagged}
            self.tags(depth, tagged, sorted(elsewhere), target, made)
        else:
            self.line(depth, f"{made}.unknown_tags = None")
        return made

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
            self.array(depth, declared, target, n)
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
        elif kind is Records and self.positions:
            self.line(depth + 1, f"{target} = (p, p + {n})")
        else:
            self.line(depth + 1, f"{target} = data[p:p + {n}]")
        self.line(depth + 1, f"p += {n}")

    def array(self, depth: int, declared: Field, target: str, n: str = "") -> None:
        element, nullable, compact = declared.type.element, self.version in declared.nullable, self.compact(declared)
        n = n or self.length(depth, compact, Array)
        self.line(depth, f"if {n} < 0:")
        if nullable:
            self.line(depth + 1, f"{target} = None")
        else:
            self.line(depth + 1, f"raise PeerError({_NEGATIVE!r})")
        self.line(depth, "else:")
        inner = depth + 1
        text = f"an array of more elements than the {MOST_OF_MANY} allowed"
        self.line(inner, f"if {n} > {MOST_OF_MANY}: raise PeerError({text!r})")
        if not declared.many:
            self.take(inner, n)
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
        least = self.least(element)
        self.line(inner, f"if {n} * {least} > len(data) - p: raise PeerError('an array runs past the frame')")
        if declared.many and not isinstance(element, Primitive):
            most = f"{MOST_ELEMENTS} + (len(data) - p) // {LEAST_OF_MANY}"
            text = "an array of elements that are nearly all empty"
            self.line(inner, f"if {n} > {MOST_ELEMENTS} and {n} > {most}: raise PeerError({text!r})")
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

    def take(self, depth: int, n: str) -> None:
        """Generate code that counts `n` elements."""
        self.line(depth, f"left -= {n}")
        self.line(depth, "if left < 0: raise PeerError('the arrays of the message have too many elements')")

    def tags(
        self, depth: int, tagged: list[Field], elsewhere: list[int], target: Callable[[Field], str], made: str
    ) -> None:
        """Generate code that decodes the tagged section: known tags into their fields, unknown ones are kept (KIP-482).

        Tags that exist only in other versions, `elsewhere`, are rejected, as in Kafka.
        """
        self.line(depth, f"{made}.unknown_tags = None")
        n = self.name("n")
        only = tagged[0] if len(tagged) == 1 and fixed_format(tagged[0]) else None
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
        text = f"a tagged section of more fields than the {MOST_TAGS} allowed"
        self.line(inner, f"if {n} > {MOST_TAGS}: raise PeerError({text!r})")
        self.take(inner, n)
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
        keep = [
            f"if {made}.unknown_tags is None: {made}.unknown_tags = {{}}",
            f"{made}.unknown_tags[{tag}] = data[p:{end}]",
        ]
        if word == "elif":
            self.line(inner + 1, "else:")
            for text in keep:
                self.line(inner + 2, text)
        else:
            for text in keep:
                self.line(inner + 1, text)
        self.line(inner + 1, f"p = {end}")
