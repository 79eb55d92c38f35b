"""Interface of serializers and deserializers: functions of a value and its context.

It is that of confluent-kafka, so serializers of both libraries are interchangeable.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

KEY: Final = "key"
VALUE: Final = "value"


class SerializationContext(NamedTuple):
    """Topic and field of a value.

    topic    name of the topic
    field    KEY or VALUE
    headers  headers of the record, None without any
    """

    topic: str
    field: str
    headers: Iterable[tuple[str, bytes | None]] | None = None


Serializer = Callable[[Any, SerializationContext], bytes | str | None]
Deserializer = Callable[[bytes | None, SerializationContext], Any]
