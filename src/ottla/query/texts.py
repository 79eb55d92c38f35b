"""Keys and values as text: decoded by their schema where they have one, otherwise UTF-8."""

import time
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.schemas.framing import HEAD
from ottla.schemas.registry import SchemaNotFound, SchemaRegistry, UnsupportedSchema
from ottla.schemas.registry_values import RegistryValues

_MAGIC: Final = b"\0"


class Texts:
    """Conversion of the keys or values of one topic.

    topic     name of the topic
    registry  schemas; None: nothing has a schema
    """

    def __init__(self, topic: str, registry: SchemaRegistry | None) -> None:
        self._topic = topic
        self._registry = registry
        self._decode = None if registry is None else RegistryValues(registry, lambda: time.monotonic_ns() // 1_000_000)

    def check(self, values: list[bytes]) -> None:
        """Ask for the schema of the first value that has one, so that a registry that does not answer is an error and not a
        column of NULL. Raises RegistryError."""
        for value in values:
            if self._registry is not None and value[:1] == _MAGIC and len(value) > HEAD:
                try:
                    self._registry.by_id(int.from_bytes(value[1:HEAD], "big"))
                except (SchemaNotFound, UnsupportedSchema):
                    continue
                return

    def column(self, values: Any) -> Any:
        """Convert a binary array to a string array; a byte that is not UTF-8 becomes U+FFFD, as in Java."""
        if self._decode is not None and pc.any(pc.starts_with(values, _MAGIC)).as_py():
            return pa.array([self.text(value) for value in values.to_pylist()], pa.string())
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            return pa.array([_utf8(value) for value in values.to_pylist()], pa.string())

    def text(self, value: bytes | None) -> str | None:
        """Convert one value."""
        if value is None or self._decode is None or value[:1] != _MAGIC:
            return _utf8(value)
        decoded = self._decode(self._topic, value)
        return _utf8(value) if decoded is None else decoded.encode("utf-8", "replace").decode()


def _utf8(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")
