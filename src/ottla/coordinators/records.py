"""Records of internal topics, and the states that are built by replaying them."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from ottla.protocol.codec import encode
from ottla.protocol.schema import Message

_INT16: Final = tuple(number.to_bytes(2, "big") for number in range(128))
"""Encoded types and versions of records, by their number."""


class CoordinatorRecord(NamedTuple):
    """Record of an internal topic: `value` is None for a tombstone; `version` is the schema version of the value."""

    key: Message
    value: Message | None
    version: int = 0

    def encoded(self) -> tuple[bytes, bytes | None]:
        """Encode key and value as in the log: the key's type, or the value's version, as int16 before the body."""
        key = encode(self.key, 0, _INT16[self.key.API])
        if self.value is None:
            return key, None
        return key, encode(self.value, self.version, _INT16[self.version])


class RecordBlock(Sequence[CoordinatorRecord]):
    """Records of one operation that are encoded and replayed together, which is faster than one after the other."""

    __slots__ = ()

    @abstractmethod
    def encoded(self) -> list[tuple[bytes, bytes | None]]:
        """Return keys and values as in the log."""

    @abstractmethod
    def replay(self, state: Any) -> None:
        """Apply the records to the state of the operation that made them."""


class CoordinatorState(Protocol):
    """State of one partition, built by replaying its records."""

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply a record: the only place where logged state changes."""

    def replay_pending(self, record: CoordinatorRecord, producer_id: int) -> None:
        """Apply a record of an open transaction."""

    def replay_end(self, producer_id: int, *, commit: bool) -> None:
        """Apply the marker of a producer's transaction."""
