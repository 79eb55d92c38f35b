"""The metadata store: keys, values and revisions, embedded (SQLite) or shared by a cluster.

A change is asynchronous: a store that flushes it to disk answers when the flush is done, and blocks no other request meanwhile.
A store without a flush answers at once. Changes take effect in the order in which they were made.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from ottla.protocol.answer import Answer

_NOTHING: Final[Mapping[str, "Entry | None"]] = MappingProxyType({})


class Entry(NamedTuple):
    """Value of a key, and the revision of the store at which it was last written."""

    key: str
    value: bytes
    revision: int


class ChangeOutcome(NamedTuple):
    """Outcome of a change.

    revision   revision of the change; 0 if it was not made
    conflicts  the stored entries of compared keys that differ (None: absent); empty unless the comparison failed
    error      reason of a failed write, in one line; None without such an error
    """

    revision: int
    conflicts: Mapping[str, Entry | None] = _NOTHING
    error: str | None = None


class MetadataStore(Protocol):
    """Store of sorted keys. Every change gets the next revision; an answered change survives a crash."""

    def load(self) -> tuple[Sequence[Entry], int]:
        """Return all entries by key, and the revision of the newest change, 0 for an empty store.

        This may be called only before the first change.
        """

    def change(
        self,
        *,
        expect: Mapping[str, int] | None = None,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
    ) -> Answer[ChangeOutcome]:
        """Put and delete keys, all or none, if `expect` holds.

        expect  key -> the revision at which it must have been written last, 0 if it must not exist
        """

    def close(self) -> None:
        """Complete the changes that have begun, then close the store."""
