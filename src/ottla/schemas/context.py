"""Interface of serializers and deserializers: functions of a value and of where it is written or was read.

The same as confluent-kafka's: its serializers can be used here, and these there.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

KEY: Final = "key"
VALUE: Final = "value"


class SerializationContext(NamedTuple):
    """Place of a value that is written or was read.

    topic    name of the topic
    field    KEY or VALUE
    headers  of the record, None for none
    """

    topic: str
    field: str
    headers: Iterable[tuple[str, bytes | None]] | None = None


Serializer = Callable[[Any, SerializationContext], bytes | str | None]
Deserializer = Callable[[bytes | None, SerializationContext], Any]
