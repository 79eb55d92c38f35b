"""Client quotas (KIP-13, KIP-546): whom they are for."""

from collections.abc import Iterable

Entity = tuple[tuple[str, str | None], ...]
"""Whom a quota is for: (type, name) by type, the name None for whoever has no quota of its own."""


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """The parts in the order in which entities are compared."""
    return tuple(sorted(parts, key=lambda part: part[0]))
