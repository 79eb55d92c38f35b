"""Where metadata lives: a small store of keys, values and revisions, embedded (SQLite) or shared by a cluster."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class Entry(NamedTuple):
    """A key's value and the store's revision at which it was last written."""

    key: str
    value: bytes
    revision: int


class MetadataStore(Protocol):
    """Keys sorted by name; every change gets the next revision. A change that was answered survives a crash."""

    @property
    def revision(self) -> int:
        """The revision of the newest change, 0 for an empty store."""

    def get(self, key: str) -> Entry | None: ...

    def range(self, prefix: str) -> Sequence[Entry]:
        """Every entry whose key begins with `prefix`, by key."""

    def change(
        self,
        *,
        expect: Mapping[str, int] | None = None,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
    ) -> int | None:
        """Apply all or nothing, and return the new revision.

        expect  key -> the revision it must have been last written at, 0 for "must not exist"; None is returned when one differs
        """

    def close(self) -> None: ...
