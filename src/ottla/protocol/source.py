"""Source of generated functions: what decoders, encoders and the functions of plans have in common."""

import struct
from typing import Any

from ottla.protocol.schema import Array, Field, Primitive, String, Struct
from ottla.protocol.wire import UVARINT_BYTES, PeerError, read_uvarint, write_uvarint


class UnsupportedField(ValueError):
    """A message has a value for a field that its version lacks.

    needed  first version with the field, -1 without one
    """

    def __init__(self, message: str, needed: int = -1) -> None:
        super().__init__(message)
        self.needed = needed


class FunctionSource:
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

    def default(self, declared: Field) -> str:
        """Return the expression of the default of a field: a new list, or the one object that all messages share."""
        value = declared.default_value()
        return self.bind(value) if isinstance(value, Struct) else repr(value)

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

    def least(self, kind: Any, declared: Field | None = None) -> int:
        """Return the fewest bytes of a value of a type, of a field or an element of an array.

        declared  the field; None for an element, which is not nullable
        """
        compact = self.flexible if declared is None else self.compact(declared)
        if isinstance(kind, Array):
            return 1 if compact else 4
        if isinstance(kind, Primitive):
            if kind.format:
                return kind.size
            return 1 if compact else 2 if kind is String else 4
        if declared is not None and self.version in declared.nullable:
            return 1
        return sum(self.least(f.type, f) for f in kind.FIELDS if self.present(f)) + int(self.flexible)

    def compact(self, declared: Field) -> bool:
        return self.flexible and not declared.never_flexible


def fixed_format(declared: Field) -> str:
    return declared.type.format if isinstance(declared.type, Primitive) else ""
