"""Values in the wire format of a schema registry as JSON: those with an Avro or JSON schema."""

import json
from typing import Final

from ottla.environment import Clock
from ottla.schemas.context import VALUE, SerializationContext
from ottla.schemas.registry import RegistryError, SchemaNotFound, SchemaRegistry, UnsupportedSchema
from ottla.schemas.serializers import AvroDeserializer

_HEAD: Final = 5
_FAILED_MS: Final = 60_000


class RegistryValues:
    """Decoder of values; it asks the registry in the calling thread."""

    def __init__(self, location: str, clock: Clock) -> None:
        self._registry = SchemaRegistry(location=location, timeout_ms=2_000, retries=0)
        self._avro = AvroDeserializer(self._registry)
        self._clock = clock
        self._failed: dict[int, int] = {}

    def __call__(self, topic: str, data: bytes) -> str | None:
        """Return a key or value as JSON, None if it is not of this format or its schema is not available."""
        if len(data) <= _HEAD or data[0] != 0:
            return None
        number = int.from_bytes(data[1:_HEAD], "big")
        if self._clock.now_ms() < self._failed.get(number, 0):
            return None  # bytes that only look like this format must not ask the registry for each record
        try:
            kind = self._registry.by_id(number).kind
            if kind == "AVRO":
                return json.dumps(self._avro(data, SerializationContext(topic, VALUE)), default=str, ensure_ascii=False)
            return data[_HEAD:].decode() if kind == "JSON" else None
        except (SchemaNotFound, RegistryError, UnsupportedSchema, ImportError, ValueError):
            self._failed[number] = self._clock.now_ms() + _FAILED_MS
            return None
