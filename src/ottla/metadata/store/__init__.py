"""The metadata store: keys, values and revisions, embedded (SQLite) or shared by a cluster.

A change is asynchronous: a store that has to flush it to disk answers when that is done and blocks no other request until then.
A store without a flush answers at once. Changes take effect in the order in which they were made.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from ottla.protocol.answer import Answer

_NOTHING: Final[Mapping[str, "Entry | None"]] = MappingProxyType({})


class Entry(NamedTuple):
    """A key's value and the store's revision at which it was last written."""

    key: str
    value: bytes
    revision: int


class ChangeOutcome(NamedTuple):
    """Outcome of a change.

    revision   revision of the change; 0 when it was not made
    conflicts  the compared keys that differ, as they are in the store (None: absent); empty unless a compare failed
    error      reason why the store could not write, in one line; None when it could
    """

    revision: int
    conflicts: Mapping[str, Entry | None] = _NOTHING
    error: str | None = None


class MetadataStore(Protocol):
    """Keys sorted by name; every change gets the next revision. A change that was answered survives a crash."""

    def load(self) -> tuple[Sequence[Entry], int]:
        """Return all entries by key, and the revision of the newest change, 0 for an empty store.

        Before the first change only.
        """

    def change(
        self,
        *,
        expect: Mapping[str, int] | None = None,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
    ) -> Answer[ChangeOutcome]:
        """Apply all or nothing.

        expect  key -> the revision at which it must have been written last, 0 for "must not exist"
        """

    def close(self) -> None:
        """Finish the changes that were begun, then close."""
