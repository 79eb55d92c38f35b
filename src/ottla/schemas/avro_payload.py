"""Check of Avro payloads that fastavro must not read.

fastavro reads in C, without bounds. With a recursive schema the nesting is as deep as a payload is long, and some thousand
levels end the process: 5 KB suffice. Items of an array that take no bytes (null, records of nulls) are as many as a payload
says: 10 bytes have taken 2 GB. Payloads of such schemas are walked in Python first; those of all others have as many values as
bytes.
"""

from collections.abc import Callable
from typing import Any, Final

from ottla.schemas.framing import BadRecord

MOST_LEVELS: Final = 200
"""Records within each other."""
MOST_EMPTY_ITEMS: Final = 100_000
"""Items of all arrays of a payload that take no bytes."""
_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NUMBERS: Final = frozenset({"int", "long", "enum"})
_TEXTS: Final = frozenset({"bytes", "string"})


def payload_check(schema: Any) -> Callable[[bytes, int], None] | None:
    """Return a function that checks the payload at an index of a frame, and raises BadRecord; None if no payload of this schema
    needs a check.

    schema  with full names, see `avro.whole`
    """
    types = _Types(schema)
    return _Walk(types, schema).check if types.is_recursive or types.has_empty_items else None


class _Types:
    """Named types of a schema, and whether its payloads can be harmful."""

    def __init__(self, schema: Any) -> None:
        self.named: dict[str, Any] = {}
        self.is_recursive = self.has_empty_items = False
        self._add(schema, ())

    def _add(self, schema: Any, around: tuple[str, ...]) -> None:
        if isinstance(schema, list):
            for branch in schema:
                self._add(branch, around)
        elif isinstance(schema, str):
            self.is_recursive = self.is_recursive or schema in around
        elif isinstance(schema["type"], str) and "name" in schema:
            self.named[schema["name"]] = schema
            for declared in schema.get("fields", ()):
                self._add(declared["type"], (*around, schema["name"]))
        elif schema["type"] in ("array", "map"):
            items = schema["items" if schema["type"] == "array" else "values"]
            self._add(items, around)
            if schema["type"] == "array" and self.is_empty(items, ()):
                self.has_empty_items = True
        elif not isinstance(schema["type"], str):
            self._add(schema["type"], around)

    def resolve(self, schema: Any) -> Any:
        """Return a type as a list (union), a name of a primitive, or a definition."""
        while True:
            if isinstance(schema, str):
                if schema not in self.named:
                    return schema
                return self.named[schema]
            if isinstance(schema, list) or schema["type"] in ("array", "map") or "name" in schema:
                return schema
            schema = schema["type"]

    def is_empty(self, schema: Any, around: tuple[str, ...]) -> bool:
        """Return whether values of a type take no bytes."""
        kind = self.resolve(schema)
        if isinstance(kind, str):
            return _SIZES.get(kind) == 0
        if isinstance(kind, list) or kind["type"] in ("array", "map", "enum") or kind["name"] in around:
            return False
        if kind["type"] == "fixed":
            return bool(kind["size"] == 0)
        return all(self.is_empty(declared["type"], (*around, kind["name"])) for declared in kind["fields"])


class _Walk:
    """Walk through one payload; an object is used for one payload at a time."""

    def __init__(self, types: _Types, schema: Any) -> None:
        self._types = types
        self._schema = schema
        self._data = b""
        self._at = 0
        self._levels = 0
        self._empty_items = 0

    def check(self, data: bytes, at: int) -> None:
        """Raise BadRecord for a payload that is nested too deeply, has too many empty items, or is malformed."""
        self._data, self._at, self._levels, self._empty_items = data, at, 0, 0
        try:
            self._skip(self._schema)
        except (LookupError, TypeError):
            raise BadRecord("malformed Avro payload: it is cut off, or of another schema") from None

    def _skip(self, schema: Any) -> None:
        kind = self._types.resolve(schema)
        if isinstance(kind, list):
            self._skip(kind[self._number(len(kind))])
        elif isinstance(kind, str):
            if kind in _SIZES:
                self._advance(_SIZES[kind])
            elif kind in _NUMBERS:
                self._number()
            else:
                self._advance(self._number(len(self._data)))
        elif kind["type"] == "fixed":
            self._advance(kind["size"])
        elif kind["type"] == "enum":
            self._number()
        elif kind["type"] == "array":
            self._skip_blocks(kind["items"], has_keys=False)
        elif kind["type"] == "map":
            self._skip_blocks(kind["values"], has_keys=True)
        else:
            self._levels += 1
            if self._levels > MOST_LEVELS:
                raise BadRecord(f"Avro payload with more than {MOST_LEVELS} records within each other")
            for declared in kind["fields"]:
                self._skip(declared["type"])
            self._levels -= 1

    def _skip_blocks(self, items: Any, *, has_keys: bool) -> None:
        is_empty = not has_keys and self._types.is_empty(items, ())
        while count := self._number():
            if count < 0:
                count = -count
                self._number()  # the size of the block in bytes
            if is_empty:
                self._empty_items += count
                if self._empty_items > MOST_EMPTY_ITEMS:
                    raise BadRecord(f"Avro payload with more than {MOST_EMPTY_ITEMS} array items that take no bytes")
                continue
            for _ in range(min(count, len(self._data) + 1)):  # each item takes a byte at least
                if has_keys:
                    self._advance(self._number(len(self._data)))
                self._skip(items)

    def _number(self, bound: int | None = None) -> int:
        """Read an int or long; below `bound`, and not negative, if it is given. Raises IndexError."""
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift > 63:
                raise IndexError
        value = (value >> 1) ^ -(value & 1)
        if bound is not None and not 0 <= value < bound:
            raise IndexError
        return value

    def _advance(self, size: int) -> None:
        self._at += size
        if self._at > len(self._data):
            raise IndexError
