"""Immutable mapping of which a changed copy costs little.

The metadata of a cluster changes one topic at a time, and readers keep the image that they began with. A copy of a dict of
10,000 topics for each change takes 100 microseconds; here a copy shares the large mapping with the original, and has the
newest changes in a small mapping of its own:

    changed  {t7: new, t9: deleted}     at most about the square root of the size of the base, then merged into a new base
    base     {t1, t2, ... t10000}       shared by many versions, never modified

Iteration is in the order of insertion, as in a dict.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")
_DELETED: Final[Any] = object()
_FEWEST: Final = 16
"""Number of changes that are always kept apart from the base."""


class Layered(Mapping[K, V]):
    """Immutable mapping; `changed` returns a copy with changes."""

    __slots__ = ("_base", "_changes", "_size")

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        self._base: dict[K, V] = dict(entries or {})
        self._changes: dict[K, Any] = {}
        self._size = len(self._base)

    def with_changes(self, changes: Mapping[K, V | None]) -> "Layered[K, V]":
        """Return a copy in which these keys have these values; None removes a key."""
        merged = dict(self._changes)
        size = self._size
        for key, value in changes.items():
            is_present = key in self
            if value is None:
                if key in self._base:
                    merged[key] = _DELETED
                else:
                    merged.pop(key, None)
                size -= is_present
            else:
                if merged.get(key) is _DELETED:
                    del merged[key]  # a key that is inserted again comes last
                merged[key] = value
                size += not is_present
        copy: Layered[K, V] = Layered()
        copy._size = size
        if len(merged) > _FEWEST and len(merged) ** 2 > len(self._base):
            copy._base = dict(self._items(self._base, merged))
        else:
            copy._base, copy._changes = self._base, merged
        return copy

    @staticmethod
    def _items(base: dict[K, V], changes: dict[K, Any]) -> Iterator[tuple[K, V]]:
        for key, value in base.items():
            newest = changes.get(key, value)
            if newest is not _DELETED:
                yield key, newest
        for key, value in changes.items():
            if value is not _DELETED and key not in base:
                yield key, value

    def __getitem__(self, key: K) -> V:
        if self._changes:
            newest = self._changes.get(key)
            if newest is not None:
                if newest is _DELETED:
                    raise KeyError(key)
                value: V = newest
                return value
        return self._base[key]

    def __contains__(self, key: object) -> bool:
        newest = self._changes.get(key)  # type: ignore[arg-type]
        return key in self._base if newest is None else newest is not _DELETED

    def __iter__(self) -> Iterator[K]:
        if not self._changes:
            return iter(self._base)
        return (key for key, _ in self._items(self._base, self._changes))

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"Layered({dict(self)!r})"
